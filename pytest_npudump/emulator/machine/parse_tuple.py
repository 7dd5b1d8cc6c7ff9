"""Argument lists as pyACL reads them: positional, by the codes of ``PyArg_ParseTuple``."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_UNSIGNED_LONG = 64
_INT = 32


def _masked(bits: int) -> Callable[[Any], int]:
    return lambda value: operator.index(value) & ((1 << bits) - 1)


def _signed(bits: int) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        number = operator.index(value)
        if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
            raise OverflowError(number)
        return number

    return convert


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise TypeError(value)
    value.encode()
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(value)
    return value


_CONVERTERS: Mapping[str, Callable[[Any], Any]] = {
    "k": _masked(_UNSIGNED_LONG),
    "K": _masked(_UNSIGNED_LONG),
    "I": _masked(_INT),
    "B": _masked(8),
    "i": _signed(_INT),
    "L": _signed(_UNSIGNED_LONG),
    "f": float,
    "s": _text,
    "O": lambda value: value,
    "l": _list,
}


def parse(call: str, codes: str, args: Sequence[Any]) -> tuple[Any, ...]:
    """Return ``args`` converted by ``codes``; what follows ``|`` may be missing.

    ``k`` and ``K`` are unsigned 64 bit, ``I`` unsigned 32 bit, ``B`` a byte (all three masked, as in C),
    ``i`` and ``L`` signed with a check, ``f`` a float, ``s`` a string, ``l`` a list, ``O`` any object.

    Raises:
        TypeError: with pyACL's text, for a wrong number of arguments or a wrong type.
    """
    required, _, optional = codes.partition("|")
    every = required + optional
    if not len(required) <= len(args) <= len(every):
        raise TypeError(f"{call} args parse failed!")
    try:
        return tuple(_CONVERTERS[code](value) for code, value in zip(every, args, strict=False))
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{call} args parse failed!") from None


def integers(call: str, values: list[Any]) -> list[int]:
    """Return the members of a list of ints.

    Raises:
        TypeError: a member is no integer.
    """
    return [parse(call, "L", (value,))[0] for value in values]
