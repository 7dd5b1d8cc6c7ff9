"""Sums and inner products at the speed of BLAS, with bounds that hold for the BLAS at hand.

Up to 32 Ki elements of float32 are added in float64. More are cut into rows: BLAS adds up each row in
float32, numpy the rows' sums in float64. A row errs by at most ``k * 2**-24`` of the sum of its terms'
magnitudes, where ``k`` is the number of additions that a term goes through.

BLAS adds in lanes and does not say how many it has: that depends on the processor. It is found out by
asking, once in a process. Among ones, a huge term swallows all that is added to it until its negative makes
it vanish. What is left counts the terms outside of the smallest partial sum that has both, and these numbers
tell the tree of additions (FPRev, arXiv:2411.00442).

Rows are short enough that BLAS never divides one between threads of its own: results do not depend on how
many it has, and threads that work on different tensors do not wait for each other there.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

SUM_ADDITIONS = 15
"""Additions that a term of a sum of float32 goes through in its row, at most: 15 * 2**-24 is 8.95e-7."""

DOT_ADDITIONS = 31
"""The same of an inner product, where a term is rounded once more: 32 * 2**-24 is 1.91e-6."""

_LENGTHS = (512, 256, 128, 64, 32)
"""Lengths of rows, the fastest first."""

_LENGTH_64 = 4096
_SHORT = 1 << 15
_HAS_VECDOT = hasattr(np, "vecdot")
_HUGE = np.float32(2.0**60)


def block_sum(values: np.ndarray) -> float:
    """The sum of contiguous float32 of shape (n,); errs by at most 9e-7 of the sum of the magnitudes."""
    if values.size < _SHORT:
        return float(np.add.reduce(values, dtype=np.float64))
    ones = _ones(row_length(SUM_ADDITIONS))
    whole = values.size - values.size % ones.size
    total = float(np.add.reduce(row_dots(values[:whole].reshape(-1, ones.size), ones), dtype=np.float64))
    if whole == values.size:
        return total
    return total + float(np.add.reduce(values[whole:], dtype=np.float64))


def block_dot(one: np.ndarray, other: np.ndarray) -> float:
    """The inner product of contiguous arrays of shape (n,), both float32 or both float64.

    float32 errs by at most 2e-6 of the sum of the products' magnitudes, as long as 512 of them stay in its
    range: the root of a sum of squares by at most 1e-6 of itself.
    """
    if one.dtype == np.float32 and one.size < _SHORT:
        one, other = _wide(one, other)
    length = row_length(DOT_ADDITIONS) if one.dtype == np.float32 else _LENGTH_64
    whole = one.size - one.size % length
    if not whole:
        return float(np.dot(*_wide(one, other)))
    dots = row_dots(one[:whole].reshape(-1, length), other[:whole].reshape(-1, length))
    total = float(np.add.reduce(dots, dtype=np.float64))
    if whole == one.size:
        return total
    return total + float(np.dot(*_wide(one[whole:], other[whole:])))


def _wide(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    wide = one.astype(np.float64, copy=False)
    return wide, wide if other is one else other.astype(np.float64, copy=False)


def row_dots(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Inner products of the rows of two arrays of shape (k, n), in their type; ``other`` may be (n,)."""
    if _HAS_VECDOT:
        return np.asarray(np.vecdot(one, other))
    return np.asarray(np.matmul(one[:, np.newaxis, :], other[..., np.newaxis])[:, 0, 0])


@lru_cache(maxsize=2)
def row_length(most: int) -> int:
    """How many float32 :func:`row_dots` may take at a time so that no term goes through more than ``most``.

    In rows of ``most + 1`` terms none does, whatever the order.
    """
    for length in _LENGTHS:
        if _row_additions(length) <= most:
            return length
    return most + 1


@lru_cache(maxsize=len(_LENGTHS))
def _row_additions(length: int) -> int:
    """What :func:`additions` finds of ``row_dots``; an address may decide which kernel begins a row."""
    return max(additions(_dots_at(start, length), length) for start in (0, 1))


def _dots_at(start: int, length: int) -> Callable[[np.ndarray], np.ndarray]:
    """``row_dots`` with ones, of rows that begin ``start`` elements behind an aligned address."""

    def dots(rows: np.ndarray) -> np.ndarray:
        room = np.empty(start + rows.size, np.float32)[start:].reshape(rows.shape)
        np.copyto(room, rows)
        return row_dots(room, _ones(length))

    return dots


def additions(add_rows: Callable[[np.ndarray], np.ndarray], length: int) -> int:
    """The most additions that any term goes through where ``add_rows`` adds up rows of ``length`` terms.

    Args:
        add_rows: maps float32 of shape (k, length) to the sums of the rows, (k,).
        length: terms in a row, less than 2**23.
    """

    def shared(first: int, others: NDArray[np.intp]) -> np.ndarray:
        """How many terms the smallest partial sums have that hold ``first`` and each one of ``others``."""
        rows = np.ones((len(others), length), np.float32)
        rows[:, first] = _HUGE
        rows[np.arange(len(others)), others] = -_HUGE
        return length - add_rows(rows)

    def deepest(terms: NDArray[np.intp]) -> int:
        if len(terms) < 2:  # noqa: PLR2004 - one term is not added to anything
            return 0
        sizes = shared(int(terms[0]), terms[1:])
        found = 0
        for size in sorted(set(sizes.tolist())):
            found = max(found, deepest(terms[1:][sizes == size])) + 1
        return found

    return deepest(np.arange(length))


@lru_cache(maxsize=4)
def _ones(length: int) -> NDArray[np.float32]:
    ones = np.ones(length, np.float32)
    ones.flags.writeable = False
    return ones
