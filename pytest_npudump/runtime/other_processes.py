"""Processes beside that of a test, in which a model may run that no dump sees: which ones ran meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from pytest_npudump.runtime.replaced import Replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

_LIBRARY = frozenset({"asyncio", "concurrent", "multiprocessing", "os", "pty", "subprocess", "threading"})
_OURS = __name__.partition(".")[0]
_TOOLS = frozenset({"ctypes.util", "multiprocessing.resource_tracker", "platform", "uuid"})
"""What of Python starts processes that run nothing of a test."""


class OtherProcesses:
    """The processes that ran between :meth:`watch` and :meth:`stop`, those of this package left out."""

    def __init__(self) -> None:
        self._replaced = Replaced()
        self._names: list[str] = []

    def watch(self, names: list[str]) -> None:
        """Add the name of each process that runs already or is started from now on to ``names``."""
        self.stop()
        self._names = names
        multiprocessing = sys.modules.get("multiprocessing.process")
        if multiprocessing is not None:  # what imports it later starts its processes by the calls below
            for child in multiprocessing.active_children():
                self._note(type(child).__name__)
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

    def see_fork(self, caller: FrameType) -> None:
        """Note a process that begins as a copy of this one, in a call from this frame."""
        if _by_the_test(caller):
            self._note("os.fork()")

    def _put(self, owner: Any, name: str, name_of: Callable[..., str]) -> None:
        def started(original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
            if _by_the_test(sys._getframe(1)):  # noqa: SLF001 - the way to the caller
                self._note(name_of(*arguments, **named))
            return original(*arguments, **named)

        self._replaced.put(owner, name, started)

    def _note(self, name: str) -> None:
        if name not in self._names:
            self._names.append(name)


_WATCHING: list[OtherProcesses] = []
"""Who looks at forks at present: one, or nobody."""


@cache
def _watch_forks() -> None:
    """Have forks seen, for the rest of this process; who calls ``os.fork`` is named in Python's warnings."""
    os.register_at_fork(before=_see_fork)


def _see_fork() -> None:
    for watching in _WATCHING:
        watching.see_fork(sys._getframe(1))  # noqa: SLF001 - the way to the caller


def _by_the_test(caller: FrameType) -> bool:
    """Whether a call comes neither from this package nor from within another one that is looked at."""
    frame: FrameType | None = caller
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        room = name.partition(".")[0]
        if name == __name__ or name in _TOOLS or (room == _OURS and name != Replaced.__module__):
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
