"""Element by element: how far one tensor is from another.

An element pair with NaN or an infinity on either side is *special*: equal if both are NaN or both the same
infinity, otherwise different and outside any tolerance. All measures of distance are over the other
pairs. Chunks are compared in float32 where the type and the values allow it, else in float64; whether an
element is within tolerance is always decided as in float64. Integers are compared exactly.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.tensors.chunks import paired_chunks, value_chunks
from pytest_npudump.compare.tensors.fast import FAST_TYPES, FastComparer
from pytest_npudump.compare.tensors.sums import Sums, add_chunk, dot_scale
from pytest_npudump.compare.tensors.worst import Worst
from pytest_npudump.dump.bytes.buffers import borrowed_buffers
from pytest_npudump.dump.stats.float import Kernel
from pytest_npudump.dump.stats.running import running_array
from pytest_npudump.errors import RequestError

if TYPE_CHECKING:
    from pytest_npudump.compare.tensors.chunks import Values
    from pytest_npudump.compare.tensors.worst import WorstElement
    from pytest_npudump.dump.records import Stats
    from pytest_npudump.dump.stats.running import Running


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
    sums, found = Sums(), Worst(worst, golden.shape)
    with ExitStack() as stack:
        stack.enter_context(np.errstate(all="ignore"))
        fast = None
        sides: tuple[Kernel | Running, Kernel | Running]
        if golden.dtype == actual.dtype and golden.dtype.name in FAST_TYPES:
            own, first, second = (stack.enter_context(borrowed_buffers()) for _ in range(3))
            fast = FastComparer(sums, found, golden.dtype, (own, first, second), rtol=rtol, atol=atol)
            sides = (fast.golden, fast.actual)
        else:
            sides = (running_array(golden.dtype), running_array(actual.dtype))
        sums.scale = dot_scale(golden, actual)
        offset = 0
        for one, other in paired_chunks(golden, actual):
            if fast is None or not fast.add(one, other, offset):
                add_chunk(sums, found, one, other, offset=offset, rtol=rtol, atol=atol)
                sides[0].add(one)
                sides[1].add(other)
            offset += one.size
        totals = [side.totals if isinstance(side, Kernel) else side.totals() for side in sides]
        ours, theirs = (total.stats() for total in totals)
    return Examined(_difference(golden, sums, found, rtol, atol), ours, theirs)


def values_stats(values: Values) -> Stats:
    """The statistics of one tensor, of which only pieces are held.

    Raises:
        DecodeError: its values have no numeric meaning.
    """
    running = running_array(values.dtype)
    with np.errstate(all="ignore"):
        for piece in value_chunks(values):
            running.add(piece)
        return running.totals().stats()


def _check(golden: Values, actual: Values, rtol: float, atol: float) -> None:
    if golden.shape != actual.shape:
        raise RequestError(f"golden has shape {golden.shape}, actual {actual.shape}: compare equal shapes")
    if not (0 <= rtol < math.inf and 0 <= atol < math.inf):
        raise RequestError(f"rtol={rtol}, atol={atol}: expected finite tolerances of at least 0")
    kinds = {array.dtype.kind for array in (golden, actual)}
    if golden.dtype != actual.dtype and kinds & set("iub") and not _bytes(golden, actual):
        raise RequestError(
            f"golden is {golden.dtype}, actual {actual.dtype}: integers compare with equal types"
        )


def _bytes(golden: Values, actual: Values) -> bool:
    """Whether the two are bool and uint8, the two forms of a dumped BOOL."""
    return {golden.dtype.name, actual.dtype.name} == {"bool", "uint8"}


def _difference(golden: Values, sums: Sums, found: Worst, rtol: float, atol: float) -> TensorDifference:
    norm_golden, norm_actual = math.sqrt(sums.golden_squares), math.sqrt(max(sums.actual_squares, 0.0))
    cosine = 1.0 if norm_golden == norm_actual == 0 else 0.0
    if norm_golden and norm_actual:
        cosine = max(-1.0, min(1.0, sums.product / norm_golden / norm_actual))
    distance = math.sqrt(sums.difference_squares)
    relative_l2 = distance / norm_golden if norm_golden else (math.inf if distance else 0.0)
    first = found.first_special
    return TensorDifference(
        shape=golden.shape,
        dtype=golden.dtype.name,
        count=golden.size,
        magnitude=sums.magnitude,
        norm=norm_golden / sums.scale,
        max_abs=sums.max_abs,
        max_rel=sums.max_rel,
        mean_rel=sums.relative_sum / sums.relative_count if sums.relative_count else None,
        cosine=cosine,
        relative_l2=relative_l2,
        outside=sums.outside,
        max_ulp=sums.max_ulp,
        mean_ulp=sums.ulp_sum / sums.ulp_count if sums.ulp_count else None,
        special=sums.special,
        special_different=sums.special_different,
        nan_golden=sums.nan_golden,
        nan_actual=sums.nan_actual,
        inf_golden=sums.inf_golden,
        inf_actual=sums.inf_actual,
        first_special_different=None if first is None else found.index(first),
        worst=found.elements(),
        rtol=rtol,
        atol=atol,
    )
