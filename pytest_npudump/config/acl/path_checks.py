"""``dump_path``: the checks of adump and what the environment puts in its place."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Any

from pytest_npudump.config.checker_verdict import Refusal, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

MAX_BYTES = 512
"""Longest ``dump_path`` in bytes (``MAX_DUMP_PATH_LENGTH``)."""

PATH_CHARACTERS = re.compile(rb"[A-Za-z0-9\-=\[\];\\,./!@#$%^&*()_+{}:?]*")
"""What adump allows after ``host:``, and GE anywhere (``file_utils.cpp:364-382``)."""

OVERRIDING = ("ASCEND_DUMP_PATH", "ASCEND_WORK_PATH")
"""Variables that send exception dumps elsewhere, the first one that can be used; 8.5.0 knows the second."""

_STOI = re.compile(rb"[ \t\n\v\f\r]*([+-]?[0-9]+)")
_OCTETS = 4
_LARGEST_OCTET = 255


def getline_split(text: bytes, delimiter: bytes) -> list[bytes]:
    """Split as ``std::getline`` in a loop does: nothing after a delimiter at the end."""
    parts = text.split(delimiter)
    return parts[:-1] if parts[-1] == b"" else parts


def remote_path(dump_path: bytes) -> bytes | None:
    """Return what follows ``host:`` if CANN takes ``dump_path`` for a remote one, else None.

    The host must be four parts that ``std::stoi`` reads as 0 to 255, so ``1a.2.3.4`` and ``1.2.3.4.`` pass.
    """
    host, colon, path = dump_path.partition(b":")
    if not colon or not path:
        return None
    octets = getline_split(host, b".")
    if len(octets) != _OCTETS or not all(_is_octet(octet) for octet in octets):
        return None
    return path


def _is_octet(text: bytes) -> bool:
    match = _STOI.match(text)
    return match is not None and len(match[1]) <= MAX_BYTES and 0 <= int(match[1]) <= _LARGEST_OCTET


def path_reasons(dump: Mapping[str, Any], cwd: Path, *, must_be_directory: bool = True) -> Iterator[Refusal]:
    """Yield what adump has against ``dump_path``, a string if it is there at all.

    Source: ``dump_config_converter.cpp:516-564, 887-920``.
    """
    if "dump_path" not in dump:
        yield Refusal("dump_path", "missing", 'add "dump_path" with a directory that exists', "EP0001")
        return
    value: str = dump["dump_path"]
    path = value.encode()
    remote = remote_path(path)
    if not path:
        yield Refusal("dump_path", "empty", "write a directory that exists", "EP0001")
    elif len(path) > MAX_BYTES:
        problem = f"{len(path)} bytes long, CANN takes {MAX_BYTES}"
        yield Refusal("dump_path", problem, "write a shorter path, or a symbolic link", "EP0003")
    elif remote is None:
        yield from _local_reasons(value, cwd, must_be_directory=must_be_directory)
    elif not PATH_CHARACTERS.fullmatch(remote):
        problem = f"{shown(value)} has characters that CANN refuses after host:"
        yield Refusal("dump_path", problem, r"use letters, digits and -=[];\,./!@#$%^&*()_+{}:?", "EP0003")


def _local_reasons(value: str, cwd: Path, *, must_be_directory: bool) -> Iterator[Refusal]:
    place = f"{shown(value)} (seen from {cwd})" if not value.startswith("/") else shown(value)
    mode = _mode(value, cwd)
    if mode is None:
        hint = (
            "CANN expands neither ~ nor $HOME: write the path out" if value[:1] in "~$" else "create it first"
        )
        yield Refusal("dump_path", f"{place} does not exist", hint, "EP0003")
    elif must_be_directory and not stat.S_ISDIR(mode):
        yield Refusal("dump_path", f"{place} is not a directory", "write a directory", "EP0003")
    elif not os.access(_located(value, cwd), os.R_OK | os.W_OK):
        yield Refusal(
            "dump_path", f"{place} may not be read and written", "grant both, or use another", "EP0003"
        )


def _mode(value: str, cwd: Path) -> int | None:
    try:
        return os.stat(_located(value, cwd)).st_mode  # noqa: PTH116 - bytes, so that any file system encoding works
    except OSError:
        return None


def _located(value: str, cwd: Path) -> bytes:
    # A C string ends at its first NUL, so that is where CANN's realpath() stops reading; an empty one is
    # no path at all, where joining it to cwd would give cwd.
    path = value.encode().partition(b"\0")[0]
    return os.path.join(os.fsencode(cwd), path) if path else b""  # noqa: PTH118 - bytes


def exception_path(dump: Mapping[str, Any], cwd: Path, environ: Mapping[str, str]) -> str:
    """Return where exception dumps go: ``ASCEND_DUMP_PATH``, else ``ASCEND_WORK_PATH``, else ``dump_path``.

    A variable counts only if its directory is there, or can be made, readable and writable
    (``dump_config_converter.cpp:1080-1117``).
    """
    for variable in OVERRIDING:
        value = environ.get(variable, "")
        if value and _usable(_located(value, cwd)):
            return value
    return str(dump.get("dump_path", ""))


def _usable(path: bytes) -> bool:
    if os.path.isdir(path):  # noqa: PTH112 - bytes
        return os.access(path, os.R_OK | os.W_OK)
    parent = os.path.dirname(path.rstrip(b"/"))  # noqa: PTH120 - bytes
    while parent not in (b"", b"/") and not os.path.lexists(parent):
        parent = os.path.dirname(parent)  # noqa: PTH120 - bytes
    makes = os.path.isdir(parent) and os.access(parent, os.W_OK | os.X_OK)  # noqa: PTH112 - bytes
    return makes and not os.path.lexists(path)
