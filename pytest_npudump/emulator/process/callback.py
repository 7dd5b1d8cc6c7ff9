"""The dump handed to a function instead of written (``acldumpRegCallback``).

Sources: ``OpDumpTask::DoDumpTensor`` of hicann/runtime's ``dump_task.cpp`` (how a file is cut),
``AdxDumpRecord::RecordDumpInfo`` of its ``adx_dump_record.cpp`` (the function takes the file's place) and
``DumpCallback`` of pyACL's ``mdl_wrap.cpp`` (the dict). The function is called within the execution, where
CANN calls it from a thread of its own.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.emulator.machine import codes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_npudump.emulator.dumps.writer import Content, Deliver
    from pytest_npudump.emulator.process.state import Process

SLICE_BYTES = 128 << 20
"""Bytes of a chunk at most, a header apart, which is not cut."""
_APPEND = (1 << 64) - 1
"""``offset`` -1, in the unsigned number that pyACL makes of it."""


def register(process: Process, function: object, flag: int) -> int:
    """``acldumpRegCallback``: 0, or 500001 for no function or a ``flag`` other than 0.

    It needs no other call before it; a second function takes the place of the first; no other call but
    :func:`unregister` ends it. pyACL itself takes any object, and then loses every chunk.
    """
    call = "acl.mdl.dump_reg_callback"
    if not callable(function):
        return process.explain(codes.FAILURE, f"EP0007: {call}: {function!r} is no function")
    if flag:
        return process.explain(codes.FAILURE, f"EP0006: {call}: flag {flag} is reserved, it has to be 0")
    process.callback = function
    return codes.SUCCESS


def unregister(process: Process) -> None:
    """``acldumpUnregCallback``: dumps go to files again."""
    process.callback = None


def destination(process: Process) -> Deliver | None:
    """Return where dump files go: to the function that is registered now; None for the disk."""
    return None if process.callback is None else partial(_hand_over, process, process.callback)


def _hand_over(
    process: Process, function: Callable[[dict[str, object]], object], path: str, content: Content
) -> None:
    """Call ``function`` for each chunk; what it raises is lost, and the chunk with it."""
    for parts, last in slices(content):
        size = sum(part.size for part in parts)
        with process.lock:
            address = process.memory.allocate(size, "host", -1)
            memory = process.memory.find(address, size)
        np.concatenate(parts, out=memory)
        chunk = {
            "file_name": path,
            "data_buf": address,
            "buf_len": size,
            "is_last_chunk": int(last),
            "offset": _APPEND,
            "flag": 0,
        }
        try:
            function(chunk)
        except Exception as error:  # noqa: BLE001 - pyACL goes on, whatever it is
            message = f"acl.mdl.dump_reg_callback: {type(error).__name__}: {error}: a chunk of {path} is lost"
            process.explain(codes.SUCCESS, message)
        finally:
            with process.lock:
                process.memory.free(address, "host")


def slices(content: Content) -> Iterator[tuple[list[np.ndarray], bool]]:
    """Cut a file, whose first part is its header, as the device's writer does; True comes with the last.

    Each slice is given as the parts it is made of, uint8.
    """
    parts = [np.frombuffer(part, np.uint8) for part in content if len(part)]
    room = max(SLICE_BYTES, parts[0].size)
    left = sum(part.size for part in parts)
    while left:
        taken = list(_first(parts, room))
        left -= sum(part.size for part in taken)
        yield taken, not left


def _first(parts: list[np.ndarray], room: int) -> Iterable[np.ndarray]:
    """Take up to ``room`` bytes from the front of ``parts``."""
    while parts and room:
        taken = parts[0][:room]
        room -= taken.size
        parts[0] = parts[0][taken.size :]
        if not parts[0].size:
            parts.pop(0)
        yield taken
