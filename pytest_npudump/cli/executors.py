"""Where the work of a command is done: in threads or processes, one after the other, or on a Dask cluster."""

from __future__ import annotations

import importlib
import os
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pytest_npudump.errors import MissingExtraError, RequestError, RuntimeUnavailableError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

Item = TypeVar("Item")
Result = TypeVar("Result")

_MOST = 1024
_CONNECT_SECONDS = 10
_EXPECTED = (
    "expected threads, threads:N, processes, processes:N, serial or dask:ADDRESS such as dask:tcp://host:8786"
)
_BATCH_BYTES = 4 << 20
_BATCH_ITEMS = 64


@dataclass(frozen=True, slots=True)
class Workers:
    """Who does the work.

    Attributes:
        executor: takes the tasks; None where they are done here, one after the other.
        remote: the workers are other processes, maybe on other machines: paths must be absolute.
    """

    executor: Executor | None = None
    remote: bool = False


def add_executor_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--executor``."""
    parser.add_argument(
        "--executor",
        default="threads",
        metavar="WHERE",
        help="where the work is done: threads[:N] (default; N: number of cores), processes[:N], serial, or "
        "dask:ADDRESS, a Dask scheduler whose workers see the same files",
    )


@contextmanager
def open_workers(spec: str) -> Iterator[Workers]:
    """Open what ``--executor`` names, and close it; tasks that have not begun are cancelled.

    Raises:
        RequestError: ``spec`` is none of ``threads[:N]``, ``processes[:N]``, ``serial``, ``dask:ADDRESS``.
        MissingExtraError: Dask is asked for and not installed.
        RuntimeUnavailableError: no Dask scheduler answers at the address.
    """
    kind, _, rest = spec.partition(":")
    if kind == "serial" and spec == kind:
        yield Workers()
    elif kind in {"threads", "processes"} and (spec == kind or rest):
        pool = _pool(kind, _count(spec, kind, rest))
        try:
            yield Workers(pool)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    elif kind == "dask" and rest:
        with _dask(rest) as executor:
            yield Workers(executor, remote=True)
    else:
        raise RequestError(f"--executor {spec}: {_EXPECTED}")


def _pool(kind: str, count: int) -> Executor:
    """Return a pool of threads, or of processes; they are spawned, for a fork would copy locks of threads."""
    if kind == "threads":
        return ThreadPoolExecutor(count, thread_name_prefix="npudump")
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - they need 12 ms to import
    from multiprocessing import get_context  # noqa: PLC0415 - the same

    return ProcessPoolExecutor(count, mp_context=get_context("spawn"))


def _count(spec: str, kind: str, text: str) -> int:
    if not text:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= _MOST):  # noqa: PLR2004 - digits int() is safe with
        raise RequestError(f"--executor {spec}: expected a number of {kind} from 1 to {_MOST}")
    return int(text)


@contextmanager
def _dask(address: str) -> Iterator[Executor]:
    try:
        distributed = importlib.import_module("distributed")
    except ImportError:
        raise MissingExtraError("--executor dask", "distributed", "dask") from None
    try:
        client = distributed.Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise RuntimeUnavailableError(
            f"--executor dask:{address}: no Dask scheduler answers there ({error}): is it running, and is "
            f"the address the one it prints (dask scheduler; dask worker ADDRESS)?"
        ) from error
    try:
        executor: Executor = client.get_executor()
        yield executor
    finally:
        client.close()


def run_tasks(
    task: Callable[[Item], Result],
    items: Sequence[Item],
    workers: Workers,
    *,
    weight: Callable[[Item], int],
    progress: Callable[[int, int], None],
) -> Iterator[Result]:
    """Yield ``task(item)`` for each item, in order.

    Args:
        task: a function of a module, which another process can import.
        items: what to work on; they travel to workers and back as pickles.
        workers: who does it.
        weight: bytes that an item makes a task read: small ones travel together.
        progress: called with (items done, items in all).
    """
    batches = list(_batches(items, weight))
    work = partial(_run_batch, task)
    results = map(work, batches) if workers.executor is None else workers.executor.map(work, batches)
    done = 0
    for batch in results:
        yield from batch
        done += len(batch)
        progress(done, len(items))


def _batches(items: Sequence[Item], weight: Callable[[Item], int]) -> Iterator[Sequence[Item]]:
    first, size = 0, 0
    for at, item in enumerate(items):
        size += weight(item)
        if size >= _BATCH_BYTES or at - first + 1 >= _BATCH_ITEMS:
            yield items[first : at + 1]
            first, size = at + 1, 0
    if first < len(items):
        yield items[first:]


def _run_batch(task: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    return [task(item) for item in items]
