"""Programs of their own process: output kept, failures explained, nothing left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.errors import RequestError
from pytest_npudump.runtime import programs
from pytest_npudump.runtime.programs import (
    ExternalProgramError,
    ExternalRun,
    command_of,
    run_in_group,
    run_program,
)

pytestmark = pytest.mark.e2e
Run = Callable[..., ExternalRun]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run Python source as a program."""

    def start(source: str, *, timeout: Any = 60, **options: Any) -> ExternalRun:
        command = (sys.executable, "-c", source)
        return run_program(command, cwd=tmp_path, output=tmp_path, timeout=timeout, **options)

    return start


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody collects counts, and gets a while to end."""
    for _ in range(500):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False


def test_output_exit_code_directory_and_variables_are_the_program_s(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing can be read from the test's standard input."""
    monkeypatch.setenv("GIVEN", "kept")
    source = "import os, sys; print(os.getcwd(), os.environ['GIVEN'], os.environ['ADDED'], [*sys.stdin])"
    result = run(f"{source}; print('err', file=sys.stderr); sys.exit(3)", env={"ADDED": "new"}, check=False)
    assert result.returncode == 3
    assert result.stdout == tmp_path / "stdout.txt"
    assert result.stdout.read_text() == f"{tmp_path} kept new []\n"
    assert result.stderr.read_bytes() == b"err\n"
    assert result.seconds > 0


def test_a_second_program_has_files_of_its_own(run: Run) -> None:
    names = [run(f"print({number})").stdout for number in (1, 2, 3)]
    assert [path.name for path in names] == ["stdout.txt", "stdout-2.txt", "stdout-3.txt"]
    assert [path.read_text() for path in names] == ["1\n", "2\n", "3\n"]


def test_a_failure_shows_the_last_lines_of_both_outputs(run: Run) -> None:
    source = "import sys; [print('line', n) for n in range(1000)]; sys.exit('no device \\x1b[31m')"
    with pytest.raises(ExternalProgramError) as caught:
        run(source)
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("ended with exit code 1")
    assert "line 999" in lines
    assert "line 979" not in lines
    assert "no device \\x1b[31m" in lines
    assert "-o npudump_keep_dumps=all" in lines[-1]


def test_a_death_by_signal_is_named(run: Run) -> None:
    with pytest.raises(ExternalProgramError, match="was ended by SIGSEGV"):
        run("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    result = run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", check=False)
    assert result.returncode == -signal.SIGKILL


def test_a_program_that_does_not_exist_is_said_to(tmp_path: Path) -> None:
    for command, words in (
        (("./main", "--fast"), r"\./main --fast: cannot be started in .*No such file"),
        (("a\0b",), "cannot be started"),
    ):
        with pytest.raises(ExternalProgramError, match=words):
            run_program(command, cwd=tmp_path, output=tmp_path, timeout=600)


CHILD = """
import os, pathlib, signal, subprocess, sys, time
ignore = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
sleep = "print('up', flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", ignore + sleep], stdout=subprocess.PIPE)
child.stdout.readline()
pathlib.Path("pids").write_text(f"{os.getpid()} {child.pid}")
print("before the end", flush=True)
"""


def test_time_limit_ends_the_group_even_a_child_that_ignores_sigterm(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "_GRACE", 0.3)
    with pytest.raises(ExternalProgramError, match="did not end within 3 seconds") as caught:
        run(f"{CHILD}\ntime.sleep(600)", timeout=3, check=False)
    assert "before the end" in str(caught.value)
    pids = (tmp_path / "pids").read_text().split()
    assert all(is_gone(int(pid)) for pid in pids)


def test_a_program_may_end_in_order_within_the_time_of_grace(run: Run, tmp_path: Path) -> None:
    source = (
        "import pathlib, signal, sys, time\n"
        "def end(*_):\n    pathlib.Path('ended').touch(); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\ntime.sleep(600)"
    )
    with pytest.raises(ExternalProgramError, match="did not end within 2 seconds"):
        run(source, timeout=2)
    assert (tmp_path / "ended").exists()


def test_what_a_program_leaves_running_is_ended(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "_GRACE", 0.3)
    assert run(CHILD).returncode == 0
    _, child = (tmp_path / "pids").read_text().split()
    assert is_gone(int(child))


def test_an_interrupt_ends_the_program_and_goes_on(run: Run, tmp_path: Path) -> None:
    def interrupt() -> None:
        while not (tmp_path / "pids").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    heeded = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where run in the background
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            run(
                "import os, pathlib, time; pathlib.Path('pids').write_text(str(os.getpid())); time.sleep(600)"
            )
    finally:
        thread.join()
        signal.signal(signal.SIGINT, heeded)
    assert is_gone(int((tmp_path / "pids").read_text()))


def test_a_signal_while_the_program_starts_ends_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    pids = []

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            if options.get("stdin") == subprocess.DEVNULL:
                pids.append(self.pid)
                os.kill(os.getpid(), signal.SIGHUP)

    monkeypatch.setattr("subprocess.Popen", Interrupted)
    heeded = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored where run under nohup
    try:
        with pytest.raises(KeyboardInterrupt, match="SIGHUP"):
            run_in_group(["sleep", "600"], Path.cwd(), os.environ, 60, (sys.stdout.buffer, sys.stderr.buffer))
    finally:
        signal.signal(signal.SIGHUP, heeded)
    (pid,) = pids
    assert is_gone(pid)


def test_a_time_limit_is_a_number_of_seconds_and_a_command_a_list_of_strings_and_paths(run: Run) -> None:
    for timeout in (0, -1, float("inf"), float("nan"), True, "60", None):
        with pytest.raises(RequestError, match="greater than 0"):
            run("", timeout=timeout)
    wrong: tuple[Any, ...] = ("./main --fast", b"./main", Path("main"), [], (), None)
    for command in wrong:
        with pytest.raises(RequestError, match="expected a list"):
            command_of(command)
    words: tuple[Any, ...] = (1, None, b"x", Path)
    for word in words:
        with pytest.raises(RequestError, match="neither a string nor a path"):
            command_of(["./main", word])
    assert command_of(["./main", Path("a/b")]) == ("./main", "a/b")
