"""A review on a full screen: what is drawn, and what each key does."""

from __future__ import annotations

import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from fcntl import ioctl
from typing import TYPE_CHECKING

import pyte
import pytest
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from pytest_npudump.cli import main
from pytest_npudump.cli.golden import review_screen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from prompt_toolkit.input import PipeInput

    from conftest import Repository

GOLDEN = {"conv": 1.0, "fc": 3.0}
AFTER = {"conv": 1.5, "fc": 4.0}
NAMES = ("test_a", "test_b", "test_c")
UP, DOWN, ENTER, ESCAPE = "\x1b[A", "\x1b[B", "\r", "\x1b"


@pytest.fixture
def waiting(repository: Repository) -> Repository:
    for number, name in enumerate(NAMES):
        repository.approve(name, GOLDEN)
        repository.keep(name, {layer: value + number for layer, value in AFTER.items()})
    return repository


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], int]]:
    """Review with these keys, as on a terminal, and return the exit code."""
    monkeypatch.setattr("pytest_npudump.cli.golden.review._takes_a_screen", lambda **_: True)
    plain = review_screen.review_on_screen

    with create_pipe_input() as keyboard:

        def press(text: str) -> int:
            keyboard.send_text(text)
            monkeypatch.setattr(review_screen, "review_on_screen", piped(keyboard))
            return main(["golden", "review", "--results", "kept"])

        def piped(keyboard: PipeInput) -> Callable[..., None]:
            return lambda decisions: plain(decisions, keyboard=keyboard, screen=DummyOutput())

        yield press


# The largest change comes first: test_c, test_b, test_a.
DECIDED = [
    ("aaa", 0, ["accepted", "accepted", "accepted"]),
    ("rq", 1, [None, None, "rejected"]),
    ("sar", 1, ["rejected", "accepted", None]),
    (f"{DOWN}aq", 1, [None, "accepted", None]),
    (f"{DOWN}{DOWN}{DOWN}{UP}rq", 1, [None, "rejected", None]),
    ("jjkaq", 1, [None, "accepted", None]),
    ("rA", 0, ["accepted", "accepted", "rejected"]),
    ("R", 0, ["rejected", "rejected", "rejected"]),
    ("aS", 1, [None, None, "accepted"]),
    ("q", 1, [None, None, None]),
    ("\x03", 1, [None, None, None]),
    ("x?1\x1b[6~\x1b[5~\x1b[C\x1b[Daq", 1, [None, None, "accepted"]),
    (f"l{ENTER}q", 1, [None, None, None]),
]


@pytest.mark.parametrize(("pressed", "code", "decisions"), DECIDED)
def test_keys_decide(
    waiting: Repository,
    keys: Callable[[str], int],
    pressed: str,
    code: int,
    decisions: list[str | None],
) -> None:
    assert keys(pressed) == code
    assert [waiting.decisions()[name] for name in NAMES] == decisions
    for number, (name, decision) in enumerate(zip(NAMES, decisions, strict=True)):
        changed = {layer: value + number for layer, value in AFTER.items()}
        assert waiting.values(name) == (changed if decision == "accepted" else GOLDEN)


def test_layers_are_accepted_by_name_and_the_others_keep_their_golden(
    waiting: Repository, keys: Callable[[str], int]
) -> None:
    keys(f"lfc{ENTER}q")
    assert waiting.values("test_c") == {"conv": 1.0, "fc": 6.0}


def test_layers_that_are_misspelt_are_asked_for_again(
    waiting: Repository, keys: Callable[[str], int], capsys: pytest.CaptureFixture[str]
) -> None:
    backspace = "\x7f"
    assert keys(f"lfx{ENTER}{backspace}c{ENTER}rlno{ENTER}\x03") == 1
    told = capsys.readouterr()
    assert "fx names no layer that differs; these do: conv, fc" in told.err
    assert told.out.splitlines()[-1] == "1 accepted, 1 rejected, 1 skipped"
    assert waiting.values("test_c") == {"conv": 1.0, "fc": 6.0}
    assert waiting.decisions() == {"test_a": None, "test_b": "rejected", "test_c": None}


def test_a_refused_run_keeps_its_golden_and_ends_with_2(
    waiting: Repository, keys: Callable[[str], int], capsys: pytest.CaptureFixture[str]
) -> None:
    waiting.keep("test_b", AFTER, incomplete="the test was interrupted")
    assert keys("A") == 2
    assert "the test was interrupted" in capsys.readouterr().err
    assert waiting.values("test_b") == GOLDEN
    assert waiting.values("test_a") == AFTER


def test_what_was_done_stands_on_the_terminal_afterwards(
    waiting: Repository, keys: Callable[[str], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert waiting.path
    keys("arq")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("accepted: test_a.py::test_c: ")
    assert lines[-2:] == ["rejected: test_a.py::test_b", "1 accepted, 1 rejected, 1 skipped"]


def on_a_terminal(
    folder: Path, keys: str, *words: str, rows: int = 24, columns: int = 100
) -> tuple[list[str], int, str]:
    """Review on a terminal of its own: its screen before the keys, its exit code, and all that it wrote."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        code = "import sys; from pytest_npudump.cli import main; sys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", code, "golden", "review", "--results", "kept", *words]
        os.execve(sys.executable, command, {**os.environ, "TERM": "xterm"})  # noqa: S606 - ourselves
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    screen = pyte.Screen(columns, rows)
    stream = pyte.ByteStream(screen)
    before, everything, sent, end = [], b"", False, time.monotonic() + 60
    while time.monotonic() < end:
        ready, _, _ = select.select([terminal], [], [], 0.5)
        try:
            read = os.read(terminal, 65536) if ready else b""
        except OSError:
            break
        if ready and not read:
            break
        if b"\x1b[6n" in read:
            os.write(terminal, b"\x1b[1;1R")
        everything += read
        stream.feed(read)
        if not sent and any("q leave" in line or "d show all" in line for line in screen.display):
            before, sent = [line.rstrip() for line in screen.display], True
            os.write(terminal, keys.encode())
    else:
        os.kill(pid, signal.SIGKILL)
    return before, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), everything.decode(errors="replace")


def test_a_real_terminal_shows_the_runs_and_what_differs_in_the_first(waiting: Repository) -> None:
    before, code, text = on_a_terminal(waiting.path, "Rq")
    assert before[:4] == [
        "npudump golden review: 3 of 3 wait; 0 accepted, 0 rejected",
        "  test_a.py::test_c  2 of 2 differ  5e+05x  conv:output.0",
        "  test_a.py::test_b  2 of 2 differ  3e+05x  conv:output.0",
        "  test_a.py::test_a  2 of 2 differ  1e+05x  conv:output.0",
    ]
    assert any("2 of 2 tensors differ" in line for line in before)
    assert before[-1].startswith("a accept  r reject")
    assert code == 0
    assert "0 accepted, 3 rejected, 0 skipped" in text


def test_a_small_terminal_has_room_for_what_differs_and_the_way_out(repository: Repository) -> None:
    for number in range(9):
        repository.approve(f"test_{number}", GOLDEN)
        repository.keep(f"test_{number}", {layer: value + number for layer, value in AFTER.items()})
    before, code, _ = on_a_terminal(repository.path, "q", rows=15, columns=60)
    assert sum("2 of 2 differ" in line for line in before) == 5
    assert [line.split()[0] for line in before[9:11]] == ["layer", "conv"]
    assert "q leave" in before[-1]
    assert code == 1


def test_lines_can_be_asked_for_on_a_terminal(waiting: Repository) -> None:
    before, code, _ = on_a_terminal(waiting.path, "R\r", "--lines")
    assert any("a accept, r reject, s skip" in line for line in before)
    assert code == 0


def test_an_escape_sequence_in_a_name_is_text_on_the_screen(repository: Repository) -> None:
    repository.approve("test_a", {"con\x1b[2Jv": 1.0})
    repository.keep("test_a", {"con\x1b[2Jv": 2.0})
    before, _, _ = on_a_terminal(repository.path, "q")
    assert any("con" in line and "[2Jv" in line for line in before)
    assert before[0].startswith("npudump golden review: 1 of 1 wait")
