"""Which comparer takes which types."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.tensors.code_pairs import CodesComparer
from pytest_npudump.compare.tensors.comparer import Common, Sides
from pytest_npudump.compare.tensors.complex import ComplexComparer
from pytest_npudump.compare.tensors.decoded import PackedComparer
from pytest_npudump.compare.tensors.float32 import FLOAT32_TYPES, Float32Comparer
from pytest_npudump.compare.tensors.float64 import Float64Comparer
from pytest_npudump.compare.tensors.half_complex import HalfComplexComparer
from pytest_npudump.compare.tensors.packed_codes import PackedCodes
from pytest_npudump.dump.arrays.decode import hifloat8_table
from pytest_npudump.dump.stats.tensor import Ordered, array_accumulator, dtype_name, raw_accumulator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.compare.tensors.comparer import Comparer
    from pytest_npudump.compare.tensors.measures import Measures
    from pytest_npudump.compare.tensors.paired_chunks import Values
    from pytest_npudump.compare.tensors.worst import Worst
    from pytest_npudump.dump.arrays.packed import CodedTensor, PackedTensor
    from pytest_npudump.dump.bytes.buffers import Buffers


def comparer_of(
    values: tuple[Values, Values],
    results: tuple[Measures, Worst],
    tolerance: tuple[float, float],
    buffers: Sequence[Buffers],
) -> Comparer:
    """The comparer of two tensors.

    Args:
        values: the golden and the actual tensor.
        results: what it adds to.
        tolerance: rtol and atol.
        buffers: three, for the comparer and for the statistics of each side.
    """
    golden, actual = _native(values[0].dtype), _native(values[1].dtype)
    if golden == actual and dtype_name(golden) in FLOAT32_TYPES:
        one, other = Ordered(golden, buffers[1]), Ordered(actual, buffers[2])
        common = Common(*results, Sides(one, other, Ordered(golden, buffers[1])), *tolerance)
        return Float32Comparer(common, (one.float_kernel, other.float_kernel), buffers[0])
    sides = Sides(array_accumulator(golden), array_accumulator(actual), array_accumulator(golden))
    common = Common(*results, sides, *tolerance)
    if "c" in {golden.kind, actual.kind}:
        return ComplexComparer(common)
    if golden.itemsize == actual.itemsize == 1:
        return CodesComparer(common, (_table(golden), _table(actual)), buffers[0])
    return Float64Comparer(common, buffers[0])


def packed_comparer(
    values: tuple[PackedTensor | CodedTensor, PackedTensor | CodedTensor],
    results: tuple[Measures, Worst],
    tolerance: tuple[float, float],
    buffers: Sequence[Buffers],
) -> PackedComparer:
    """The comparer of two tensors of one type that has to be decoded, as :func:`comparer_of` has them."""
    name = values[0].name
    if name not in {"hifloat8", "complex32"}:
        comparer = comparer_of(values, results, tolerance, buffers)
        counted = PackedCodes(name, results, tolerance, buffers[0])
        return PackedComparer(name, comparer, results[0], coded=False, codes=counted)
    common = Common(*results, Sides(*(raw_accumulator(name, None) for _ in range(3))), *tolerance)
    if name == "complex32":
        comparer = HalfComplexComparer(common, buffers[0])
    else:
        comparer = CodesComparer(common, (hifloat8_table(), hifloat8_table()), buffers[0])
    return PackedComparer(name, comparer, results[0], coded=True, codes=None)


@lru_cache(maxsize=64)
def _native(dtype: np.dtype) -> np.dtype:
    native: np.dtype = dtype.newbyteorder("=")
    return native


def _table(dtype: np.dtype) -> np.ndarray:
    """The values of the 256 codes; those of a bool are its bytes, as everywhere else."""
    codes = np.arange(256, dtype=np.uint8)
    return codes if dtype.kind == "b" else codes.view(dtype)
