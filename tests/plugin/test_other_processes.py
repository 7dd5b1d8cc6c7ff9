"""Processes that a marked test starts by itself: no dump sees what runs there, unless they see to that."""

from __future__ import annotations

import concurrent.futures.process  # noqa: F401 - what an inner session imports anew is not pickled
import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Project

pytestmark = pytest.mark.e2e

STARTS = {
    "subprocess.run([sys.executable, '-c', '1'])": Path(sys.executable).name,
    "subprocess.run('true 1 && date', shell=True)": "true",
    "os.system('true')": "true",
    "os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)": "true",
    "os.fork() or os._exit(0); os.wait()": "os.fork()",
    "joined(multiprocessing.get_context('fork').Process(target=int))": "ForkProcess",
    "joined(multiprocessing.get_context('spawn').Process(target=int))": "SpawnProcess",
    "joined(multiprocessing.get_context('forkserver').Process(target=int))": "ForkServerProcess",
    "pooled(futures.ProcessPoolExecutor(1, multiprocessing.get_context('fork')))": "ForkProcess",
}
HEADER = """
import multiprocessing, os, subprocess, sys, time
from concurrent import futures

def joined(process):
    process.start()
    process.join()

def pooled(executor):
    with executor:
        executor.submit(int).result()
"""
OWN = """
    with npu_dump.load_model("small.onnx") as model:
        model.run(np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8))
"""
WORDS = "a model that runs there is dumped only if the dump is on there, as with npu_dump.run()"


@pytest.fixture
def project(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """One whose sessions have a process of their own: a fork beside other tests' threads may hang."""
    monkeypatch.setattr(project.pytester, "runpytest_inprocess", project.pytester.runpytest_subprocess)
    return project


@pytest.fixture(autouse=True)
def children() -> None:
    """No pool of an earlier test is left."""
    assert not multiprocessing.active_children()


def test_each_way_to_start_a_process_is_told_of_a_test_that_passes(project: Project) -> None:
    tests = [
        f"@pytest.mark.npu_dump\ndef test_{number}(npu_dump):\n{OWN}    {start}\n"
        for number, start in enumerate(STARTS)
    ]
    tools = "    import ctypes.util, platform\n    ctypes.util.find_library('z'), platform.processor()"
    quiet = f"@pytest.mark.npu_dump\ndef test_quiet(npu_dump):\n{OWN}{tools}"
    project.test_file("\n".join([HEADER, *tests, quiet]))
    project.record("--npudump-repeats=1")
    result = project.run("-v", "--npudump-dump-dir=dumps")
    result.assert_outcomes(passed=len(STARTS) + 1)
    notes = json.loads(next(project.path.glob("dumps/**/notes.json")).read_text("utf-8"))["notes"]
    told = {test.rpartition("::")[2]: note["note"] for note in notes for test in note["tests"]}
    assert told == {
        f"test_{number}": f"other processes ran during the test ({name}): {WORDS}"
        for number, name in enumerate(STARTS.values())
    }


def test_a_process_that_an_earlier_test_left_is_told_too(project: Project) -> None:
    project.test_file(
        f"""{HEADER}
@pytest.fixture(scope="module", autouse=True)
def server():
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    process.start()
    yield
    process.terminate()
    process.join()

def test_before():
    pass

@pytest.mark.npu_dump
def test_small(npu_dump):
{OWN}
"""
    )
    result = project.run("--npudump-update-golden")
    result.stdout.fnmatch_lines(["*note: *other processes ran during the test (ForkProcess): *"])


def test_a_model_that_runs_here_without_the_dump_is_told_beside_one_that_is_dumped(project: Project) -> None:
    project.test_file(
        f"""
@pytest.fixture(scope="module")
def early():
    import acl
    acl.init()
    acl.rt.set_device(0)
    model, _ = acl.mdl.load_from_file("small.onnx")
    datasets = []
    for shape in ((1, 1, 8, 8), (1, 2, 6, 6)):
        address, _ = acl.rt.malloc(4096, 0)
        datasets.append(acl.mdl.create_dataset())
        acl.mdl.add_dataset_buffer(datasets[-1], acl.create_data_buffer(address, 4096))
    yield lambda: acl.mdl.execute(model, *datasets)
    acl.finalize()

def test_before(early):
    pass

@pytest.mark.npu_dump
def test_small(npu_dump, early):
    early()
{OWN}
"""
    )
    result = project.run("--npudump-update-golden", "-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        ["*note: *not all that ran in the test was under the dump: model 1 was loaded *"]
    )


def test_an_empty_dump_names_the_process_in_which_the_model_may_have_run(project: Project) -> None:
    for isolation in ("none", "process"):
        project.test_file(
            f"""{HEADER}
@pytest.mark.npu_dump(isolation="{isolation}")
def test_small(npu_dump):
    subprocess.run(["true"])
"""
        )
        result = project.run()
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(
            [f"*the dump holds nothing: other processes ran during the test (true): {WORDS}; *"]
        )
        assert result.stdout.str().count(WORDS) == 1


def test_a_process_that_gets_the_configuration_is_the_test_s_own_affair(project: Project) -> None:
    project.test_file(
        f"""{HEADER}
@pytest.mark.npu_dump
def test_small(npu_dump):
    import acl
    acl.init(str(npu_dump.config_path))
    subprocess.run(["true"])
{OWN}
    acl.finalize()
"""
    )
    result = project.run("--npudump-update-golden", "--npudump-repeats=1")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*other processes*")


def test_what_was_looked_at_is_as_it_was_behind_the_test(project: Project) -> None:
    before = subprocess.Popen.__init__, os.system, os.posix_spawn, multiprocessing.Process.start
    project.marked()
    project.run("--npudump-update-golden")
    assert before == (subprocess.Popen.__init__, os.system, os.posix_spawn, multiprocessing.Process.start)
