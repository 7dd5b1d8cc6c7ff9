"""Two snapshots of the same memory: which elements changed, bit for bit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.dump.bytes.rawfile import raw_bytes
from pytest_npudump.dump.values.dtypes import BY_NAME
from pytest_npudump.errors import DumpError

if TYPE_CHECKING:
    from pytest_npudump.dump.records import Payload, TensorRecord

_CHUNK = 1 << 20
_BITS = 8


@dataclass(frozen=True, slots=True)
class Change:
    """Where two snapshots differ.

    Attributes:
        changed: number of elements whose bits differ; 0 if the snapshots are the same.
        count: number of elements.
        first: index of the first of them in the shape on the device; None where none differs.
        before, after: its value in the two snapshots; None where the type has no values.
    """

    changed: int
    count: int
    first: tuple[int, ...] | None = None
    before: object = None
    after: object = None


def compare_snapshots(before: TensorRecord, after: TensorRecord) -> Change:
    """Compare two snapshots bit for bit: NaN equals the same NaN, 0 is not -0.

    Elements that share a byte are compared one by one; those of a type of no known size by bytes.

    Raises:
        DumpError: a snapshot has no data, or the two differ in type or shape.
    """
    one, other = _payload(before), _payload(after)
    if (before.dtype, before.shape, one.nbytes) != (after.dtype, after.shape, other.nbytes):
        raise DumpError(
            f"the snapshots {one.path} and {other.path} differ in form: {before.dtype} {before.shape} of "
            f"{one.nbytes} bytes, then {after.dtype} {after.shape} of {other.nbytes} bytes"
        )
    shape = before.shape or ()
    count = math.prod(shape)
    first, second = _elements(before, one, count), _elements(after, other, count)
    shape = shape if len(first) == count else (len(first),)
    changed, at = _differences(first, second)
    if at is None:
        return Change(0, len(first))
    index = tuple(int(i) for i in np.unravel_index(at, shape)) if shape else ()
    return Change(changed, len(first), index, _value(before, index), _value(after, index))


def _payload(record: TensorRecord) -> Payload:
    if record.payload is None:
        raise DumpError(f"{record.path}: the snapshot {record.key} has no data{_why(record)}")
    return record.payload


def _why(record: TensorRecord) -> str:
    return f" ({record.note})" if record.note else ""


def _elements(record: TensorRecord, payload: Payload, count: int) -> np.ndarray:
    """Return the elements as rows of bytes, shape (elements, bytes of one)."""
    data = raw_bytes(payload)
    dtype = BY_NAME.get(record.dtype)
    if dtype is not None and 0 < dtype.bits < _BITS and record.shape is not None:
        try:
            return load(payload, record.dtype, record.shape).reshape(-1, 1)
        except DumpError:
            return data.reshape(-1, 1)
    if dtype is None or not dtype.bits or not count or len(data) * _BITS != count * dtype.bits:
        return data.reshape(-1, 1)
    return data.reshape(count, -1)


def _differences(first: np.ndarray, second: np.ndarray) -> tuple[int, int | None]:
    """Return the number of rows that differ and the first of them, in chunks: memory does not grow."""
    changed, at = 0, None
    rows = max(1, _CHUNK // max(1, first.shape[1]))
    for start in range(0, len(first), rows):
        differing = np.any(first[start : start + rows] != second[start : start + rows], axis=1)
        found = int(np.count_nonzero(differing))
        if found and at is None:
            at = start + int(differing.argmax())
        changed += found
    return changed, at


def _value(record: TensorRecord, index: tuple[int, ...]) -> object:
    if record.payload is None or record.shape is None or len(index) != len(record.shape):
        return None
    try:
        value = load(record.payload, record.dtype, record.shape)[index]
    except DumpError:
        return None
    return value.item()
