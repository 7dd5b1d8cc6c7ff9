"""Process that ACL's state belongs to, and the handles of its objects."""

from __future__ import annotations

import itertools
import os
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from pytest_npudump.config.cann import collecting
from pytest_npudump.emulator import faults, gears
from pytest_npudump.emulator.dumps.exceptions import ExceptionDump, from_environment
from pytest_npudump.emulator.dumps.writer import Clock
from pytest_npudump.emulator.memory import MachineMemory
from pytest_npudump.emulator.streams import (
    DEFAULT_STREAM,
    ApplicationThread,
    DeviceContext,
    Streams,
    Subscriptions,
)
from pytest_npudump.onnxmodels.variation import Varying

if TYPE_CHECKING:
    from pytest_npudump.emulator.dumps.recorder import DumpedExecution, DumpSettings
    from pytest_npudump.emulator.onnx_model import Model


T = TypeVar("T")

_FIRST = 0x5000_0000_0000
_STEP = 0x40
DEVICES = 8
"""Devices of the emulated machine."""


class Handles:
    """Handles of objects. A handle that was destroyed is never given out again."""

    def __init__(self) -> None:
        self._objects: dict[int, object] = {}
        self._numbers = itertools.count(_FIRST, _STEP)

    def add(self, value: object) -> int:
        """Return a new handle for ``value``."""
        handle = next(self._numbers)
        self._objects[handle] = value
        return handle

    def get(self, handle: int, kind: type[T]) -> T | None:
        """Return the object of ``handle``, or None if it has none of that kind."""
        value = self._objects.get(handle)
        return value if isinstance(value, kind) else None

    def all(self, kind: type[T]) -> list[T]:
        """Return the objects of one kind, in the order of their handles."""
        return [value for value in list(self._objects.values()) if isinstance(value, kind)]

    def remove(self, handle: int, kind: type[T]) -> T | None:
        """Destroy ``handle``; return what it stood for, or None as in :meth:`get`."""
        value = self.get(handle, kind)
        if value is not None:
            del self._objects[handle]
        return value


@dataclass(slots=True)
class Lifecycle:
    """State of ``aclInit`` and its kin.

    Attributes:
        references: count of ``aclInit`` calls.
        finalized: whether ``aclFinalize`` was called since the last ``aclInit``.
        first_content: text of the first successful initialisation, frozen for the process.
        dump_flag: whether ``aclmdlInitDump`` is open.
    """

    references: int = 0
    finalized: bool = False
    first_content: bytes | None = None
    dump_flag: bool = False


@dataclass(slots=True)
class Dumping:
    """Dump in force.

    Attributes:
        settings: what models loaded from now on dump; None if nothing.
        statistics: mask of statistics, which only ever grows.
        exception: the exception dump that is on, so that further ones are ignored; None if none is.
    """

    settings: DumpSettings | None = None
    statistics: int = 0
    exception: ExceptionDump | None = None


@dataclass(slots=True)
class Process:
    """State of pyACL in a process."""

    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    dumping: Dumping = field(default_factory=Dumping)
    memory: MachineMemory = field(default_factory=MachineMemory)
    handles: Handles = field(default_factory=Handles)
    clock: Clock = field(default_factory=Clock)
    models: dict[int, Model] = field(default_factory=dict)
    dumped: dict[str, list[DumpedExecution]] = field(default_factory=dict)
    inside: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    model_ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    stream_ids: itertools.count[int] = field(default_factory=lambda: itertools.count(DEFAULT_STREAM + 1))
    operator_tasks: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    device_uses: Counter[int] = field(default_factory=Counter)
    default_contexts: dict[int, int] = field(default_factory=dict)
    streams: Streams = field(default_factory=Streams)
    subscriptions: Subscriptions = field(default_factory=Subscriptions)
    threads: dict[int, ApplicationThread] = field(default_factory=dict)
    operator_directory: str = ""
    varying: Varying = field(default_factory=Varying)
    collecting: str = ""
    lock: threading.RLock = field(default_factory=threading.RLock)
    thread: threading.local = field(default_factory=threading.local)

    @property
    def context(self) -> DeviceContext | None:
        """Return the calling thread's context, or None if it has set no device."""
        return self.handles.get(self.context_handle, DeviceContext)

    @property
    def device(self) -> int:
        """Return the calling thread's device; 0 if it has set none."""
        return 0 if self.context is None else self.context.device

    @property
    def context_handle(self) -> int:
        """Handle of the calling thread's context; 0 if it has none."""
        return int(getattr(self.thread, "context", 0))

    @context_handle.setter
    def context_handle(self, handle: int) -> None:
        self.thread.context = handle

    def explain(self, code: int, message: str) -> int:
        """Leave ``message`` for ``acl.get_recent_err_msg`` and return ``code``."""
        self.thread.message = message
        return code

    def take_message(self) -> str | None:
        """Return the calling thread's last message, once."""
        message: str | None = getattr(self.thread, "message", None)
        self.thread.message = None
        return message


def _new() -> Process:
    """Return the state of a process that has just loaded CANN's libraries, which look at its environment."""
    dumping = Dumping(exception=from_environment(os.environ))
    return Process(dumping=dumping, collecting=" and ".join(collecting(os.environ)))


@dataclass(slots=True)
class _Current:
    process: Process = field(default_factory=_new)


_current = _Current()


def process() -> Process:
    """Return the state that every call works on."""
    return _current.process


def reset() -> None:
    """Start over with the state of a new process; handles and pointers given out before are void."""
    faults.end()
    gears.COMPILED.clear()
    _current.process.streams.close()
    _current.process = _new()
