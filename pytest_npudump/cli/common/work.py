"""Long work of a command: by threads, processes, a single thread, or a Dask cluster.

It shows itself on standard error: by a bar on a terminal, elsewhere by a line a minute.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_npudump.dump.reader import run_batches
from pytest_npudump.errors import MissingExtraError, RequestError, RuntimeUnavailableError
from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from multiprocessing.process import BaseProcess

Item = TypeVar("Item")
Result = TypeVar("Result")

_MOST = 1024
_CONNECT_SECONDS = 10
_EXPECTED = (
    "expected threads, threads:N, processes, processes:N, serial or dask:ADDRESS such as dask:tcp://host:8786"
)
_DASK_LOGGERS = ("distributed", "distributed.client")  # the second has a level of its own
_UNTOLD = 64
"""Workers that a cluster without any is taken to get."""


@dataclass(frozen=True, slots=True)
class Workers:
    """Executor of tasks, and the number of its workers.

    Attributes:
        executor: takes the tasks; None where they are done here, one after the other.
        count: how many there are, or may be.
        remote: the workers are other processes, maybe on other machines: paths must be absolute.
    """

    executor: Executor | None = None
    count: int = 1
    remote: bool = False

    @property
    def here(self) -> bool:
        """Return whether tasks run in this process, so that they can call what it has."""
        return self.executor is None or isinstance(self.executor, ThreadPoolExecutor)


@contextmanager
def open_workers(spec: str) -> Iterator[Workers]:
    """Open what ``--executor`` names, and close it; tasks that have not begun are cancelled.

    After an interrupt processes are ended, and threads left to themselves: they may be at work for minutes.

    Raises:
        RequestError: ``spec`` is none of ``threads[:N]``, ``processes[:N]``, ``serial``, ``dask:ADDRESS``.
        MissingExtraError: Dask is asked for and not installed.
        RuntimeUnavailableError: no Dask scheduler answers at the address, or workers were lost at work.
    """
    kind, _colon, rest = spec.partition(":")
    if kind == "serial" and spec == kind:
        yield Workers()
    elif kind == "threads" and (spec == kind or rest):
        count = _count(spec, kind, rest)
        with _threads(count) as executor:
            yield Workers(executor, count)
    elif kind == "processes" and (spec == kind or rest):
        count = _count(spec, kind, rest)
        with _processes(spec, count) as executor:
            yield Workers(executor, count)
    elif kind == "dask" and rest:
        distributed = MissingExtraError.imported("--executor dask", "distributed", "dask")
        with _silent(), _cluster(distributed, rest) as workers:
            yield workers
    else:
        raise RequestError(f"--executor {spec}: {_EXPECTED}")


@contextmanager
def _threads(count: int) -> Iterator[Executor]:
    pool = ThreadPoolExecutor(count, thread_name_prefix="npudump")
    wait = True
    try:
        yield pool
    except KeyboardInterrupt:
        wait = False
        raise
    finally:
        pool.shutdown(wait=wait, cancel_futures=True)


@contextmanager
def _processes(spec: str, count: int) -> Iterator[Executor]:
    """Give a pool of processes; they are spawned, for a fork would copy locks of threads."""
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - they need 12 ms to import
    from multiprocessing import active_children, get_context  # noqa: PLC0415 - the same

    others = set(active_children())
    pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_follow_parent)
    try:
        yield pool
    except BrokenExecutor as error:
        raise RuntimeUnavailableError(
            f"--executor {spec}: a worker process was ended before its work was done, by a kill or "
            "because memory ran out (dmesg tells): no verdict; run it again, with fewer workers or "
            "--executor serial"
        ) from error
    except KeyboardInterrupt:
        for process in set(active_children()) - others:
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _follow_parent() -> None:
    """Leave Ctrl-C, which a terminal sends to all processes, to the parent, and end when it has ended."""
    from multiprocessing import parent_process  # noqa: PLC0415 - as above

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if (parent := parent_process()) is not None:
        Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _count(spec: str, kind: str, text: str) -> int:
    if not text:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= _MOST):  # noqa: PLR2004 - digits int() is safe with
        raise RequestError(f"--executor {spec}: expected a number of {kind} from 1 to {_MOST}")
    return int(text)


@contextmanager
def _cluster(distributed: Any, address: str) -> Iterator[Workers]:
    try:
        client = distributed.Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise RuntimeUnavailableError(
            f"--executor dask:{address}: no Dask scheduler answers there ({error}): is it running, "
            "and is the address the one it prints (dask scheduler; dask worker ADDRESS)?"
        ) from error
    closed = distributed.comm.CommClosedError
    lost = (CancelledError, distributed.KilledWorker, distributed.TimeoutError, closed)
    try:
        yield Workers(_Packed(client.get_executor()), sum(client.nthreads().values()) or _UNTOLD, remote=True)
    except lost as error:
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise RuntimeUnavailableError(
            f"--executor dask:{address}: the cluster was lost before the work was done: no verdict; "
            f"see the logs of the scheduler and its workers, and run it again ({reason})"
        ) from error
    finally:
        client.close()


class _Packed(Executor):
    """A cluster that is handed bytes: Dask takes longer to look into small objects than to work on them."""

    def __init__(self, cluster: Executor) -> None:
        self._cluster = cluster

    def map(
        self,
        fn: Callable[..., Result],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[Result]:
        packed = [pickle.dumps(arguments) for arguments in zip(*iterables, strict=False)]
        return self._cluster.map(partial(_unpacked, fn), packed, timeout=timeout, chunksize=chunksize)


def _unpacked(work: Callable[..., Result], packed: bytes) -> Result:
    arguments = pickle.loads(packed)  # noqa: S301 - made by the process that started the work
    return work(*arguments)


@contextmanager
def _silent() -> Iterator[None]:
    """Keep Dask's loggers from printing tracebacks of errors that a line reports."""
    before = {logger: logger.level for logger in map(logging.getLogger, _DASK_LOGGERS)}
    for logger in before:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in before.items():
            logger.setLevel(level)


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
    weigh = weight if workers.executor else None
    yield from run_together(partial(_run_batch, task), items, workers, weight=weigh, progress=progress)


def run_together(
    work: Callable[[Sequence[Item]], Sequence[Result]],
    items: Sequence[Item],
    workers: Workers,
    *,
    weight: Callable[[Item], int] | None,
    progress: Callable[[int, int], None],
) -> Iterator[Result]:
    """Do the same as :func:`run_tasks` where ``work`` takes several items: small ones go together.

    Without ``weight`` each item goes by itself, in this thread.
    """
    done = 0
    weights = [] if weight is None else list(map(weight, items))
    for _at, batch in run_batches(work, items, weights, workers.executor, workers.count):
        yield from batch
        done += len(batch)
        progress(done, len(items))


def _run_batch(task: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    return [task(item) for item in items]


PATIENCE = 1.0
"""Seconds of a command before a bar is shown, whatever it did in them."""
BLINK = 0.2
"""Seconds that a piece of work may take without a bar however long the command has taken."""
SILENCE = 60.0
"""Seconds between two lines where there is no terminal."""
_FRAME = 0.1
"""Seconds between two pictures of the bar."""
_BEGUN = monotonic()
"""When the command began, or near to it."""


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Give a function to call with (steps done, steps in all); ``what`` is shown before the bar."""
    ended, reached = Event(), [0, 0]
    so_far = _("{done} of {total}")  # a thread speaks no language of its own

    def update(done: int, total: int) -> None:
        reached[:] = done, total

    def draw() -> None:
        """Show a bar once the command has taken long."""
        if ended.wait(max(PATIENCE - (monotonic() - _BEGUN), min(PATIENCE, BLINK))):
            return
        from rich.console import Console  # noqa: PLC0415 - only where work takes long
        from rich.progress import MofNCompleteColumn, Progress  # noqa: PLC0415 - the same

        shown = (*Progress.get_default_columns(), MofNCompleteColumn())
        with Progress(*shown, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=None)
            while not ended.wait(_FRAME):
                bar.update(task, completed=reached[0], total=reached[1] or None)

    def tell() -> None:
        """Write a line now and then, for logs that somebody reads while it goes on."""
        while not ended.wait(SILENCE):
            done, total = reached
            if sys.stderr is not None:
                words = f": {so_far.format(done=done, total=total)}" if total else ""
                sys.stderr.write(f"npudump: {what}{words}\n")
                sys.stderr.flush()

    # A stream is None where it was closed from the beginning: ``>&-``.
    on_terminal = all(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr))
    thread = Thread(target=draw if on_terminal else tell, daemon=True)
    thread.start()
    try:
        yield update
    finally:
        ended.set()
        thread.join()
