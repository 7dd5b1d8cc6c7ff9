r"""A configuration file as the C++ of CANN and MindSpore reads it: its size and nesting, and its JSON.

JSON is that of nlohmann::json, stricter than :mod:`json`: no NaN or Infinity, no lone surrogates, no number
beyond a double. Looser in three places: a UTF-8 byte-order mark is skipped, a NUL byte ends the text, and an
integer beyond 64 bits becomes a float. The last of duplicate keys wins in both. The file is that of
``src/acl/common/json_parser.cpp:67-219`` of hicann/runtime.
"""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_npudump.config.rule_table import Refusal
from pytest_npudump.storage.regular_file import open_regular

ACL_ERROR_INVALID_FILE: Final = 100003
ACL_ERROR_PARSE_FILE: Final = 100006

MAX_FILE: Final = 10 * 1024 * 1024
_MAX_NESTING: Final = 10
_BOM = b"\xef\xbb\xbf"
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_BLANK = " \t\n\r"
_LONGEST_64_BIT = 20
_TOO_DEEP = "nested more deeply than Python follows, so that it cannot be checked here"


class StrictJsonError(ValueError):
    """A text that is not JSON, with the byte at which reading failed.

    Attributes:
        reason: what is wrong.
        offset: the byte, counted from 0, or None where no byte is to blame.
    """

    def __init__(self, reason: str, offset: int | None = None) -> None:
        super().__init__(reason if offset is None else f"{reason} (byte {offset})")
        self.reason = reason
        self.offset = offset


def json_refusal(error: StrictJsonError, remedy: str, code: str = "") -> Refusal:
    """Return the reason why a checker takes no text that is not JSON."""
    return Refusal("", str(error) if error.reason == _TOO_DEEP else f"not JSON: {error}", remedy, code)


def parse(text: bytes, *, whole: bool = True) -> Any:
    """Return the value of ``text``.

    Args:
        text: JSON in UTF-8.
        whole: refuse anything after the value; nlohmann's stream operator, which MindSpore uses, does not.

    Raises:
        StrictJsonError: the text is not JSON.
    """
    start = len(_BOM) if text.startswith(_BOM) else 0
    read = text[start:].partition(b"\0")[0]
    try:
        decoded = read.decode("utf-8")
    except UnicodeDecodeError as error:
        invalid = StrictJsonError("invalid UTF-8", start + error.start)
        if whole:
            raise invalid from None
        # The value may end before these bytes, which then nobody looks at.
        return _parse(read[: error.start].decode("utf-8"), start, whole=False, cut_off_by=invalid)
    return _parse(decoded, start, whole=whole)


def _parse(text: str, start: int, *, whole: bool, cut_off_by: StrictJsonError | None = None) -> Any:
    begin = len(text) - len(text.lstrip(_BLANK))
    checks_strings = _SURROGATE_ESCAPE.search(text) is not None
    decoder = json.JSONDecoder(
        object_pairs_hook=_checked_object if checks_strings else None,
        parse_int=_integer,
        parse_float=_float,
        parse_constant=_constant,
    )
    try:
        value, end = decoder.raw_decode(text, begin)
        _check_strings(value)
    except RecursionError:
        raise StrictJsonError(_TOO_DEEP) from None
    except json.JSONDecodeError as error:
        position = start + len(text[: error.pos].encode())
        raise cut_off_by or StrictJsonError(_place(text, error.pos, error.msg), position) from None
    rest = text[end:].lstrip(_BLANK)
    if whole and rest:
        where = len(text) - len(rest)
        raise StrictJsonError(_place(text, where, "text after the value"), start + len(text[:where].encode()))
    return value


def _checked_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for key, value in pairs:
        _check_strings(key)
        _check_strings(value)
    return dict(pairs)


def _check_strings(value: object) -> None:
    if isinstance(value, str) and _SURROGATE.search(value):
        raise StrictJsonError("a \\u escape that is half of a surrogate pair")
    if isinstance(value, list):
        for member in value:
            _check_strings(member)


def _integer(digits: str) -> int | float:
    # "-0" is a signed integer to nlohmann, so never "unsigned"; a float keeps that apart from 0.
    if digits == "-0":
        return -0.0
    if len(digits) <= _LONGEST_64_BIT and -(1 << 63) <= int(digits) < (1 << 64):
        return int(digits)
    return _float(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise StrictJsonError(f"the number {digits[:30]} is too large")
    return value


def _constant(name: str) -> Any:
    raise StrictJsonError(f"{name} is no JSON value")


def _place(text: str, position: int, problem: str) -> str:
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    return f"line {line}, column {column}: {problem[:1].lower()}{problem[1:]}"


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """Result of writing a configuration file.

    Attributes:
        text: its bytes; ``b""`` if refused, and for an empty file, which CANN takes for nothing to configure.
        code: 0, or the ACL code it is refused with: 100003 or 100006.
        reason: why it is refused; None if it is not.
    """

    text: bytes
    code: int = 0
    reason: Refusal | None = None


_BUT_BRACKETS = {pair: bytes({*range(256)} - {*pair}) for pair in (b"{}", b"[]")}
"""By a pair of brackets: all other bytes."""


def read_config_file(path: Path | str, *, cwd: Path | None = None) -> ConfigFile:
    """Read an acl.json within CANN's limits: a regular file of at most 10 MiB, nested at most 10 deep.

    The nesting of ``{`` and of ``[`` is counted on the bytes up to the first NUL, inside strings too.

    Args:
        path: the file; the extension does not matter.
        cwd: what a relative path starts from; the process's own by default.
    """
    file = read_plain_file(path, cwd=cwd)
    for (opening, _), others in _BUT_BRACKETS.items():
        level = depth = 0
        for byte in file.text.partition(b"\0")[0].translate(None, others):
            level = level + 1 if byte == opening else max(level - 1, 0)
            depth = max(depth, level)
        if depth > _MAX_NESTING:
            problem = f"{depth} levels of {chr(opening)}, CANN takes {_MAX_NESTING}, also inside strings"
            return ConfigFile(b"", ACL_ERROR_PARSE_FILE, Refusal(str(path), problem, "flatten the text"))
    return file


def read_plain_file(path: Path | str, *, cwd: Path | None = None) -> ConfigFile:
    """Read a regular file of at most 10 MiB, whatever is in it.

    Args:
        path: the file.
        cwd: what a relative path starts from; the process's own by default.
    """
    place = Path(path) if cwd is None else cwd / path
    try:
        with open_regular(place) as file:
            size, text = os.fstat(file.fileno()).st_size, file.read(MAX_FILE + 1)
        if len(text) > MAX_FILE:
            raise ValueError(f"{max(size, len(text))} bytes, more than {MAX_FILE}")  # noqa: TRY301 - as the system's
    except (OSError, ValueError) as error:
        problem = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        reason = Refusal(str(path), problem, "name a regular file of at most 10 MiB")
        return ConfigFile(b"", ACL_ERROR_INVALID_FILE, reason)
    return ConfigFile(text)
