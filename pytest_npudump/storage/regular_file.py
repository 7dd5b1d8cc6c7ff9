"""Reading what a user or a dump names: regular files, as a pipe or a device would hold a run up for ever."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading its bytes.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    # Non-blocking, so that opening a pipe returns; reading a regular file is as it always is.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "not a regular file", str(path))


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
