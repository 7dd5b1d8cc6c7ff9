"""Waiting runs one by one: what is asked, and what each answer does."""

from __future__ import annotations

import io
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.golden.conftest import Repository

Run = Callable[..., Any]
GOLDEN = {"conv": 1.0, "fc": 3.0}
AFTER = {"conv": 1.5, "fc": 4.0}
NAMES = ("test_a", "test_b", "test_c")


@pytest.fixture
def waiting(repository: Repository) -> Repository:
    for name in NAMES:
        repository.approve(name, GOLDEN)
        repository.keep(name, AFTER)
    return repository


@pytest.fixture
def review(golden_command: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Review with these lines as answers."""

    def call(*answers: str, words: tuple[str, ...] = ()) -> Any:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in answers)))
        return golden_command("review", *words)

    return call


ANSWERS = [
    (("a", "r", "s"), 1, ["accepted", "rejected", None]),
    (("a", "A"), 0, ["accepted"] * 3),
    (("r", "R"), 0, ["rejected"] * 3),
    (("a", "S"), 1, ["accepted", None, None]),
    ((), 1, [None] * 3),
    (("what", "", "w", "a", "R"), 0, ["accepted", "rejected", "rejected"]),
    (("r", "q"), 1, ["rejected", None, None]),
    (("l", "", "l", "conv", "R"), 0, [None, "rejected", "rejected"]),
]


@pytest.mark.parametrize(("answers", "code", "decisions"), ANSWERS)
def test_answers_decide(
    waiting: Repository, review: Run, answers: tuple[str, ...], code: int, decisions: list[str | None]
) -> None:
    done = review(*answers)
    assert (done.code, done.err) == (code, "")
    assert [waiting.decisions()[name] for name in NAMES] == decisions
    for name, decision in zip(NAMES, decisions, strict=True):
        some = GOLDEN | {"conv": 1.5} if "conv" in answers and name == "test_a" else GOLDEN
        assert waiting.values(name) == (AFTER if decision == "accepted" else some)


def test_layers_are_accepted_by_pattern_and_the_rest_waits(waiting: Repository, review: Run) -> None:
    done = review("l conv", "S", words=("--reason", "conv only"))
    assert done.code == 1
    assert waiting.values("test_a") == {"conv": 1.5, "fc": 3.0}
    assert "reason: conv only" in waiting.golden("test_a").read_text("utf-8")
    assert "1 of 3: " in review("S").out


def test_what_is_asked_about_is_shown_before_it_and_a_pipe_has_no_line_for_a_reason(
    waiting: Repository, review: Run
) -> None:
    done = review("S", words=("test_a.py::test_b",))
    lines = done.out.splitlines()
    assert lines[1].startswith("1 of 1: test_a.py::test_b (")
    assert lines[2].startswith("  conv:output.0 avg ")  # the cause
    assert "mismatches: 2 of 2 tensors" in lines[3]
    assert waiting.decisions()["test_b"] is None
    done = review("a", "as conv is another one", "S")
    assert "unknown answer; enter a, r, s, l, w, q, A, R or S\n" in done.out
    assert list(waiting.decisions().values()).count("accepted") == 1


def test_rows_fit_the_terminal_and_why_shows_whole_names(
    repository: Repository, review: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    prefix = f"{'get_logits_/' * 6}"
    names = [f"{prefix}block_{'x' * 30}/conv", f"{prefix}fc"]
    repository.approve("test_a", dict.fromkeys(names, 1.0))
    repository.keep("test_a", dict.fromkeys(names, 2.0))
    lines = review("q").out.splitlines()
    assert "  names that start with .../ begin with" in lines
    assert f"    {prefix}" in lines
    head = next(index for index, line in enumerate(lines) if line.startswith("  layer"))
    rows = lines[head : head + 3]
    assert rows[-1].startswith("  .../fc ")
    assert max(map(len, rows)) <= 80
    monkeypatch.delenv("COLUMNS")
    assert any(line.startswith(f"  {names[0]} ") for line in review("w", "q").out.splitlines())


def test_the_cause_has_names_as_the_table_has_them(
    repository: Repository, review: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    block = "/roberta/encoder/layer.{}/attention_block_with_a_long_name/self/attention/{}"
    names = [block.format(n, part) for n in (2, 3) for part in ("query/MatMul", "output/LayerNorm/Add")]
    repository.approve("test_a", dict.fromkeys(names, 1.0))
    cause = f"{names[0]}: weights changed; first mismatch: {names[0]}:output.0"
    repository.keep("test_a", dict.fromkeys(names, 2.0), failure={"headline": cause, "why": []})
    lines = review("q").out.splitlines()
    row = next(lines[at + 1] for at, line in enumerate(lines) if line.startswith("  layer"))
    assert lines[2].startswith(f"  {row.split()[0]}: weights")
    assert max(map(len, lines[2:])) <= 80


def test_what_a_golden_loses_is_said_once_around_a_decision(repository: Repository, review: Run) -> None:
    for name in NAMES:
        repository.approve(name, GOLDEN, noise=("1e-5,-,-,-", "-"), repeats={"runs": 2})
        repository.keep(name, AFTER)
    shown = review("a", "A").out
    assert shown.count("keep the noise measured before") == 3


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (None, "not reproduced: the second run gave other values; make"),
        ({"differing": 7, "tensors": 9, "fed": []}, "other values in 7 of 9 tensors; make"),
    ],
)
def test_a_run_that_did_not_reproduce_is_told_before_a_decision(
    repository: Repository, review: Run, golden_command: Run, second: dict[str, Any] | None, words: str
) -> None:
    for name in NAMES:
        repository.approve(name, GOLDEN)
        more = {"second_run": second} if second else {}
        repository.keep(name, AFTER, reproduced=name == "test_c", **more)
    told = golden_command("diff").out
    assert told.count(words) == 2
    shown = review("a", "S").out
    assert shown.index(words) < shown.index("accepted: ")
    shown = golden_command("accept").out
    assert shown.startswith("test_a.py::test_b: not reproduced: ")
    assert shown.count(words) == 1


def test_a_run_that_is_fed_otherwise_each_time_is_refused(
    repository: Repository, review: Run, golden_command: Run
) -> None:
    repository.approve("test_a", GOLDEN)
    before = repository.golden("test_a").read_bytes()
    second = {"differing": 7, "tensors": 9, "fed": ["image"]}
    repository.keep("test_a", AFTER, reproduced=False, second_run=second)
    words = "the test feeds its model other values in each run: image; give these a seed"
    assert words in " ".join(review("a", "q").out.split())
    code, out, err = golden_command("accept")
    assert (code, words in " ".join((out + err).split())) == (2, True)
    assert repository.golden("test_a").read_bytes() == before


def test_why_is_the_cause_that_the_run_found(
    repository: Repository, review: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.approve("test_a", {"conv": 1.0})
    repository.keep("test_a", {"conv": 2.0})
    assert " 2, expected 1 (" in review("w", "q").out
    why = "recomputed: " + "conv:output.0 does not match its model " * 4
    repository.keep("test_a", {"conv": 2.0}, failure={"headline": "kernel error in conv", "why": [why]})
    for module in ("common.output", "golden.pending"):
        monkeypatch.setattr(f"pytest_npudump.cli.{module}.screen", lambda _stream=None: 80)
    shown = review("w", "q").out.replace("left: ", "left:\n")
    assert "\n  kernel error in conv\n  mismatches: 1 of 1" in shown
    assert "left:\n  recomputed: conv:output.0 does not" in shown
    assert shown.count("kernel error in conv") == shown.count("mismatches: 1 of 1") == 1
    assert max(map(len, shown.splitlines())) <= 80


def test_layers_may_be_named_as_a_table_shows_them(repository: Repository, review: Run) -> None:
    names = [f"network/stage_1/{name}" for name in ("conv", "conv_2", "fc")]
    repository.approve("test_a", dict.fromkeys(names, 1.0))
    repository.keep("test_a", dict.fromkeys(names, 2.0))
    review("l conv", "q")
    assert "accepted  test_a.py::test_a  only .../fc; the rest is pending" in review("l .../fc", "q").out
    last = review("l network/*", "q").out.splitlines()[-3:]
    assert ": accepted: test_a.py::test_a: " in last[0]
    assert last[2] == "1 accepted, 0 rejected, 0 skipped"
    assert set(repository.values("test_a").values()) == {2.0}


def test_layers_that_are_misspelt_are_asked_for_again(waiting: Repository, review: Run) -> None:
    done = review("l cnov", "l conv,fx", "l conv", "S")
    assert done.out.count("of 3: ") == 2
    assert [line for line in done.err.splitlines() if "matches" in line] == [
        "npudump: no layer with a mismatch matches cnov; layers with mismatches: conv, fc",
        "npudump: no layer with a mismatch matches fx; layers with mismatches: conv, fc",
    ]
    assert done.out.splitlines()[-4:] == [
        "accepted  test_a.py::test_a  only conv; the rest is pending",
        "skipped   test_a.py::test_b",
        "skipped   test_a.py::test_c",
        "1 accepted, 0 rejected, 2 skipped",
    ]
    assert done.code == 1
    assert waiting.values("test_a") == {"conv": 1.5, "fc": 3.0}
    assert [waiting.values(name) for name in NAMES[1:]] == [GOLDEN] * 2
    assert review("l cnov").out.endswith("\n0 accepted, 0 rejected, 3 skipped\n")


def test_layers_that_could_be_meant_are_named_as_a_terminal_has_room_for(
    repository: Repository, review: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = [f"{'network/stage/' * 20}{name}" for name in ("conv", "fc")]
    repository.approve("test_a", dict.fromkeys(names, 1.0))
    repository.keep("test_a", dict.fromkeys(names, 2.0))
    told = review("l cnov", "q").err
    assert "layers with mismatches: network/.../network/stage/conv, network/.../network/stage/fc" in " ".join(
        told.split()
    )
    assert "only network/.../fc; the rest is pending" in review("l network/.../fc", "q").out


@pytest.mark.usefixtures("waiting")
def test_the_end_names_every_test_where_a_terminal_is_narrow(
    review: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = review("l")  # the end of input names no layer
    assert (done.err, done.out[-34:]) == ("", "0 accepted, 0 rejected, 3 skipped\n")
    monkeypatch.setenv("COLUMNS", "60")
    told = review("l conv,con*", "S").out.splitlines()[-5:]
    assert told == [
        "accepted  test_a.py::test_a",
        "    only conv, con*; the rest is pending",
        "skipped   test_a.py::test_b",
        "skipped   test_a.py::test_c",
        "1 accepted, 0 rejected, 2 skipped",
    ]


def test_a_refusal_is_told_and_ends_with_two(waiting: Repository, review: Run) -> None:
    waiting.approve("test_a", {"conv": 7.0, "fc": 3.0})
    done = review("A")
    assert done.code == 2
    assert "has changed since the run" in done.err
    assert done.out.splitlines()[-1] == "2 accepted, 0 rejected, 0 skipped, 1 refused"
    assert waiting.values("test_a") == {"conv": 7.0, "fc": 3.0}
    assert waiting.values("test_b") == AFTER


@pytest.mark.parametrize("writing", [False, True])
def test_ctrl_c_lists_what_became_of_each_test(
    waiting: Repository, review: Run, monkeypatch: pytest.MonkeyPatch, *, writing: bool
) -> None:
    keys = iter("aa")

    def key(_question: str) -> str:
        try:
            return next(keys)
        except StopIteration:
            raise KeyboardInterrupt from None

    def update(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.input", key)
    if writing:
        monkeypatch.setattr("pytest_npudump.results.folder.ResultsFolder.update", update)
    done = review()
    assert (done.code, done.err) == (130, "")
    *_, first, second, third, tally = done.out.splitlines()
    assert [line.split()[0] for line in (first, second, third)] == (
        ["interrupted", "skipped", "skipped"] if writing else ["accepted", "accepted", "skipped"]
    )
    assert tally == (
        "0 accepted, 0 rejected, 2 skipped, 1 interrupted" if writing else "2 accepted, 0 rejected, 1 skipped"
    )
    assert [waiting.values(name) == AFTER for name in NAMES] == [True, not writing, False]


QUESTIONS = ("A/R/S all left: ", "separated by blanks): ", "? y: ", "(empty for none): ")


def on_a_terminal(folder: Path, warm: Any, *keys: str, verb: str = "review") -> tuple[int, str]:
    """Review on a dumb terminal and answer each question; its exit code and its text."""
    command = [*warm.client, "npudump", "golden", *verb.split(), "--results", "kept"]
    terminal, inside = pty.openpty()  # not pty.fork, which can stop in a child of a process with threads
    own: dict[str, Any] = {"stdin": inside, "stdout": inside, "stderr": inside, "start_new_session": True}
    environment = {**os.environ, "TERM": "dumb"}
    process = subprocess.Popen(command, executable=sys.executable, cwd=folder, env=environment, **own)
    os.close(inside)
    text, left, end = "", list(keys), time.monotonic() + 60
    while time.monotonic() < end:
        ready, _, _ = select.select([terminal], [], [], 0.1)
        try:
            text += os.read(terminal, 65536).decode() if ready else ""
        except OSError:
            break
        if not ready and left and text.endswith(QUESTIONS):
            answer = left.pop(0)
            os.write(terminal, (answer if answer == "\x04" else f"{answer}\n").encode())
    os.close(terminal)
    return process.wait(60), text.replace("\r\n", "\n")


PRESSED = [
    (("a", "because", "r", "s"), 1, ["accepted", "rejected", None]),
    (("r", "q"), 1, ["rejected", None, None]),
    (("r", "\x04"), 1, ["rejected", None, None]),
    (("aa", "\x1b[A", "A", "n", "R", "y"), 0, ["rejected", "rejected", "rejected"]),
    (("r\nA\ny", "s", "s"), 1, ["rejected", None, None]),
    (("x", "", "w", "l", "fcx", "l", "fc, conv", "", "A", "y"), 0, [None, "accepted", "accepted"]),
]


@pytest.mark.e2e
@pytest.mark.parametrize(("keys", "code", "decisions"), PRESSED)
def test_a_line_decides_on_a_terminal(
    waiting: Repository, warm: Any, keys: tuple[str, ...], code: int, decisions: list[str | None]
) -> None:
    """More lines that are pasted answer nothing, nor does an arrow; what holds for all is asked twice."""
    assert on_a_terminal(waiting.path, warm, *keys)[0] == code
    assert [waiting.decisions()[name] for name in NAMES] == decisions
    assert ("reason: because" in waiting.golden("test_a").read_text("utf-8")) == ("because" in keys)


@pytest.mark.e2e
def test_a_question_fits_in_80_columns_and_a_name_steers_no_terminal(
    repository: Repository, warm: Any
) -> None:
    repository.approve("test_a", {"con\x1b[2Jv": 1.0})
    repository.keep("test_a", {"con\x1b[2Jv": 2.0})
    _, text = on_a_terminal(repository.path, warm, "s")
    assert "\x1b" not in text
    (question,) = [line for line in text.splitlines() if line.startswith("a accept")]
    assert len(question) <= 80


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("verb", "keys", "expected"),
    [
        ("accept", ("n",), (1, 0)),
        ("accept", ("\x04",), (1, 0)),
        ("accept", ("y",), (0, 3)),
        ("accept *", (), (0, 3)),
    ],
)
def test_a_terminal_is_asked_once_before_all_are_accepted(
    waiting: Repository, warm: Any, verb: str, keys: tuple[str, ...], expected: tuple[int, int]
) -> None:
    code, text = on_a_terminal(waiting.path, warm, *keys, verb=verb)
    assert (code, [*waiting.decisions().values()].count("accepted")) == expected, text
    assert text.count("accept 3 runs? y: ") == bool(keys)
