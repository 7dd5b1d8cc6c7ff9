"""The whole bytes of a small file, such as a CSV: fast, since a dump may have 10,000 of them."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from pytest_npudump.errors import FormatError

if TYPE_CHECKING:
    from pathlib import Path


LIMIT = 1 << 28
"""No statistics or names file is larger; 20,000 rows take 2 MiB."""


def read_small(path: Path | str) -> bytes:
    """Return the bytes of ``path``.

    Raises:
        FormatError: the file cannot be read, or is larger than ``LIMIT``.
    """
    try:
        return _contents(path)
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror}") from error


def _contents(path: Path | str) -> bytes:
    # Four system calls; Path.read_bytes makes nine and takes twice the time.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would never open
    try:
        status = os.fstat(descriptor)
        size = status.st_size
        if not stat.S_ISREG(status.st_mode):
            raise FormatError(path, "cannot be read: not a regular file")
        if size > LIMIT:
            raise FormatError(path, f"{size} bytes, expected at most {LIMIT}: this is no text file of a dump")
        # One byte more is asked for than there is: where it does not come, this was the end.
        data = os.read(descriptor, size + 1)
        while len(data) != size and (more := os.read(descriptor, size + 1)):
            data += more
    finally:
        os.close(descriptor)
    return data
