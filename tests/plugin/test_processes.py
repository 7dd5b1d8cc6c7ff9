"""What a test shares with its process: calls that are taken once, threads, devices, other processes."""

from __future__ import annotations

import concurrent.futures.process  # noqa: F401 - what an inner session imports anew is not pickled
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

# pytester forgets modules that a run imports; a later run would then mix their classes with new ones.
from pytest_npudump.emulator import install
from tests.plugin.conftest import Project

ADD = """
def add(value):
    stream, _ = acl.rt.create_stream()
    desc = acl.create_tensor_desc(0, [4], 2)
    data = np.full(4, value, np.float32).tobytes()
    pointers = [acl.rt.malloc(16, 0)[0] for _ in range(3)]
    for pointer in pointers[:2]:
        acl.rt.memcpy(pointer, 16, acl.util.bytes_to_ptr(data), 16, 1)
    buffers = [acl.create_data_buffer(pointer, 16) for pointer in pointers]
    attr = acl.op.create_attr()
    assert acl.op.execute_v2("Add", [desc] * 2, buffers[:2], [desc], buffers[2:], attr, stream) == 0
    assert acl.rt.synchronize_stream(stream) == 0
"""
SOURCE = """
import acl
{add}
def add_by_model(value, directory, model):
    directory.joinpath("add.om").write_bytes(model)
    assert acl.init() in (0, 100002)
    acl.rt.set_device(0)
    ret = acl.op.set_model_dir(str(directory))
    assert ret == 0, f"set_model_dir returned {{ret}}"
    add(value)

@pytest.mark.npu_dump(scene="op")
def test_first(npu_dump, tmp_path):
    add_by_model({value}, tmp_path, b"a compiled operator")

{mark}
@pytest.mark.npu_dump(scene="op")
def test_second(npu_dump, tmp_path):
    add_by_model({value}, tmp_path, {model})
"""
SAME, OTHER = b"a compiled operator", b"another operator"
ISOLATED = '@pytest.mark.npu_dump(isolation="process")'


def source(value: float, model: bytes = SAME, mark: str = "") -> str:
    return SOURCE.format(add=ADD, value=value, model=model, mark=mark)


def test_a_failing_test_that_sets_the_model_directory_has_a_second_run(project: Project) -> None:
    """CANN keeps the models of the first call; whoever asks for the same has them. One run calls once."""
    project.test_file(source(1))
    project.record()
    install.reset()  # each session has a process of its own
    project.run(passed=2)
    install.reset()
    project.test_file(source(3))
    project.run("--npudump-output=.", "-k", "first", failed=1)
    report: Any = project.report()
    assert report["escalation"]["problem"] is None
    assert report["escalation"]["reproduced"] is True
    install.reset()
    again = "    assert acl.op.set_model_dir('.') == 100002\n    add(value)\n\n"
    project.test_file(source(1).replace("    add(value)\n\n", again))
    project.run("--npudump-update-golden", passed=2)


@pytest.mark.e2e
def test_a_test_that_needs_other_models_is_told_the_way_out_which_works(project: Project) -> None:
    project.test_file(source(1, OTHER, ISOLATED))
    project.run("--npudump-update-golden", passed=2)
    install.reset()
    project.test_file(source(1, OTHER))
    shows = ["*set_model_dir returned 100002*", '*has loaded models by then *isolation="process"*']
    project.run("--npudump-update-golden", passed=1, failed=1, shows=shows)


LOAD_AND_RUN = """
    import threading

    def load_and_run(factor):
        run(npu_dump, np.full((1, 1, 8, 8), factor, np.float32))
"""
ONE_AFTER_THE_OTHER = """
    for thread in ORDER:
        thread.start()
        thread.join()
"""
LOADED_IN_THREADS = f"""{LOAD_AND_RUN}
    threads = [threading.Thread(target=load_and_run, args=(i,), name=f"worker {{i}}") for i in (1, 2)]
{ONE_AFTER_THE_OTHER}"""
RUN_IN_THREADS = f"""
    import acl, threading
    models = [npu_dump.load_model("small.onnx") for _ in range(2)]
    context, _ = acl.rt.get_context()

    def run_here(model, factor):
        acl.rt.set_context(context)
        model.run(np.full((1, 1, 8, 8), factor, np.float32))

    threads = [threading.Thread(target=run_here, args=(model, i)) for i, model in enumerate(models, start=1)]
{ONE_AFTER_THE_OTHER}
    for model in models:
        model.close()
"""
EACH_IN_A_CAPTURE = f"""{LOAD_AND_RUN}
    for factor in ORDER:
        thread = threading.Thread(target=load_and_run, args=(factor,))
        with npu_dump.capture(f"factor-{{factor}}"):
            thread.start()
            thread.join()
"""
RUN_BY_SEVERAL = """
    import acl, threading

    def run_here(factor):
        acl.rt.set_context(context)
        model.run(np.full((1, 1, 8, 8), factor, np.float32))

    with npu_dump.load_model("small.onnx") as model:
        context, _ = acl.rt.get_context()
        WARM_UP
        for i in WORKERS:
            thread = threading.Thread(target=run_here, args=(i,), name=f"worker {i}")
            thread.start()
            thread.join()
"""
OPERATOR_IN_THREADS = """
    import threading
    acl.init()
    acl.rt.set_device(0)
    context, _ = acl.rt.get_context()

    def run_here(value):
        acl.rt.set_context(context)
        add(value)

    for i in (1, 2):
        thread = threading.Thread(target=run_here, args=(i,), name=f"worker {i}")
        thread.start()
        thread.join()
"""


def test_loads_of_one_thread_that_others_run_and_threads_in_captures_keep_their_golden(
    project: Project,
) -> None:
    project.recorded(body=RUN_IN_THREADS.replace("ORDER", "threads"))
    assert "#load=1" in yaml.safe_load(project.golden.read_text(encoding="utf-8"))["tensors"]
    project.marked(body=RUN_IN_THREADS.replace("ORDER", "reversed(threads)"))
    project.run(passed=1)
    project.recorded(body=EACH_IN_A_CAPTURE.replace("ORDER", "(1, 2)"))
    project.marked(body=EACH_IN_A_CAPTURE.replace("ORDER", "(2, 1)"))
    project.run(passed=1)


def test_what_several_threads_load_or_run_is_refused_whatever_their_order(project: Project) -> None:
    mark = '@pytest.mark.npu_dump(scene="op")\ndef test_small(npu_dump):\n'
    project.test_file(f"import acl\n{ADD}\n{mark}{OPERATOR_IN_THREADS}")
    words = "*the operator Add was run by several threads (worker 1, worker 2)*(#turn=N)*"
    project.run("--npudump-update-golden", failed=1, shows=words)
    way_out = "*load and run it in one thread, or*"
    loaded = f"*the model * was loaded by several threads (worker 1, worker 2){way_out}"
    ran = f"*the model small.onnx was run by several threads ({{}}){way_out}"
    warm_up = "model.run(np.zeros((1, 1, 8, 8), np.float32))"
    by_several = RUN_BY_SEVERAL.replace("WARM_UP", "")
    by_two = RUN_BY_SEVERAL.replace("WARM_UP", warm_up).replace("WORKERS", "(1,)")
    for body, words in (
        (LOADED_IN_THREADS.replace("ORDER", "reversed(threads)"), loaded),
        (by_several.replace("WORKERS", "(1, 2)"), ran.format("worker 1, worker 2")),
        (by_several.replace("WORKERS", "(2, 1)"), ran.format("worker 1, worker 2")),
        (by_two, ran.format("MainThread, worker 1")),
    ):
        project.marked(body=body)
        project.run("--npudump-update-golden", failed=1, shows=words)
        assert not list(project.path.rglob("*.yaml"))
    project.recorded(body=by_several.replace("WORKERS", "(1,)"))
    project.run(passed=1)


TWO_DEVICES = """
    from concurrent.futures import ThreadPoolExecutor

    import acl

    assert acl.init() == 0

    def run(device):
        assert acl.rt.set_device(device) == 0
        model_id, ret = acl.mdl.load_from_file("small.onnx")
        assert ret == 0
        data = np.linspace(-1, 1 + {change} * device, 64, dtype=np.float32).tobytes()
        source, target = acl.rt.malloc(256, 0)[0], acl.rt.malloc(256, 0)[0]
        acl.rt.memcpy(source, 256, acl.util.bytes_to_ptr(data), 256, 1)
        datasets = [acl.mdl.create_dataset() for _ in range(2)]
        for dataset, (address, size) in zip(datasets, ((source, 256), (target, 128))):
            acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(address, size))
        return acl.mdl.execute(model_id, *datasets)

    with ThreadPoolExecutor(2) as workers:
        assert list(workers.map(run, (0, 1))) == [0, 0]
"""


def test_layers_of_two_devices_are_compared_apart(project: Project) -> None:
    """One that computes something else is named."""
    project.recorded(body=TWO_DEVICES.format(change=1))
    text = project.golden.read_text()
    assert "block_conv_1#device=0 " in text
    assert "block_conv_1#device=1 " in text
    install.reset()
    project.run(passed=1)
    install.reset()
    project.marked(body=TWO_DEVICES.format(change=1.5))
    project.run(failed=1, shows="*#device=1*", hides="*#device=0:output*")


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
STARTING = """
import multiprocessing, os, subprocess, sys, time
from concurrent import futures

def joined(process):
    process.start()
    process.join()

def pooled(executor):
    with executor:
        executor.submit(int).result()
"""


@pytest.fixture
def _processes(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give sessions a process of their own: a fork beside other tests' threads may hang."""
    monkeypatch.setattr(project.pytester, "runpytest_inprocess", project.pytester.runpytest_subprocess)


OWN = """
    run(npu_dump)
"""
WORDS = "a model that runs there is dumped only if the dump is on there, as with npu_dump.run()"


@pytest.mark.e2e
@pytest.mark.usefixtures("_processes")
def test_each_way_to_start_a_process_is_told_of_a_test_that_passes(project: Project) -> None:
    tests = [
        f"@pytest.mark.npu_dump\ndef test_{number}(npu_dump):\n{OWN}    {start}\n"
        for number, start in enumerate(STARTS)
    ]
    tools = "    import ctypes.util, platform\n    ctypes.util.find_library('z'), platform.processor()\n"
    tools += (
        "    exec('import subprocess; subprocess.run([\"true\"])', {'__name__': 'torch._inductor.codecache'})"
    )
    quiet = f"@pytest.mark.npu_dump\ndef test_quiet(npu_dump):\n{OWN}{tools}"
    project.test_file("\n".join([STARTING, *tests, quiet]))
    project.record("-onpudump_repeats=1")
    done = project.run("-v", "--npudump-output=.", passed=len(STARTS) + 1)
    notes = [line.partition("npudump: note: ")[2] for line in done.outlines if "npudump: note: " in line]
    pairs = (note.partition(": other ") for note in notes)
    told = {
        test: f"other {words}"
        for whose, _, words in pairs
        for test in re.findall(r"test_(?:\d+|quiet)", whose)
    }
    assert told == {
        f"test_{number}": f"other processes ran during the test ({name}): {WORDS}"
        for number, name in enumerate(STARTS.values())
    }


EARLIER = """
@pytest.fixture(scope="module")
def server():
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    process.start()
    yield
    process.terminate()
    process.join()

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

def test_before(FIXTURE):
    pass

@pytest.mark.npu_dump
def test_small(npu_dump, FIXTURE):
    CALL
    run(npu_dump)
"""


@pytest.mark.e2e
@pytest.mark.usefixtures("_processes")
def test_a_process_and_a_model_that_an_earlier_test_left_are_told_too(project: Project) -> None:
    for fixture, call, words in (
        ("server", "pass", "other processes ran during the test (ForkProcess): *"),
        ("early", "early()", "not everything in the test ran under the dump: model 1 was loaded *"),
    ):
        project.test_file(STARTING + EARLIER.replace("FIXTURE", fixture).replace("CALL", call))
        project.run("--npudump-update-golden", "-v", passed=2, shows=f"*note: *{words}")
        project.golden.unlink()


@pytest.mark.e2e
@pytest.mark.usefixtures("_processes")
def test_an_empty_dump_names_the_process_in_which_the_model_may_have_run(project: Project) -> None:
    for isolation in ("none", "process"):
        marker = f"@pytest.mark.npu_dump(isolation={isolation!r})\n"
        project.test_file(f"{STARTING}\n{marker}def test_small(npu_dump):\n    subprocess.run(['true'])\n")
        words = f"*the dump is empty: other processes ran during the test (true): {WORDS}; *"
        result = project.run(failed=1, shows=words)
        assert result.stdout.str().partition("short test summary")[0].count(WORDS) == 1
