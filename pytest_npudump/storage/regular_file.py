"""Regular files that a user or a dump names, as a pipe or a device would hold a run up for ever."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from pytest_npudump.errors import FormatError

LIMIT = 1 << 28
"""No statistics or names file of a dump is larger; 20,000 rows take 2 MiB."""


def regular_descriptor(path: Path | str) -> tuple[int, int]:
    """Open a regular file for reading; return its descriptor and its size.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    # Non-blocking, so that opening a pipe returns; reading a regular file is as it always is.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode):
        return descriptor, status.st_size
    os.close(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading its bytes.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    return os.fdopen(regular_descriptor(path)[0], "rb")


def read_small(path: Path | str) -> bytes:
    """Return the bytes of a small file, such as a CSV: fast, since a dump may have 10,000 of them.

    Raises:
        FormatError: the file cannot be read, or is larger than ``LIMIT``.
    """
    try:
        # Four system calls; Path.read_bytes makes nine and takes twice the time.
        descriptor, size = regular_descriptor(path)
        try:
            if size > LIMIT:
                raise FormatError(
                    path, f"{size} bytes, expected at most {LIMIT}: this is no text file of a dump"
                )
            # One byte more is asked for than there is: where it does not come, this was the end.
            data = os.read(descriptor, size + 1)
            while len(data) != size and (more := os.read(descriptor, size + 1)):
                data += more
            return data
        finally:
            os.close(descriptor)
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror}") from error


def read_regular(path: Path) -> bytes:
    """Return the bytes of a regular file.

    Raises:
        OSError: as :func:`open_regular`, or it cannot be read.
    """
    with open_regular(path) as file:
        return file.read()


def with_argument_files(words: Iterable[str], folder: Path, within: tuple[Path, ...] = ()) -> Iterator[str]:
    """Yield the words of a command line, and in place of ``@FILE`` those of that file, one on a line.

    Args:
        words: as the shell hands them over.
        folder: what relative names of files are relative to.
        within: the files that the words stand in.

    Raises:
        OSError: a file cannot be read, or names itself.
    """
    for word in words:
        if not word.startswith("@"):
            yield word
            continue
        file = folder / word[1:]
        if file in within:
            raise OSError(errno.ELOOP, "the file names itself", str(file))
        lines = read_regular(file).decode("utf-8", "surrogateescape").splitlines()
        yield from with_argument_files(lines, folder, (*within, file))
