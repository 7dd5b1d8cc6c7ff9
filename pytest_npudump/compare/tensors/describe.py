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


@dataclass(slots=True)
class _Progress:
    max: float | int | None = None
    min: float | int | None = None
    max_at: int | None = None
    min_at: int | None = None
    nan: int = 0
    pos_inf: int = 0
    neg_inf: int = 0
    zero: int = 0
    first_nan: int | None = None
    first_inf: int | None = None

    def add(self, chunk: NDArray[Any], start: int) -> None:
        """Take in the elements ``chunk``, the first of which has the flat index ``start``."""
        self.zero += int(np.count_nonzero(chunk == 0))
        kept, indices = self._finite(chunk, start) if chunk.dtype.kind == "f" else (chunk, None)
        if not kept.size:
            return
        for name, position in (("max", int(kept.argmax())), ("min", int(kept.argmin()))):
            value = kept[position].item()
            best = getattr(self, name)
            if best is None or (value > best if name == "max" else value < best):
                setattr(self, name, value)
                setattr(self, f"{name}_at", start + (position if indices is None else int(indices[position])))

    def _finite(self, chunk: NDArray[Any], start: int) -> tuple[NDArray[Any], NDArray[Any] | None]:
        finite = np.isfinite(chunk)
        if finite.all():
            return chunk, None
        nan = np.isnan(chunk)
        infinite = ~(finite | nan)
        self.nan += int(np.count_nonzero(nan))
        self.pos_inf += int(np.count_nonzero(chunk[infinite] > 0))
        self.neg_inf += int(np.count_nonzero(chunk[infinite] < 0))
        if self.first_nan is None and nan.any():
            self.first_nan = start + int(nan.argmax())
        if self.first_inf is None and infinite.any():
            self.first_inf = start + int(infinite.argmax())
        return chunk[finite], np.flatnonzero(finite)


def describe_tensor(array: NDArray[Any]) -> TensorDescription:
    """Describe a tensor in one pass of chunks, so that memory does not grow with it.

    Complex tensors are described by their magnitude.
    """
    progress = _Progress()
    flat = array.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        progress.add(_comparable(flat[start : start + _CHUNK]), start)
    places = {
        name: _coordinates(getattr(progress, name), array.shape)
        for name in ("max_at", "min_at", "first_nan", "first_inf")
    }
    return TensorDescription(
        dtype=array.dtype.name,
        shape=tuple(array.shape),
        max=progress.max,
        min=progress.min,
        nan=progress.nan,
        pos_inf=progress.pos_inf,
        neg_inf=progress.neg_inf,
        zero=progress.zero,
        **places,
    )


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
