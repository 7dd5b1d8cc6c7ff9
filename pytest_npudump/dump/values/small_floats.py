"""Types that numpy lacks: values of those that ml_dtypes lacks as well, and unpacking below a byte."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

_NAN, _INFINITY = 0x80, 0x6F
_SUBNORMALS = 8
_SUBNORMAL_BIAS = 23
_DOTS = ((2, 0b11, 4, 1), (2, 0b10, 3, 2), (2, 0b01, 2, 3), (3, 0b001, 1, 3), (4, 0b0001, 0, 3))
"""HIFLOAT8's prefixes: (prefix width, prefix, exponent width, mantissa width)."""


def is_of_numpy(dtype: np.dtype[Any]) -> bool:
    """Whether a type is numpy's own, and not one that ml_dtypes has registered.

    A type that was unpickled or got its byte order anew is numpy's as well, though ``isbuiltin`` is 0, not 1.
    """
    return dtype.isbuiltin != 2  # noqa: PLR2004 - numpy's own code


@cache
def hifloat8_table() -> np.ndarray:
    """The 256 values of HIFLOAT8, float32 of shape (256,), by code.

    Source: formats.md 1.8, checked against Huawei's package ``en_dtypes`` 0.0.4. CANN's own msaccucmp
    decodes 49 of them wrongly.
    """
    return _table(_hifloat8, 8)


@cache
def float4_table(name: str) -> np.ndarray:
    """The 16 values of ``float4_e2m1fn`` or ``float4_e1m2fn``, float32 of shape (16,), by code.

    Both have exponent bias 1 and neither has infinities or NaN.
    """
    mantissa_bits = {"float4_e2m1fn": 1, "float4_e1m2fn": 2}[name]
    return _table(lambda code: _minifloat(code, mantissa_bits), 4)


def _table(value: Callable[[int], float], bits: int) -> np.ndarray:
    table = np.array([value(code) for code in range(1 << bits)], np.float32)
    table.flags.writeable = False
    return table


def _hifloat8(code: int) -> float:
    if code == _NAN:
        return float("nan")
    sign = -1.0 if code & 0x80 else 1.0
    rest = code & 0x7F
    if rest == _INFINITY:
        return sign * float("inf")
    if rest < _SUBNORMALS:
        return sign * 2.0 ** (rest - _SUBNORMAL_BIAS) if rest else 0.0
    for width, prefix, exponent_bits, mantissa_bits in _DOTS:
        if rest >> (7 - width) == prefix:
            mantissa = (rest & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
            exponent = _hifloat8_exponent(rest >> mantissa_bits, exponent_bits)
            return sign * 2.0**exponent * (1.0 + mantissa)
    raise AssertionError(code)


def _hifloat8_exponent(field: int, width: int) -> int:
    """The exponent in the low ``width`` bits of ``field``: a sign, then a magnitude with a hidden 1."""
    if not width:
        return 0
    magnitude = 1 << (width - 1) | field & ((1 << (width - 1)) - 1)
    return -magnitude if field >> (width - 1) & 1 else magnitude


def _minifloat(code: int, mantissa_bits: int) -> float:
    sign = -1.0 if code & 8 else 1.0
    exponent = (code & 7) >> mantissa_bits
    mantissa = (code & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    return sign * (2.0 ** (exponent - 1) * (1.0 + mantissa) if exponent else mantissa)


def unpack(data: np.ndarray, bits: int, count: int, *, high_first: bool = False) -> np.ndarray:
    """The first ``count`` codes of ``bits`` (1, 2 or 4) bits in ``data``, uint8 of shape (count,).

    The first element of a byte lies in its low bits, or with ``high_first`` in its high bits.
    """
    per_byte = 8 // bits
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(bits)
    if high_first:
        shifts = shifts[::-1]
    data = data[: -(-count // per_byte)]
    codes = data[:, None] >> shifts & np.uint8((1 << bits) - 1)
    flat: np.ndarray = codes.reshape(-1)[:count]
    return flat


def sign_extend(codes: np.ndarray, bits: int) -> np.ndarray:
    """Two's complement codes of ``bits`` bits in uint8, as int8 of the same shape."""
    shift = np.uint8(8 - bits)
    signed: np.ndarray = (codes << shift).view(np.int8) >> np.int8(8 - bits)
    return signed
