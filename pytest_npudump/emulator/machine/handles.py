"""Handles: plain ints that stand for objects of the emulator. 0 is NULL."""

from __future__ import annotations

import itertools
from typing import TypeVar

T = TypeVar("T")

_FIRST = 0x5000_0000_0000
_STEP = 0x40


class Handles:
    """The objects that handles stand for. A handle that was destroyed is never given out again."""

    def __init__(self) -> None:
        self._objects: dict[int, object] = {}
        self._numbers = itertools.count(_FIRST, _STEP)

    def add(self, value: object) -> int:
        """Return a new handle for ``value``."""
        handle = next(self._numbers)
        self._objects[handle] = value
        return handle

    def get(self, handle: int, kind: type[T]) -> T | None:
        """Return what ``handle`` stands for, or None if it stands for nothing of that kind."""
        value = self._objects.get(handle)
        return value if isinstance(value, kind) else None

    def all(self, kind: type[T]) -> list[T]:
        """Return what handles of one kind stand for, in the order they were given out."""
        return [value for value in list(self._objects.values()) if isinstance(value, kind)]

    def remove(self, handle: int, kind: type[T]) -> T | None:
        """Destroy ``handle``; return what it stood for, or None as in :meth:`get`."""
        value = self.get(handle, kind)
        if value is not None:
            del self._objects[handle]
        return value
