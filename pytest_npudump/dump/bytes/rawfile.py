"""Reading untrusted files: every length is checked against the file before anything is allocated."""

from __future__ import annotations

import mmap
import os
import stat
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.errors import FormatError

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self

    from pytest_npudump.dump.records import Payload

_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_HEAD = 4096
"""Bytes that are read at once from a file's beginning."""
_SMALL = 1 << 14
"""Bytes up to which a copy takes less time than a mapping."""


class RawFile:
    """An open regular file of known size.

    Attributes:
        path: the file.
        size: its length in bytes at the time it was opened.
    """

    __slots__ = ("_descriptor", "_head", "path", "size")

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self.path = path
        self.size = size
        self._descriptor = descriptor
        self._head: bytes | None = None

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def read(self, offset: int, nbytes: int, what: str) -> bytes:
        """Return the ``nbytes`` at ``offset``.

        Raises:
            FormatError: the file does not have them; ``what`` says what they should have been.
        """
        self.check(offset, nbytes, what)
        end = offset + nbytes
        if end <= _HEAD:
            if self._head is None:  # a header is read in three pieces
                self._head = os.pread(self._descriptor, _HEAD, 0)
            if end <= len(self._head):
                return self._head[offset:end]
        parts: list[bytes] = []
        done = 0
        while done < nbytes:
            part = os.pread(self._descriptor, nbytes - done, offset + done)
            if not part:
                raise self.error(offset + done, f"the file became shorter while {what} was read")
            parts.append(part)
            done += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, offset: int, buffer: np.ndarray, what: str) -> None:
        """Fill ``buffer``, contiguous uint8 of shape (n,), with the n bytes at ``offset``.

        Raises:
            FormatError: the file does not have them, or cannot be read.
        """
        self.check(offset, buffer.size, what)
        view, done = buffer.data, 0
        while done < buffer.size:
            try:
                part = os.preadv(self._descriptor, [view[done:]], offset + done)
            except OSError as error:
                raise self.error(offset + done, f"cannot be read: {error.strerror or error}") from error
            if not part:
                raise self.error(offset + done, f"the file became shorter while {what} was read")
            done += part

    def check(self, offset: int, nbytes: int, what: str) -> None:
        """Raise FormatError unless the file has ``nbytes`` at ``offset``."""
        if offset < 0 or nbytes < 0 or offset + nbytes > self.size:
            raise self.error(
                offset,
                f"{what} needs {nbytes} bytes, but the file has {max(self.size - offset, 0)} from there on "
                f"({self.size} in all): it is truncated or damaged, collect the dump again",
            )

    def map(self, offset: int, nbytes: int, what: str) -> np.ndarray:
        """Read-only uint8 view, of shape (nbytes,), of the file's own pages, or of a copy of a few bytes.

        Raises:
            FormatError: the file does not have ``nbytes`` at ``offset``.
        """
        self.check(offset, nbytes, what)
        if not nbytes:
            return np.empty(0, np.uint8)
        if nbytes <= _SMALL:
            return np.frombuffer(self.read(offset, nbytes, what), np.uint8)
        start = offset - offset % mmap.ALLOCATIONGRANULARITY
        pages = mmap.mmap(self._descriptor, offset - start + nbytes, access=mmap.ACCESS_READ, offset=start)
        return np.frombuffer(pages, np.uint8, nbytes, offset - start)

    def error(self, offset: int | None, reason: str) -> FormatError:
        """A FormatError that names this file."""
        return FormatError(self.path, reason, offset=offset)


def release(view: np.ndarray) -> None:
    """Give back the memory of the file's pages under a read-only view; a later look reads them again.

    Without it a tensor of 4 GiB that was read once counts as 4 GiB of memory. Views of anything but a
    mapped file are left alone, as are writable ones, whose pages may differ from the file's.
    """
    root = view
    while isinstance(root.base, np.ndarray):
        root = root.base
    pages = root.base.obj if isinstance(root.base, memoryview) else root.base
    if not isinstance(pages, mmap.mmap) or root.flags.writeable or not hasattr(mmap, "MADV_DONTNEED"):
        return
    address = _address(root)
    first = _address(view) - (address - address % mmap.PAGESIZE)
    begin = first - first % mmap.PAGESIZE
    pages.madvise(mmap.MADV_DONTNEED, begin, first + view.nbytes - begin)


def _address(array: np.ndarray) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


def open_raw(path: Path) -> RawFile:
    """Open ``path`` for reading; the file is a context manager that closes it.

    Raises:
        FormatError: it is not a regular file, or the system refuses to open it.
    """
    try:
        # A pipe would never open without O_NONBLOCK.
        descriptor = os.open(path, _FLAGS)
    except OSError as error:
        raise FormatError(path, f"cannot be opened: {error.strerror or error}") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise FormatError(path, "not a regular file")
    return RawFile(path, descriptor, status.st_size)


def raw_bytes(payload: Payload) -> np.ndarray:
    """The bytes of a payload as a read-only uint8 view of shape (nbytes,).

    Raises:
        FormatError: the file cannot be read or no longer has the bytes.
    """
    if 0 < payload.nbytes <= _SMALL:
        found = _small_bytes(payload)
        if found is not None and len(found) == payload.nbytes:
            return np.frombuffer(found, np.uint8)
    with open_raw(payload.path) as file:
        return file.map(payload.offset, payload.nbytes, "the tensor")


def _small_bytes(payload: Payload) -> bytes | None:
    """What one read gives of a payload, maybe too little; None where the file has to be looked at."""
    try:
        descriptor = os.open(payload.path, _FLAGS)
    except OSError:
        return None
    try:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return os.pread(descriptor, payload.nbytes, payload.offset) if regular else None
    except OSError:
        return None
    finally:
        os.close(descriptor)
