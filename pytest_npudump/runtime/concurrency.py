"""Threads and processes of a test that ran at the same time, and names that only their order separates.

One thread keeps an order, several do not; in another process a model may run that no dump sees.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from pytest_npudump.runtime.base import Started
from pytest_npudump.runtime.replacement import Replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from threading import Thread
    from types import FrameType

    from pytest_npudump.dump.records import TensorRecord


def loads_without_order(records: Iterable[TensorRecord], loaders: Mapping[str, Thread]) -> Iterator[str]:
    """Name loads of a model (``#load=N``) from several threads, so that another run may swap them.

    Args:
        records: of a dump whose directories CANN has named: ``{model}/{model id}/{step}``.
        loaders: the thread that loaded each model id, where that is known.
    """
    found: defaultdict[tuple[object, ...], dict[str, str]] = defaultdict(dict)
    for record in records:
        key = record.key
        found[key.rank, key.device, key.capture, key.model][record.path.parent.parent.name] = (
            record.path.parent.parent.parent.name
        )
    for models in found.values():
        threads = {loaders[model] for model in models if model in loaders}
        if len(threads) > 1:
            names = ", ".join(sorted(thread.name for thread in threads))
            model = next(iter(models.values()))
            yield (
                f"the model {model} was loaded by several threads ({names}): its loads are told apart by "
                f"their order (#load=N), which threads do not keep from run to run; load and run it in one "
                f"thread, or in one thread after the other, each inside an npu_dump.capture(name); or load "
                f"it in one thread, once for each thread that runs it, which calls acl.rt.set_context() first"
            )


def runs_without_order(
    records: Collection[TensorRecord], runners: Iterable[Mapping[tuple[str, str], Collection[Thread]]]
) -> Iterator[str]:
    """Name models and operators run by several threads, so that another run may swap their steps.

    Threads that ran one after the other are no exception: nothing tells those that had to from those that
    happened to.

    Args:
        records: of a dump whose directories CANN has named.
        runners: as in :attr:`~pytest_npudump.runtime.base.Evidence.runners`.
    """
    folders = {record.path.parent.parent for record in records}
    models = {name for folder in folders for name in (folder.name, folder.parent.name)}
    operators = {record.op_type for record in records}
    again = any(record.key.turn for record in records)
    for dump in runners:
        for (name, model), threads in dump.items():
            dumped = model in models if model else name in operators if name else again
            if len(threads) > 1 and dumped:
                yield _without_order(name, model, ", ".join(sorted(thread.name for thread in threads)))


def _without_order(name: str, model: str, threads: str) -> str:
    what, whose, number, way = f"the operator {name} was", "its", "#turn=N", "run it"
    if model:
        what, number, way = f"the model {name} was", "#step=N", "load and run it"
    elif not name:
        what, whose, way = "operators were", "their", "run them"
    return (
        f"{what} run by several threads ({threads}): {whose} executions are told apart by their order "
        f"({number}), which threads do not keep from run to run; {way} in one thread, or in one thread after "
        f"the other, each inside an npu_dump.capture(name)"
    )


_LIBRARY = frozenset({"asyncio", "concurrent", "multiprocessing", "os", "pty", "subprocess", "threading"})
_OURS = __name__.partition(".")[0]
_TOOLS = frozenset(
    {
        "ctypes.util",
        "multiprocessing.resource_tracker",
        "platform",
        "uuid",
        "vllm.model_executor.models.registry",
    }
)
"""Modules of Python and vLLM that start processes running nothing of a test."""
_INDUCTOR = "torch._inductor."
"""Modules of torch that compile, with compilers, workers and probes of what was compiled."""
_PROGRAMS = frozenset({"c++", "cc", "g++", "gcc", "ld", "ldconfig", "lscpu", "nm", "npu-smi", "nvidia-smi"})
"""Programs that run no model, and that libraries ask while they start."""


class OtherProcesses:
    """The processes that ran between :meth:`watch` and :meth:`stop`, those of this package left out."""

    def __init__(self) -> None:
        self._replaced = Replaced()
        self._found: list[Started] = []

    def watch(self, found: list[Started]) -> None:
        """Add each process that runs already or is started from now on to ``found``."""
        self.stop()
        self._found = found
        multiprocessing = sys.modules.get("multiprocessing.process")
        if multiprocessing is not None:  # what imports it later starts its processes by the calls below
            for child in multiprocessing.active_children():
                self.note(type(child).__name__).number = child.pid
            self._put(multiprocessing.BaseProcess, "start", lambda process: type(process).__name__)
        self._put(subprocess.Popen, "__init__", lambda _, args="", *__, **___: _program(args))
        self._put(sys.modules.get("_posixsubprocess"), "fork_exec", lambda args, *_: _program(args))
        for name in ("posix_spawn", "posix_spawnp", "system"):
            self._put(os, name, lambda command, *_, **__: _program(command))

        _watch_forks()
        _WATCHING.append(self)

    def stop(self) -> None:
        """Look at no further call."""
        self._replaced.put_back()
        _WATCHING.clear()

    def _put(self, owner: Any, name: str, name_of: Callable[..., str]) -> None:
        def started(original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
            if not _by_the_test(sys._getframe(1)):  # noqa: SLF001 - the way to the caller
                return original(*arguments, **named)
            process = self.note(name_of(*arguments, **named))
            result = original(*arguments, **named)
            number = result if result is not None else getattr(arguments[0], "pid", None)
            process.number = None if name == "system" else number
            return result

        self._replaced.put(owner, name, started)

    def note(self, name: str) -> Started:
        """Note a process, by the name of its program or class."""
        process = Started(name)
        if name not in _PROGRAMS:
            self._found.append(process)
        return process


_WATCHING: list[OtherProcesses] = []
"""Who looks at forks at present: one, or nobody."""


@cache
def _watch_forks() -> None:
    """Have forks seen, for the rest of this process; who calls ``os.fork`` is named in Python's warnings."""
    os.register_at_fork(before=_see_fork)


def _see_fork() -> None:
    if _by_the_test(sys._getframe(1)):  # noqa: SLF001 - the way to the caller
        for watching in _WATCHING:
            watching.note("os.fork()")


def _by_the_test(caller: FrameType) -> bool:
    """Return whether a call comes neither from this package nor from another observed one."""
    frame: FrameType | None = caller
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        room = name.partition(".")[0]
        if (
            name == __name__
            or name in _TOOLS
            or name.startswith(_INDUCTOR)
            or (room == _OURS and name != Replaced.__module__)
        ):
            return False
        if room not in _LIBRARY and room != _OURS:
            return True
        frame = frame.f_back
    return True


def _program(command: str | bytes | os.PathLike[str] | Sequence[str | bytes | os.PathLike[str]]) -> str:
    """Return the name of the program in a command, as a test gave it."""
    first = command if isinstance(command, str | bytes | os.PathLike) else next(iter(command), "")
    words = os.fsdecode(first).split() if first is command else [os.fsdecode(first)]
    return PurePath(words[0]).name if words else ""
