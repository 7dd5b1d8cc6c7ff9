"""What an unquoted word of YAML stands for, after the core schema of YAML 1.2.

PyYAML has the types of YAML 1.1, to which ``1:30`` is 90, ``010`` is 8, ``no`` is false and ``1e-3`` is text.
"""

from __future__ import annotations

import math
import re

Scalar = str | int | float | bool | None

INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
NUMBER_STARTS = "-+.0123456789"
"""First characters of what the two patterns match."""

_LONGEST = 64
"""Characters of a number: those of 64 bits need at most 25, and 4,300 digits Python refuses to print."""

_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}


def plain_value(text: str) -> Scalar:
    """The value of ``text`` without quotes around it.

    Raises:
        ValueError: a number that is too long to be one of ours, or beyond float64; says so.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in NUMBER_STARTS:
        return text
    integer = INTEGER.fullmatch(text)
    if not integer and not FLOAT.fullmatch(text):
        return text
    if len(text) > _LONGEST:
        raise ValueError(
            f"a number of {len(text):,} characters, expected {_LONGEST} at most; put text in quotes"
        )
    if integer:
        return int(text, 0) if text[:2] in {"0o", "0x"} else int(text)
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text!r} is beyond the range of float64")
    return number
