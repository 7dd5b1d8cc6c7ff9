"""Element by element: how far one tensor is from another.

An element pair with NaN or an infinity on either side is *special*: equal if both are NaN or both the same
infinity, otherwise different and outside any tolerance. All measures of distance are over the other
pairs. Whether an element is within tolerance is decided as in float64. Integers are compared exactly.

Of types of at most 8 bits, how often each pair of bytes occurs gives every measure, exactly. A byte holds
an element, or several of 1, 2 or 4 bits. Pairs of bytes are counted while chunks go by; at the end each
pair of elements is measured once, with the number of times it occurred.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pytest_npudump.compare.tensors.kernel import (
    BLOCK,
    ROW,
    ULP_TYPES,
    Measures,
    Worst,
    WorstElement,
    is_finite,
    measure,
    widened,
)
from pytest_npudump.dump.arrays.decode import CodedTensor, PackedTensor, decode
from pytest_npudump.dump.dtypes import BY_NAME
from pytest_npudump.dump.filebytes import pieces_of
from pytest_npudump.dump.stats.kernels import add_histogram, count_codes, row_totals
from pytest_npudump.dump.stats.sums import Totals
from pytest_npudump.dump.stats.tensor import Accumulator, array_accumulator, dtype_name, raw_accumulator
from pytest_npudump.errors import RequestError

WORTH_COUNTING = 1 << 17
"""Elements from which on counting is faster than decoding."""

_OCTETS = 256
_PAIRS = _OCTETS * _OCTETS
_BLOCK = 1 << 19


class _Tables(NamedTuple):
    """Tables shared by all pairs of two types.

    Attributes:
        golden, actual: the n elements of each byte, of shape (256, n).
        reach: the largest distance of the elements of each pair of bytes, float64 of shape (65536,).
        special: the pairs with NaN or an infinity that are not equal.
    """

    golden: np.ndarray
    actual: np.ndarray
    reach: np.ndarray
    special: np.ndarray


@lru_cache(maxsize=8)
def _tables(golden: str, actual: str) -> _Tables:
    octets = np.arange(_OCTETS, dtype=np.uint8)
    sides = [
        (octets if name == "bool" else decode(octets, name, _OCTETS * 8 // BY_NAME[name].bits)).reshape(
            _OCTETS, -1
        )
        for name in (golden, actual)
    ]
    one, other = widened(sides[0], np.float64)[:, np.newaxis], widened(sides[1], np.float64)
    with np.errstate(all="ignore"):
        finite = np.isfinite(one) & np.isfinite(other)
        reach = np.where(finite, np.abs(other - one), 0.0).max(axis=2)
        same = (np.isnan(one) & np.isnan(other)) | (one == other)
    special = np.flatnonzero((~finite & ~same).any(axis=2))
    return _Tables(sides[0], sides[1], reach.reshape(-1), special)


class CodePairs:
    """Counts pairs of bytes, and lists the elements farthest apart.

    Args:
        names: types of the golden and of the actual tensor, as a dump calls them.
        results: what the pairs are added to.
    """

    def __init__(self, names: tuple[str, str], results: tuple[Measures, Worst]) -> None:
        self._names, (self._measures, self._worst) = names, results
        self._counts = np.zeros(_PAIRS, np.int64)

    def add(self, golden: np.ndarray, actual: np.ndarray, offset: int) -> None:
        """Add bytes, uint8 of shape (n,), the first of which holds element ``offset`` of the tensors."""
        for start in range(0, golden.size, _BLOCK):
            part = slice(start, start + _BLOCK)
            joint = golden[part].astype(np.uint16)
            joint <<= 8
            joint |= actual[part]
            counts = np.zeros(_PAIRS, np.int64)
            count_codes(joint, counts)
            self._counts += counts
            self._list(joint, counts, offset + start * 8 // BY_NAME[self._names[0]].bits)

    def _list(self, joint: np.ndarray, counts: np.ndarray, offset: int) -> None:
        """Give the elements to the lists that belong there, which most chunks do not have."""
        worst, (golden, actual, reach, special) = self._worst, _tables(*self._names)
        if worst.wants_special and counts[special].any():
            places = _places(joint, special)[: worst.limit]
            pairs = joint[places]
            worst.take_special(
                places + offset,
                *(widened(side, np.float64) for side in (golden[pairs >> 8, 0], actual[pairs & 255, 0])),
            )
        far = np.flatnonzero(reach > worst.threshold)
        far = far[counts[far] > 0]
        if not far.size:
            return
        far = far[np.argsort(-reach[far], kind="stable")]
        enough = int(np.searchsorted(np.cumsum(counts[far]), worst.limit))
        least = reach[far[min(enough, far.size - 1)]]
        farther, equal = far[reach[far] > least], far[reach[far] == least]
        places = np.concatenate([_places(joint, farther), _places(joint, equal)[: worst.limit]])
        pairs, count = joint[places], golden.shape[1]
        sides = golden[pairs >> 8].reshape(-1), actual[pairs & 255].reshape(-1)
        wide = [widened(side, np.float64) for side in sides]
        with np.errstate(invalid="ignore"):
            gap = np.abs(wide[1] - wide[0])
        if golden.dtype.kind in "iu":
            gap, *wide = (side.astype(np.int64) for side in (gap, *wide))
        indices = (places[:, np.newaxis] * count + np.arange(count)).reshape(-1) + offset
        found = np.isfinite(gap) & (gap > 0)
        worst.insert(zip(*(side[found].tolist() for side in (gap, indices, *wide)), strict=True))

    def finish(self, tolerance: tuple[float, float]) -> tuple[Totals, Totals]:
        """Add all that was counted to the measures; return the statistics of both sides."""
        if not self._counts.any():
            return Totals(), Totals()
        tables = _tables(*self._names)[:2]
        distinct = [
            np.unique(widened(side, np.float64), return_index=True, return_inverse=True) for side in tables
        ]
        sizes, shape = [values.size for values, *_ in distinct], tables[0].shape
        first, second = (inverse.reshape(shape) for *_, inverse in distinct)
        times = np.zeros(math.prod(sizes))
        for place in range(shape[1]):
            pairs = first[:, np.newaxis, place] * sizes[1] + second[np.newaxis, :, place]
            times += np.bincount(pairs.reshape(-1), self._counts, times.size)
        found = np.flatnonzero(times)
        sides = [table.reshape(-1)[indices] for table, (_, indices, _) in zip(tables, distinct, strict=True)]
        golden, actual = sides[0][found // sizes[1]], sides[1][found % sizes[1]]
        results, tolerances = [(self._measures, self._worst)], np.array([tolerance])
        measure(
            golden[np.newaxis],
            actual[np.newaxis],
            results,
            tolerances,
            finite=is_finite(golden) and is_finite(actual),
            times=times[found],
        )
        totals, counts = (Totals(), Totals()), times.reshape(sizes).astype(np.int64)
        for axis, (values, *_) in enumerate(distinct):
            occurred = counts.sum(axis=1 - axis).tolist()
            add_histogram(totals[axis], values, occurred, integer=sides[axis].dtype.kind in "iu")
        return totals


def _places(joint: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    chosen = np.zeros(_PAIRS, np.bool_)
    chosen[wanted] = True
    return np.flatnonzero(chosen[joint])


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_npudump.dump.arrays.layouts import JoinedTensor
    from pytest_npudump.dump.records import Stats

    Values = np.ndarray | PackedTensor | CodedTensor | JoinedTensor

CHUNK = 1 << 18
"""Elements read at a time."""
OCTETS = 1 << 20
"""Bytes of packed types read at a time."""
TOGETHER = 1 << 15
"""Elements of small tensors that are measured together."""

_PACKED = (PackedTensor, CodedTensor)
_BYTE = 8
_PROBE = 2048
_SMALL = frozenset(
    {"float16", "bfloat16", "float32", "float8_e5m2", "float8_e4m3fn"}
    | {"bool", "int8", "uint8", "int16", "uint16", "int32", "uint32"}
)
"""Types of which thousands of squares stay in the range of float64, where sums of integers are exact."""
_MOST = 1 << 39
"""Largest 64-bit integer of which the same is so."""


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """Distance of ``actual`` from ``golden``.

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
        """Return whether NaN and infinities are at the same places in both."""
        return not self.special_different

    def special_text(self) -> str:
        """Describe how NaN and infinities differ; "" where they do not."""
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
class ExaminedPair:
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


def examine_tensors(
    golden: Values, actual: Values, *, rtol: float, atol: float, worst: int = 5
) -> ExaminedPair:
    """Compare as :func:`compare_tensors`, and have the statistics of both with it: each chunk is read once.

    Either none of the two is packed, or both are.

    Raises:
        RequestError: as :func:`compare_tensors`.
        DecodeError: the values of an array have no numeric meaning.
    """
    _check(golden, actual, rtol, atol)
    if (small := small_pair(golden, actual)) is not None:
        return examine_small([small], [golden.shape], [(rtol, atol)], worst=worst)[0]
    results, offset, tolerances = (Measures(), Worst(worst, golden.shape)), 0, np.array([(rtol, atol)])
    with np.errstate(all="ignore"):
        one, other = _native(golden.dtype), _native(actual.dtype)
        names, bits, packed = (dtype_name(one), dtype_name(other)), 8 * one.itemsize, False
        if isinstance(golden, _PACKED) and isinstance(actual, _PACKED) and golden.name == actual.name:
            packed = BY_NAME[golden.name].bits <= _BYTE
            if packed:
                names, bits = (golden.name, actual.name), BY_NAME[golden.name].bits
        counted = packed or (one.itemsize == other.itemsize == 1 and {*names} <= BY_NAME.keys())
        sides = [array_accumulator(side) for side in (one, other)]
        equal = raw_accumulator(names[0], None) if packed else array_accumulator(one)
        codes = CodePairs(names, results) if counted else None
        for first, second, count in (
            _paired_octets(golden, actual) if packed else _paired_chunks(golden, actual)
        ):
            begin, whole = 0, not packed or first.size * _BYTE == count * bits
            if one == other and one.kind != "c" and whole and _is_same(first, second):
                equal.add(first)
                begin = count
            elif codes is not None and count >= WORTH_COUNTING:
                octets = count * bits // _BYTE
                codes.add(first[:octets].view(np.uint8), second[:octets].view(np.uint8), offset)
                begin = octets * _BYTE // bits
            if begin < count:
                pair = [side[begin * bits // _BYTE if packed else begin :] for side in (first, second)]
                if packed:
                    pair = [decode(side, names[0], count - begin) for side in pair]
                known = [_add_finite(*side, counted=counted) for side in zip(sides, pair, strict=True)]
                for start in range(0, count - begin, BLOCK):
                    block, other_block = (values[np.newaxis, start : start + BLOCK] for values in pair)
                    where = offset + begin + start
                    measure(block, other_block, [results], tolerances, finite=all(known), offset=where)
            offset += count
        totals, same = (sides[0].totals(), sides[1].totals()), equal.totals()
        if same.count:
            results[0].take_equal(same)
        equals = (same, same) if same.count else ()  # nothing equal says nothing of the type
        for more in (equals, () if codes is None else codes.finish((rtol, atol))):
            for running, found in zip(totals, more, strict=False):
                running.merge(found)
        return _examined((golden.dtype, actual.dtype), totals, results, (rtol, atol))


def _add_finite(statistics: Accumulator, values: np.ndarray, *, counted: bool) -> bool:
    """Add elements to the statistics of their side; whether all of them are finite."""
    if counted:
        statistics.add(values)
        return is_finite(values)
    before = statistics.totals().special
    statistics.add(values)
    return statistics.totals().special == before


def _is_same(golden: np.ndarray, actual: np.ndarray) -> bool:
    """Return whether two contiguous chunks are equal bit by bit."""
    octets = golden.view(np.uint8), actual.view(np.uint8)
    if octets[0].size % 8 == 0:
        octets = octets[0].view(np.uint64), octets[1].view(np.uint64)
    # most that differ do so early on
    parts = slice(_PROBE), slice(_PROBE, None)
    return all(np.array_equal(octets[0][part], octets[1][part]) for part in parts)


def _paired_chunks(golden: Values, actual: Values) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Pieces of one axis and equal length, aligned and native, and that length."""
    sides = golden, actual
    flat = all(isinstance(side, np.ndarray) and side.flags.c_contiguous for side in sides)
    limit = min(map(_limit, sides))
    for one, other in zip(*(_ready_pieces(side, limit, flat=flat) for side in sides), strict=True):
        yield one, other, one.size


def _paired_octets(golden: Values, actual: Values) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """The bytes of pieces of two packed tensors of one type, and how many elements they hold."""
    assert isinstance(golden, _PACKED)  # noqa: S101 - asked of these only
    assert isinstance(actual, _PACKED)  # noqa: S101 - as above
    both = isinstance(golden, PackedTensor) and isinstance(actual, PackedTensor)
    limit = OCTETS * _BYTE // BY_NAME[golden.name].bits if both else CHUNK
    for (one, count), (other, _) in zip(golden.octets(limit), actual.octets(limit), strict=True):
        yield one, other, count


def value_chunks(values: Values) -> Iterator[np.ndarray]:
    """Pieces of one axis in C order, aligned and native."""
    yield from _ready_pieces(values, _limit(values), flat=False)


def _limit(values: Values) -> int:
    return CHUNK if values.dtype.itemsize > 1 else 4 * CHUNK


def _ready_pieces(values: Values, limit: int, *, flat: bool) -> Iterator[np.ndarray]:
    """Aligned and native pieces; ``flat`` is as for :func:`c_order_chunks`."""
    for piece in pieces_of(values, limit, flat=flat):
        ready = piece.flags.aligned and piece.dtype.isnative
        yield piece if ready else piece.astype(_native(piece.dtype))


@lru_cache(maxsize=64)
def _native(dtype: np.dtype) -> np.dtype:
    native: np.dtype = dtype.newbyteorder("=")
    return native


def small_pair(golden: Values, actual: Values) -> tuple[np.ndarray, np.ndarray] | None:
    """Two tensors of one shape as :func:`examine_small` takes them, decoded; None where it does not."""
    dtype = golden.dtype
    if not 0 < golden.size <= ROW or dtype != actual.dtype or not dtype.isnative:
        return None
    if isinstance(golden, np.ndarray) and isinstance(actual, np.ndarray):
        takes = dtype_name(dtype) in _SMALL or (_is_exact(golden) and _is_exact(actual))
        return (golden, actual) if takes else None
    if not (isinstance(golden, PackedTensor) and isinstance(actual, PackedTensor)):
        return None
    if golden.name != actual.name or dtype_name(dtype) not in _SMALL:
        return None
    return next(golden.pieces(ROW)), next(actual.pieces(ROW))


def _is_exact(values: np.ndarray) -> bool:
    """Return whether an array that is not empty is of 64-bit integers small enough for sums in float64."""
    if dtype_name(values.dtype) not in {"int64", "uint64"}:
        return False
    return int(np.maximum.reduce(values, axis=None)) <= _MOST and (
        values.dtype.kind == "u" or int(np.minimum.reduce(values, axis=None)) >= -_MOST
    )


def examine_small(
    pairs: Sequence[tuple[np.ndarray, np.ndarray]],
    shapes: Sequence[tuple[int, ...]],
    tolerances: Sequence[tuple[float, float]],
    *,
    worst: int = 5,
) -> list[ExaminedPair]:
    """Compare pairs from :func:`small_pair`, of tensors of one type and size, by one call for all.

    A tensor of a few kilobytes takes no longer to compute than numpy takes to be called.

    Args:
        pairs: golden and actual tensors.
        shapes: those of the tensors.
        tolerances: rtol and atol of each, as :func:`compare_tensors` takes them.
        worst: how many of the elements farthest apart are kept of each.
    """
    golden, actual = (np.stack([pair[side].reshape(-1) for pair in pairs]) for side in (0, 1))
    results = [(Measures(), Worst(worst, shape)) for shape in shapes]
    whole, unit = golden.dtype.kind in "biu", np.uint64 if golden[0].nbytes % 8 == 0 else np.uint8
    with np.errstate(all="ignore"):
        first = row_totals(widened(golden, np.float64), whole=whole)
        totals = [(one, one) for one in first]
        differ = np.logical_or.reduce(golden.view(unit) != actual.view(unit), axis=1)
        for row in np.flatnonzero(~differ).tolist():
            results[row][0].take_equal(first[row])
        if rows := np.flatnonzero(differ).tolist():
            if len(rows) < len(pairs):
                golden, actual = golden[rows], actual[rows]
            others = row_totals(widened(actual, np.float64), whole=whole)
            for row, other in zip(rows, others, strict=True):
                totals[row] = first[row], other
            allowed = np.array([tolerances[row] for row in rows])
            finite = not any(one.special or other.special for one, other in (totals[row] for row in rows))
            measure(golden, actual, [results[row] for row in rows], allowed, finite=finite)
        dtypes = golden.dtype, golden.dtype
        return [_examined(dtypes, *found) for found in zip(totals, results, tolerances, strict=True)]


def values_stats(values: Values) -> Stats:
    """The statistics of one tensor, of which only pieces are held.

    Raises:
        DecodeError: its values have no numeric meaning.
    """
    running = array_accumulator(values.dtype)
    with np.errstate(all="ignore"):
        for piece in value_chunks(values):
            if piece.size:  # an empty tensor has one empty piece
                running.add(piece)
        return running.totals().stats()


def _check(golden: Values, actual: Values, rtol: float, atol: float) -> None:
    if golden.shape != actual.shape:
        raise RequestError(f"golden has shape {golden.shape}, actual {actual.shape}: compare equal shapes")
    if not (0 <= rtol < math.inf and 0 <= atol < math.inf):
        raise RequestError(f"rtol={rtol}, atol={atol}: expected finite tolerances of at least 0")
    if golden.dtype == actual.dtype:
        return
    forms_of_bool = {golden.dtype.name, actual.dtype.name} == {"bool", "uint8"}
    if {golden.dtype.kind, actual.dtype.kind} & set("iub") and not forms_of_bool:
        raise RequestError(
            f"golden is {golden.dtype}, actual {actual.dtype}: integers compare with equal types"
        )


def _examined(
    dtypes: tuple[np.dtype, np.dtype],
    totals: tuple[Totals, Totals],
    results: tuple[Measures, Worst],
    tolerance: tuple[float, float],
) -> ExaminedPair:
    (golden, actual), (measures, found), dtype = totals, results, dtype_name(dtypes[0])
    first, count, finite = found.first_special, measures.relative_count, golden.count - measures.special
    has_ulp = finite and dtype in ULP_TYPES and dtype == dtype_name(dtypes[1])
    difference = TensorDifference(
        shape=found.shape,
        dtype=dtype,
        count=golden.count,
        magnitude=measures.magnitude,
        norm=measures.golden_squares.root,
        max_abs=measures.max_abs,
        max_rel=measures.max_rel,
        mean_rel=measures.relative_sum / count if count else None,
        cosine=measures.cosine(),
        relative_l2=measures.relative_l2(),
        outside=measures.outside,
        max_ulp=measures.max_ulp if has_ulp else None,
        mean_ulp=measures.ulp_sum / finite if has_ulp else None,
        special=measures.special,
        special_different=measures.special_different,
        nan_golden=measures.nan_golden,
        nan_actual=measures.nan_actual,
        inf_golden=measures.inf_golden,
        inf_actual=measures.inf_actual,
        first_special_different=None if first is None else found.index(first),
        worst=found.elements(),
        rtol=tolerance[0],
        atol=tolerance[1],
    )
    ours = golden.stats()
    return ExaminedPair(difference, ours, ours if actual is golden else actual.stats())
