"""Tensors of a golden against their counterparts, element by element: what a worker is given and returns."""

from __future__ import annotations

import math
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.tensors.difference import (
    TOGETHER,
    compare_tensors,
    examine_small,
    examine_tensors,
    small_pair,
    values_stats,
)
from pytest_npudump.dump.arrays.decode import coded_tensor, load, packed_tensor, why_opaque
from pytest_npudump.dump.arrays.layouts import LayoutError, has_axes, host_values, is_private
from pytest_npudump.dump.columns import with_projections_of
from pytest_npudump.dump.filebytes import c_order_chunks, raw_bytes
from pytest_npudump.dump.records import Payload, Stats, TensorRecord
from pytest_npudump.dump.stats.tensor import payload_stats
from pytest_npudump.errors import DumpError, FormatError, NpudumpError, RequestError, joined, said

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pytest_npudump.compare.tensors.difference import TensorDifference, Values
    from pytest_npudump.golden.stored_tensors import GoldenTensor

    Array = np.ndarray[Any, np.dtype[Any]]
    _Small = tuple[int, "_Open", tuple[np.ndarray, np.ndarray]]

_ADDRESSES = frozenset({"resource", "string", "string_ref", "variant"})
"""Types whose bytes are addresses, which differ from run to run."""
_PIECE = 1 << 18

WORST = 5
"""Number of the elements farthest apart that are kept of a pair."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Pair of tensors for a worker to compare.

    Attributes:
        golden, actual: the two tensors; None where only one side has its elements.
        layout: host layout to compare in; ``ND`` is that of the first tensor whose layout names its axes.
        shape: where only one side has elements, the shape that the other side tells; None where unknown.
        rtol, atol: for the single elements, ``|actual - golden| <= atol + rtol * |golden|``.
        projections: whether a golden has them, so that those of a dump's tensors are wanted.
    """

    golden: TensorRecord | GoldenTensor | None
    actual: TensorRecord | None
    layout: str
    rtol: float = 0.0
    atol: float = 0.0
    shape: tuple[int, ...] | None = None
    projections: bool = False

    @property
    def nbytes(self) -> int:
        """Number of bytes to read."""
        sides = [side for side in (self.golden, self.actual) if isinstance(side, TensorRecord)]
        return sum(side.payload.nbytes for side in sides if side.payload is not None)


@dataclass(frozen=True, slots=True)
class PairElements:
    """Findings of a comparison element by element.

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


@dataclass(frozen=True, slots=True)
class _Open:
    """Two tensors with their elements.

    Attributes:
        pair: what is compared, in the layout that the elements are in.
        golden, actual: the records.
        values: the elements of both.
        found: what is known already.
    """

    pair: Pair
    golden: TensorRecord
    actual: TensorRecord
    values: tuple[Values, Values]
    found: PairElements


def compare_pair(pair: Pair) -> PairElements:
    """Compare two tensors, or compute the statistics of one; whatever cannot be read is a problem."""
    return compare_pairs([pair])[0]


def compare_pairs(pairs: Sequence[Pair]) -> list[PairElements]:
    """Compare many pairs, in order: small tensors of one type and size by one call for all of them."""
    found: dict[int, PairElements] = {}
    waiting: defaultdict[tuple[np.dtype, int], list[_Small]] = defaultdict(list)
    for at, pair in enumerate(pairs):
        try:
            opened = _open(pair)
            if isinstance(opened, PairElements):
                found[at] = opened
                continue
            golden, actual = opened.values
            small = small_pair(golden, actual) if golden.shape == actual.shape else None
            if small is None:
                found[at] = _examine(opened)
                continue
        except NpudumpError as error:
            problem = error if isinstance(error, FormatError) else FormatError(_path(pair), str(error))
            found[at] = PairElements(problems=(problem,))
            continue
        group = waiting[small[0].dtype, small[0].size]
        group.append((at, opened, small))
        if len(group) * small[0].size >= TOGETHER:
            found.update(_examine_together(group))
            group.clear()
    for group in filter(None, waiting.values()):
        found.update(_examine_together(group))
    return [found[at] for at in range(len(pairs))]


def _examine_together(group: Sequence[_Small]) -> Iterator[tuple[int, PairElements]]:
    results = examine_small(
        [small for *_, small in group],
        [opened.values[0].shape for _, opened, _ in group],
        [(opened.pair.rtol, opened.pair.atol) for _, opened, _ in group],
        worst=WORST,
    )
    for (at, opened, _), examined in zip(group, results, strict=True):
        sides = examined.golden, examined.actual
        yield at, _with_findings(opened, sides, examined.difference, opened.found.note)


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


def _open(pair: Pair) -> _Open | PairElements:
    """Both tensors with their elements; what is found already where these are not compared as values.

    Raises:
        NpudumpError: a file cannot be read.
    """
    golden, actual = pair.golden, pair.actual
    if golden is None or actual is None:
        one = _alone(golden, pair) if isinstance(golden, TensorRecord) else None
        return PairElements(one, None if actual is None else _alone(actual, pair))
    if not isinstance(golden, TensorRecord):
        stored, other = golden.array(), _array(actual)
        return _difference(pair, stored, other, PairElements(actual=_alone(actual, pair), layout="device"))
    if why := _why_bytes(golden) or _why_bytes(actual):
        return _bytes(golden, actual, why)
    layout = _layout(pair, golden, actual)
    found = PairElements(golden, actual)
    packed = packed_tensor(golden, layout), packed_tensor(actual, layout)
    if packed[0] is not None and packed[1] is not None:
        return _Open(pair, golden, actual, (packed[0], packed[1]), found)
    try:
        values = _host_pair(golden, actual, layout)
    except LayoutError as error:
        values = _array(golden), _array(actual)
        found = replace(
            found, layout="device", note=said("compared in the device's layout: {error}", error=str(error))
        )
    if layout != pair.layout:
        pair = replace(pair, layout=layout)
    return _Open(pair, golden, actual, values, found)


def pair_values(pair: Pair) -> tuple[Values, Values, str] | None:
    """Both tensors as :func:`compare_pair` compares their elements, and the name of the layout they are in.

    None where one side has no elements, only bytes can be compared, or a file cannot be read, which was a
    problem of the comparison before.
    """
    golden, actual = pair.golden, pair.actual
    if golden is None or actual is None:
        return None
    with suppress(NpudumpError):
        if not isinstance(golden, TensorRecord):
            return golden.array(), _array(actual), actual.format
        if _why_bytes(golden) or _why_bytes(actual):
            return None
        layout = _layout(pair, golden, actual)
        try:
            return *_host_pair(golden, actual, layout), layout
        except LayoutError:
            return _array(golden), _array(actual), actual.format
    return None


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
    """Return why only the bytes of a tensor can be compared; "" where it has values."""
    if (why := why_opaque(record.dtype)) or record.shape is not None:
        return why
    return record.note or said("its header has no shape")


def _examine(opened: _Open) -> PairElements:
    """Compare two tensors that are open.

    Raises:
        NpudumpError: a file cannot be read.
    """
    pair, values = opened.pair, opened.values
    try:
        examined = examine_tensors(*values, rtol=pair.rtol, atol=pair.atol, worst=WORST)
    except RequestError as error:
        note = joined(
            "; ", filter(None, (opened.found.note, said("elements not compared: {error}", error=str(error))))
        )
        return _with_findings(opened, (values_stats(values[0]), values_stats(values[1])), None, note)
    sides = examined.golden, examined.actual
    return _with_findings(opened, sides, examined.difference, opened.found.note)


def _with_findings(
    opened: _Open, statistics: tuple[Stats, Stats], difference: TensorDifference | None, note: str
) -> PairElements:
    layout = opened.found.layout
    golden, actual = (
        _described(record, stats, values.shape, opened.pair, layout)
        for record, stats, values in zip(
            (opened.golden, opened.actual), statistics, opened.values, strict=True
        )
    )
    return PairElements(golden, actual, difference, layout, note=note)


def _array(record: TensorRecord) -> Array:
    if record.payload is None:
        raise DumpError(said("{path}: no data for {key}", path=record.path, key=record.key))
    return load(record.payload, record.dtype, record.shape)


def _described(
    record: TensorRecord, stats: Stats, shape: tuple[int, ...], pair: Pair, layout: str
) -> TensorRecord:
    if layout == "device" or not (is_private(record) or shape != record.shape):
        return replace(record, stats=stats)
    return replace(record, stats=stats, shape=shape, format=pair.layout)


def _difference(pair: Pair, one: Array, other: Array, found: PairElements) -> PairElements:
    try:
        difference = compare_tensors(one, other, rtol=pair.rtol, atol=pair.atol, worst=WORST)
    except RequestError as error:
        note = said("elements not compared: {error}", error=str(error))
        return replace(found, note=joined("; ", filter(None, (found.note, note))))
    return replace(found, difference=difference)


def _bytes(golden: TensorRecord, actual: TensorRecord, why: str) -> PairElements:
    """Compare tensors of a type without values, or without a shape, byte by byte."""
    found = PairElements(golden, actual, layout="device")
    if golden.key.io == "workspace":
        why = said("a workspace is scratch memory, which no operator has to leave in any state")
        return replace(found, note=said("bytes not compared: {why}", why=why))
    if {golden.dtype, actual.dtype} & _ADDRESSES:
        return replace(found, note=said("elements not compared: {why}", why=why))
    if golden.payload is None or actual.payload is None or golden.dtype != actual.dtype:
        return replace(found, note=said("elements not compared: {why}", why=why))
    unequal = _unequal_bytes(golden.payload, actual.payload)
    return replace(found, unequal_bytes=unequal, note=said("compared byte by byte: {why}", why=why))


def _unequal_bytes(golden: Payload, actual: Payload) -> int:
    """Count the differing bytes; of two sizes, those by which one is longer too."""
    one, other = raw_bytes(golden), raw_bytes(actual)
    if one.size != other.size:
        return abs(one.size - other.size)
    pieces = (c_order_chunks(array, _PIECE, flat=True) for array in (one, other))
    return sum(
        0 if np.array_equal(first, second) else int(np.count_nonzero(first != second))
        for first, second in zip(*pieces, strict=True)
    )
