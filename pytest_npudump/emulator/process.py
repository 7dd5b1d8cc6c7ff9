"""Process that ACL's state belongs to, its memory, and the handles of its objects.

Device and host memory are real bytes at real addresses, and every access is checked. Addresses are the true
ones of buffers of this process, so that an application may hand them to ctypes or numpy as it does with
pyACL. A pointer the emulator does not know is refused, never followed.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
import threading
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from pytest_npudump.config.cann import collecting
from pytest_npudump.emulator import faults
from pytest_npudump.emulator.codes import INVALID_PARAM, RefusedError
from pytest_npudump.emulator.dumps.exceptions import ExceptionDump, from_environment
from pytest_npudump.emulator.dumps.writer import Clock
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


_ALIGNMENT = 64
DEVICE_BYTES = 32 << 30
"""Memory of one emulated device; an allocation beyond it fails as it does on a device."""
BORROWED_BYTES = 256 << 20
"""Bytes of the application's own objects that are kept alive for pointers taken to them."""
BORROWED_OBJECTS = 4096
"""Number of such objects."""
_OURS = 3
"""References to a borrowed object that are ours: the region's, the view's and getrefcount's argument."""

DEVICE, HOST, BORROWED = "device", "host", "borrowed"
"""Kinds of memory: of a device, page-locked on the host, and an object of the application."""

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(slots=True)
class MemoryRegion:
    """A range of memory that may be accessed.

    Attributes:
        address: first byte.
        data: the bytes, writable.
        kind: :data:`DEVICE`, :data:`HOST` or :data:`BORROWED`.
        owner: what keeps the bytes alive.
        device: device the memory is on; -1 for host memory.
    """

    address: int
    data: Bytes
    kind: str
    owner: object
    device: int = -1

    @property
    def end(self) -> int:
        """Address behind the last byte."""
        return self.address + self.data.size


class MachineMemory:
    """All memory that pointers may point to."""

    def __init__(self) -> None:
        self._regions: dict[int, MemoryRegion] = {}
        self._borrowed: OrderedDict[int, MemoryRegion] = OrderedDict()
        self._used: dict[int, int] = {}
        self._borrowed_bytes = 0
        self._lock = threading.RLock()

    def used(self, device: int) -> int:
        """Bytes allocated on ``device``."""
        return self._used.get(device, 0)

    def allocate(self, size: int, kind: str, device: int) -> int:
        """Allocate ``size`` zeroed bytes and return their address, aligned to 64 bytes.

        Raises:
            MemoryError: the device, or this machine, has no room.
        """
        with self._lock:
            if kind == DEVICE and self.used(device) + size > DEVICE_BYTES:
                raise MemoryError(size)
            whole = np.zeros(size + _ALIGNMENT, np.uint8)
            start = -whole.ctypes.data % _ALIGNMENT
            region = MemoryRegion(whole.ctypes.data + start, whole[start : start + size], kind, whole, device)
            self._regions[region.address] = region
            if kind == DEVICE:
                self._used[device] = self.used(device) + size
            return region.address

    def free(self, address: int, kind: str) -> bool:
        """Give back what :meth:`allocate` returned; false if there is no such memory of that kind."""
        with self._lock:
            region = self._regions.get(address)
            if region is None or region.kind != kind:
                return False
            del self._regions[address]
            if kind == DEVICE:
                self._used[region.device] -= region.data.size
            return True

    def release_device(self, device: int) -> None:
        """Free the memory of ``device``, as resetting it does."""
        with self._lock:
            for region in list(self._regions.values()):
                if region.kind == DEVICE and region.device == device:
                    self.free(region.address, DEVICE)

    def borrow(self, address: int, size: int, owner: object) -> int:
        """Let pointers reach ``size`` bytes of the application's own ``owner``; returns ``address``.

        The object is kept alive. Once there are more than 4096 such objects, or they hold more than 256 MiB,
        the oldest that nobody else refers to are let go, so that a process does not grow for ever; see
        :meth:`let_go` too.
        """
        with self._lock:
            self._forget(address)
            self._make_room(size)
            buffer: Any = (ctypes.c_uint8 * size).from_address(address)
            buffer.owner = owner
            self._borrowed[address] = MemoryRegion(
                address, np.frombuffer(buffer, np.uint8, size), BORROWED, owner
            )
            self._borrowed_bytes += size
        return address

    def _forget(self, address: int) -> None:
        if (region := self._borrowed.pop(address, None)) is not None:
            self._borrowed_bytes -= region.data.size

    def let_go(self) -> None:
        """Forget every borrowed object that nobody else refers to."""
        with self._lock:
            for address, region in list(self._borrowed.items()):
                if sys.getrefcount(region.owner) <= _OURS:
                    self._forget(address)

    def _make_room(self, wanted: int) -> None:
        for address, region in list(self._borrowed.items()) if self._crowded(wanted) else ():
            if not self._crowded(wanted):
                break
            if sys.getrefcount(region.owner) <= _OURS:
                self._forget(address)

    def _crowded(self, wanted: int) -> bool:
        return self._borrowed_bytes + wanted > BORROWED_BYTES or len(self._borrowed) >= BORROWED_OBJECTS

    def find(self, address: int, size: int) -> Bytes | None:
        """Return ``size`` writable bytes at ``address``, or None where they are not all known memory."""
        region = self.region(address, size)
        if region is None:
            return None
        first = address - region.address
        return region.data[first : first + size]

    def region(self, address: int, size: int) -> MemoryRegion | None:
        """Return the memory that ``size`` bytes at ``address`` lie in, or None if they are not all in one."""
        with self._lock:
            every = (*self._regions.values(), *self._borrowed.values())
            return next((one for one in every if one.address <= address and address + size <= one.end), None)

    def reached(self, address: int, size: int, device: int) -> Bytes:
        """Return bytes that work on a device may use.

        That is memory of this device and page-locked host memory (``acl.rt.malloc_host``), as the documents
        of ``acl.mdl.execute`` list them. Another device's is out of its reach until peer access is enabled,
        which no call of the emulator does (100000). CANN checks neither: the work fails on the device.
        """
        if (region := self.region(address, size)) is None:
            why = f"{size} bytes at {address:#x} are not allocated memory"
        elif region.kind == BORROWED:
            why = f"{address:#x} is memory of a Python object; copy it to acl.rt.malloc's with acl.rt.memcpy"
        elif region.kind == DEVICE and region.device != device:
            why = f"{address:#x} is memory of device {region.device}, and the work runs on device {device}"
        else:
            first = address - region.address
            return region.data[first : first + size]
        raise RefusedError(INVALID_PARAM, why)


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
    dumped: dict[str, dict[str, list[DumpedExecution]]] = field(default_factory=dict)
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
    _current.process.streams.close()
    _current.process = _new()
