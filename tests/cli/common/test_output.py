from __future__ import annotations

import io
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.cli import COMMANDS, main
from pytest_npudump.cli.common import work
from pytest_npudump.cli.common.output import columns, emit, write_output
from pytest_npudump.errors import NpudumpError
from pytest_npudump.language.text import hung
from tests.cli.conftest import dump_file, long_file
from tests.conftest import on_a_terminal

Run = Callable[..., Any]
TREES = Path(__file__).parents[2] / "data" / "trees"
START = "import sys; from pytest_npudump.cli import main; sys.exit(main())"


@pytest.mark.e2e
@pytest.mark.each(
    ("words", "code"),
    [
        (("ls", "acl-stats"), 0),
        (("compare", "acl-stats", "acl-stats"), 0),
        (("compare", "acl-stats", "acl-tensor"), 1),
        (("compare", "acl-stats", "acl-tensor", "--json", "-"), 1),
        (("ls", "acl-overflow"), 1),
    ],
)
def test_a_closed_pipe_changes_no_verdict_and_makes_no_noise(
    words: tuple[str, ...], code: int, warm: Any
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [*warm.client, "npudump", *words]
    done = subprocess.run(command, cwd=TREES, check=False, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (code, "")


def test_help_lists_every_command_which_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    def told(*words: str) -> str:
        with pytest.raises(SystemExit) as stopped:
            main([*words, "--help"])
        assert stopped.value.code == 0
        return capsys.readouterr().out

    lines = [line for line in told().splitlines() if line.startswith("    ") and line[4] != " "]
    assert [line.split()[0] for line in lines] == list(COMMANDS)
    for name in COMMANDS:
        assert f"usage: npudump {name}" in told(name)


@pytest.mark.e2e
def test_output_survives_a_narrow_encoding(tmp_path: Path) -> None:
    import numpy as np

    dump_file(tmp_path, "层/relu", np.ones(4, np.float32))
    done = subprocess.run(
        [sys.executable, "-c", START, "ls", "--stats", str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        env={"PYTHONIOENCODING": "ascii", "PATH": ""},
    )
    assert done.returncode == 0
    assert r"\u5c42/relu" in done.stdout


def test_where_output_is_no_terminal_long_work_tells_of_itself_in_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with work.progress("reading dump") as report:  # short work says nothing
        report(7, 7)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(work, "PATIENCE", 0)
    monkeypatch.setattr(work, "SILENCE", 0.05)
    told = ""
    with work.progress("reading dump") as report:
        report(3, 7)
        while not told:
            time.sleep(0.01)
            told = capsys.readouterr().err
    assert set(told.splitlines()) == {"npudump: reading dump: 3 of 7"}
    assert capsys.readouterr().out == ""


def _screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Return what standard output and standard error are from here on, a terminal."""
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """Give the seconds that the thread which shows work waits, in turn."""
    found: list[float | None] = []

    class Event(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            found.append(timeout)
            return super().wait(timeout)

    monkeypatch.setattr(work, "Event", Event)
    return found


def test_a_bar_is_drawn_on_a_terminal_once_work_takes_long(
    monkeypatch: pytest.MonkeyPatch, waits: list[float | None]
) -> None:
    screen = _screen(monkeypatch)
    with work.progress("short work") as report:
        report(1, 1)
    assert "short work" not in screen.getvalue()
    monkeypatch.setattr(work, "PATIENCE", 0)
    with work.progress("reading dump") as report:
        report(1, 4)
        while waits.count(work._FRAME) < 2:
            time.sleep(0.01)
    assert "reading dump" in screen.getvalue()


def test_a_second_of_the_whole_command_passes_before_a_bar_not_one_of_each_piece(
    monkeypatch: pytest.MonkeyPatch, waits: list[float | None]
) -> None:
    _screen(monkeypatch)
    for before, expected in ((0.0, 1.0), (0.7, 0.3), (30.0, 0.2)):
        waits.clear()
        monkeypatch.setattr(work, "_BEGUN", time.monotonic() - before)
        with work.progress("the next piece"):
            pass
        assert waits == [pytest.approx(expected, abs=0.05)]


@pytest.mark.each(
    ("line", "expected"),
    [
        ("short", ["short"]),
        ("a sentence that is longer than that", ["a sentence that is", "  longer than that"]),
        ("  note: a sentence that is long", ["  note: a sentence", "        that is long"]),
        ("npudump: a sentence of more words", ["npudump: a sentence", "         of more", "         words"]),
        ("one_name_that_is_longer_than_that: more", ["one_name_that_is_longer_than_that:", "  more"]),
        ("to accept:  pytest --npudump-update-golden", ["to accept:  pytest --npudump-update-golden"]),
        ("git config merge.npudump.name x", ["git config merge.npudump.name x"]),
        ("cell    cell    cell    cell", ["cell    cell    cell    cell"]),
    ],
)
def test_a_line_is_broken_for_a_terminal_but_for_commands_and_rows(line: str, expected: list[str]) -> None:
    assert hung(line, 20) == expected
    assert hung(line, None) == [line]


def test_columns_that_a_terminal_has_no_room_for_stand_below_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert columns([("a", "bbb"), ("cccc", "")], ("x", "y")) == ["x     y", "a     bbb", "cccc"]
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert columns([("a" * 40, "b" * 10, "c" * 30), ("a", "", "")], ("x", "y", "z")) == [
        f"x{' ' * 41}y",
        "    z",
        f"{'a' * 40}  {'b' * 10}",
        f"    {'c' * 30}",
        "a",
    ]
    emit([f"note: {'word ' * 20}"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 60
    emit([f"note: {'word ' * 20}"], whole=True)
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.e2e
@pytest.mark.skipif(os.name != "posix", reason="no pseudo terminals here")
def test_one_long_tensor_has_a_bar_on_a_terminal(tmp_path: Path) -> None:
    path = long_file(tmp_path / "dump", "a", 1 << 26, "hifloat8")
    program = f"from pytest_npudump.cli.common import work; work.PATIENCE = 0.0; {START}"
    command = [sys.executable, "-c", program, "ls", str(path), "--stats"]
    code, shown = on_a_terminal(command, COLUMNS="200")
    assert code == 0, shown
    assert "reading" in shown


TENSORS = TREES / "acl-tensor"
JSON_COMMANDS = [
    ("ls", "--stats", TENSORS),
    ("ls", TENSORS),
    ("compare", TENSORS, TENSORS),
    ("ls", TREES / "acl-overflow"),
    ("doctor",),
]
SMALL_FILES = """
import resource, sys
from pytest_npudump.cli import main
sys.dont_write_bytecode = True  # what is cut off would be read by the next process
resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.e2e
@pytest.mark.each("words", JSON_COMMANDS, ids=lambda words: words[0])
def test_a_full_disk_leaves_the_old_file_and_is_told_in_a_line(
    tmp_path: Path, words: tuple[object, ...], warm: Any
) -> None:
    target = tmp_path / "result.json"
    target.write_text("old")
    command = [*warm.client, "-c", SMALL_FILES, *map(str, words), "--json", str(target)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(f"npudump: --json {target}: cannot be written: File too large; ")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.e2e
def test_a_kill_midway_leaves_the_old_file(tmp_path: Path, warm: Any) -> None:
    target = tmp_path / "result.json"
    target.write_text("old")
    dying = """
import os, signal, sys
from pytest_npudump.cli.common.output import write_output
from pytest_npudump.storage import atomic
atomic.os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
write_output("--json", sys.argv[1], b"new" * 100000)
"""
    assert warm.run("-c", dying, str(target))[0] == -signal.SIGKILL
    assert target.read_text() == "old"


def test_a_file_keeps_its_permissions_and_a_link_stays_one(run: Run, tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    link.symlink_to("real.json")
    write_output("--json", str(link), b"new")  # which makes the file that it names
    assert (link.is_symlink(), real.read_bytes()) == (True, b"new")
    real.chmod(0o640)
    assert run("ls", "--stats", TENSORS, "--json", link).code == 0
    assert os.readlink(link) == "real.json"  # noqa: PTH115 - what the link says, and not where it leads
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert len(json.loads(real.read_text())["tensors"]) == 4
    assert len([*tmp_path.iterdir()]) == 2


def test_a_pipe_is_written_to_and_stays_one(run: Run, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    assert run("ls", "--stats", TENSORS, "--json", pipe).code == 0
    reader.join()
    assert len(json.loads(read[0])["tensors"]) == 4
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.each("target", ["/dev/null", "/dev/full"])
def test_a_device_is_written_to_and_stays_one(run: Run, target: str) -> None:
    done = run("ls", "--stats", TENSORS, "--json", target)
    assert done.code == (2 if target == "/dev/full" else 0)
    assert ("No space left" in done.err) == (target == "/dev/full")
    assert stat.S_ISCHR(os.stat(target).st_mode)  # noqa: PTH116 - a device


@pytest.mark.e2e
@pytest.mark.each("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "-"])
def test_standard_output_in_a_file_holds_the_json_alone(tmp_path: Path, name: str, warm: Any) -> None:
    with (tmp_path / "out").open("wb") as out:
        command = [*warm.client, "npudump", "ls", "--stats", str(TENSORS), "--json", name]
        assert subprocess.run(command, check=False, stdout=out).returncode == 0
    assert len(json.loads((tmp_path / "out").read_text())["tensors"]) == 4


@pytest.mark.e2e
def test_a_descriptor_of_a_file_is_added_to(tmp_path: Path, warm: Any) -> None:
    (tmp_path / "link").symlink_to("/dev/stderr")
    command = [*warm.client, "npudump", "ls", "--stats", str(TENSORS), "--json", str(tmp_path / "link")]
    with (tmp_path / "err").open("wb") as err:
        err.write(b"before\n")
        err.flush()
        inode = os.fstat(err.fileno()).st_ino
        assert subprocess.run(command, check=False, stderr=err, stdout=subprocess.DEVNULL).returncode == 0
    assert (tmp_path / "err").stat().st_ino == inode
    first, _, rest = (tmp_path / "err").read_text().partition("\n")
    assert first == "before"
    assert len(json.loads(rest)["tensors"]) == 4


@pytest.mark.each("name", [".", "missing/result.json"])
def test_what_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(NpudumpError, match=r"cannot be written: (Is a directory|No such file)"):
        write_output("--json", str(tmp_path / name), b"new")
    assert [*tmp_path.iterdir()] == []
