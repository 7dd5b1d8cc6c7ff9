from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_npudump.cli.common.work import Workers, open_workers, run_tasks
from pytest_npudump.errors import MissingExtraError, RequestError, RuntimeUnavailableError
from tests.cli.conftest import dump_file

Run = Callable[..., Any]
TREES = Path(__file__).parents[2] / "data" / "trees"
TENSORS = TREES / "acl-tensor"


@pytest.fixture(scope="module")
def clusters() -> Iterator[list[Any]]:
    """Clusters that tests have started, of which the last one may run."""
    started: list[Any] = []
    yield started
    for cluster in started:
        cluster.close()


@pytest.fixture
def dask(clusters: list[Any]) -> str:
    """Address of a cluster of two worker processes, the last of the clusters."""
    from distributed import LocalCluster

    if not clusters or clusters[-1].status.name != "running":
        clusters.append(LocalCluster(2, threads_per_worker=1, dashboard_address=":0", silence_logs=50))
    return f"dask:{clusters[-1].scheduler_address}"


def test_processes_and_a_dask_cluster_do_every_command(
    run: Run, tmp_path: Path, dask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.linspace(-3, 5, 1 << 20, dtype=np.float32)
    for number in range(4):
        dump_file(tmp_path / "golden", f"layer_{number}", values + number, number=number)
        dump_file(tmp_path / "actual", f"layer_{number}", values[::-1] + number, number=number)
    monkeypatch.chdir(tmp_path)
    for words in (("compare", "golden", "actual"), ("ls", "--stats", "golden"), ("ls", "golden")):
        here = run(*words, "--json", "-", "--executor", "serial")
        for executor in (dask, "processes:2"):
            assert run(*words, "--json", "-", "--executor", executor) == here, executor
    assert run("convert", "golden", "-o", "out", "--executor", dask).code == 0
    written = [np.load(path) for path in sorted((tmp_path / "out").iterdir())]
    assert [array[0] for array in written] == [-3, -2, -1, 0]


def test_a_cluster_is_given_few_pieces_of_many_small_ones(dask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_workers(dask) as workers:
        assert workers.count == 2
        assert workers.executor is not None
        inner, sent = workers.executor.map, []

        def counted(work: Callable[..., Any], batches: list[Any]) -> Any:
            sent.append(len(batches))
            return inner(work, batches)

        monkeypatch.setattr(workers.executor, "map", counted)
        items = [Path(f"item_{number}") for number in range(10_000)]
        found = run_tasks(str, items, workers, weight=lambda _: 1 << 10, progress=lambda _done, _all: None)
        assert list(found) == [str(item) for item in items]
    assert sent[0] <= 33


@pytest.mark.each(("nbytes", "here"), [(1 << 10, True), (1 << 20, False)])
def test_threads_are_for_what_they_gain_with(nbytes: int, *, here: bool) -> None:
    with open_workers("threads:2") as workers:
        found = run_tasks(_thread, range(100), workers, weight=lambda _: nbytes, progress=lambda _d, _a: None)
        assert (set(found) == {threading.main_thread().name}) == here


def _thread(_: int) -> str:
    return threading.current_thread().name


def test_unreadable_files_come_back_from_a_dask_worker(run: Run, tmp_path: Path, dask: str) -> None:
    source = next(TENSORS.rglob("MatMul*"))
    (tmp_path / source.name).write_bytes(source.read_bytes()[:-1])
    done = run("ls", "--stats", tmp_path, "--executor", dask)
    assert done.code == 2
    assert f"npudump: unreadable: {tmp_path / source.name}" in done.err


def test_the_work_is_done_in_the_worker_processes(dask: str) -> None:
    for executor, remote in ((dask, True), ("processes:1", False)):
        with open_workers(executor) as workers:
            assert workers.remote is remote
            found = {
                *run_tasks(
                    _process, range(200), workers, weight=lambda _: 1 << 30, progress=lambda _d, _a: None
                )
            }
        assert os.getpid() not in found
        assert 1 <= len(found) <= 1 + remote


def _process(_: int) -> int:
    return os.getpid()


def test_an_address_where_no_scheduler_is_and_dask_that_is_not_installed_are_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pytest_npudump.cli.common.work._CONNECT_SECONDS", 1)
    address = "dask:tcp://127.0.0.1:9"
    with pytest.raises(RuntimeUnavailableError, match="no Dask scheduler answers"), open_workers(address):
        pass
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"pytest-npudump\[dask\]"), open_workers(address):
        pass


@pytest.mark.each(
    "spec",
    ["", "processes:0", "process", "serial:2", "dask", "dask:", "threads:" + "9" * 5000]
    + [f"threads:{count}" for count in ("", "0", "-1", "1025", "x", "²")],
)
def test_other_executors_are_refused(run: Run, spec: str) -> None:
    with pytest.raises(RequestError, match="expected"), open_workers(spec):
        pass
    assert run("ls", "--stats", TENSORS, f"--executor={spec}").code == 2


@pytest.mark.each(("spec", "here"), [("serial", True), ("threads:2", True), ("processes:1", False)])
def test_only_tasks_of_this_process_can_call_back(spec: str, *, here: bool) -> None:
    with open_workers(spec) as workers:
        assert workers.here is here
        assert spec != "serial" or workers == Workers(None, remote=False)


@pytest.mark.each("spec", ["threads", "threads:2"])
def test_threads_are_gone_afterwards(spec: str) -> None:
    with open_workers(spec) as workers:
        assert isinstance(workers.executor, ThreadPoolExecutor)
    with pytest.raises(RuntimeError):
        workers.executor.submit(print)


@pytest.mark.each("weight", [0, 1 << 20, 1 << 30])
@pytest.mark.each("count", [0, 1, 63, 64, 65, 1000])
def test_results_come_in_the_order_of_the_items(weight: int, count: int) -> None:
    steps: list[tuple[int, int]] = []
    told: dict[str, Any] = {"weight": lambda _: weight, "progress": lambda *step: steps.append(step)}
    with ThreadPoolExecutor(3) as pool:
        found = [*run_tasks(str, range(count), Workers(pool), **told)]
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


@pytest.mark.e2e
def test_a_cluster_that_closes_at_work_is_an_error_with_a_way_out(
    dask: str, clusters: list[Any], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RuntimeUnavailableError, match=r"the cluster was lost.*run it again"):
        _close_at_work(clusters[-1], dask)
    assert "Traceback" not in capfd.readouterr().err


def _close_at_work(cluster: Any, address: str) -> None:
    with open_workers(address) as workers:
        work = run_tasks(
            time.sleep, [0, 600], workers, weight=lambda _: 1 << 30, progress=lambda _done, _total: None
        )
        assert next(work) is None
        cluster.close()
        next(work)
