"""Devices of a pool, as tests see them: one after another, in workers, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.plugin.features.devices.pool import FOLDER, DeviceLock

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Project


pytestmark = pytest.mark.e2e

# A file that must not be there yet stands for a device that another test has.
EXCLUSIVE = """
import os, time
from pathlib import Path

@pytest.mark.npu_dump({marker})
@pytest.mark.parametrize("k", range({tests}))
def test_small(npu_dump, k):
    marks = [Path(__file__).parent / f"busy{{i}}" for i in npu_dump.devices]
    for mark in marks:
        mark.touch(exist_ok=False)
    with npu_dump.load_model("small.onnx") as model:
        model.run(np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8))
    time.sleep(0.02)
    for mark in marks:
        mark.unlink()
    with open(Path(__file__).parent / "used", "a") as file:
        file.write(f"{{os.getppid()}} {{os.getpid()}} {{npu_dump.devices}}\\n")
"""


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER, str(tmp_path / "locks"))
    return tmp_path / "locks"


def _used(project: Project) -> list[str]:
    return [line.split(" ", 2)[2] for line in (project.path / "used").read_text().splitlines()]


def test_without_the_option_nothing_is_locked(project: Project, locks: Path) -> None:
    project.marked(body=project.body + "    assert npu_dump.devices == (0,)\n")
    project.record()
    project.run("--npudump-device=1").assert_outcomes(failed=1)
    assert not locks.exists()


def test_auto_without_an_npu_locks_nothing(project: Project, locks: Path) -> None:
    project.test_file("def test_it(npu_device):\n    assert npu_device == 0")
    result = project.run("--npudump-devices=auto")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["npudump: no NPU is seen here: nothing is locked"])
    assert not locks.exists()


def test_a_golden_of_one_device_is_that_of_all(project: Project) -> None:
    project.test_file(EXCLUSIVE.format(marker="", tests=1))
    project.record("--npudump-devices=0")
    project.run("--npudump-devices=1").assert_outcomes(passed=1)
    assert _used(project)[-1] == "(1,)"


def test_workers_have_devices_of_their_own_and_lose_no_golden(project: Project) -> None:
    project.test_file(EXCLUSIVE.format(marker="", tests=12))
    project.record("-p", "xdist", "-n3", "--npudump-devices=0,1", "--npudump-repeats=1")
    assert len([*(project.path / "golden").rglob("*.yaml")]) == 12
    assert set(_used(project)) == {"(0,)", "(1,)"}
    result = project.run("-p", "xdist", "-n3", "--npudump-devices=0,1")
    result.assert_outcomes(passed=12)
    result.stdout.fnmatch_lines(["*12 of 12 tests good, *"])


def test_a_test_gets_as_many_devices_as_it_asks_for(project: Project) -> None:
    project.test_file(EXCLUSIVE.format(marker="devices=3", tests=4))
    project.record("-p", "xdist", "-n2", "--npudump-devices=0,1,2", "--npudump-repeats=1")
    assert {tuple(sorted(eval(used))) for used in _used(project)} == {(0, 1, 2)}  # noqa: S307 - ours


def test_more_devices_than_there_are_fail_the_test(project: Project) -> None:
    project.marked("devices=3")
    result = project.run("--npudump-devices=0,1")
    result.stdout.fnmatch_lines(["*npudump: the test needs 3 devices, and --npudump-devices gives 2"])
    result.assert_outcomes(errors=1)


def test_without_a_pool_devices_are_counted_from_the_first(project: Project) -> None:
    project.marked("devices=2", project.body + "    assert npu_dump.devices == (1, 2)\n")
    project.record("--npudump-device=1")


def test_the_process_of_an_isolated_test_has_its_parent_s_device(project: Project, locks: Path) -> None:
    project.test_file(EXCLUSIVE.format(marker='isolation="process", devices=2', tests=1))
    locks.mkdir()
    claim = DeviceLock(locks / "npu0.claim")
    assert claim.take("another process")
    project.record("--npudump-devices=0,1,2", "--npudump-repeats=1")
    claim.give_back()
    assert _used(project) == ["(1, 2)"]


def test_a_run_that_was_killed_leaves_its_device_free(project: Project) -> None:
    source = "import os\ndef test_it(npu_device):\n    os.environ.get('DIE') and os.kill(os.getpid(), 9)\n"
    project.test_file(source)
    options = ["-q", "--npudump-devices=0", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=project.path,
        env={**os.environ, "DIE": "1"},
        check=False,
        capture_output=True,
    )
    assert done.returncode == -9
    project.run("--npudump-devices=0").assert_outcomes(passed=1)


def test_the_fixture_serves_fixtures_of_any_scope(project: Project) -> None:
    project.test_file("""
        @pytest.fixture(scope="session")
        def model(npu_device):
            return f"on {npu_device}"

        def test_it(model):
            assert model == "on 1"
    """)
    project.run("--npudump-devices=1").assert_outcomes(passed=1)


def test_a_device_that_nothing_holds_is_not_given(project: Project) -> None:
    project.test_file("def test_it(request):\n    request.getfixturevalue('npu_device')")
    result = project.run("--npudump-devices=1")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*npudump: npu_device: nothing holds a device for this test: name *"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--npudump-devices=x"], "npudump: --npudump-devices is 'x', expected auto, or device ids"),
        (
            ["--npudump-devices=0", "--npudump-device=1"],
            "npudump: --npudump-device and --npudump-devices excl",
        ),
    ],
)
def test_what_cannot_be_is_a_usage_error(project: Project, options: list[str], words: str) -> None:
    project.marked()
    result = project.run(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{words}*"])


def test_ranks_have_the_device_of_their_number(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0")):
        monkeypatch.setenv(name, value)
    project.test_file("def test_it(): pass")
    found = project.run("--npudump-devices=auto")
    found.assert_outcomes(passed=1)
    found.stdout.fnmatch_lines(["npudump: this is rank 0 of 2, which *: nothing is locked"])
    result = project.run("--npudump-devices=0")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*--npudump-devices: this is rank 0 of 2, which has the device of its LOCAL_RANK*"]
    )
