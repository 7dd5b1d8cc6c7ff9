"""Whether a program has read a file, by the time of its last reading."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_DAYS = 2 * 24 * 3600 * 10**9


@dataclass(frozen=True, slots=True)
class Placed:
    """A configuration in its place, and whether anybody has read it there.

    Attributes:
        target: the file.
        unknown: why that cannot be known; "" if it can.
    """

    target: Path
    unknown: str
    _marked: os.stat_result | None

    @classmethod
    def watch(cls, target: Path) -> Placed:
        """Set the time of the file's last reading far back, and see whether reading it would change that.

        The time has to lie before that of the last change: with the mount option ``relatime`` only then does
        the first reading leave a trace.
        """
        try:
            _age(target)
            before = target.stat().st_atime_ns
            target.read_bytes()
            if target.stat().st_atime_ns == before:
                why = f"the file system of {target} does not record when a file is read (mounted noatime?)"
                return cls(target, why, None)
            _age(target)
            return cls(target, "", target.stat())
        except OSError as error:
            return cls(target, f"{target} cannot be looked at: {error.strerror or error}", None)

    def was_read(self) -> bool | None:
        """Whether the file was read since; None where that cannot be known, as it was replaced or changed."""
        if self._marked is None:
            return None
        try:
            now = self.target.stat()
        except OSError:
            return None
        marked = self._marked
        if (now.st_ino, now.st_mtime_ns, now.st_size) != (marked.st_ino, marked.st_mtime_ns, marked.st_size):
            return None
        return now.st_atime_ns != marked.st_atime_ns


def _age(target: Path) -> None:
    changed = target.stat().st_mtime_ns
    os.utime(target, ns=(changed - _DAYS, changed))
