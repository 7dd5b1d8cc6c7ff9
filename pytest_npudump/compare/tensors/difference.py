"""Element by element: how far one tensor is from another.

An element pair with NaN or an infinity on either side is *special*: equal if both are NaN or both the same
infinity, otherwise different and outside any tolerance. All measures of distance are over the other
pairs. Chunks are compared in float32 where the type and the values allow it, else in float64; whether an
element is within tolerance is always decided as in float64. Integers are compared exactly.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.tensors.families import comparer_of, packed_comparer
from pytest_npudump.compare.tensors.measures import ULP_TYPES, Measures
from pytest_npudump.compare.tensors.paired_chunks import CHUNK, OCTETS, paired_chunks, value_chunks
from pytest_npudump.compare.tensors.small import compare_small, small_pair
from pytest_npudump.compare.tensors.worst import Worst
from pytest_npudump.dump.arrays.packed import CodedTensor, PackedTensor
from pytest_npudump.dump.bytes.buffers import borrowed_buffers
from pytest_npudump.dump.stats.tensor import array_accumulator, dtype_name
from pytest_npudump.dump.values.dtypes import BY_NAME
from pytest_npudump.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from dataclasses import dataclass

    from pytest_npudump.compare.tensors.paired_chunks import Values
    from pytest_npudump.compare.tensors.worst import WorstElement
    from pytest_npudump.dump.bytes.buffers import Buffers
    from pytest_npudump.dump.records import Stats
    from pytest_npudump.dump.stats.totals import Totals
else:
    from pytest_npudump.dump.unguarded import dataclass


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """How far ``actual`` is from ``golden``.

    Attributes:
        shape, dtype, count: of the golden tensor.
        magnitude: largest |golden|; infinite where that of a complex element leaves float64.
        norm: l2 norm of golden.
        max_abs: largest |actual - golden|; an exact int for integers.
        max_rel: largest |actual - golden| / |golden|; inf where golden is 0 and actual is not.
        mean_rel: mean of the same over the elements whose golden is not 0; None where there are none.
        cosine: of the two as vectors; 1 for two zero vectors, 0 if only one is zero.
        relative_l2: norm of actual - golden over norm of golden; inf if only the latter is 0.
        outside: elements outside the tolerance, different special pairs included.
        max_ulp, mean_ulp: distance in units in the last place of the type; None for other than
            floating-point pairs of one type.
        special: special pairs.
        special_different: special pairs that are not equal.
        nan_golden, nan_actual, inf_golden, inf_actual: numbers of such elements.
        first_special_different: index of the first different special pair.
        worst: the elements farthest apart, different special pairs first.
        rtol, atol: the tolerance, |actual - golden| <= atol + rtol * |golden|.
    """

    shape: tuple[int, ...]
    dtype: str
    count: int
    magnitude: float
    norm: float
    max_abs: float | int
    max_rel: float
    mean_rel: float | None
    cosine: float
    relative_l2: float
    outside: int
    max_ulp: int | None
    mean_ulp: float | None
    special: int
    special_different: int
    nan_golden: int
    nan_actual: int
    inf_golden: int
    inf_actual: int
    first_special_different: tuple[int, ...] | None
    worst: tuple[WorstElement, ...]
    rtol: float
    atol: float

    @property
    def within(self) -> float:
        """Share of the elements within tolerance, 0 to 1; 1 for an empty tensor."""
        return 1.0 if not self.count else (self.count - self.outside) / self.count

    @property
    def special_equal(self) -> bool:
        """Whether NaN and infinities are at the same places in both."""
        return not self.special_different

    def special_text(self) -> str:
        """How NaN and infinities differ, in words; "" where they do not."""
        if self.first_special_different is None:
            return ""
        return (
            f"golden has {self.nan_golden} NaN and {self.inf_golden} Inf, actual {self.nan_actual} NaN and "
            f"{self.inf_actual} Inf; {self.special_different} elements differ, the first at "
            f"{list(self.first_special_different)}"
        )

    def to_json(self) -> dict[str, Any]:
        """A dictionary of plain values; NaN, infinities and complex numbers as text."""
        found = {**asdict(self), "within": self.within, "worst": [e.to_json() for e in self.worst]}
        return {name: _plain(value) for name, value in found.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Examined:
    """Two tensors that were read once.

    Attributes:
        difference: how far one is from the other.
        golden, actual: the statistics of each.
    """

    difference: TensorDifference
    golden: Stats
    actual: Stats


def compare_tensors(
    golden: np.ndarray, actual: np.ndarray, *, rtol: float, atol: float, worst: int = 5
) -> TensorDifference:
    """Compare two arrays of one shape; both may be views of mapped files, memory does not grow with them.

    Raises:
        RequestError: the shapes differ, a tolerance is negative or NaN, or integers are to be compared
            with another type.
    """
    pair = np.asarray(golden), np.asarray(actual)
    return examine_tensors(*pair, rtol=rtol, atol=atol, worst=worst).difference


def examine_tensors(golden: Values, actual: Values, *, rtol: float, atol: float, worst: int = 5) -> Examined:
    """Compare as :func:`compare_tensors`, and have the statistics of both with it: each chunk is read once.

    Either none of the two is packed, or both are.

    Raises:
        RequestError: as :func:`compare_tensors`.
        DecodeError: the values of an array have no numeric meaning.
    """
    _check(golden, actual, rtol, atol)
    small = small_pair(golden, actual)
    if small is not None:
        return examine_small([small], [golden.shape], [(rtol, atol)], worst=worst)[0]
    measures, found = Measures(), Worst(worst, golden.shape)
    with np.errstate(all="ignore"):
        with borrowed_buffers() as own, borrowed_buffers() as first, borrowed_buffers() as second:
            buffers = (own, first, second)
            totals = _totals(golden, actual, (measures, found), (rtol, atol), buffers)
        return _examined(golden.dtype, totals, (measures, found), (rtol, atol))


def examine_small(
    pairs: Sequence[tuple[np.ndarray, np.ndarray]],
    shapes: Sequence[tuple[int, ...]],
    tolerances: Sequence[tuple[float, float]],
    *,
    worst: int = 5,
) -> list[Examined]:
    """Compare what :func:`small_pair` returned of tensors of one type and size, by one call for all.

    Args:
        pairs: golden and actual tensors.
        shapes: those of the tensors.
        tolerances: rtol and atol of each, as :func:`compare_tensors` takes them.
        worst: how many of the elements farthest apart are kept of each.
    """
    results = [(Measures(), Worst(worst, shape)) for shape in shapes]
    dtype = pairs[0][0].dtype
    with np.errstate(all="ignore"):
        totals = compare_small(pairs, results, tolerances)
        return [_examined(dtype, *found) for found in zip(totals, results, tolerances, strict=True)]


def _totals(
    golden: Values,
    actual: Values,
    results: tuple[Measures, Worst],
    tolerance: tuple[float, float],
    buffers: Sequence[Buffers],
) -> tuple[Totals, Totals]:
    """Compare all chunks; what the statistics of both sides add up to."""
    offset = 0
    packed = (PackedTensor, CodedTensor)
    if isinstance(golden, packed) and isinstance(actual, packed) and golden.name == actual.name:
        octets = packed_comparer((golden, actual), results, tolerance, buffers)
        in_place = isinstance(golden, PackedTensor) and isinstance(actual, PackedTensor)
        limit = OCTETS * 8 // BY_NAME[golden.name].bits if in_place else CHUNK
        for (one, count), (other, _) in zip(golden.octets(limit), actual.octets(limit), strict=True):
            octets.add(one, other, offset, count)
            offset += count
        return octets.finish()
    comparer = comparer_of((golden, actual), results, tolerance, buffers)
    for one, other in paired_chunks(golden, actual):
        comparer.add(one, other, offset)
        offset += one.size
    return comparer.finish()


def values_stats(values: Values) -> Stats:
    """The statistics of one tensor, of which only pieces are held.

    Raises:
        DecodeError: its values have no numeric meaning.
    """
    running = array_accumulator(values.dtype)
    with np.errstate(all="ignore"):
        for piece in value_chunks(values):
            running.add(piece)
        return running.totals().stats()


def _check(golden: Values, actual: Values, rtol: float, atol: float) -> None:
    if golden.shape != actual.shape:
        raise RequestError(f"golden has shape {golden.shape}, actual {actual.shape}: compare equal shapes")
    if not (0 <= rtol < math.inf and 0 <= atol < math.inf):
        raise RequestError(f"rtol={rtol}, atol={atol}: expected finite tolerances of at least 0")
    if golden.dtype == actual.dtype:
        return
    if {golden.dtype.kind, actual.dtype.kind} & set("iub") and not _bytes(golden, actual):
        raise RequestError(
            f"golden is {golden.dtype}, actual {actual.dtype}: integers compare with equal types"
        )


def _bytes(golden: Values, actual: Values) -> bool:
    """Whether the two are bool and uint8, the two forms of a dumped BOOL."""
    return {golden.dtype.name, actual.dtype.name} == {"bool", "uint8"}


def _examined(
    dtype: np.dtype,
    totals: tuple[Totals, Totals],
    results: tuple[Measures, Worst],
    tolerance: tuple[float, float],
) -> Examined:
    golden, actual = totals
    ours = golden.stats()
    theirs = ours if actual is golden else actual.stats()
    return Examined(_difference(dtype_name(dtype), golden.count, *results, tolerance), ours, theirs)


def _difference(
    dtype: str, size: int, measures: Measures, found: Worst, tolerance: tuple[float, float]
) -> TensorDifference:
    first = found.first_special
    count = measures.relative_count
    has_ulp = measures.ulp_count and dtype in ULP_TYPES
    rtol, atol = tolerance
    return TensorDifference(
        shape=found.shape,
        dtype=dtype,
        count=size,
        magnitude=measures.magnitude,
        norm=measures.golden_squares.root,
        max_abs=measures.max_abs,
        max_rel=measures.max_rel,
        mean_rel=measures.relative_sum / count if count else None,
        cosine=measures.cosine(),
        relative_l2=measures.relative_l2(),
        outside=measures.outside,
        max_ulp=measures.max_ulp if has_ulp else None,
        mean_ulp=measures.ulp_sum / measures.ulp_count if has_ulp else None,
        special=measures.special,
        special_different=measures.special_different,
        nan_golden=measures.nan_golden,
        nan_actual=measures.nan_actual,
        inf_golden=measures.inf_golden,
        inf_actual=measures.inf_actual,
        first_special_different=None if first is None else found.index(first),
        worst=found.elements(),
        rtol=rtol,
        atol=atol,
    )
