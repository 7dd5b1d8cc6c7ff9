"""Statistics of tensors, in one pass of cache-sized chunks whatever the size.

The definitions: max and min over all elements that are not NaN, infinities included (NaN where all are
NaN); avg and l2norm after IEEE's rules, so NaN as soon as one element is NaN or both infinities occur
in avg; l2norm is infinite with an infinity. bool counts as its byte. The bounds of the rounding errors
are in :mod:`pytest_npudump.dump.stats.float`; integer sums and all types up to 8 bits are exact.

ACL's device-side statistics differ (``acl=True``): a NaN in the first element makes max and min NaN,
while any later NaN is ignored; and it has statistics for a few types only.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.bytes.chunks import chunks
from pytest_npudump.dump.records import Stats
from pytest_npudump.dump.stats.accumulators import array_accumulator

if TYPE_CHECKING:
    from pytest_npudump.dump.stats.accumulators import Accumulator
    from pytest_npudump.dump.stats.totals import Totals

ACL_TYPES = frozenset(
    {"float32", "float16", "float64", "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32"}
    | {"int64", "uint64"}
)
"""The types that ACL's device-side statistics have numbers for (formats.md 1.3, last column)."""


def tensor_stats(array: np.ndarray, *, acl: bool = False) -> Stats:
    """The statistics of ``array``: any shape, strides and alignment, any numeric type of a dump.

    Complex: l2norm is that of the magnitudes, an element is NaN if a part is; max, min, avg and the
    counts of infinities are None. With ``acl`` all but ``count`` is None for types that ACL leaves out.

    Raises:
        DecodeError: the array's type has no numeric meaning.
    """
    if acl and (array.dtype.name not in ACL_TYPES or not array.size):
        return Stats(count=array.size)
    with np.errstate(all="ignore"):
        found = _totals(array_accumulator(array.dtype), array).stats()
        nan_first = array.dtype.kind == "f" and bool(array.size) and math.isnan(float(array.flat[0]))
    return as_device(found, nan_first=nan_first) if acl else found


def as_device(stats: Stats, *, nan_first: bool) -> Stats:
    """The statistics of a type of :data:`ACL_TYPES` as ACL's device-side writer has them.

    Args:
        stats: those of all elements.
        nan_first: whether the first element is NaN.
    """
    if not stats.count:
        return Stats(count=0)
    return replace(stats, max=math.nan, min=math.nan) if nan_first else stats


def _totals(accumulator: Accumulator, array: np.ndarray) -> Totals:
    for piece in chunks(array):
        accumulator.add(piece)
    return accumulator.totals()
