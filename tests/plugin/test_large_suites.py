"""Many tests at once: in workers nothing is lost, and a session does not grow."""

from __future__ import annotations

import gc
import json
import os
import threading
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Project

pytestmark = pytest.mark.e2e

MANY = """
@pytest.mark.npu_dump
@pytest.mark.parametrize("k", range({tests}))
def test_small(npu_dump, k):
    with npu_dump.load_model("small.onnx") as model:
        model.run(np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8) + np.float32(k))
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
    project.run(*workers).assert_outcomes(passed=6)
    project.model(change=0.5)
    project.run(*workers, "--npudump-dump-dir=dumps").assert_outcomes(failed=6)
    reports = [json.loads(path.read_text("utf-8")) for path in (project.path / "dumps").rglob("report.json")]
    assert len(reports) == 6
    assert all(report["escalation"] is not None for report in reports)
    assert _goldens(project) == alone


@pytest.mark.parametrize("mode", ["load", "loadscope", "loadfile", "loadgroup", "each"])
def test_however_tests_are_dealt_to_workers_each_has_its_golden(project: Project, mode: str) -> None:
    project.test_file(MANY.format(tests=4))
    workers = ["-p", "xdist", f"--dist={mode}", *(["--tx=2*popen"] if mode == "each" else ["-n2"])]
    # Where each worker runs every test, none of them may write the golden of all.
    project.record(*(workers if mode != "each" else ()), "--npudump-repeats=1")
    parallel = _goldens(project)
    assert len(parallel) == 4
    project.run(*workers).assert_outcomes(passed=8 if mode == "each" else 4)
    for path in (project.path / "golden").rglob("*.yaml"):
        path.unlink()
    project.record("--npudump-repeats=1")
    assert _goldens(project) == parallel


class Held:
    """What a process holds after each test."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, int]] = []

    def pytest_runtest_logfinish(self) -> None:
        gc.collect()
        ours = sum(str(type(found).__module__).startswith("pytest_npudump") for found in gc.get_objects())
        self.seen.append((ours, len(os.listdir("/proc/self/fd")), threading.active_count()))  # noqa: PTH208 - a count


def test_a_session_holds_no_more_after_many_tests_than_after_some(project: Project, tmp_path: Path) -> None:
    project.test_file(MANY.format(tests=30))
    project.record("--npudump-repeats=1")
    held = Held()
    result = project.pytester.inline_run(
        "--npudump-runtime=emulator", f"--basetemp={tmp_path / 'base'}", plugins=[held]
    )
    result.assertoutcome(passed=30)
    (objects, *others), (objects_at_end, *others_at_end) = held.seen[9], held.seen[29]
    assert others_at_end == others
    assert objects_at_end <= objects + 20  # what is told of each test at the end
    assert not [path for path in (tmp_path / "base").rglob("*") if path.is_file()]
