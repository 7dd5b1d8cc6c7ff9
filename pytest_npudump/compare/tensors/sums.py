"""What a comparison adds up, and the plain way to add a chunk: in float64, or exactly for integers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.tensors.chunks import value_chunks
from pytest_npudump.dump.stats.sums import block_dot

if TYPE_CHECKING:
    from pytest_npudump.compare.tensors.chunks import Values
    from pytest_npudump.compare.tensors.worst import Worst

_RANGE = 1e140
_WIDE_TYPES = {"float64", "complex128"}
ULP_TYPES = frozenset(
    {"float16", "float32", "float64", "bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu"}
)
"""Types whose codes, with the sign taken as such, are in the order of their values."""


@dataclass(slots=True)
class Sums:
    """Running sums; the squares and the product are of elements multiplied by ``scale``.

    ``magnitude`` is the largest of the golden elements.
    """

    magnitude: float = 0.0
    max_abs: float | int = 0
    max_rel: float = 0.0
    relative_sum: float = 0.0
    relative_count: int = 0
    golden_squares: float = 0.0
    actual_squares: float = 0.0
    product: float = 0.0
    difference_squares: float = 0.0
    outside: int = 0
    max_ulp: int | None = None
    ulp_sum: float = 0.0
    ulp_count: int = 0
    special: int = 0
    special_different: int = 0
    nan_golden: int = 0
    nan_actual: int = 0
    inf_golden: int = 0
    inf_actual: int = 0
    scale: float = 1.0

    def take_ulp(self, highest: int, total: float, count: int) -> None:
        """Take the ULP distances of some more elements."""
        self.max_ulp = max(self.max_ulp or 0, highest)
        self.ulp_sum += total
        self.ulp_count += count


def dot_scale(golden: Values, actual: Values) -> float:
    """A power of two that keeps squares within float64; 1 where they are anyway."""
    if not any(array.dtype.name in _WIDE_TYPES for array in (golden, actual)):
        return 1.0
    magnitude = 0.0
    for array in (golden, actual):
        for chunk in value_chunks(array):
            sizes = np.abs(chunk)
            magnitude = max(magnitude, float(np.max(sizes, where=np.isfinite(sizes), initial=0.0)))
    if not magnitude or 1 / _RANGE < magnitude < _RANGE:
        return 1.0
    return math.ldexp(1.0, max(-1000, min(1000, -math.frexp(magnitude)[1])))


def add_chunk(
    sums: Sums, worst: Worst, golden: np.ndarray, actual: np.ndarray, *, offset: int, rtol: float, atol: float
) -> None:
    """Add a chunk of any type, of shape (n,), whose element 0 is element ``offset`` of the tensors."""
    if golden.dtype.kind in "biu":
        distance: np.ndarray = _integer_distance(golden, actual)
        one, other = golden.astype(np.float64), actual.astype(np.float64)
        _add_finite(
            sums, worst, (golden, actual), (one, other), distance, offset=offset, rtol=rtol, atol=atol
        )
        return
    wide = np.complex128 if "c" in {golden.dtype.kind, actual.dtype.kind} else np.float64
    one, other = golden.astype(wide), actual.astype(wide)
    finite = np.isfinite(one) & np.isfinite(other)
    if not finite.all():
        _add_special(sums, worst, (one, other), ~finite, offset)
        # Two equal zeros add nothing to any sum and are within every tolerance.
        one, other = np.where(finite, one, 0), np.where(finite, other, 0)
    _add_finite(
        sums, worst, (one, other), (one, other), np.abs(other - one), offset=offset, rtol=rtol, atol=atol
    )
    if golden.dtype == actual.dtype and golden.dtype.name in ULP_TYPES:
        distances = ulp_distance(golden, actual)[finite]
        if distances.size:
            sums.take_ulp(int(distances.max()), float(distances.sum(dtype=np.float64)), distances.size)


def _integer_distance(golden: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Exact |actual - golden| as uint64."""
    wide = np.uint64 if golden.dtype.kind == "u" and golden.dtype.itemsize == 8 else np.int64  # noqa: PLR2004 - bytes of uint64
    return _gap(golden.astype(wide), actual.astype(wide))


def _gap(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """|one - other| of 64-bit integers as uint64, where it always fits."""
    high, low = np.maximum(one, other), np.minimum(one, other)
    gap: np.ndarray = high.view(np.uint64) - low.view(np.uint64)
    return gap


def ulp_distance(golden: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Number of representable values from one to the other, uint64 of shape (n,); +0 and -0 are one."""
    return _gap(_ordered(golden), _ordered(actual))


def _ordered(values: np.ndarray) -> np.ndarray:
    size = values.dtype.itemsize
    if values.dtype.name == "float8_e8m0fnu":
        return values.view(np.uint8).astype(np.int64)
    codes = values.view(f"i{size}").astype(np.int64)
    magnitude = codes & ((1 << (8 * size - 1)) - 1)
    return np.where(codes < 0, -magnitude, magnitude)


def _add_special(
    sums: Sums, worst: Worst, pair: tuple[np.ndarray, np.ndarray], special: np.ndarray, offset: int
) -> None:
    golden, actual = pair
    places = np.flatnonzero(special)
    one, other = golden[places], actual[places]
    nan_one, nan_other = np.isnan(one), np.isnan(other)
    same = (nan_one & nan_other) | (one == other)
    sums.special += len(places)
    sums.nan_golden += int(nan_one.sum())
    sums.nan_actual += int(nan_other.sum())
    sums.inf_golden += int((np.isinf(one) & ~nan_one).sum())
    sums.inf_actual += int((np.isinf(other) & ~nan_other).sum())
    different = places[~same]
    sums.special_different += len(different)
    sums.outside += len(different)
    worst.add_special(different, golden, actual, offset)


def _add_finite(
    sums: Sums,
    worst: Worst,
    shown: tuple[np.ndarray, np.ndarray],
    wide: tuple[np.ndarray, np.ndarray],
    distance: np.ndarray,
    *,
    offset: int,
    rtol: float,
    atol: float,
) -> None:
    """Add finite pairs: as they are ``shown``, and as float64 or complex128."""
    golden, actual = wide
    magnitude = np.abs(golden)
    highest: Any = distance.max(initial=0).item()
    sums.max_abs = max(sums.max_abs, highest)
    sums.magnitude = max(sums.magnitude, float(magnitude.max(initial=0.0)))
    within = (distance <= atol + rtol * magnitude) & (distance < math.inf)
    sums.outside += int(np.count_nonzero(~within))
    relative = np.divide(distance, magnitude, out=np.zeros(len(golden)), where=magnitude != 0)
    sums.relative_sum += float(relative.sum())
    sums.relative_count += int(np.count_nonzero(magnitude))
    sums.max_rel = max(sums.max_rel, float(relative.max(initial=0.0)))
    if np.any((magnitude == 0) & (distance != 0)):
        sums.max_rel = math.inf
    if highest > worst.threshold:
        worst.add(distance, *shown, offset)
    _add_dots(sums, golden * sums.scale, actual * sums.scale)


def _add_dots(sums: Sums, golden: np.ndarray, actual: np.ndarray) -> None:
    if golden.dtype.kind == "c":
        golden, actual = golden.view(np.float64), actual.view(np.float64)
    difference = actual - golden
    sums.golden_squares += block_dot(golden, golden)
    sums.actual_squares += block_dot(actual, actual)
    sums.product += block_dot(golden, actual)
    sums.difference_squares += block_dot(difference, difference)
