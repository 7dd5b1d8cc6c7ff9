"""What a tensor of the device should be, given the reference's: its layout, its type and its range apart.

The device lays tensors out in blocks with padding, computes in 16 bits, and may leave axes of one element
out. None of this is a difference; a value is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from pytest_npudump.compare.patterns.pattern_search import find_pattern
from pytest_npudump.compare.tensors.difference import compare_tensors
from pytest_npudump.compare.tensors.tensor_pair import Elements
from pytest_npudump.dump.arrays.decode import load, why_opaque
from pytest_npudump.dump.arrays.layouts import LayoutError, host_array, is_private
from pytest_npudump.dump.dtypes import BY_NAME, UNKNOWN
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.dump.table import squeezed
from pytest_npudump.errors import RequestError

if TYPE_CHECKING:
    from pytest_npudump.compare.patterns.pattern_search import Pattern
    from pytest_npudump.dump.records import Stats, TensorRecord

    Array = np.ndarray[Any, np.dtype[Any]]

OVERFLOW = "overflow"
PADDED = "padded"
LAYOUT = "layout"
"""What :attr:`Expected.marks` says of a tensor: the reference's values are beyond 16 bits; the statistics
count the padding of a layout; the layout cannot be converted."""

_LARGEST: dict[str, tuple[float, Any]] = {
    "float16": (float(np.finfo(np.float16).max), np.float16),
    "bfloat16": ((2 - 2.0**-7) * 2.0**127, ml_dtypes.bfloat16),
}
"""The greatest number of the types that hold fewer than float32."""
_FAMILIES = {"float": "float", "complex": "complex", "int": "int", "bool": "int"}
_LAYOUTS = {4: "NCHW", 5: "NCDHW"}
_AXES = {"NHWC": (0, 2, 3, 1), "NDHWC": (0, 2, 3, 4, 1), "HWCN": (2, 3, 1, 0)}
"""Host layouts by the axes of ONNX's NCHW and NCDHW that they consist of."""


@dataclass(frozen=True, slots=True)
class ExpectedTensor:
    """A tensor of the device beside its counterpart.

    Attributes:
        golden: the reference as a record under the device's key, in the device's type and shape where only
            these differ.
        actual: the device's tensor, with statistics that can be held against it.
        elements: what the comparison element by element found; None where the dump has statistics only.
        marks: any of :data:`OVERFLOW`, :data:`PADDED`, :data:`LAYOUT`.
        pattern: what explains the difference of the elements; None where nothing does, or was looked for.
    """

    golden: TensorRecord
    actual: TensorRecord
    elements: Elements | None = None
    marks: frozenset[str] = frozenset()
    pattern: Pattern | None = None

    @property
    def differs(self) -> bool:
        """Whether an element is farther off than a single one may be."""
        difference = self.elements.difference if self.elements is not None else None
        return difference is not None and difference.outside > 0


def expect(
    record: TensorRecord, reference: Array, *, rtol: float = 0.0, atol: float = 0.0, search: bool = False
) -> ExpectedTensor:
    """Put the reference's tensor beside the device's.

    Args:
        record: the device's tensor; where it has elements, statistics are those of its host layout.
        reference: the counterpart, in ONNX's order of axes.
        rtol: for the share of single elements within tolerance, relative to the reference's element.
        atol: for the same, on top of it.
        search: whether to look for a pattern where elements differ.

    Raises:
        DumpError: the device's tensor cannot be read.
    """
    reference, marks = _in_range(record, reference)
    if record.payload is None or record.shape is None or why_opaque(record.dtype):
        return _by_statistics(record, reference, marks)
    array = load(record.payload, record.dtype, record.shape)
    try:
        host = host_array(array, record, _LAYOUTS.get(reference.ndim, "ND"))
    except LayoutError:
        return _by_statistics(record, reference, marks | {LAYOUT})
    actual = replace(record, shape=host.shape, stats=tensor_stats(host), format="")
    golden = _as(record, reference, stats=tensor_stats(reference))
    if squeezed(reference.shape) != squeezed(host.shape):
        return ExpectedTensor(golden, actual, marks=marks)
    golden = replace(golden, shape=host.shape)
    if golden.dtype != record.dtype:
        return ExpectedTensor(golden, actual, marks=marks)
    reference = reference.reshape(host.shape)
    if reference.dtype != host.dtype and host.dtype.kind in "iub" and reference.dtype.kind in "iub":
        wide = np.result_type(reference.dtype, host.dtype, np.int8)
        reference, host = reference.astype(wide), host.astype(wide)
    try:
        difference = compare_tensors(reference, host, rtol=rtol, atol=atol)
    except RequestError as error:
        return ExpectedTensor(golden, actual, Elements(note=str(error)), marks)
    found = ExpectedTensor(golden, actual, Elements(difference=difference), marks)
    if not search or not found.differs:
        return found
    layout = _LAYOUTS.get(host.ndim, "")
    return replace(found, pattern=find_pattern(reference, host, difference, layout=layout))


def _in_range(record: TensorRecord, reference: Array) -> tuple[Array, frozenset[str]]:
    """Return the reference with what 16 bits cannot hold as the device holds it: infinite, or the largest."""
    if record.dtype not in _LARGEST or reference.dtype.kind != "f":
        return reference, frozenset()
    largest, dtype = _LARGEST[record.dtype]
    if np.max(np.abs(reference), where=np.isfinite(reference), initial=0) <= largest:
        return reference, frozenset()
    stats = record.stats
    limits = [v for v in (stats.max, stats.min) if v is not None] if stats else []
    if limits and all(abs(v) <= largest for v in limits) and max(map(_printed, limits)) == _printed(largest):
        finite = np.isfinite(reference)
        return np.where(finite, np.clip(reference, -largest, largest), reference), frozenset({OVERFLOW})
    with np.errstate(over="ignore", invalid="ignore"):  # signalling NaNs
        halves = reference.astype(dtype)
        infinite = np.isinf(halves)
        if not infinite.any():
            return reference, frozenset()
        return np.where(infinite, halves.astype(reference.dtype), reference), frozenset({OVERFLOW})


def _printed(value: float) -> str:
    """Return a magnitude with the digits that ACL's statistics carry."""
    return f"{abs(value):.6g}"


def _as(record: TensorRecord, reference: Array, *, stats: Stats) -> TensorRecord:
    """Return the reference as a record: of the device's type where both are of one kind."""
    name = reference.dtype.name
    return replace(
        record,
        dtype=record.dtype if _family(record.dtype) in (_family(name), "") else name,
        shape=reference.shape,
        stats=stats,
        payload=None,
        original_shape=None,
        note="",
    )


def _family(dtype: str) -> str:
    """Kind of a type, bool with the integers as the device stores it; "" for an unknown type."""
    if dtype == UNKNOWN or dtype not in BY_NAME:
        return ""
    return _FAMILIES.get(BY_NAME[dtype].kind, "")


def _by_statistics(record: TensorRecord, reference: Array, marks: frozenset[str]) -> ExpectedTensor:
    """Compare statistics as the device computes them, over its own layout, padding included."""
    by_acl = record.stats is not None and record.stats.digits is not None
    stats = tensor_stats(reference, acl=by_acl)
    golden = _as(record, reference, stats=stats)
    count = math.prod(record.shape) if record.shape is not None else None
    if record.stats is not None and record.stats.count is not None:
        count = record.stats.count
    if not reference.size and not count:
        record = replace(record, stats=None)  # what producers write for no elements means nothing
        golden = replace(golden, stats=None)
    wanted, turned = reference.shape, _AXES.get(record.format)
    if turned and record.shape is not None and len(turned) == len(wanted) == len(record.shape):
        wanted = tuple(wanted[axis] for axis in turned)
    if not _same_shape(record, wanted, count):
        return ExpectedTensor(replace(golden, shape=wanted), record, marks=marks)
    golden = replace(golden, shape=record.shape)
    if count is None or count == reference.size or record.stats is None:
        return ExpectedTensor(golden, record, marks=marks)
    # Behind padding of any value the extremes are the tensor's, or beyond them.
    high, low, own = stats.max, stats.min, record.stats
    if high is not None and own.max is not None:
        high = max(high, own.max)
    if low is not None and own.min is not None:
        low = min(low, own.min)
    known = replace(stats, count=own.count, max=high, min=low, avg=None, l2norm=None)
    golden = replace(golden, stats=known)
    actual = replace(record, stats=replace(record.stats, avg=None, l2norm=None))
    return ExpectedTensor(golden, actual, marks=marks | {PADDED})


def _same_shape(record: TensorRecord, shape: tuple[int, ...], count: int | None) -> bool:
    """Whether the device's shape is the reference's, but for axes of one element, layout and padding."""
    if record.shape is None:
        return True
    if is_private(record):
        known = record.original_shape
        if known:
            return squeezed(known) == squeezed(shape)
        return count is not None and count >= math.prod(shape)
    return squeezed(record.shape) == squeezed(shape)
