from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_npudump.cli.common.executors import Workers, open_workers, run_tasks
from pytest_npudump.errors import RequestError, RuntimeUnavailableError

Run = Callable[..., Any]
TREES = Path(__file__).parents[2] / "data" / "trees"
TENSORS = TREES / "acl-tensor"


@pytest.mark.e2e
def test_processes_do_every_command(
    run: Run, tmp_path: Path, dump_file: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.linspace(-3, 5, 1 << 20, dtype=np.float32)
    for number in range(3):
        dump_file(tmp_path / "golden", f"layer_{number}", values + number, number=number)
        dump_file(tmp_path / "actual", f"layer_{number}", values[::-1] + number, number=number)
    monkeypatch.chdir(tmp_path)
    for words in (("compare", "golden", "actual"), ("ls", "--stats", "golden")):
        here = run(*words, "--json", "-", "--executor", "serial")
        assert run(*words, "--json", "-", "--executor", "processes:2") == here
    with open_workers("processes:1") as workers:
        found = run_tasks(_process, [1], workers, weight=lambda _: 1, progress=lambda _done, _total: None)
        assert [*found] != [os.getpid()]


@pytest.mark.parametrize(("nbytes", "here"), [(1 << 10, True), (1 << 20, False)])
def test_threads_are_for_what_they_gain_with(nbytes: int, *, here: bool) -> None:
    with open_workers("threads:2") as workers:
        found = run_tasks(_thread, range(100), workers, weight=lambda _: nbytes, progress=lambda _d, _a: None)
        assert (set(found) == {threading.main_thread().name}) == here


def _thread(_: int) -> str:
    return threading.current_thread().name


def _process(_: int) -> int:
    return os.getpid()


@pytest.mark.parametrize(
    "spec",
    [
        *(
            "",
            "processes:0",
            "process",
            "threads:",
            "threads:0",
            "threads:-1",
            "threads:1025",
            "threads:x",
            "threads:²",
        ),
        *("serial:2", "dask", "dask:", "threads:" + "9" * 5000),
    ],
)
def test_other_executors_are_refused(run: Run, spec: str) -> None:
    with pytest.raises(RequestError, match="expected"), open_workers(spec):
        pass
    assert run("ls", "--stats", TENSORS, f"--executor={spec}").code == 2


@pytest.mark.parametrize("spec", ["threads", "threads:2"])
def test_threads_are_gone_afterwards(spec: str) -> None:
    with open_workers(spec) as workers:
        assert isinstance(workers.executor, ThreadPoolExecutor)
    with pytest.raises(RuntimeError):
        workers.executor.submit(print)


def test_serial_works_without_an_executor() -> None:
    with open_workers("serial") as workers:
        assert workers == Workers(None)


@pytest.mark.each("weight", [0, 1 << 20, 1 << 30])
@pytest.mark.each("count", [0, 1, 63, 64, 65, 1000])
def test_results_come_in_the_order_of_the_items(weight: int, count: int) -> None:
    steps: list[tuple[int, int]] = []
    with ThreadPoolExecutor(3) as pool:
        found = list(
            run_tasks(
                str,
                range(count),
                Workers(pool),
                weight=lambda _: weight,
                progress=lambda done, total: steps.append((done, total)),
            )
        )
    assert found == [str(number) for number in range(count)]
    assert steps[-1:] == ([(count, count)] if count else [])


@pytest.mark.e2e
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_a_worker_process_that_is_killed_is_an_error_with_a_way_out() -> None:
    with (
        pytest.raises(
            RuntimeUnavailableError, match=r"processes:2: a worker process was ended.*run it again"
        ),
        open_workers("processes:2") as workers,
    ):
        [*run_tasks(_die, [1], workers, weight=lambda _: 1, progress=lambda _done, _total: None)]


def _die(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(("spec", "here"), [("serial", True), ("threads:2", True), ("processes:1", False)])
def test_only_tasks_of_this_process_can_call_back(spec: str, *, here: bool) -> None:
    with open_workers(spec) as workers:
        assert workers.here is here
