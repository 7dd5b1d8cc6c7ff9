"""The bytes of a tensor in a file, piece by piece, in memory that every tensor uses again.

Statistics of files of 1 MiB take 0.7 to 0.8 of the time that they take with mapped ones; and threads that
map and unmap pages hold up each other, for they share one address space.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.dump.bytes.buffers import borrowed_buffers
from pytest_npudump.dump.bytes.rawfile import open_raw

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np


def file_pieces(path: Path, offset: int, nbytes: int, limit: int) -> Iterator[np.ndarray]:
    """The ``nbytes`` at ``offset``, as uint8 of shape (n,), n at most ``limit``; each overwrites the last.

    Raises:
        FormatError: the file cannot be read, or does not have the bytes.
    """
    with open_raw(path) as file, borrowed_buffers() as buffers:
        file.check(offset, nbytes, "the tensor")
        buffer = buffers.octets("pieces", min(limit, nbytes))
        for start in range(0, nbytes, limit):
            piece = buffer[: min(limit, nbytes - start)]
            file.read_into(offset + start, piece, "the tensor")
            yield piece
