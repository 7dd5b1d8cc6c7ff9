"""What a record must say, and whether it says what a tensor is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.arrays.decode import load, why_opaque
from pytest_npudump.dump.execution import IO_ORDER
from pytest_npudump.dump.records import TensorKey
from pytest_npudump.dump.table import sanitised_key
from pytest_npudump.dump.values.dtypes import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pytest_npudump.dump.records import Stats, TensorRecord

_DIGITS = 6
"""Significant digits of statistics that do not say how many they have: CANN's own."""
_BYTE = 8


def assert_sound(record: TensorRecord, path: Path) -> None:
    """Check what a record says against its file: its key, shape, and the extent of its bytes.

    Args:
        record: of a file that was read.
        path: the file.

    Raises:
        AssertionError: says what is wrong with which record.
    """
    key = record.key
    assert key.layer, f"{record}: a tensor needs its layer's name"
    assert key.io in IO_ORDER, f"{key}: expected one of {', '.join(IO_ORDER)}, got {key.io!r}"
    assert key.slot >= 0, f"{key}: a slot counts from 0"
    assert TensorKey.parse(str(key)) == key, f"{key}: does not survive being written"
    assert record.dtype, f"{key}: expected the name of a type, '-' where it is unknown"
    assert record.shape is None or all(dim >= 0 for dim in record.shape), f"{key}: shape {record.shape}"
    payload = record.payload
    if payload is None:
        return
    size = payload.path.stat().st_size
    assert payload.path == path, f"{key}: its bytes are said to be in {payload.path}"
    assert payload.offset >= 0, f"{key}: its bytes are said to begin at {payload.offset}"
    assert payload.nbytes >= 0, f"{key}: {payload.nbytes} bytes"
    end = payload.offset + payload.nbytes
    assert end <= size, f"{key}: its bytes are said to end at {end}, the file at {size}"
    if record.shape is not None and not why_opaque(record.dtype) and payload.kind == "raw":
        needed = -(-math.prod(record.shape) * BY_NAME[record.dtype].bits // _BYTE)
        assert payload.nbytes >= needed, (
            f"{key}: {record.dtype} of shape {record.shape} takes {needed} bytes, {payload.nbytes} are said"
        )


def assert_holds(records: Iterable[TensorRecord], expected: Mapping[str, np.ndarray | None]) -> None:
    """Check that records are of these tensors, each once, and of no others, and have their values.

    Args:
        records: what was read.
        expected: each tensor by its key (``conv1:output.0``; CANN's spelling of a name in files is the same),
            as somebody else computed or decoded it, in its own type and shape; None for one whose values are
            not known.

    Raises:
        AssertionError: says which tensor is missing, too many or different.
    """
    found: dict[str, TensorRecord] = {}
    for record in records:
        key = str(record.key.sanitised)
        assert key not in found, f"{record.key} is there twice"
        found[key] = record
    wanted = {sanitised_key(key): array for key, array in expected.items()}
    missing, more = wanted.keys() - found.keys(), found.keys() - wanted.keys()
    assert not missing, f"not read: {', '.join(sorted(missing))}; read: {', '.join(sorted(found))}"
    assert not more, f"read, and not in the file: {', '.join(sorted(more))}"
    for key, array in wanted.items():
        if array is not None:
            _assert_equal(found[key], array)


def _assert_equal(record: TensorRecord, array: np.ndarray) -> None:
    if record.shape is not None:
        assert record.shape == array.shape, f"{record.key}: shape {record.shape}, expected {array.shape}"
    if record.payload is not None and not why_opaque(record.dtype):
        values = load(record.payload, record.dtype, record.shape)
        assert values.dtype.name == array.dtype.name, f"{record.key}: {values.dtype}, expected {array.dtype}"
        same = values.tobytes() == np.ascontiguousarray(array).tobytes()
        assert same, f"{record.key}: the values differ: {values}, expected {array}"
    if record.stats is not None:
        _assert_statistics(str(record.key), record.stats, array)


def _assert_statistics(key: str, stats: Stats, array: np.ndarray) -> None:
    """Compare what statistics there are with numpy's, in float64."""
    values = array.astype(np.float64).reshape(-1)
    finite = values[np.isfinite(values)]
    counts = {
        "count": values.size,
        "nan": int(np.isnan(values).sum()),
        "neg_inf": int(np.isneginf(values).sum()),
        "pos_inf": int(np.isposinf(values).sum()),
    }
    for name, count in counts.items():
        said = getattr(stats, name)
        assert said in {None, count}, f"{key}: {name} is {said}, expected {count}"
    if finite.size != values.size or not values.size:
        return
    root = math.sqrt(float((values * values).sum()))
    scale = float(np.abs(values).max())
    expected = {"max": values.max(), "min": values.min(), "avg": values.mean(), "l2norm": root}
    for name, value in expected.items():
        said = getattr(stats, name)
        bound = max(abs(value), scale) * 10.0 ** (1 - (stats.digits or _DIGITS))
        assert said is None or abs(float(said) - value) <= bound, f"{key}: {name} is {said}, expected {value}"
