"""Models that several threads load or run: what tells the loads apart has to be the same in every run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from conftest import Project

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


@pytest.mark.parametrize("order", ["threads", "reversed(threads)"])
def test_loads_of_one_model_in_several_threads_are_refused_whatever_their_order(
    project: Project, order: str
) -> None:
    project.marked(body=LOADED_IN_THREADS.replace("ORDER", order))
    result = project.run("--npudump-update-golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*the model * was loaded by several threads (worker 1, worker 2)*load and run it in one thread, or*"]
    )
    assert not list(project.path.rglob("*.yaml"))


def test_loads_of_one_thread_that_others_run_keep_their_golden(project: Project) -> None:
    project.marked(body=RUN_IN_THREADS.replace("ORDER", "threads"))
    project.record()
    assert "#load=1" in yaml.safe_load(project.golden.read_text(encoding="utf-8"))["tensors"]
    project.marked(body=RUN_IN_THREADS.replace("ORDER", "reversed(threads)"))
    project.run().assert_outcomes(passed=1)


def test_threads_one_after_the_other_each_in_a_capture_keep_their_golden(project: Project) -> None:
    project.marked(body=EACH_IN_A_CAPTURE.replace("ORDER", "(1, 2)"))
    project.record()
    project.marked(body=EACH_IN_A_CAPTURE.replace("ORDER", "(2, 1)"))
    project.run().assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("warm_up", "workers", "named"),
    [
        ("", "(1, 2)", "worker 1, worker 2"),
        ("", "(2, 1)", "worker 1, worker 2"),
        ("model.run(np.zeros((1, 1, 8, 8), np.float32))", "(1,)", "MainThread, worker 1"),
    ],
    ids=["one-order", "other-order", "warm-up"],
)
def test_a_load_that_several_threads_run_is_refused_whatever_their_order(
    project: Project, warm_up: str, workers: str, named: str
) -> None:
    project.marked(body=RUN_BY_SEVERAL.replace("WARM_UP", warm_up).replace("WORKERS", workers))
    result = project.run("--npudump-update-golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [f"*the model small.onnx was run by several threads ({named})*load and run it in one thread, or*"]
    )
    assert not list(project.path.rglob("*.yaml"))


def test_a_load_that_one_other_thread_runs_is_recorded(project: Project) -> None:
    project.marked(body=RUN_BY_SEVERAL.replace("WARM_UP", "").replace("WORKERS", "(1,)"))
    project.record()
    project.run().assert_outcomes(passed=1)


def test_a_single_operator_that_several_threads_run_is_refused(project: Project) -> None:
    project.marked('scene="op"', body=OPERATOR_IN_THREADS.replace("WORKERS", "(1, 2)"))
    result = project.run("--npudump-update-golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*the operator Add was run by several threads (worker 1, worker 2)*(#turn=N)*"]
    )


def test_a_single_operator_that_one_other_thread_runs_is_recorded(project: Project) -> None:
    project.marked('scene="op"', body=OPERATOR_IN_THREADS.replace("WORKERS", "(1,)"))
    project.record()
