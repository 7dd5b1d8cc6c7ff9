"""A dump for which there is no room: what ran is told, and that the dump failed."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Project


pytestmark = pytest.mark.e2e

FILES = """
import resource, sys
def allow(size):
    '''Let files of this process grow to so many bytes; writing more fails, as on a full disk.'''
    sys.dont_write_bytecode = True  # what is cut off would be read by the next process
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
"""


@pytest.fixture
def tiny(project: Project) -> Iterator[Path]:
    """A file system of 12 KiB, which holds the configuration of a dump and not the dump."""
    folder = project.path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small file system can be mounted by root only")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_model_whose_dump_could_not_be_written_did_run(project: Project) -> None:
    body = project.body.replace("        model.run(image)", "        allow(20)\n        model.run(image)")
    guarded = body.replace("\n", "\n    ")
    project.test_file(
        f"{FILES}\n@pytest.mark.npu_dump\ndef test_small(npu_dump):\n    try:{guarded}"
        f"\n    finally:\n        allow(resource.RLIM_INFINITY)\n"
    )
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*the dump cannot be written: *File too large*",
            "the test's body did not pass: its dump was not compared",
            "small.onnx was loaded under the dump, and no execution of it ended well",
            "npudump: 0 of 1 tests good, 1 not compared (emulator)",
        ]
    )


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_full_disk_is_named(project: Project, tiny: Path, isolation: str) -> None:
    project.marked(f"isolation={isolation!r}")
    (tiny / "filler").write_bytes(bytes(8192 if isolation == "process" else 4096))
    result = project.run("--npudump-dump-dir=tiny")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the file system of *tiny/* is full (* bytes are free)*"])
    result.stdout.fnmatch_lines(["npudump: 0 of 1 tests good, * (emulator)"])


def test_dump_that_cannot_be_prepared_fails_the_test_s_setup(project: Project) -> None:
    project.test_file(
        f"{FILES}\n@pytest.fixture(scope='module', autouse=True)\ndef limited():\n    yield\n"
        f"    allow(resource.RLIM_INFINITY)\n\ndef test_first(limited):\n    allow(10)\n"
        f"\n@pytest.mark.npu_dump\ndef test_small(npu_dump):\n{project.body}"
    )
    result = project.run()
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["npudump: *run1: the dump cannot be prepared: File too large; free space *"])


def test_complete_dump_on_a_disk_that_is_all_but_full_is_not_called_incomplete(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.marked()
    project.record()
    monkeypatch.setattr("pytest_npudump.regression.diagnose.LITTLE", 1 << 62)
    passed = project.run()
    passed.assert_outcomes(passed=1)
    passed.stdout.no_fnmatch_line("*the file system of*")
    project.model(change=1.0)
    failed = project.run()
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines(["*the file system of * is full (* bytes are free), so that *may be incomp*"])
