"""What ranks tell each other, through processes that live, end and never come."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.errors import ConfigError
from pytest_npudump.ranks import agreement
from pytest_npudump.ranks.agreement import agree, stand_aside
from pytest_npudump.ranks.exchange import Exchange
from pytest_npudump.ranks.rank import Rank
from pytest_npudump.ranks.summary import compare_notes, printed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def ranks(size: int) -> list[Exchange]:
    """Join ``size`` ranks, all of them in this process."""
    return [Exchange(Rank(number, size, number, size)) for number in range(size)]


def together(*functions: object) -> list[object]:
    results: list[object] = [None] * len(functions)

    def run(number: int) -> None:
        results[number] = functions[number]()  # type: ignore[operator]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


def ended_process() -> int:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def test_every_rank_hears_what_all_have_told() -> None:
    first, second, third = ranks(3)
    for exchange, word in ((second, "b"), (third, "c"), (first, "a")):
        exchange.post("word", {"it": word})
    heard = {0: {"it": "a"}, 1: {"it": "b"}, 2: {"it": "c"}}
    assert first.gather("word") == second.gather("word") == third.gather("word") == heard


def test_rank_waits_for_one_that_is_late() -> None:
    first, second = ranks(2)
    first.post("word", 1)
    timer = threading.Timer(0.3, lambda: second.post("word", 2))
    timer.start()
    assert first.gather("word") == {0: 1, 1: 2}
    timer.join()


def test_rank_that_has_ended_is_not_waited_for() -> None:
    first, second = ranks(2)
    first.post("word", 1)
    second.folder.joinpath("here.1").write_text(json.dumps(ended_process()))
    began = time.monotonic()
    assert first.gather("word", patience=30) == {0: 1}
    assert time.monotonic() - began < 10


def test_rank_that_never_comes_is_waited_for_no_longer_than_patience_lasts() -> None:
    first = Exchange(Rank(0, 2, 0, 2))
    first.post("word", 1)
    assert first.gather("word", patience=0.2) == {0: 1}


def test_words_of_an_earlier_run_are_not_heard() -> None:
    first, second = ranks(2)
    second.post("word", "of an earlier run")
    second.folder.joinpath("here.1").write_text(json.dumps(ended_process()))
    first.post("word", 1)
    assert first.gather("word", patience=5) == {0: 1}
    again = Exchange(Rank(1, 2, 1, 2))
    assert not again.posted("word")


@pytest.mark.parametrize(
    ("wishes", "expected"), [((False, False), False), ((True, False), True), ((True, True), True)]
)
def test_ranks_run_again_together_or_not_at_all(wishes: tuple[bool, bool], expected: bool) -> None:  # noqa: FBT001
    first, second = ranks(2)
    answers = together(
        lambda: agree(first, "t.py::test", wants=wishes[0]),
        lambda: agree(second, "t.py::test", wants=wishes[1]),
    )
    assert answers == [(expected, ""), (expected, "")]


def test_no_rank_runs_again_where_one_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_npudump.ranks.exchange.PATIENCE", 0.2)
    monkeypatch.setattr(agreement, "PATIENCE", 0.2)
    first, _ = ranks(2)
    wanted, problem = agree(first, "t.py::test", wants=True)
    assert wanted
    assert problem == (
        "not run: all 2 ranks would have to run again together, and nothing came from rank 1 within 0.2 "
        "seconds"
    )


def test_no_rank_runs_again_where_they_are_on_several_machines() -> None:
    wanted, problem = agree(Exchange(Rank(0, 4, 0, 2)), "t.py::test", wants=True)
    assert wanted
    assert "on several machines" in problem


def test_rank_whose_test_came_to_no_comparison_keeps_nobody_waiting() -> None:
    first, second = ranks(2)
    stand_aside(second, "t.py::test")
    assert agree(first, "t.py::test", wants=True) == (True, "")
    stand_aside(first, "t.py::test")
    assert second.gather(f"again t.py::test") == {0: True, 1: False}  # noqa: F541


def test_rank_0_is_told_which_ranks_differ_and_lets_them_go() -> None:
    first, second, third = ranks(3)

    def rank_0() -> tuple[str, ...]:
        lines = compare_notes(first, {"a.py::x": "", "a.py::y": ""})
        printed(first)
        return lines

    results = together(
        rank_0,
        lambda: compare_notes(second, {"a.py::x": "conv1:output.0", "a.py::y": ""}),
        lambda: compare_notes(third, {"a.py::x": "fc:output.0", "a.py::y": "golden missing"}),
    )
    assert results == [
        (
            "a.py::x fails on 2 of 3 ranks: 1 (conv1:output.0), 2 (fc:output.0)",
            "a.py::y fails on 1 of 3 ranks: 2 (golden missing)",
        ),
        (),
        (),
    ]


def test_rank_without_a_result_is_named() -> None:
    first, second = ranks(2)
    second.folder.joinpath("here.1").write_text(json.dumps(ended_process()))
    assert compare_notes(first, {}) == ("no result from rank 1",)


def test_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    base = tmp_path / f"npudump-ranks-{os.getuid()}"
    base.symlink_to(tmp_path / "elsewhere")
    tmp_path.joinpath("elsewhere").mkdir()
    with pytest.raises(ConfigError, match="expected a folder of this user's own"):
        Exchange(Rank(0, 2, 0, 2))


def test_folders_of_runs_that_are_over_are_removed(tmp_path: Path) -> None:
    base = tmp_path / f"npudump-ranks-{os.getuid()}"
    old, young = base / "old", base / "young"
    for folder in (old, young):
        folder.mkdir(parents=True)
        folder.joinpath("here.0").write_text(json.dumps(ended_process()))
    os.utime(old, (1, 1))
    Exchange(Rank(0, 2, 0, 2))
    assert not old.exists()
    assert young.exists()
