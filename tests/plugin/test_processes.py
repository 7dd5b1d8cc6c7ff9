"""What a test shares with its process: calls that are taken once, threads, devices, other processes."""

from __future__ import annotations

import concurrent.futures.process  # noqa: F401 - what an inner session imports anew is not pickled
import re
import sys
from pathlib import Path

import pytest
import yaml

# pytester forgets modules that a run imports; a later run would then mix their classes with new ones.
from pytest_npudump.emulator import install
from tests.plugin.conftest import Project

SOURCE = """
def add(value, directory):
    import acl
    ret = acl.init()
    assert ret in (0, 100002)
    acl.rt.set_device(0)
    ret = acl.op.set_model_dir(str(directory))
    assert ret == 0, f"set_model_dir returned {{ret}}"
    stream, _ = acl.rt.create_stream()
    desc = acl.create_tensor_desc(0, [4], 2)
    values = np.full(4, value, dtype=np.float32)
    pointers = [acl.rt.malloc(16, 0)[0] for _ in range(3)]
    for pointer in pointers[:2]:
        acl.rt.memcpy(pointer, 16, acl.util.bytes_to_ptr(values.tobytes()), 16, 1)
    buffers = [acl.create_data_buffer(pointer, 16) for pointer in pointers]
    attr = acl.op.create_attr()
    assert acl.op.execute_v2("Add", [desc, desc], buffers[:2], [desc], buffers[2:], attr, stream) == 0
    assert acl.rt.synchronize_stream(stream) == 0

@pytest.mark.npu_dump(scene="op")
def test_first(npu_dump, tmp_path):
    tmp_path.joinpath("add.om").write_bytes(b"a compiled operator")
    add({value}, tmp_path)

{mark}
@pytest.mark.npu_dump(scene="op")
def test_second(npu_dump, tmp_path):
    tmp_path.joinpath("add.om").write_bytes({model})
    add({value}, tmp_path)
"""
SAME, OTHER = b"a compiled operator", b"another operator"
ISOLATED = '@pytest.mark.npu_dump(isolation="process")'


def source(value: float, model: bytes = SAME, mark: str = "") -> str:
    return SOURCE.format(value=value, model=model, mark=mark)


def test_a_failing_test_that_sets_the_model_directory_has_a_second_run(project: Project) -> None:
    """CANN keeps the models of the first call; whoever asks for the same ones has them."""
    project.test_file(source(1))
    project.record()
    install.reset()  # each session has a process of its own
    project.run().assert_outcomes(passed=2)
    install.reset()
    project.test_file(source(3))
    project.run("--npudump-output=.", "-k", "first", failed=1)
    report = project.report()
    assert report["escalation"]["problem"] is None  # type: ignore[index]
    assert report["escalation"]["reproduced"] is True  # type: ignore[index]


@pytest.mark.e2e
@pytest.mark.parametrize("mark", ["", ISOLATED])
def test_a_test_that_needs_other_models_is_told_the_way_out_which_works(project: Project, mark: str) -> None:
    project.test_file(source(1, OTHER, mark))
    result = project.run("--npudump-update-golden")
    if mark:
        result.assert_outcomes(passed=2)
        return
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*set_model_dir returned 100002*", '*has loaded models by then *isolation="process"*']
    )


def test_one_run_may_call_it_once(project: Project) -> None:
    project.test_file(
        source(1).replace("    stream, _", "    assert acl.op.set_model_dir('.') == 100002\n    stream, _")
    )
    project.run("--npudump-update-golden").assert_outcomes(passed=2)


LOADED_IN_THREADS = """
    import threading

    def load_and_run(factor):
        with npu_dump.load_model("small.onnx") as model:
            model.run(np.full((1, 1, 8, 8), factor, np.float32))

    threads = [threading.Thread(target=load_and_run, args=(i,), name=f"worker {i}") for i in (1, 2)]
    for thread in ORDER:
        thread.start()
        thread.join()
"""
RUN_IN_THREADS = """
    import acl, threading
    models = [npu_dump.load_model("small.onnx") for _ in range(2)]
    context, _ = acl.rt.get_context()

    def run(model, factor):
        acl.rt.set_context(context)
        model.run(np.full((1, 1, 8, 8), factor, np.float32))

    threads = [threading.Thread(target=run, args=(model, i)) for i, model in enumerate(models, start=1)]
    for thread in ORDER:
        thread.start()
        thread.join()
    for model in models:
        model.close()
"""
EACH_IN_A_CAPTURE = """
    import threading

    def load_and_run(factor):
        with npu_dump.load_model("small.onnx") as model:
            model.run(np.full((1, 1, 8, 8), factor, np.float32))

    for factor in ORDER:
        thread = threading.Thread(target=load_and_run, args=(factor,))
        with npu_dump.capture(f"factor-{factor}"):
            thread.start()
            thread.join()
"""
RUN_BY_SEVERAL = """
    import acl, threading

    def run(factor):
        acl.rt.set_context(context)
        model.run(np.full((1, 1, 8, 8), factor, np.float32))

    with npu_dump.load_model("small.onnx") as model:
        context, _ = acl.rt.get_context()
        WARM_UP
        threads = [threading.Thread(target=run, args=(i,), name=f"worker {i}") for i in WORKERS]
        for thread in threads:
            thread.start()
            thread.join()
"""
OPERATOR_IN_THREADS = """
    import acl, threading
    acl.init()
    acl.rt.set_device(0)
    context, _ = acl.rt.get_context()

    def run(value):
        acl.rt.set_context(context)
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

    threads = [threading.Thread(target=run, args=(i,), name=f"worker {i}") for i in WORKERS]
    for thread in threads:
        thread.start()
        thread.join()
"""


def test_loads_of_one_thread_that_others_run_keep_their_golden(project: Project) -> None:
    project.recorded(body=RUN_IN_THREADS.replace("ORDER", "threads"))
    assert "#load=1" in yaml.safe_load(project.golden.read_text(encoding="utf-8"))["tensors"]
    project.marked(body=RUN_IN_THREADS.replace("ORDER", "reversed(threads)"))
    project.run().assert_outcomes(passed=1)


def test_threads_one_after_the_other_each_in_a_capture_keep_their_golden(project: Project) -> None:
    project.recorded(body=EACH_IN_A_CAPTURE.replace("ORDER", "(1, 2)"))
    project.marked(body=EACH_IN_A_CAPTURE.replace("ORDER", "(2, 1)"))
    project.run().assert_outcomes(passed=1)


def test_a_single_operator_that_several_threads_run_is_refused(project: Project) -> None:
    project.marked('scene="op"', body=OPERATOR_IN_THREADS.replace("WORKERS", "(1, 2)"))
    project.run(
        "--npudump-update-golden",
        failed=1,
        shows="*the operator Add was run by several threads (worker 1, worker 2)*(#turn=N)*",
    )


def test_loads_that_several_threads_make_or_run_are_refused_whatever_their_order(project: Project) -> None:
    loaded = (
        "*the model * was loaded by several threads (worker 1, worker 2)*load and run it in one thread, or*"
    )
    ran = "*the model small.onnx was run by several threads ({})*load and run it in one thread, or*"
    warm_up = "model.run(np.zeros((1, 1, 8, 8), np.float32))"
    by_several = RUN_BY_SEVERAL.replace("WARM_UP", "")
    cases = (
        (LOADED_IN_THREADS.replace("ORDER", "reversed(threads)"), loaded),
        (by_several.replace("WORKERS", "(1, 2)"), ran.format("worker 1, worker 2")),
        (by_several.replace("WORKERS", "(2, 1)"), ran.format("worker 1, worker 2")),
        (
            RUN_BY_SEVERAL.replace("WARM_UP", warm_up).replace("WORKERS", "(1,)"),
            ran.format("MainThread, worker 1"),
        ),
    )
    for body, words in cases:
        project.marked(body=body)
        project.run("--npudump-update-golden", failed=1, shows=words)
        assert not list(project.path.rglob("*.yaml"))
    project.marked(body=by_several.replace("WORKERS", "(1,)"))
    project.record()
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
    project.recorded(body=TWO_DEVICES.format(change=1))
    text = project.golden.read_text()
    assert "block_conv_1#device=0 " in text
    assert "block_conv_1#device=1 " in text
    install.reset()
    project.run().assert_outcomes(passed=1)


def test_a_device_that_computes_something_else_is_named(project: Project) -> None:
    project.recorded(body=TWO_DEVICES.format(change=1))
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
    tools = "    import ctypes.util, platform\n    ctypes.util.find_library('z'), platform.processor()"
    quiet = f"@pytest.mark.npu_dump\ndef test_quiet(npu_dump):\n{OWN}{tools}"
    project.test_file("\n".join([STARTING, *tests, quiet]))
    project.record("-onpudump_repeats=1")
    done = project.run("-v", "--npudump-output=.", passed=len(STARTS) + 1)
    notes = [line.partition("npudump: note: ")[2] for line in done.outlines if "npudump: note: " in line]
    pairs = (note.partition(": other ") for note in notes)
    told = {test: f"other {words}" for whose, _, words in pairs for test in re.findall(r"test_\d+", whose)}
    assert told == {
        f"test_{number}": f"other processes ran during the test ({name}): {WORDS}"
        for number, name in enumerate(STARTS.values())
    }


@pytest.mark.e2e
@pytest.mark.usefixtures("_processes")
def test_a_process_that_an_earlier_test_left_is_told_too(project: Project) -> None:
    project.test_file(
        f"""{STARTING}
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
    project.run(
        "--npudump-update-golden", shows="*note: *other processes ran during the test (ForkProcess): *"
    )


@pytest.mark.e2e
@pytest.mark.usefixtures("_processes")
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
    project.run(
        "--npudump-update-golden",
        "-v",
        passed=2,
        shows="*note: *not everything in the test ran under the dump: model 1 was loaded *",
    )


@pytest.mark.e2e
@pytest.mark.usefixtures("_processes")
def test_an_empty_dump_names_the_process_in_which_the_model_may_have_run(project: Project) -> None:
    for isolation in ("none", "process"):
        project.test_file(
            f"""{STARTING}
@pytest.mark.npu_dump(isolation="{isolation}")
def test_small(npu_dump):
    subprocess.run(["true"])
"""
        )
        result = project.run(
            failed=1, shows=f"*the dump is empty: other processes ran during the test (true): {WORDS}; *"
        )
        assert result.stdout.str().partition("short test summary")[0].count(WORDS) == 1
