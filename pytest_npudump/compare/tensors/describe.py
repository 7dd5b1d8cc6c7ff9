"""A tensor by itself: where its extremes and its NaN and infinities lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class TensorDescription:
    """Where the remarkable elements of one tensor lie.

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
