r"""JSON as nlohmann::json reads it, which is what CANN and MindSpore use.

Stricter than :mod:`json`: no NaN or Infinity, no lone surrogates, no number beyond a double. Looser in
three places: a UTF-8 byte-order mark is skipped, a NUL byte ends the text, and an integer beyond 64 bits
becomes a float. The last of duplicate keys wins in both.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

from pytest_npudump.config.text.strict_json_deep import DeepReader

if TYPE_CHECKING:
    from collections.abc import Callable

_BOM = b"\xef\xbb\xbf"
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_BLANK = " \t\n\r"
_LONGEST_64_BIT = 20


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
    try:
        value, end = _decoded(text, begin)
    except json.JSONDecodeError as error:
        position = _offset(text, error.pos, start)
        raise cut_off_by or StrictJsonError(_place(text, error.pos, error.msg), position) from None
    rest = text[end:].lstrip(_BLANK)
    if whole and rest:
        where = len(text) - len(rest)
        raise StrictJsonError(_place(text, where, "text after the value"), _offset(text, where, start))
    return value


def _decoded(text: str, begin: int) -> tuple[Any, int]:
    decoder = _decoder(text)
    try:
        return decoder.raw_decode(text, begin)
    except RecursionError:
        return DeepReader(text, decoder.scan).read(begin)


def _decoder(text: str) -> _Decoder:
    checks_strings = _SURROGATE_ESCAPE.search(text) is not None
    return _Decoder(
        object_pairs_hook=_checked_object if checks_strings else None,
        parse_int=_integer,
        parse_float=_float,
        parse_constant=_constant,
    )


class _Decoder(json.JSONDecoder):
    """Also looks for lone surrogates where the value itself is a string or an array."""

    def raw_decode(self, s: str, idx: int = 0) -> tuple[Any, int]:
        value, end = super().raw_decode(s, idx)
        _check_strings(value)
        return value, end

    def scan(self, text: str, at: int) -> tuple[Any, int]:
        """Read a string, a number or a name at ``at``."""
        scan_once: Callable[[str, int], tuple[Any, int]] = vars(self)["scan_once"]
        value, end = scan_once(text, at)
        _check_strings(value)
        return value, end


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


def _offset(text: str, position: int, start: int) -> int:
    return start + len(text[:position].encode())
