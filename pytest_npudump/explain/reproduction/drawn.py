"""Values in place of private ones: of the same shape, type and statistics, and otherwise random."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.dump.values.dtypes import BY_NAME

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]

_SEED = 20


def draw(array: Array, number: int = 0) -> Array:
    """Return random values like those of an array.

    Floats: as many NaN, infinities and zeros, in other places; the others from a normal distribution of the
    same mean and deviation, cut at the least and the greatest. Integers: evenly from the least to the
    greatest. Booleans: as many that are true. None of the values is taken over but these limits.

    Args:
        array: of any shape and numeric type.
        number: which array it is: each has random numbers of its own, and the same in each call.
    """
    if not array.size:
        return array
    rng = np.random.default_rng([_SEED, number])
    kind = BY_NAME[array.dtype.name].kind
    if kind == "bool":
        flat: Array = array.reshape(-1).copy()
        rng.shuffle(flat)
        return np.reshape(flat, array.shape)
    if kind == "int":
        least, most = int(array.min()), int(array.max())
        wide = np.uint64 if most > _INT64 else np.int64
        whole = rng.integers(least, most, array.size, dtype=wide, endpoint=True)
        return np.reshape(whole.astype(array.dtype), array.shape)
    return _floats(array, rng)


_INT64 = np.iinfo(np.int64).max


def _floats(array: Array, rng: np.random.Generator) -> Array:
    if array.dtype.kind == "c":
        both = np.empty_like(array)
        both.real, both.imag = _floats(array.real, rng), _floats(array.imag, rng)
        return both
    wide: Array = array.astype(np.float64).reshape(-1)
    usual = np.isfinite(wide) & (wide != 0)
    values = wide[usual]
    if values.size:
        scale = np.abs(values).max()  # squares of large values overflow
        shares = values / scale
        new = rng.normal(shares.mean(), shares.std(), values.size)
        drawn = np.clip(new, shares.min(), shares.max()) * scale
        wide[usual] = np.clip(drawn, values.min(), values.max())  # the product may be off by a last digit
    rng.shuffle(wide)
    with np.errstate(over="ignore"):
        return np.reshape(wide.astype(array.dtype), array.shape)
