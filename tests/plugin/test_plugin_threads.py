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


@pytest.mark.parametrize("order", ["threads", "reversed(threads)"])
def test_loads_of_one_model_in_several_threads_are_refused_whatever_their_order(
    project: Project, order: str
) -> None:
    project.marked(body=LOADED_IN_THREADS.replace("ORDER", order))
    result = project.run("--npudump-update-golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*the model * was loaded by several threads (worker 1, worker 2)*load it in one thread and run*"]
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
