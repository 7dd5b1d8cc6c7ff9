"""Many tests at once: workers lose nothing, devices go from one to the next, and a session does not grow."""

from __future__ import annotations

import gc
import json
import os
import threading
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from pytest_npudump.plugin.features.devices import FOLDER, DeviceLock
from tests.plugin.conftest import Project
from tests.plugin.features.test_artifacts import PARTS

pytestmark = pytest.mark.e2e
MANY = """
@pytest.mark.npu_dump
@pytest.mark.parametrize("k", range({tests}))
def test_small(npu_dump, k):
    run(npu_dump, IMAGE + np.float32(k))
"""


def _goldens(project: Project) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (project.path / "golden").rglob("*") if path.is_file()}


def test_workers_lose_no_golden_no_verdict_and_no_second_run(project: Project) -> None:
    project.test_file(MANY.format(tests=6))
    project.record()
    alone = _goldens(project)
    assert len(alone) == 6
    for path in (project.path / "golden").rglob("*.yaml"):
        path.unlink()
    workers = ["-p", "xdist", "-n2", "--dist=worksteal"]
    project.record(*workers)
    assert _goldens(project) == alone
    words = "npudump: 6 of 6 tests passed; 30 of 30 tensors compared (emulator)"
    project.run(*workers, passed=6, shows=words)
    project.run("-p", "xdist", "--dist=each", "--tx=2*popen", passed=12)
    project.model(change=0.5)
    project.run(*workers, "--npudump-output=out", "--npudump-report", "--junitxml=out.xml", failed=6)
    out = project.path / "out"
    assert {path.name for path in out.iterdir()} == PARTS
    root = ET.parse(project.path / "out.xml").getroot()  # noqa: S314 - pytest's own file
    assert len(list(root.iter("testcase"))) == len(list(root.iter("failure"))) == 6
    reports = [json.loads(path.read_text("utf-8")) for path in (out / "dumps").rglob("report.json")]
    assert len(reports) == 6
    kept = [json.loads(line) for line in (out / "results/results.jsonl").read_text().splitlines()]
    tests = [line for line in kept if line["kind"] == "test"]
    assert len({line["test"] for line in tests}) == len(tests) == 6
    assert {(line["status"], line["session"]) for line in tests} == {("failed", tests[0]["session"])}
    assert all(report["escalation"] is not None for report in reports)
    assert _goldens(project) == alone


class Held:
    """What a process holds after some tests and after many, which takes long to count."""

    def __init__(self, *after: int) -> None:
        self.seen: list[tuple[int, int, int]] = []
        self._after, self._done = after, 0

    def pytest_runtest_logfinish(self) -> None:
        self._done += 1
        if self._done not in self._after:
            return
        gc.collect()
        kinds = Counter(map(type, gc.get_objects()))
        ours = sum(
            count for kind, count in kinds.items() if str(kind.__module__).startswith("pytest_npudump")
        )
        self.seen.append((ours, len(os.listdir("/proc/self/fd")), threading.active_count()))  # noqa: PTH208 - a count


def test_a_session_holds_no_more_after_many_tests_than_after_some(project: Project, tmp_path: Path) -> None:
    project.test_file(MANY.format(tests=30))
    project.record("-onpudump_repeats=1")
    held = Held(10, 30)
    options = ("--npudump-runtime=emulator", f"--basetemp={tmp_path / 'base'}")
    project.pytester.runpytest_inprocess(*options, plugins=[held]).assert_outcomes(passed=30)
    (objects, *others), (objects_at_end, *others_at_end) = held.seen
    assert others_at_end == others
    assert objects_at_end <= objects + 20  # what is told of each test at the end
    assert not [path for path in (tmp_path / "base").rglob("*") if path.is_file()]


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
    run(npu_dump)
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
    project.recorded(body=project.body + "    assert npu_dump.devices == (0,)\n")
    project.run(passed=1)
    assert not locks.exists()
    project.run("-onpudump_devices=1").assert_outcomes(failed=1)
    assert locks.exists()


def test_workers_have_devices_of_their_own_and_lose_no_golden(project: Project) -> None:
    project.test_file(EXCLUSIVE.format(marker="", tests=12))
    project.record("-p", "xdist", "-n3", "-onpudump_devices=0,1", "-onpudump_repeats=1")
    assert len([*(project.path / "golden").rglob("*.yaml")]) == 12
    assert set(_used(project)) == {"(0,)", "(1,)"}
    project.run("-p", "xdist", "-n3", "-onpudump_devices=0,1", passed=12, shows="*12 of 12 tests passed; *")


def test_what_a_test_asks_for_is_given_or_refused(project: Project) -> None:
    project.marked("devices=2", project.body + "    assert npu_dump.devices == (1, 2)\n")
    project.record("-onpudump_devices=1,2")
    project.marked("devices=3")
    words = "*npudump: the test needs 3 devices, and npudump_devices gives 2"
    project.run("-onpudump_devices=0,1", errors=1, shows=words)
    project.test_file("""
        @pytest.fixture(scope="session")
        def model(npu_device):
            return f"on {npu_device}"

        def test_it(model):
            assert model == "on 1"
    """)
    project.run("-onpudump_devices=1", passed=1)
    project.test_file("def test_it(request):\n    request.getfixturevalue('npu_device')")
    words = "*npudump: npu_device: nothing holds a device for this test: name *"
    project.run("-onpudump_devices=1", failed=1, shows=words)


def test_the_process_of_an_isolated_test_has_its_parent_s_device(project: Project, locks: Path) -> None:
    project.test_file(EXCLUSIVE.format(marker='isolation="process", devices=2', tests=1))
    locks.mkdir()
    claim = DeviceLock(locks / "npu0.claim")
    assert claim.take("another process")
    project.record("-onpudump_devices=0,1,2", "-onpudump_repeats=1")
    claim.give_back()
    assert _used(project) == ["(1, 2)"]


def test_ranks_have_the_device_of_their_number(project: Project) -> None:
    """What cannot be is a usage error."""
    project.test_file("def test_it(): pass")
    refused = "npudump_devices: this is rank 0 of 2, which has the device of its LOCAL_RANK"
    for options, words in (
        (["-onpudump_devices=x"], "npudump: npudump_devices is 'x', expected auto, or device ids"),
        (["-onpudump_devices=0"], refused),
    ):
        if words == refused:
            for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0")):
                project.patch.setenv(name, value)
        project.refused(f"*{words}*", *options)
    words = "npudump: this is rank 0 of 2, which *: nothing is locked"
    project.run("-onpudump_devices=auto", passed=1, shows=words)
