"""The file that ``aclmdlSetDump`` and ``aclInit`` are given, as they check it before its content counts.

Source: ``src/acl/common/json_parser.cpp:67-219`` of hicann/runtime.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_npudump.config.checker_verdict import Refusal

ACL_ERROR_INVALID_FILE: Final = 100003
ACL_ERROR_PARSE_FILE: Final = 100006

MAX_BYTES: Final = 10 * 1024 * 1024
_MAX_NESTING: Final = 10


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """What became of a configuration file.

    Attributes:
        text: its bytes; ``b""`` if refused, and for an empty file, which CANN takes for nothing to configure.
        code: 0, or the ACL code it is refused with: 100003 or 100006.
        reason: why it is refused; None if it is not.
    """

    text: bytes
    code: int = 0
    reason: Refusal | None = None


def read_config_file(path: Path | str, *, cwd: Path | None = None) -> ConfigFile:
    """Read an acl.json within CANN's limits: a regular file of at most 10 MiB, nested at most 10 deep.

    The nesting of ``{`` and of ``[`` is counted on the bytes up to the first NUL, inside strings too.

    Args:
        path: the file; the extension does not matter.
        cwd: what a relative path starts from; the process's own by default.
    """
    file = read_plain_file(path, cwd=cwd)
    for opening, closing in (b"{}", b"[]"):
        depth = _nesting(file.text, opening, closing)
        if depth > _MAX_NESTING:
            problem = f"{depth} levels of {chr(opening)}, CANN takes {_MAX_NESTING}, also inside strings"
            return _refused(path, problem, "flatten the text", ACL_ERROR_PARSE_FILE)
    return file


def read_plain_file(path: Path | str, *, cwd: Path | None = None) -> ConfigFile:
    """Read a regular file of at most 10 MiB, whatever is in it.

    Args:
        path: the file.
        cwd: what a relative path starts from; the process's own by default.
    """
    try:
        return ConfigFile(_read(Path(path) if cwd is None else cwd / path))
    except (OSError, ValueError) as error:
        problem = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        return _refused(path, problem, "name a regular file of at most 10 MiB", ACL_ERROR_INVALID_FILE)


def _read(path: Path) -> bytes:
    # Non-blocking, so that opening a FIFO in place of the file returns and can be refused.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("not a regular file")
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise ValueError(f"{max(status.st_size, len(text))} bytes, more than {MAX_BYTES}")
    return text


def _nesting(text: bytes, opening: int, closing: int) -> int:
    depth = deepest = 0
    for byte in text.partition(b"\0")[0].translate(None, _all_but(opening, closing)):
        depth = depth + 1 if byte == opening else max(depth - 1, 0)
        deepest = max(deepest, depth)
    return deepest


def _all_but(*kept: int) -> bytes:
    return bytes(byte for byte in range(256) if byte not in kept)


def _refused(path: Path | str, problem: str, remedy: str, code: int) -> ConfigFile:
    return ConfigFile(b"", code, Refusal(str(path), problem, remedy))
