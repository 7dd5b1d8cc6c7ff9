"""Room to work in, kept for the next tensor.

What the comparison of a tensor needs, some 8 MiB, is more than an allocator keeps: it would be given back to
the system and faulted in anew for each tensor, which took a third of all time. Threads would also wait for
each other there, for they share one address space.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_BOOL, _UINT8 = np.dtype(np.bool_), np.dtype(np.uint8)

_KEPT = 4
"""Buffers that a thread keeps: a comparison borrows three, a file one."""


class Buffers:
    """Arrays by name, of any content; what one call gives is valid until the next one for that name."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[str, str], NDArray[Any]] = {}

    def array(self, name: str, size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """An array of shape (size,); one of another type does not share its memory."""
        found = self._arrays.get((name, dtype.char))
        if found is None or found.size < size:
            found = self._arrays[name, dtype.char] = np.empty(size, dtype)
        return found[:size]

    def floats(self, name: str, size: int) -> NDArray[np.float32]:
        """A float32 array of shape (size,)."""
        return self.array(name, size, _FLOAT32)

    def doubles(self, name: str, size: int) -> NDArray[np.float64]:
        """A float64 array of shape (size,)."""
        return self.array(name, size, _FLOAT64)

    def flags(self, name: str, size: int) -> NDArray[np.bool_]:
        """A bool array of shape (size,)."""
        return self.array(name, size, _BOOL)

    def octets(self, name: str, size: int) -> NDArray[np.uint8]:
        """A uint8 array of shape (size,), aligned for any type of a dump."""
        return self.array(name, size, _UINT8)


class _Idle(threading.local):
    """Buffers of one thread that nobody uses; the last ones given back are the next to be lent."""

    def __init__(self) -> None:
        self.buffers: list[Buffers] = []
        self.scratch = Buffers()


_IDLE = _Idle()


def scratch_buffers() -> Buffers:
    """Buffers of this thread whose content is used up before their user calls anything that may want some."""
    return _IDLE.scratch


@contextmanager
def borrowed_buffers() -> Iterator[Buffers]:
    """Lend buffers that nothing else in this thread uses meanwhile."""
    found = _IDLE.buffers.pop() if _IDLE.buffers else Buffers()
    try:
        yield found
    finally:
        if len(_IDLE.buffers) < _KEPT:
            _IDLE.buffers.append(found)
