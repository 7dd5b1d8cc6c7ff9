from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_npudump.cli import main

NAME = "OPENBLAS_NUM_THREADS"


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """What the variable is while the commands ls and doctor run."""
    found: list[str | None] = []

    def run(_: object) -> int:
        found.append(os.environ.get(NAME))
        return 0

    for work in ("ls.run", "doctor.run"):
        monkeypatch.setattr(f"pytest_npudump.cli.{work}", run)
    return found


def test_commands_that_read_have_numpy_start_no_threads_of_blas(
    seen: list[str | None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(NAME, raising=False)
    assert main(["ls", str(tmp_path)]) == 0
    assert seen == ["1"]
    assert NAME not in os.environ


def test_what_the_user_has_set_stays(
    seen: list[str | None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(NAME, "3")
    assert main(["ls", str(tmp_path)]) == 0
    assert (seen, os.environ[NAME]) == (["3"], "3")


def test_programs_that_other_commands_start_do_not_inherit_it(
    seen: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(NAME, raising=False)
    assert main(["doctor"]) == 0
    assert seen == [None]


def test_the_variable_is_put_back_after_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(NAME, raising=False)
    assert main(["ls", "--stats", str(tmp_path / "missing")]) == 2
    assert NAME not in os.environ
