"""Picture of tensors at a glance: places of remarkable elements, and data to draw.

A picture has histograms of the values and errors of two tensors, and a map of where these are. Its size is
the same whatever the tensors', and so is the memory it takes. It looks at every element twice: once for the
range of the values, once to count.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.tensors.difference import CHUNK
from pytest_npudump.compare.tensors.kernel import widened

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_npudump.compare.tensors.tensor_pair import Pair

    Wide = NDArray[np.float64]


_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class TensorDescription:
    """Places of the remarkable elements of one tensor.

    Attributes:
        dtype: numpy's or ml_dtypes' name.
        shape: as dumped.
        max, min: extreme finite values; None where there are none.
        max_at, min_at: coordinates of the first element with that value.
        nan, pos_inf, neg_inf, zero: numbers of such elements.
        first_nan, first_inf: coordinates of the first such element; None where there is none.
    """

    dtype: str
    shape: tuple[int, ...]
    max: float | int | None
    min: float | int | None
    max_at: tuple[int, ...] | None
    min_at: tuple[int, ...] | None
    nan: int
    pos_inf: int
    neg_inf: int
    zero: int
    first_nan: tuple[int, ...] | None
    first_inf: tuple[int, ...] | None

    def to_json(self) -> dict[str, Any]:
        """Return the description as plain JSON data."""
        return {name: getattr(self, name) for name in self.__slots__}


def describe_tensor(array: NDArray[Any]) -> TensorDescription:
    """Describe a tensor in one pass of chunks, so that memory does not grow with it.

    Complex tensors are described by their magnitude.
    """
    ends: dict[str, Any] = {"max": None, "min": None}
    places: dict[str, int | None] = dict.fromkeys(("max_at", "min_at", "first_nan", "first_inf"))
    counts = dict.fromkeys(("nan", "pos_inf", "neg_inf", "zero"), 0)
    flat = array.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        chunk = _comparable(flat[start : start + _CHUNK])
        kept, indices = chunk, None
        counts["zero"] += int(np.count_nonzero(chunk == 0))
        if chunk.dtype.kind == "f" and not (finite := np.isfinite(chunk)).all():
            kept, indices = chunk[finite], np.flatnonzero(finite)
            for name, where in (("first_nan", np.isnan(chunk)), ("first_inf", np.isinf(chunk))):
                if places[name] is None and where.any():
                    places[name] = start + int(where.argmax())
            for name, where in (
                ("nan", np.isnan(chunk)),
                ("pos_inf", chunk == np.inf),
                ("neg_inf", chunk == -np.inf),
            ):
                counts[name] += int(np.count_nonzero(where))
        for name, position in (("max", kept.argmax()), ("min", kept.argmin())) if kept.size else ():
            value, best = kept[position].item(), ends[name]
            if best is None or (value > best if name == "max" else value < best):
                ends[name] = value
                places[f"{name}_at"] = start + int(position if indices is None else indices[position])
    found: dict[str, Any] = {name: _coordinates(place, array.shape) for name, place in places.items()}
    return TensorDescription(array.dtype.name, tuple(array.shape), **(found | ends | counts))


def _comparable(chunk: NDArray[Any]) -> NDArray[Any]:
    """Return a chunk in a type that numpy orders and tests for NaN without a warning."""
    if chunk.dtype.kind == "c":
        with np.errstate(all="ignore"):
            magnitude: NDArray[Any] = np.abs(chunk)
            return magnitude
    if chunk.dtype.kind == "V" or chunk.dtype == np.float16:
        with np.errstate(all="ignore"):
            return chunk.astype(np.float32)
    return chunk.view(np.uint8) if chunk.dtype == np.bool_ else chunk


def _coordinates(index: int | None, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    if index is None:
        return None
    return tuple(int(i) for i in np.unravel_index(index, shape)) if shape else ()


BINS = 64
"""Of each histogram."""
SIDE = 64
"""Most rows and columns of a map."""
LOWEST, HIGHEST = -8.0, 8.0
"""Decades of an element's error by its tolerance that a histogram and a map tell apart."""
NO_NUMBER = 255
"""In a map: an element of which only one side is NaN or infinite, or with another sign."""
_MOST = 254


@dataclass(frozen=True, slots=True)
class Picture:
    """Two tensors of one shape.

    Attributes:
        low, high: the range of finite values of both, in :data:`BINS` bins of one width.
        golden, actual: finite elements by value; ``golden``, and all that compares the two, is empty where
            there is only one tensor.
        errors: elements that differ by the logarithm of ``|actual - golden| / (atol + rtol * |golden|)``, in
            bins from :data:`LOWEST` to :data:`HIGHEST`; those beyond are in the first and the last.
        equal: elements that are the same.
        special: elements of which one side is no number, or both are and they differ.
        rows, columns: of the map.
        axes: how many of the tensor's axes run down the map; the others run across.
        cells: the map, row by row, an octet a cell: 0 where all is the same, 255 for :data:`NO_NUMBER`, else
            the largest error, from 1 at :data:`LOWEST` to 254 at :data:`HIGHEST`.
    """

    low: float
    high: float
    golden: tuple[int, ...]
    actual: tuple[int, ...]
    errors: tuple[int, ...]
    equal: int
    special: int
    rows: int
    columns: int
    axes: int
    cells: bytes

    def to_json(self) -> dict[str, Any]:
        """Return the picture as plain JSON data, ``cells`` in base 64."""
        told = {name: getattr(self, name) for name in self.__slots__}
        told |= {name: [*told[name]] for name in ("golden", "actual", "errors")}
        return told | {"cells": base64.b64encode(self.cells).decode()}


def draw(golden: NDArray[Any], actual: NDArray[Any], *, rtol: float, atol: float) -> Picture | None:
    """Return the picture of two tensors, None where they are empty or have no order (complex).

    Args:
        golden: what counts, of a type that float64 holds.
        actual: of the same shape.
        rtol: what an element may be off, by its golden.
        atol: and on top of that.
    """
    if not golden.size or "c" in golden.dtype.kind + actual.dtype.kind:
        return None
    one, other = golden.reshape(-1), actual.reshape(-1)
    low, high = _range(one, other)
    axes, down, across = _folded(golden.shape)
    rows, columns = min(down, SIDE), min(across, SIDE)
    cells = np.zeros(rows * columns, np.uint8)
    counts = np.zeros((3, BINS), np.int64)
    equal = special = 0
    for start in range(0, one.size, CHUNK):
        here, there = (widened(side[start : start + CHUNK], np.float64) for side in (one, other))
        for row, values in enumerate((here, there)):
            counts[row] += _histogram(values[np.isfinite(values)], low, high)
        same = (here == there) | (np.isnan(here) & np.isnan(there))
        finite = np.isfinite(here) & np.isfinite(there)
        with np.errstate(all="ignore"):
            share = np.abs(there - here) / (atol + rtol * np.abs(here))
            decades: Wide = np.clip(np.nan_to_num(np.log10(share), nan=LOWEST), LOWEST, HIGHEST)
        counts[2] += _histogram(decades[finite & ~same], LOWEST, HIGHEST)
        equal += int(np.count_nonzero(same))
        special += int(np.count_nonzero(~finite & ~same))
        level = 1 + np.rint((decades - LOWEST) / (HIGHEST - LOWEST) * (_MOST - 1))
        level = np.where(same, 0, np.where(finite, level, NO_NUMBER)).astype(np.uint8)
        flat = np.arange(start, start + here.size)
        at = (flat // across * rows // down) * columns + flat % across * columns // across
        np.maximum.at(cells, at, level)
    before, now, errors = (tuple(row) for row in counts.tolist())
    return Picture(low, high, before, now, errors, equal, special, rows, columns, axes, cells.tobytes())


def draw_pair(pair: Pair) -> Picture | None:
    """Return the picture of two tensors of dumps; None where their elements are no arrays of one shape."""
    from pytest_npudump.compare.tensors.tensor_pair import pair_values  # noqa: PLC0415 - reads files

    golden, actual, _ = pair_values(pair) or (None, None, "")
    if not isinstance(golden, np.ndarray) or not isinstance(actual, np.ndarray):
        return None
    return draw(golden, actual, rtol=pair.rtol, atol=pair.atol) if golden.shape == actual.shape else None


def _range(*tensors: NDArray[Any]) -> tuple[float, float]:
    low, high = np.inf, -np.inf
    for tensor in tensors:
        for start in range(0, tensor.size, CHUNK):
            values = widened(tensor[start : start + CHUNK], np.float64)
            values = values[np.isfinite(values)]
            low = min(low, float(values.min(initial=np.inf)))
            high = max(high, float(values.max(initial=-np.inf)))
    return (low, high) if low <= high else (0.0, 0.0)


def _histogram(values: Wide, low: float, high: float) -> NDArray[np.int64]:
    """Count values by bin; the range may be a single value, or wider than float64 holds a difference of."""
    half = high / 2 - low / 2
    place = (values / 2 - low / 2) / half * BINS if half > 0 else np.zeros(len(values))
    return np.bincount(np.minimum(place.astype(np.intp), BINS - 1), minlength=BINS)


def _folded(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Split the axes in two so that rows and columns are as many as can be: axes down, rows, columns."""
    sizes = [int(np.prod(shape[:axes], dtype=np.int64)) for axes in range(len(shape) + 1)]
    axes = max(range(len(sizes)), key=lambda axes: min(sizes[axes], sizes[-1] // sizes[axes]))
    return axes, sizes[axes], sizes[-1] // sizes[axes]


def draw_alone(actual: NDArray[Any]) -> Picture | None:
    """Return the histogram of one tensor's values, where there is none to compare it with.

    Args:
        actual: of a type that float64 holds; an empty or complex one gives None.
    """
    if not actual.size or actual.dtype.kind == "c":
        return None
    flat = actual.reshape(-1)
    low, high = _range(flat)
    counts, special = np.zeros(BINS, np.int64), 0
    for start in range(0, flat.size, CHUNK):
        values = widened(flat[start : start + CHUNK], np.float64)
        finite = np.isfinite(values)
        counts += _histogram(values[finite], low, high)
        special += int(np.count_nonzero(~finite))
    return Picture(low, high, (), tuple(counts.tolist()), (), 0, special, 0, 0, 0, b"")
