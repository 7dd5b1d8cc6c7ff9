"""One tensor of a golden against its counterpart, element by element: what a worker is given and returns."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.tensors.difference import compare_tensors, examine_tensors, values_stats
from pytest_npudump.dump.arrays.decode import load, why_opaque
from pytest_npudump.dump.arrays.host import has_axes, host_values, is_private
from pytest_npudump.dump.arrays.layouts import LayoutError
from pytest_npudump.dump.arrays.packed import coded_tensor, packed_tensor
from pytest_npudump.dump.bytes.chunks import c_order_chunks
from pytest_npudump.dump.bytes.rawfile import raw_bytes
from pytest_npudump.dump.parts import with_projections_of
from pytest_npudump.dump.records import Stats, TensorRecord
from pytest_npudump.dump.stats.file_tensors import payload_stats
from pytest_npudump.dump.unguarded import replace
from pytest_npudump.errors import DumpError, FormatError, NpudumpError, RequestError
from pytest_npudump.golden.tensors import StoredTensor, TensorFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from dataclasses import dataclass
    from pathlib import Path

    from pytest_npudump.compare.tensors.difference import TensorDifference
    from pytest_npudump.compare.tensors.paired_chunks import Values

    Array = np.ndarray[Any, np.dtype[Any]]
else:
    from pytest_npudump.dump.unguarded import dataclass

_ADDRESSES = frozenset({"resource", "string", "string_ref", "variant"})
"""Types whose bytes are addresses, which differ from run to run."""

_WORST = 5
_PIECE = 1 << 18


@dataclass(frozen=True, slots=True)
class Pair:
    """What a worker is to compare.

    Attributes:
        golden, actual: the two tensors; None where only one side has its elements.
        layout: host layout to compare in; ``ND`` is that of the first tensor whose layout names its axes.
        shape: where only one side has elements, the shape that the other side tells; None where unknown.
        rtol, atol: for the single elements, ``|actual - golden| <= atol + rtol * |golden|``.
        projections: whether a golden has them, so that those of a dump's tensors are wanted.
    """

    golden: TensorRecord | StoredTensor | None
    actual: TensorRecord | None
    layout: str
    rtol: float = 0.0
    atol: float = 0.0
    shape: tuple[int, ...] | None = None
    projections: bool = False

    @property
    def nbytes(self) -> int:
        """How much there is to read."""
        sides = [side for side in (self.golden, self.actual) if isinstance(side, TensorRecord)]
        return sum(side.payload.nbytes for side in sides if side.payload is not None)


@dataclass(frozen=True, slots=True)
class Elements:
    """What a comparison element by element found.

    Attributes:
        golden, actual: the records in the layout they were compared in, with its statistics; None where the
            side was not given, or is no record.
        difference: None where there was nothing to compare with, or the elements have no values.
        layout: ``host`` or ``device``: what the elements were compared in.
        unequal_bytes: of a type without values, bytes that differ; None elsewhere.
        note: why the elements were not compared, or not in the host's layout; "" otherwise.
        problems: what could not be read.
    """

    golden: TensorRecord | None = None
    actual: TensorRecord | None = None
    difference: TensorDifference | None = None
    layout: str = "host"
    unequal_bytes: int | None = None
    note: str = ""
    problems: tuple[FormatError, ...] = ()


def compare_pair(pair: Pair) -> Elements:
    """Compare two tensors, or compute the statistics of one; whatever cannot be read is a problem."""
    try:
        if pair.golden is not None and pair.actual is not None:
            return _both(pair, pair.golden, pair.actual)
        golden = _alone(pair.golden, pair) if isinstance(pair.golden, TensorRecord) else None
        return Elements(golden, None if pair.actual is None else _alone(pair.actual, pair))
    except FormatError as error:
        return Elements(problems=(error,))
    except NpudumpError as error:
        return Elements(problems=(FormatError(_path(pair), str(error)),))


def _path(pair: Pair) -> Path | str:
    side = pair.actual or pair.golden
    return "" if side is None else side.path


def _alone(record: TensorRecord, pair: Pair) -> TensorRecord:
    """Statistics of a tensor as it lies on the device, or on the host where the other side has that shape."""
    told = record.stats
    wanted = pair.projections and (told is None or told.projections is None)
    if record.payload is None or record.shape is None or (told is not None and not wanted):
        return record
    if (
        told is None
        and pair.shape is not None
        and pair.shape == record.original_shape != record.shape
        and is_private(record)
    ):
        try:
            coded = coded_tensor(record, pair.layout)
            values: Values = coded or host_values(_array(record), record, pair.layout)
            return replace(record, stats=values_stats(values), shape=values.shape, format=pair.layout)
        except LayoutError:
            pass
    count = math.prod(record.shape)
    own = payload_stats(record.payload, record.dtype, count, projections=pair.projections)
    return replace(record, stats=own if told is None else with_projections_of(told, own))


def _both(pair: Pair, golden: TensorRecord | StoredTensor, actual: TensorRecord) -> Elements:
    if isinstance(golden, StoredTensor):
        one, other = _stored(golden), _array(actual)
        return _difference(pair, one, other, Elements(actual=_alone(actual, pair), layout="device"))
    why = _why_bytes(golden) or _why_bytes(actual)
    if why:
        return _bytes(golden, actual, why)
    layout = _layout(pair, golden, actual)
    packed = packed_tensor(golden, layout), packed_tensor(actual, layout)
    if packed[0] is not None and packed[1] is not None:
        return _examined(pair, golden, actual, (packed[0], packed[1]), Elements(golden, actual))
    found = Elements(golden, actual)
    try:
        values = _host_pair(golden, actual, layout)
    except LayoutError as error:
        values = _array(golden), _array(actual)
        found = replace(found, layout="device", note=f"compared as it lies on the device: {error}")
    if layout != pair.layout:
        pair = replace(pair, layout=layout)
    return _examined(pair, golden, actual, values, found)


def pair_values(pair: Pair) -> tuple[Values, Values, str] | None:
    """Both tensors as :func:`compare_pair` compares their elements, and the name of the layout they are in.

    None where one side has no elements, or only bytes can be compared.

    Raises:
        NpudumpError: a file cannot be read.
    """
    golden, actual = pair.golden, pair.actual
    if golden is None or actual is None:
        return None
    if isinstance(golden, StoredTensor):
        return _stored(golden), _array(actual), actual.format
    if _why_bytes(golden) or _why_bytes(actual):
        return None
    layout = _layout(pair, golden, actual)
    try:
        return *_host_pair(golden, actual, layout), layout
    except LayoutError:
        return _array(golden), _array(actual), actual.format


def _layout(pair: Pair, golden: TensorRecord, actual: TensorRecord) -> str:
    named = [record.format for record in (golden, actual) if has_axes(record)]
    return named[0] if named and pair.layout == "ND" else pair.layout


def _host_pair(golden: TensorRecord, actual: TensorRecord, layout: str) -> tuple[Values, Values]:
    """Both tensors in a host layout; decoded piece by piece where neither is a view of its file."""
    one, other = coded_tensor(golden, layout), coded_tensor(actual, layout)
    if one is not None and other is not None:
        return one, other
    return host_values(_array(golden), golden, layout), host_values(_array(actual), actual, layout)


def _why_bytes(record: TensorRecord) -> str:
    """Why only the bytes of a tensor can be compared; "" where it has values."""
    why = why_opaque(record.dtype)
    if why or record.shape is not None:
        return why
    return record.note or "its header has no shape"


def _examined(
    pair: Pair, golden: TensorRecord, actual: TensorRecord, values: tuple[Values, Values], found: Elements
) -> Elements:
    """Return ``found`` with the statistics of both tensors, and how far one is from the other."""
    difference, note = None, found.note
    try:
        examined = examine_tensors(*values, rtol=pair.rtol, atol=pair.atol, worst=_WORST)
        first, second, difference = examined.golden, examined.actual, examined.difference
    except RequestError as error:
        first, second = values_stats(values[0]), values_stats(values[1])
        note = "; ".join(filter(None, (note, f"elements not compared: {error}")))
    return Elements(
        golden=_described(golden, first, values[0].shape, pair, found.layout),
        actual=_described(actual, second, values[1].shape, pair, found.layout),
        difference=difference,
        layout=found.layout,
        note=note,
    )


def _array(record: TensorRecord) -> Array:
    if record.payload is None:
        raise DumpError(f"{record.path}: no data for {record.key}")
    return load(record.payload, record.dtype, record.shape)


def _described(
    record: TensorRecord, stats: Stats, shape: tuple[int, ...], pair: Pair, layout: str
) -> TensorRecord:
    if layout == "device" or not (is_private(record) or shape != record.shape):
        return replace(record, stats=stats)
    return replace(record, stats=stats, shape=shape, format=pair.layout)


def _difference(pair: Pair, one: Array, other: Array, found: Elements) -> Elements:
    try:
        difference = compare_tensors(one, other, rtol=pair.rtol, atol=pair.atol, worst=_WORST)
    except RequestError as error:
        note = f"elements not compared: {error}"
        return replace(found, note="; ".join(filter(None, (found.note, note))))
    return replace(found, difference=difference)


def _unequal_bytes(one: Array, other: Array) -> Iterator[int]:
    """Yield how many bytes differ, a piece of two contiguous arrays of one size at a time."""
    left, right = one.reshape(-1).view(np.uint8), other.reshape(-1).view(np.uint8)
    pieces = (c_order_chunks(array, _PIECE, flat=True) for array in (left, right))
    for first, second in zip(*pieces, strict=True):
        yield 0 if np.array_equal(first, second) else int(np.count_nonzero(first != second))


def _bytes(golden: TensorRecord, actual: TensorRecord, why: str) -> Elements:
    """Compare tensors of a type without values, or without a shape, byte by byte."""
    found = Elements(golden, actual, layout="device")
    if golden.key.io == "workspace":
        why = "a workspace is scratch memory, which no operator has to leave in any state"
        return replace(found, note=f"bytes not compared: {why}")
    if {golden.dtype, actual.dtype} & _ADDRESSES:
        return replace(found, note=f"elements not compared: {why}")
    if golden.payload is None or actual.payload is None or golden.dtype != actual.dtype:
        return replace(found, note=f"elements not compared: {why}")
    one, other = raw_bytes(golden.payload), raw_bytes(actual.payload)
    if one.size != other.size:
        return replace(found, unequal_bytes=abs(one.size - other.size), note=f"compared byte by byte: {why}")
    unequal = sum(_unequal_bytes(one, other))
    return replace(found, unequal_bytes=unequal, note=f"compared byte by byte: {why}")


def _stored(tensor: StoredTensor) -> Array:
    """Map one tensor of a file, so that the memory of those before it is free."""
    found = tensor.path.stat()
    return _opened(tensor.path, (found.st_ino, found.st_mtime_ns, found.st_size)).tensor(tensor.key)


@lru_cache(maxsize=8)
def _opened(path: Path, _version: tuple[int, int, int]) -> TensorFile:
    """Read a file's header, once for each version of it: an update of the same process may replace it."""
    return TensorFile.read(path)
