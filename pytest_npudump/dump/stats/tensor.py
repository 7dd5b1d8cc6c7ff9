"""Statistics of tensors in arrays and files, in one pass of cache-sized chunks whatever the size.

The definitions: max and min over all elements that are not NaN, infinities included (NaN where all are
NaN); avg and l2norm after IEEE's rules, so NaN as soon as one element is NaN or both infinities occur
in avg; l2norm is infinite with an infinity. bool counts as its byte. The bounds of the rounding errors
are in :mod:`pytest_npudump.dump.stats.kernels`; integer sums and all types up to 8 bits are exact.

ACL's device-side statistics differ (``acl=True``): a NaN in the first element makes max and min NaN,
while any later NaN is ignored; and it has statistics for a few types only.

Sums are rounded piece by piece, so that two ways to cut one tensor may differ in the last digits. Pieces of
:data:`~pytest_npudump.dump.filebytes.CHUNK_BYTES`, counted from the first element, are what files are
read in.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache, partial
from itertools import repeat
from pathlib import Path

import numpy as np

from pytest_npudump.dump.arrays.decode import (
    DecodeError,
    NpyHeader,
    check_npy_type,
    float4_table,
    hifloat8_table,
    is_packed,
    load,
    numpy_dtype,
    read_npy_header,
    sign_extend,
    too_short,
    unpack,
    why_opaque,
)
from pytest_npudump.dump.columns import TensorPart, with_projections_of
from pytest_npudump.dump.dtypes import BY_NAME
from pytest_npudump.dump.filebytes import CHUNK_BYTES, RawFile, chunks, file_pieces, open_raw, scratch_buffers
from pytest_npudump.dump.records import Payload, Stats
from pytest_npudump.dump.stats.kernels import (
    BFLOAT16,
    FLOAT16,
    SQUARE_HIGH,
    SQUARE_LOW,
    Adding,
    Byte,
    Codes,
    Float32,
    Float64,
    Half,
    Integer,
    add_histogram,
)
from pytest_npudump.dump.stats.projections import (
    Projector,
    array_projector,
    projector_of,
    raw_projector,
    rows_projections,
)
from pytest_npudump.dump.stats.signs import NEAR
from pytest_npudump.dump.stats.sums import SHORT, Totals, block_dot, block_sum
from pytest_npudump.errors import FormatError

_NO_NUMBERS = {np.bytes_, np.str_, np.void}
_HALVES = {"float16": FLOAT16, "bfloat16": BFLOAT16}
_BYTE = 8


@lru_cache(maxsize=64)
def dtype_name(dtype: np.dtype) -> str:
    """Numpy's name of a type; it takes numpy three microseconds to put it together."""
    return str(dtype.name)


_KERNELS: Mapping[str, Callable[[Totals], Adding]] = {
    "float32": Float32,
    "float64": Float64,
    **{name: partial(Half, kind=kind) for name, kind in _HALVES.items()},
}


class Accumulator:
    """Accumulator of one tensor's statistics: of integers, bool as such, and floats of 16 bits and more.

    Attributes:
        dtype: numpy type of the pieces; ``uint8`` for packed types, whose pieces are bytes.
        kernel: adds a piece to the totals.
    """

    def __init__(self, dtype: np.dtype) -> None:
        self.dtype = dtype
        self._totals = Totals()
        self.kernel = _KERNELS.get(dtype_name(dtype), Integer if dtype.itemsize > 1 else Byte)(self._totals)

    def add(self, piece: np.ndarray) -> np.ndarray | None:
        """Add a contiguous, aligned, native piece of shape (n,), n > 0; it may be overwritten afterwards.

        Returns:
            The values that :meth:`.kernels.Kernel.add` returns; None of other types.
        """
        return self.kernel.add(piece)

    def totals(self) -> Totals:
        """Return the totals of all pieces so far; they are not to be changed."""
        return self._totals


class _Complex(Accumulator):
    """complex64 and complex128; complex32, two float16 each, as bytes."""

    def __init__(self, dtype: np.dtype, part: np.dtype) -> None:
        super().__init__(part)
        self.dtype, self._part, self._whole = dtype, part, Totals()

    def add(self, piece: np.ndarray) -> None:
        parts = piece.view(self._part)
        self.kernel.add(parts)
        flags = scratch_buffers().flags("zeros", parts.size)  # of two parts together one number
        self._whole.nan += int(np.count_nonzero(np.isnan(parts, out=flags).view(np.uint16)))
        self._whole.count += parts.size // 2
        moved = np.not_equal(parts, 0, out=flags).view(np.uint16)
        self._whole.zero += int(moved.size - np.count_nonzero(moved))

    def totals(self) -> Totals:
        """Return the totals: the magnitudes' squares are those of the parts, and there is no order."""
        parts = self._totals
        return replace(
            self._whole, squares=parts.squares, pos_inf=parts.pos_inf, neg_inf=parts.neg_inf, ordered=False
        )


class _Coded(Accumulator):
    """Floats of 8 bits, and types below, through a histogram of bytes; the last may be filled in part."""

    def __init__(self, dtype: np.dtype, name: str, count: int | None = None) -> None:
        super().__init__(np.dtype(np.uint8))
        self.dtype = dtype
        self._name, self._count = name, count
        self._codes = Codes()
        self._last = np.zeros(1, np.uint8)

    def add(self, piece: np.ndarray) -> None:
        octets = piece.view(np.uint8)
        self._codes.add(octets)
        self._last[:] = octets[-1:]

    def totals(self) -> Totals:
        bits = 8 * self.dtype.itemsize if self._name not in BY_NAME else BY_NAME[self._name].bits
        codes, counts = np.arange(256, dtype=np.uint8), self._codes.histogram
        if self._name == "hifloat8":
            values = hifloat8_table()
        elif bits == _BYTE:
            values = codes.view(self.dtype)
        else:
            values = float4_table(self._name) if self._name.startswith("float4") else codes[: 1 << bits]
            values = sign_extend(values, bits) if self._name.startswith("int") else values
            counts = self._packed_counts(bits)
        totals = Totals()
        add_histogram(totals, values.astype(np.float64), counts.tolist(), integer="int" in self._name)
        return totals

    def _packed_counts(self, bits: int) -> np.ndarray:
        """Count each code of less than a byte, of shape (2**bits,)."""
        per_byte, histogram = _BYTE // bits, self._codes.histogram
        codes = unpack(np.arange(256, dtype=np.uint8), bits, 256 * per_byte).reshape(256, per_byte)
        counts = np.zeros(1 << bits, np.int64)
        for place in range(per_byte):
            np.add.at(counts, codes[:, place], histogram)
        spare = 0 if self._count is None else int(histogram.sum()) * per_byte - self._count
        if spare:
            unused = unpack(self._last, bits, per_byte, high_first=self._name == "uint1")
            np.subtract.at(counts, unused[per_byte - spare :], 1)
        return counts


def array_accumulator(dtype: np.dtype) -> Accumulator:
    """Statistics of pieces of a numpy array.

    Raises:
        DecodeError: the type has no numeric meaning.
    """
    if dtype.type not in _NO_NUMBERS:
        if dtype.kind == "c":
            return _Complex(dtype, np.dtype(f"f{dtype.itemsize // 2}"))
        if dtype_name(dtype) in {"float32", "float64", *_HALVES} or dtype.kind in "biu":
            return Accumulator(dtype)
        name = dtype_name(dtype)
        if dtype.itemsize == 1 and dtype.kind not in "mMO" and (name not in BY_NAME or not why_opaque(name)):
            return _Coded(dtype, name)
    raise DecodeError(f"no statistics for arrays of type {dtype}")


def raw_accumulator(dtype: str, count: int | None) -> Accumulator:
    """Statistics of the ``count`` elements of a tensor in a dump whose type, called ``dtype``, has values.

    None stands for all that the bytes hold.
    """
    if dtype == "complex32":
        return _Complex(np.dtype(np.uint8), np.dtype(np.float16))
    if dtype == "bool":
        return Accumulator(np.dtype(np.uint8))
    if is_packed(dtype):
        return _Coded(np.dtype(np.uint8), dtype, count)
    return array_accumulator(numpy_dtype(dtype))


class Projected:
    """Accumulator of one tensor's statistics and projections.

    Args:
        accumulator: of the statistics.
        projector: of the projections; None leaves them out.
    """

    def __init__(self, accumulator: Accumulator, projector: Projector | None) -> None:
        self.dtype = accumulator.dtype
        self._accumulator = accumulator
        self._projector = projector

    def add(self, piece: np.ndarray) -> None:
        """Add a piece, as :meth:`~pytest_npudump.dump.stats.tensor.Accumulator.add` takes them."""
        values = self._accumulator.add(piece)
        if self._projector is not None:  # types of 16 bits are converted once for both
            numbers = bool(self._accumulator.kernel.totals.magnitude)
            self._projector.add(piece, values, numbers=numbers)

    def stats(self) -> Stats:
        """The statistics of all pieces."""
        found = self._accumulator.totals().stats()
        return found if self._projector is None else _projected(found, self._projector)


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
        accumulator = array_accumulator(array.dtype)
        for piece in chunks(array):
            accumulator.add(piece)
        found = accumulator.totals().stats()
        nan_first = array.dtype.kind == "f" and bool(array.size) and math.isnan(float(array.flat[0]))
    return as_device(found, nan_first=nan_first) if acl else found


def projected_stats(array: np.ndarray) -> Stats:
    """The same with projections and, of integers and bools, a checksum.

    Raises:
        DecodeError: the array's type has no numeric meaning.
    """
    return _projected(tensor_stats(array), projector_of(array))


def _projected(stats: Stats, projector: Projector) -> Stats:
    return replace(stats, projections=projector.sums(), checksum=projector.checksum())


def rows_stats(rows: np.ndarray) -> list[Stats]:
    """The statistics of each row of contiguous floats of shape (k, n), n > 0, by a few calls for many.

    With projections.
    """
    found = []
    most = max(1, _ROWS_CACHED // rows.shape[1])
    for start in range(0, len(rows), most):
        some = rows[start : start + most]
        with np.errstate(all="ignore"):
            values = some.astype(np.float32) if dtype_name(some.dtype) in _HALVES else some
            every = zip(some, _of_rows(values, "float32", projections=True), strict=True)
            found += [projected_stats(row) if stats is None else stats for row, stats in every]
    return found


def as_device(stats: Stats, *, nan_first: bool) -> Stats:
    """The statistics of a type of :data:`ACL_TYPES` as ACL's device-side writer has them.

    Args:
        stats: those of all elements.
        nan_first: whether the first element is NaN.
    """
    if not stats.count:
        return Stats(count=0)
    return replace(stats, max=math.nan, min=math.nan) if nan_first else stats


_TOGETHER, _TOGETHER_BYTES = 256, 2 << 20
"""Tensors whose statistics are computed at once, and their bytes, at most."""
_ROWS_CACHED = 1 << 16
"""Elements of rows that are taken at a time, float64 in the processor's cache."""
_ROW_LIMITS = {"float32": CHUNK_BYTES // 4, **dict.fromkeys(_HALVES, NEAR)}
"""Elements, at most, of tensors that are taken together, by type."""


class Waiting:
    """Tensors whose statistics are computed together, by a fiftieth of the calls where they are small.

    Those of a tensor do not depend on which others come with it, to the last bit.

    Args:
        projections: whether they have these.
        acl: whether they are a device's.
    """

    def __init__(self, *, projections: bool, acl: bool = False) -> None:
        self._projections, self._acl = projections, acl
        self._alike: defaultdict[tuple[str, int], list[tuple[np.ndarray, Stats]]] = defaultdict(list)
        self._count = self._bytes = 0

    def take(self, dtype: str, unit: np.dtype, file: RawFile, offset: int, nbytes: int) -> Stats:
        """Take a tensor of at most so many elements as its type may have; return what :meth:`fill` fills in.

        Raises:
            FormatError: the file cannot be read.
        """
        found = Stats()
        if nbytes > _TOGETHER_BYTES // 8:  # by itself, in memory that is there
            octets = scratch_buffers().octets("alone", nbytes)
            file.read_into(offset, octets, "the tensor")
            self._fill(dtype, [(octets.view(unit), found)])
            return found
        units = np.frombuffer(file.read(offset, nbytes, "the tensor"), unit)
        self._alike[dtype, units.size].append((units, found))
        self._count += 1
        self._bytes += nbytes
        if self._count >= _TOGETHER or self._bytes >= _TOGETHER_BYTES:
            self.fill()
        return found

    def fill(self) -> None:
        """Compute the statistics of all that was taken."""
        for (dtype, size), tensors in self._alike.items():
            most = max(1, _ROWS_CACHED // size)
            for start in range(0, len(tensors), most):
                self._fill(dtype, tensors[start : start + most])
        self._alike.clear()
        self._count = self._bytes = 0

    def _fill(self, dtype: str, tensors: Sequence[tuple[np.ndarray, Stats]]) -> None:
        size = tensors[0][0].size
        with np.errstate(all="ignore"):
            rows = np.concatenate([units for units, _ in tensors]) if len(tensors) > 1 else tensors[0][0]
            every = _of_rows(rows.reshape(-1, size), dtype, projections=self._projections)
            for (units, stats), found in zip(tensors, every, strict=True):
                if found is None:
                    running = Projected(
                        raw_accumulator(dtype, size),
                        raw_projector(dtype, size) if self._projections else None,
                    )
                    running.add(units)
                    found = running.stats()  # noqa: PLW2901
                    found = as_device(found, nan_first=math.isnan(float(units[0]))) if self._acl else found  # noqa: PLW2901
                for name in _FIELDS:
                    object.__setattr__(stats, name, getattr(found, name))


def _of_rows(rows: np.ndarray, dtype: str, *, projections: bool) -> Iterator[Stats | None]:
    """Yield the statistics of :class:`Projected` for each row of shape (k, n), of a type of so many elements.

    None where these are needed: for NaN, infinities, and magnitudes whose squares leave the range of float32.
    """
    count = rows.shape[1]
    wide = rows.astype(np.float64) if count < SHORT else rows
    short = rows if rows.itemsize > 2 else wide  # noqa: PLR2004 - of halves numpy looks at each
    low, high = np.minimum.reduce(short, axis=1) + 0.0, np.maximum.reduce(short, axis=1) + 0.0
    flags = np.equal(short, 0, out=scratch_buffers().flags("zeros", short.size).reshape(short.shape))
    zeros = [int(np.count_nonzero(row)) for row in flags] if np.logical_or.reduce(flags, axis=None) else None
    values, pairs = wide, count // 2 * 2
    if dtype in _HALVES:  # in the order of :func:`.kernels.to_float32`
        values = np.hstack([wide[:, :pairs:2], wide[:, 1:pairs:2], wide[:, pairs:]])
    totals = np.add.reduce(values, axis=1).tolist() if count < SHORT else map(block_sum, rows)
    squares = (block_dot(row, row) for row in values)
    sums = (
        map(tuple, rows_projections(rows if count > NEAR else wide).tolist()) if projections else repeat(None)
    )
    columns = low.tolist(), high.tolist(), zeros or repeat(0), totals, squares, sums
    for least, most, zero, total, square, own in zip(*columns, strict=False):
        magnitude = max(-least, most)
        if magnitude == 0 or SQUARE_LOW < magnitude < SQUARE_HIGH:  # which NaN is not either
            mean, norm = total / count + 0.0, math.sqrt(square)
            yield Stats(count, most, least, mean, norm, 0, 0, 0, zero, None, own)
        else:
            yield None


_FIELDS = tuple(field.name for field in fields(Stats))


def payload_stats(
    payload: Payload,
    dtype: str,
    count: int,
    *,
    acl: bool = False,
    projections: bool = False,
    file: RawFile | None = None,
    waiting: Waiting | None = None,
) -> Stats | None:
    """The statistics of the first ``count`` elements of a payload of the type called ``dtype``.

    Memory does not grow with the payload. None where the type has no values, or ``acl`` is set and ACL
    has no statistics for it. With ``projections`` these as well, in the order of the elements in the file:
    in C order, but for raw bytes of a private format. ``file`` is that of the payload, where it is open, and
    ``waiting`` takes small tensors of it.

    Raises:
        DecodeError: the payload is smaller than ``count`` elements.
        FormatError: the file cannot be read.
    """
    if why_opaque(dtype) or (acl and dtype not in ACL_TYPES):
        return None
    if payload.kind == "npy":
        header = read_npy_header(payload.path, may_be_float32=dtype == "float32")
        check_npy_type(payload, header.dtype, dtype)
        return npy_stats(payload.path, header, acl=acl, projections=projections)
    if payload.kind == "strided":
        array = load(payload, dtype, None)
        found = tensor_stats(array, acl=acl)
        return _projected(found, projector_of(array)) if projections else found
    needed = (count * BY_NAME[dtype].bits + 7) // 8
    if needed > payload.nbytes:
        raise too_short(payload, dtype, count, payload.nbytes)
    pieces = np.dtype(np.uint8) if is_packed(dtype) else numpy_dtype(dtype)
    if file is not None and waiting is not None and 0 < count <= _ROW_LIMITS.get(dtype, 0):
        return waiting.take(dtype, pieces, file, payload.offset, needed)
    running = Projected(raw_accumulator(dtype, count), raw_projector(dtype, count) if projections else None)
    return _file_stats(payload.path, payload.offset, needed, pieces, running, acl=acl, file=file)


def npy_stats(path: Path, header: NpyHeader, *, acl: bool = False, projections: bool = False) -> Stats:
    """The statistics of an npy file whose header was read, as :func:`tensor_stats` has them of its array.

    With ``projections`` these as well.

    Raises:
        FormatError: the file cannot be read.
    """
    if acl and (header.dtype.name not in ACL_TYPES or not header.nbytes):
        return Stats(count=header.nbytes // header.dtype.itemsize)
    count = header.nbytes // header.dtype.itemsize
    in_order = not header.fortran_order or len(header.shape) < 2  # noqa: PLR2004 - one axis has one order
    running = Projected(
        array_accumulator(header.dtype.newbyteorder("=")),
        array_projector(header.dtype, count) if projections and in_order else None,
    )
    found = _file_stats(path, header.offset, header.nbytes, header.dtype, running, acl=acl)
    if projections and not in_order:  # the first axis varies fastest: it is read a second time for its order
        with open_raw(path) as file:
            octets = file.map(header.offset, header.nbytes, "the tensor")
        whole = octets.view(header.dtype).reshape(header.shape, order="F")
        return _projected(found, projector_of(whole))
    return found


def _file_stats(
    path: Path,
    offset: int,
    nbytes: int,
    dtype: np.dtype,
    running: Projected,
    *,
    acl: bool,
    file: RawFile | None = None,
) -> Stats:
    """The statistics of elements in a file, of ``dtype``, or uint8 where pieces are bytes."""
    nan_first = False
    with np.errstate(all="ignore"):
        pieces = file_pieces(path, offset, nbytes, CHUNK_BYTES, file)
        for number, found in enumerate(octets.view(dtype) for octets in pieces):
            piece = found if found.dtype.isnative else found.astype(dtype.newbyteorder("="))
            nan_first |= not number and piece.dtype.kind == "f" and math.isnan(float(piece[0]))
            running.add(piece)
        stats = running.stats()
    return as_device(stats, nan_first=nan_first) if acl else stats


def with_stats(
    part: TensorPart, path: Path, statistics: Callable[[TensorPart], Stats | None]
) -> tuple[TensorPart, list[FormatError]]:
    """Compute the statistics of one tensor; a note says why there are none, a problem what is damaged."""
    if part.payload is None or part.shape is None:
        return part, []
    try:
        found = statistics(part)
    except DecodeError as error:
        damage = FormatError(path, f"{part.io} {part.slot}: {error}", offset=part.payload.offset)
        return part._replace(note=str(error)), [damage]
    if found is None:
        why = why_opaque(part.dtype) or f"CANN computes no statistics for {part.dtype}"
        return part._replace(note=part.note or why), []
    return part._replace(stats=found), []


def file_stats(
    part: TensorPart,
    *,
    acl: bool,
    projections: bool,
    file: RawFile | None = None,
    waiting: Waiting | None = None,
) -> Stats | None:
    """Compute the statistics of a tensor that has bytes, with projections or not; None for types without.

    ``file`` is that of the bytes, where it is open; ``waiting`` takes small tensors of it.

    Raises:
        DecodeError: the bytes are too few.
    """
    assert part.payload is not None  # noqa: S101 - asked only for tensors with bytes
    own = (part.payload, part.dtype, math.prod(part.shape or ()))
    if not acl:
        return payload_stats(*own, projections=projections, file=file, waiting=waiting)
    payload, count = _extent(part.payload, part)
    if count and (payload, count) == (part.payload, own[-1]):
        return payload_stats(*own, acl=True, projections=projections, file=file, waiting=waiting)
    found = payload_stats(payload, part.dtype, count, acl=True, file=file)
    if found is None or not projections:
        return found
    # Alignment behind the shape, which the device takes for elements, is none of the tensor's.
    return with_projections_of(found, payload_stats(*own, projections=True, file=file))


def _extent(payload: Payload, part: TensorPart) -> tuple[Payload, int]:
    """Return the bytes that CANN's device code takes for the tensor: all of ``size``, alignment included."""
    bits = BY_NAME[part.dtype].bits if part.dtype in BY_NAME else 0
    if payload.kind != "raw" or not part.size or bits < 8 or part.size <= payload.nbytes:  # noqa: PLR2004 - a byte
        return payload, math.prod(part.shape or ())
    return replace(payload, nbytes=part.size), part.size * 8 // bits
