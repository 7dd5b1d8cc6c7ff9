from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.cli import ls, main
from pytest_npudump.errors import DumpError
from tests.cli.conftest import long_file

Run = Callable[..., Any]
DATA = Path(__file__).parents[2] / "data"
TREES = DATA / "trees"
FULL = Path("/dev/full")
START = (  # an interrupt is ignored where the tests run in the background
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from pytest_npudump.cli import main; sys.exit(main())"
)
full = pytest.mark.skipif(not FULL.exists(), reason="no device that is always full here")


def _start(*words: object, **options: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, **options.pop("environment", {})}
    return subprocess.Popen(
        [sys.executable, "-c", START, *map(str, words)], text=True, env=environment, **options
    )


@pytest.mark.e2e
@full
@pytest.mark.each(
    ("words", "unbuffered"),
    [
        ("ls acl-tensor", ""),
        ("ls acl-tensor", "1"),
        ("compare acl-tensor acl-stats --json -", ""),
        ("compare acl-tensor acl-stats --json -", "1"),
        ("config check acl-tensor", "1"),
        ("doctor", ""),
    ],
)
def test_output_that_a_full_disk_loses_is_a_failure_and_no_difference(
    words: tuple[str, ...], unbuffered: str
) -> None:
    with FULL.open("w") as nowhere:
        streams = {"stdout": nowhere, "stderr": subprocess.PIPE}
        child = _start(*words.split(), cwd=TREES, environment={"PYTHONUNBUFFERED": unbuffered}, **streams)
        _, complaint = child.communicate()
    assert child.returncode == 2
    (line,) = complaint.splitlines()
    assert line.startswith("npudump: standard output cannot be written: No space left on device")
    assert "run it again" in line


@full
def test_files_are_converted_though_the_summary_is_lost_and_the_verdict_stands_without_words(
    tmp_path: Path, warm: Any
) -> None:
    command = [*warm.client, "npudump"]
    with FULL.open("w") as nowhere:
        words = ["convert", TREES / "acl-tensor", "-o", tmp_path]
        done = subprocess.run(
            [*command, *words], check=False, stdout=nowhere, stderr=subprocess.PIPE, text=True
        )
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert len([*tmp_path.rglob("*.npy")]) == 4
        done = subprocess.run([*command, "ls", "--stats", "missing"], check=False, stderr=nowhere)
        assert done.returncode == 2


@pytest.mark.e2e
@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
@pytest.mark.parametrize(("closed", "words", "code"), [(">&-", "ls acl-tensor", 0), ("2>&-", "ls nix", 2)])
def test_streams_that_are_closed_from_the_beginning_change_no_verdict(
    closed: str, words: str, code: int
) -> None:
    command = f"exec {sys.executable} -c '{START}' {words} {closed}"
    done = subprocess.run(["sh", "-c", command], check=False, cwd=TREES, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


@pytest.mark.each(
    ("error", "text"),
    [
        (DumpError("x is no dump"), "npudump: x is no dump"),
        (OSError(28, "No space left on device", "y"), "No space left on device: 'y'"),
        (MemoryError("Unable to allocate 4 GiB"), "Unable to allocate 4 GiB"),
        (ZeroDivisionError("a fault"), "ZeroDivisionError: a fault"),
    ],
)
def test_no_failure_of_a_command_is_a_difference(
    error: Exception, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> int:
        raise error

    monkeypatch.setattr(ls, "run", fail)
    assert main(["ls", "--stats", "x"]) == 2
    complaint = capsys.readouterr().err
    assert text in complaint
    assert ("Traceback" in complaint) == isinstance(error, ZeroDivisionError)


@pytest.mark.e2e
@pytest.mark.skipif(os.name != "posix", reason="SIGINT is sent otherwise")
@pytest.mark.parametrize("executor", ["threads:1", "serial", "processes:1"])
@pytest.mark.parametrize("group", [True, False], ids=["terminal", "kill"])
def test_an_interrupt_ends_a_long_tensor_midway_and_leaves_no_file(
    tmp_path: Path, executor: str, *, group: bool
) -> None:
    long_file(tmp_path / "dump", "long", 1 << 29, "hifloat8")
    out = tmp_path / "out"
    child = _start(
        *("convert", tmp_path / "dump", "-o", out, "--executor", executor),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    _wait_for_bytes(child, out)
    os.killpg(child.pid, signal.SIGINT) if group else child.send_signal(signal.SIGINT)
    printed, complaint = child.communicate()
    assert (child.returncode, printed) == (130, "")
    assert complaint == "npudump: interrupted before the work was done: no verdict; run it again\n"
    assert list(out.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes as Linux lists them")
def test_a_worker_that_is_killed_midway_leaves_no_file(tmp_path: Path) -> None:
    child, workers = _converting_in_a_process(tmp_path)
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    printed, complaint = child.communicate()
    assert (child.returncode, printed) == (2, "")
    assert complaint.startswith("npudump: --executor processes:1: a worker process was ended")
    assert complaint.count("\n") == 1
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes as Linux lists them")
def test_workers_end_midway_with_a_command_that_is_killed(tmp_path: Path) -> None:
    child, workers = _converting_in_a_process(tmp_path)
    child.kill()
    child.communicate()
    while any(map(_runs, workers)):
        time.sleep(0.01)
    assert list((tmp_path / "out").glob("*.npy")) == []


def _converting_in_a_process(tmp_path: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a long conversion; return it and its worker process, which has begun to write."""
    long_file(tmp_path / "dump", "long", 1 << 29, "hifloat8")
    out = tmp_path / "out"
    child = _start(
        *("convert", tmp_path / "dump", "-o", out, "--executor", "processes:1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    _wait_for_bytes(child, out)
    tasks = Path(f"/proc/{child.pid}/task")
    found = [int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split()]
    return child, [pid for pid in found if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def _wait_for_bytes(child: subprocess.Popen[str], out: Path) -> None:
    while child.poll() is None and not any(file.stat().st_size for file in out.glob("*.tmp")):
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
