"""Files that a user names for a command's result: whole or not at all, and streams as they are."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_npudump.errors import NpudumpError
from pytest_npudump.language.translation import gettext as _

STANDARD_OUTPUT = "-"
_ITSELF = frozenset({"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"})
_MOST_LINKS = 40


def output_name(text: str) -> str:
    """Return the name of an output file; ``-`` for any name of standard output."""
    return STANDARD_OUTPUT if text in _ITSELF else text


def write_output(option: str, target: str, content: bytes) -> None:
    """Write ``content`` to the file ``target``; what a symbolic link names is replaced, and the link stays.

    A device, a pipe and a descriptor of this process are written to as they are.

    Raises:
        NpudumpError: it cannot be written; a file that was there before is as it was.
    """
    path = Path(target)
    try:
        if _is_stream(path):
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC), "wb") as stream:
                stream.write(content)
        else:
            from pytest_npudump.storage.atomic import write_whole  # noqa: PLC0415 - only where a file is written

            write_whole(Path(os.path.realpath(path)), [content])
    except OSError as error:
        raise NpudumpError(
            _(
                "{option} {target}: cannot be written: {error}; a file that was there before is as it "
                "was: free space, or name a file in a folder that is writable"
            ).format(option=option, target=target, error=error.strerror or error)
        ) from error


def _is_stream(path: Path) -> bool:
    return (path.exists() and not path.is_file()) or _is_descriptor(path)


def _is_descriptor(path: Path) -> bool:
    """Whether ``path`` leads to an open file of a process, as ``/dev/stderr`` does, and not to its name."""
    for _link in range(_MOST_LINKS):
        if os.path.realpath(path.parent).startswith("/proc/"):
            return True
        if not path.is_symlink():
            return False
        path = path.parent / path.readlink()
    return False
