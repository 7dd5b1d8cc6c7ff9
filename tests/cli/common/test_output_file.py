from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.cli.common.output import write_output
from pytest_npudump.errors import NpudumpError

Run = Callable[..., Any]
TREES = Path(__file__).parents[2] / "data" / "trees"
TENSORS = TREES / "acl-tensor"
COMMANDS = [
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
@pytest.mark.each("words", COMMANDS, ids=lambda words: words[0])
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
    command = [*warm.client, "npudump", "ls", "--stats", str(TENSORS), "--json", "/dev/stderr"]
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
