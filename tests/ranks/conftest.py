"""A meeting place of a test's own, and ranks that are threads of one process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.ranks.rank import Exchange, Rank


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_npudump.ranks.rank._COMMON", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "MS_SCHED_HOST", "MS_SCHED_PORT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def ranks() -> Callable[[int], list[Exchange]]:
    """Joins ranks, all of them in this process."""
    return lambda size: [Exchange(Rank(number, size, number, size)) for number in range(size)]


@pytest.fixture
def together() -> Callable[..., list[Any]]:
    """Calls functions at once, and returns what they return."""
    return _together


def _together(*functions: Callable[[], object]) -> list[object]:
    results: dict[int, object] = {}

    def run(number: int) -> None:
        results[number] = functions[number]()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [results[number] for number in sorted(results)]
