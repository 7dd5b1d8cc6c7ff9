"""Random-sign projections of tensors: eight sums that see what extremes, mean and norm do not.

Each is the sum of a tensor's elements under the fixed signs of :mod:`pytest_npudump.dump.stats.signs`, a
float64 in the tensor's own unit. The projections of the difference of two tensors are the differences of
their projections, and the root mean square of these estimates the l2norm of that difference, with a
standard deviation of a quarter. So permuted rows, swapped channels, shifted tails and single elements show.

An element that is NaN or infinite counts as 0. Where all others are 0, as in a mask, +Inf counts as 1, -Inf
as -1 and NaN as 2. Both parts of a complex number are elements, the real one first. bool is its byte.

A block of 16,384 elements is 34 rows of 496, of which the last one has 16. Its columns are added up under the
signs of their places, row after row; what comes out is added up under the signs of the columns, in float64,
and so are the blocks. The columns

* of integers of up to 16 bits are exact, in int16 or float32;
* of floats of up to 32 bits are added up in float32: a projection errs by at most 2e-6 of the sum of the
  elements' magnitudes, and as rounding errors are of either sign, by some 1e-7 of the l2norm. The order of
  these additions is given, so that processors agree on them;
* of float64, of wider integers, and in blocks with sums beyond float32 are added up in float64, exact where
  integers and their sums stay below 2**53.

A last block of up to 4096 elements is added up in float64 whatever the type, without columns.

The result depends on the elements alone, not on the pieces that they came in, nor on their order in memory.
Processors may differ in the last digits of float64, where BLAS adds up the columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.arrays.decode import DecodeError, decode, is_packed, numpy_dtype, why_opaque
from pytest_npudump.dump.dtypes import BY_NAME
from pytest_npudump.dump.filebytes import CHUNK_BYTES, c_order_chunks, chunks, scratch_buffers
from pytest_npudump.dump.stats.kernels import BFLOAT16, FLOAT16, HalfType, extremes, to_float32
from pytest_npudump.dump.stats.signs import (
    BLOCK,
    COLUMNS,
    NEAR,
    PROJECTIONS,
    Checksum,
    block_signs,
    column_signs,
    near_signs,
    place_signs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray


def padded(count: int) -> int:
    """Elements of the rows of a block, or of the blocks, that hold so many."""
    whole = count - count % BLOCK
    return whole + min(-(-(count - whole) // COLUMNS) * COLUMNS, BLOCK)


def column_sums(lanes: np.ndarray) -> np.ndarray:
    """The sums of the columns of blocks under the signs of their places, of shape (blocks, COLUMNS).

    Args:
        lanes: int16, float32 or float64 of shape (1, n), the elements, or of shape (2, n), each other one and
            those between: whole blocks, or some rows of one.
    """
    blocks = max(lanes.shape[1] * len(lanes) // BLOCK, 1)
    signs = _place_signs(len(lanes), lanes.dtype)
    found = [
        _column_sums(lane, signs[at], COLUMNS // len(lanes))
        for at, lane in enumerate(lanes.reshape(len(lanes), blocks, -1))
    ]
    return found[0] if len(found) == 1 else np.stack(found, axis=-1).reshape(blocks, COLUMNS)


def _column_sums(blocks: np.ndarray, signs: np.ndarray, columns: int) -> np.ndarray:
    """Return the sums of so many columns of blocks, (k, n), under the signs of places, (n,) or more."""
    count = blocks.shape[1]
    edge = count - count % columns
    rows = blocks[:, :edge].reshape(len(blocks), -1, columns)
    sums: np.ndarray = np.einsum("brc,rc->bc", rows, signs[:edge].reshape(-1, columns))
    if edge < count:
        sums[:, : count - edge] += blocks[:, edge:] * signs[edge:count]
    return sums


def column_products(columns: np.ndarray) -> NDArray[np.float64]:
    """The sums of blocks whose columns have these sums, (blocks, 8), not finite where one of a column is not.

    One product a block, so that its result does not depend on the blocks that come with it.
    """
    wide = columns.astype(np.float64, copy=False)
    return np.asarray(np.matmul(column_signs(), wide[:, :, np.newaxis])[:, :, 0])


@lru_cache(maxsize=4)
def _place_signs(lanes: int, dtype: np.dtype) -> np.ndarray:
    """The signs of places, of shape (lanes, BLOCK / lanes)."""
    return np.ascontiguousarray(place_signs().astype(dtype).reshape(-1, lanes).T)


_HALVES = {"float16": FLOAT16, "bfloat16": BFLOAT16}
_BYTE = 8
_EXACT_BYTES = 2
"""Integers of up to so many bytes add up exactly in columns of 34 float32, those of one byte in int16."""


@dataclass(frozen=True, slots=True)
class Elements:
    """Layout of a tensor's pieces for their readers.

    Attributes:
        unit: numpy type that a piece is viewed as.
        per_unit: elements in one unit.
        columns: what elements are converted to, and added up in: int16 for integers of 8 bits, else float32
            where it holds them, else float64.
        values: the first so many elements of units of shape (n,), in an array of any numeric type.
        half: the type of 16 bits that is taken apart by shifts; None for others.
        exact: whether elements are integers or bools of whole bytes.
    """

    unit: np.dtype
    per_unit: int
    columns: type[np.int16 | np.float32 | np.float64]
    values: Callable[[np.ndarray, int], np.ndarray]
    half: HalfType | None = None
    exact: bool = False

    @property
    def lanes(self) -> int:
        """2 where :meth:`fill` puts each other element first, else 1."""
        return 1 if self.half is None else 2

    def fill(self, units: np.ndarray, count: int, out: np.ndarray) -> np.ndarray | None:
        """Fill ``out``, of shape (n,) and of type ``columns``, with ``count`` elements and then with zeros.

        Those of 16 bits come as :func:`.kernels.to_float32` has them, each other one
        first; n is even there. None where they hold NaN or infinities; those of other types come as such.
        """
        if self.half is not None:
            if units.size < out.size:
                units = np.concatenate([units[:count], np.zeros(out.size - count, units.dtype)])
            return None if extremes(units, self.half.largest) is None else to_float32(units, self.half, out)
        np.copyto(out[:count], self.values(units, count), casting="unsafe")
        out[count:] = 0
        return out

    def wide(self, units: np.ndarray, count: int, size: int) -> np.ndarray:
        """The same as float64 of shape (size,), in the order of the elements."""
        if count == size:
            return self.values(units, count).astype(np.float64)
        found = np.zeros(size)
        np.copyto(found[:count], self.values(units, count), casting="unsafe")
        return found


def _plain(units: np.ndarray, count: int) -> np.ndarray:
    return units[:count]


@lru_cache(maxsize=32)
def array_elements(dtype: np.dtype) -> Elements:
    """Elements of arrays of a numpy type; both parts of a complex number are elements.

    Raises:
        DecodeError: the type has no numeric meaning.
    """
    if dtype.name in _HALVES:
        return Elements(dtype, 1, np.float32, _plain, _HALVES[dtype.name])
    if dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        return Elements(part, 1, part.type, _plain)
    if dtype.kind == "b":
        return Elements(np.dtype(np.uint8), 1, np.int16, _plain, exact=True)
    if dtype.kind in "iu" and dtype.itemsize == 1:
        return Elements(dtype, 1, np.int16, _plain, exact=True)
    if dtype.kind in "iu" or dtype.name in {"float32", "float64"}:
        small = dtype.name == "float32" or dtype.itemsize <= _EXACT_BYTES
        return Elements(dtype, 1, np.float32 if small else np.float64, _plain, exact=dtype.kind != "f")
    if (dtype.itemsize == 1 and dtype.kind not in "SUVmMO") or dtype.name.startswith("float8"):
        return _looked_up(np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32))
    raise DecodeError(f"no projections for arrays of type {dtype}")


def raw_elements(dtype: str) -> Elements:
    """Elements of tensors of the type called ``dtype``, whose pieces are bytes where the type is packed.

    Raises:
        DecodeError: the type has no values.
    """
    if why := why_opaque(dtype):
        raise DecodeError(f"no projections for tensors of type {dtype}: {why}")
    if dtype == "complex32":
        return array_elements(np.dtype(np.float16))
    if not is_packed(dtype):
        return array_elements(numpy_dtype(dtype).newbyteorder("="))
    if dtype in {"bool", "hifloat8"}:
        codes = np.arange(256, dtype=np.uint8)
        return replace(_looked_up(decode(codes, dtype, codes.size).astype(np.float32)), exact=dtype == "bool")

    def values(units: np.ndarray, count: int) -> np.ndarray:
        return decode(units, dtype, count)

    return Elements(np.dtype(np.uint8), _BYTE // BY_NAME[dtype].bits, np.float32, values)


def _looked_up(table: np.ndarray) -> Elements:
    """Elements of a type of 8 bits whose 256 values are given."""

    def values(units: np.ndarray, count: int) -> np.ndarray:
        return table.take(units[:count])

    return Elements(np.dtype(np.uint8), 1, np.float32, values)


_NAN = 2.0
_FIRST = 16
"""Units that are looked at first: most tensors have a number there."""


def marks_of(elements: Elements, units: np.ndarray, count: int) -> NDArray[np.int8] | None:
    """The numbers for the elements of a piece, and 0 for each 0.

    Args:
        elements: how it is read.
        units: the piece.
        count: elements of it.

    Returns:
        int8 of shape (count,); None where a finite element is not 0.
    """
    first = units[:_FIRST]
    if _marked(elements, first, min(first.size * elements.per_unit, count)) is None:
        return None
    return _marked(elements, units, count)


def _marked(elements: Elements, units: np.ndarray, count: int) -> NDArray[np.int8] | None:
    values = elements.wide(units, count, count)
    finite = np.isfinite(values)
    if values[finite].any():
        return None
    return np.where(finite, 0.0, np.where(np.isnan(values), _NAN, np.sign(values))).astype(np.int8)


_LOOKED_UP = 16
"""Blocks of bytes that are looked up at a time: as 1 MiB of float32 they stay in a core's cache."""


def project(array: np.ndarray) -> tuple[float, ...]:
    """The projections of ``array``, as :func:`projector_of` takes it."""
    return projector_of(array).sums()


def projector_of(array: np.ndarray) -> Projector:
    """Add up ``array``, in C order: of any shape, strides, alignment and numeric type.

    Raises:
        DecodeError: the array's type has no numeric meaning.
    """
    projector = array_projector(array.dtype, array.size)
    parts: Iterable[np.ndarray] = [array]
    if not array.flags.c_contiguous:  # whose pieces come in the order of memory
        parts = c_order_chunks(array, max(CHUNK_BYTES // array.itemsize, 1), flat=False)
    for part in parts:
        for piece in chunks(part):
            projector.add(piece)
    return projector


def rows_projections(rows: np.ndarray) -> NDArray[np.float64]:
    """The projections, (k, 8), of k tensors of n finite elements in C order, those of :class:`Projector`.

    Args:
        rows: the tensors, float32 or, of at most :data:`.signs.NEAR` elements, float64.
    """
    count = rows.shape[1]
    whole = count - count % BLOCK
    parts = []
    for part in filter(np.size, (rows[:, :whole].reshape(-1, BLOCK), rows[:, whole:])):
        if part.shape[1] <= NEAR:
            # One product a tensor, so that its result does not depend on the tensors that come with it.
            wide = part.astype(np.float64, copy=False)
            sums = np.matmul(near_signs()[:, : part.shape[1]], wide[:, :, np.newaxis])
        else:
            sums = column_products(_column_sums(part, _place_signs(1, part.dtype)[0], COLUMNS))
        parts.append(sums.reshape(len(rows), -1))
    signs, taken = block_signs(0, -(-count // BLOCK))
    sums = np.concatenate(parts, axis=1)[:, taken] * signs
    return np.asarray(np.add.reduce(sums.reshape(len(rows), -1, PROJECTIONS), axis=1) + 0.0)


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    """Estimate the l2norm of the difference of two tensors, of as many elements, from their projections."""
    return math.dist(one, other) / math.sqrt(PROJECTIONS)


class Projector:
    """Adds up the projections of one tensor, whose elements arrive piece by piece.

    Args:
        elements: how pieces are read.
        count: elements that the tensor has, both parts of complex numbers counted.
        marks: whether NaN and infinities count where all else is 0.
    """

    def __init__(self, elements: Elements, count: int, *, marks: bool = True) -> None:
        self._elements = elements
        self._left = count
        self._sums = np.zeros(PROJECTIONS)
        self._block = 0
        self._units = BLOCK // elements.per_unit
        self._kept = np.empty(0, elements.unit)
        self._found: list[NDArray[np.float64]] = []
        self._marking = marks
        self._marks: Projector | None = None
        # of one element max says all
        self._checksum = Checksum() if elements.exact and marks and count > 1 else None

    def checksum(self) -> str:
        """The checksum of all elements, as :attr:`.Stats.checksum` has it; "" of floats."""
        return "" if self._checksum is None else self._checksum.text()

    def sums(self) -> tuple[float, ...]:
        """The eight projections of all elements; NaN or infinite only where they leave the range of float64.

        Raises:
            ValueError: some elements were not added.
        """
        missing = self._left - self._kept.size * self._elements.per_unit
        if self._left:
            raise ValueError(f"{missing} elements of the tensor were not added")
        return self._marks.sums() if self._marking and self._marks else tuple(self._sums.tolist())

    def add(self, piece: np.ndarray, values: np.ndarray | None = None, *, numbers: bool = False) -> None:
        """Add a contiguous, aligned, native piece of shape (n,); it may be overwritten afterwards.

        Args:
            piece: elements of the type, or bytes of a packed one.
            values: what the statistics made of a piece of floats of 16 or 32 bits, where that is at hand, as
                :meth:`.kernels.Kernel.add` returns them: 0 in place of NaN and infinities.
            numbers: whether an element of this piece or an earlier one is known to be finite and not 0.

        Raises:
            ValueError: the tensor has fewer elements.
        """
        units = piece.view(self._elements.unit)
        spare = (self._kept.size + units.size) * self._elements.per_unit - self._left
        if spare >= self._elements.per_unit:
            raise ValueError(f"{spare} elements more than the tensor has")
        if self._checksum is not None:
            self._checksum.add(units)
        with np.errstate(all="ignore"):
            self._marking &= not numbers
            if self._marking:  # until an element is finite and not 0
                left = self._left - self._kept.size * self._elements.per_unit
                found = marks_of(self._elements, units, min(units.size * self._elements.per_unit, left))
                self._marking = found is not None
                if found is not None:
                    self._marks = self._marks or Projector(array_elements(found.dtype), left, marks=False)
                    self._marks.add(found)
            if self._kept.size:
                room = self._units - self._kept.size
                held, units = np.concatenate([self._kept, units[:room]]), units[room:]
                if held.size < self._units and not self._is_rest(held):
                    self._kept = held
                    return
                self._take(held)
            whole = units.size - units.size % self._units
            if whole:
                self._take_whole(units[:whole], values if piece.size == units.size else None)
            rest = units[whole:]
            if rest.size and self._is_rest(rest):
                self._take(rest)
                rest = rest[:0]
            self._kept = rest.copy()
            self._add_blocks()

    def _is_rest(self, units: np.ndarray) -> bool:
        """Return whether these are all that is left of the tensor."""
        return units.size * self._elements.per_unit >= self._left

    def _take_whole(self, units: np.ndarray, values: np.ndarray | None) -> None:
        """Take whole blocks, of which ``values`` begin with the values, or are None."""
        lanes = self._elements.lanes
        if values is None or values.size % lanes:
            self._take(units)
            return
        columns = column_sums(values.reshape(lanes, -1)[:, : units.size // lanes])
        if not self._take_columns(columns, units.size):
            self._take(units)

    def _take(self, units: np.ndarray) -> None:
        """Take whole blocks, or a part of one that is all that is left."""
        count = min(units.size * self._elements.per_unit, self._left)
        if count <= NEAR:  # the last elements of a tensor
            values = self._elements.wide(units, count, count)
            sums = np.dot(near_signs()[:, :count], values)
            if not _finite(sums):
                values[~np.isfinite(values)] = 0
                sums = np.dot(near_signs()[:, :count], values)
            self._take_sums(sums[np.newaxis], count)
            return
        together = _LOOKED_UP * self._units
        if units.size > together and units.dtype == np.uint8 and self._elements.columns is np.float32:
            for start in range(0, units.size, together):
                self._take(units[start : start + together])
            return
        columns = self._column_sums(units, count)
        if columns is not None and self._take_columns(columns, count):
            return
        if units.size > self._units:
            for start in range(0, units.size, self._units):
                self._take(units[start : start + self._units])
            return
        values = self._elements.wide(units, count, padded(count))
        values[~np.isfinite(values)] = 0
        narrow = values.astype(self._elements.columns, copy=False)
        if not self._take_columns(column_sums(narrow[np.newaxis]), count):
            self._take_sums(column_products(column_sums(values[np.newaxis])), count)

    def _column_sums(self, units: np.ndarray, count: int) -> NDArray[np.floating] | None:
        """Return :func:`column_sums`; None, or not finite, where an element or a sum is not."""
        kind, size = self._elements, padded(count)
        if units.dtype == kind.columns and count == size:
            return column_sums(units[np.newaxis])
        room = scratch_buffers().floats("projected", size * np.dtype(kind.columns).itemsize // 4)
        values = kind.fill(units, count, room.view(kind.columns))
        return None if values is None else column_sums(values.reshape(kind.lanes, -1))

    def _take_columns(self, columns: NDArray[np.floating], count: int) -> bool:
        """Take ``count`` elements, whose blocks have these sums of columns; False where one is not finite."""
        sums = column_products(columns)
        if _finite(sums):
            self._take_sums(sums, count)
            return True
        return False

    def _take_sums(self, sums: NDArray[np.float64], count: int) -> None:
        """Take ``count`` elements of blocks whose sums, before a block's signs and turn, are (blocks, 8)."""
        self._found.append(sums)
        self._left -= count

    def _add_blocks(self) -> None:
        """Add the blocks that were taken, under their own signs."""
        if not self._found:
            return
        sums = self._found[0] if len(self._found) == 1 else np.concatenate(self._found)
        signs, taken = block_signs(self._block, len(sums))
        # Row after row: what is there already is the first one, so that cuts between blocks do not matter.
        rows = np.concatenate([self._sums, sums.take(taken) * signs]).reshape(-1, PROJECTIONS)
        self._sums = np.add.reduce(rows, axis=0)
        self._block += len(sums)
        self._found.clear()


def array_projector(dtype: np.dtype, count: int) -> Projector:
    """Projections of the ``count`` elements of a numpy array.

    Raises:
        DecodeError: the type has no numeric meaning.
    """
    return Projector(array_elements(dtype.newbyteorder("=")), count * (2 if dtype.kind == "c" else 1))


def raw_projector(dtype: str, count: int) -> Projector:
    """Projections of the ``count`` elements of a dump's tensor whose type, called ``dtype``, has values."""
    return Projector(raw_elements(dtype), count * (2 if BY_NAME[dtype].kind == "complex" else 1))


def _finite(sums: NDArray[np.floating]) -> bool:
    return bool(np.logical_and.reduce(np.isfinite(sums), axis=None))
