"""Joining the axes that a device layout has split."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_npudump.dump.bytes.chunks import released, slabs
from pytest_npudump.errors import DumpError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np


class LayoutError(DumpError):
    """A device layout that cannot be converted, or shapes that do not fit it."""


@dataclass(frozen=True, slots=True)
class JoinedTensor:
    """A tensor in the host's layout that is made from the device's piece by piece, or whole.

    Attributes:
        split: view of the device's elements, the parts of each host axis side by side, outermost first.
        counts: how many axes of ``split`` make up each host axis: one or two.
        cut: extent of each host axis, without padding.
        shape: of the result, as many elements as ``cut`` has.
    """

    split: np.ndarray
    counts: tuple[int, ...]
    cut: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype:
        """Type of the elements."""
        return self.split.dtype

    @property
    def size(self) -> int:
        """How many elements there are."""
        return math.prod(self.cut)

    def is_view(self) -> bool:
        """Whether no axis is split in earnest: the tensor is at hand without a copy."""
        ends = [sum(self.counts[: axis + 1]) for axis in range(len(self.counts))]
        extents = [self.split.shape[end - count : end] for end, count in zip(ends, self.counts, strict=True)]
        return all(sum(extent > 1 for extent in parts) < 2 for parts in extents)  # noqa: PLR2004 - both parts

    def whole(self) -> np.ndarray:
        """All elements, of ``shape``: a view where none of its axes has to be joined from two."""
        return _joined(self.split, self.counts, self.cut).reshape(self.shape)

    def pieces(self, limit: int) -> Iterator[np.ndarray]:
        """All elements in C order, cut as :func:`c_order_chunks` cuts an array of shape ``cut``."""
        return released((self._slab(index) for index in slabs(self.cut, limit)), self.split)

    def reshaped(self, shape: tuple[int, ...]) -> JoinedTensor:
        """Return the same elements under another shape."""
        return replace(self, shape=shape)

    def _slab(self, index: tuple[int | slice, ...]) -> np.ndarray:
        split, counts, cut = self.split, self.counts, self.cut
        for place in index:
            if isinstance(place, slice):
                split, start = _rows(split, counts[0], place)
                stop = start + place.stop - place.start
                return _joined(split, counts, (stop, *cut[1:]))[start:]
            split = split[place] if counts[0] == 1 else split[divmod(place, split.shape[1])]
            counts, cut = counts[1:], cut[1:]
        return _joined(split, counts, cut)


def _rows(split: np.ndarray, count: int, rows: slice) -> tuple[np.ndarray, int]:
    """The part of ``split`` that holds some rows of its first host axis, and where in it they begin."""
    if count == 1:
        return split[rows], 0
    block = split.shape[1]
    first, last = rows.start // block, (rows.stop - 1) // block
    if first == last:
        return split[first : last + 1, rows.start - first * block : rows.stop - first * block], 0
    return split[first : last + 1], rows.start - first * block


def _joined(split: np.ndarray, counts: tuple[int, ...], cut: tuple[int, ...]) -> np.ndarray:
    """Join the axes of ``split`` and cut the padding."""
    ends = [sum(counts[: axis + 1]) for axis in range(len(counts))]
    padded = [math.prod(split.shape[end - count : end]) for end, count in zip(ends, counts, strict=True)]
    found: np.ndarray = split.reshape(padded)
    return found[tuple(slice(extent) for extent in cut)] if cut else found


def join(
    array: np.ndarray,
    names: Sequence[str],
    parts: Mapping[str, tuple[str, ...]],
    axes: Sequence[str],
    shape: tuple[int, ...] | None,
) -> JoinedTensor:
    """Transpose ``array``, whose axes are called ``names``, to ``axes``, joining the ``parts`` of each.

    The result is cut to ``shape``, or padded where that is None.

    Raises:
        LayoutError: rank or extents do not fit.
    """
    if array.ndim != len(names) or set(axes) != set(parts):
        raise LayoutError(f"an array of shape {array.shape} cannot have the axes {', '.join(names)}")
    if sorted(part for name in axes for part in parts[name]) != sorted(names):
        raise LayoutError(f"the axes {', '.join(names)} cannot become {', '.join(axes)}")
    extents = dict(zip(names, array.shape, strict=True))
    padded = tuple(math.prod(extents[part] for part in parts[name]) for name in axes)
    if shape is not None:
        _check(axes, shape, padded, {name: extents[parts[name][-1]] for name in axes if len(parts[name]) > 1})
    order = [names.index(part) for name in axes for part in parts[name]]
    cut = padded if shape is None else shape
    return JoinedTensor(array.transpose(order), tuple(len(parts[name]) for name in axes), cut, cut)


def _check(
    axes: Sequence[str], shape: tuple[int, ...], padded: tuple[int, ...], blocks: Mapping[str, int]
) -> None:
    if len(shape) != len(padded):
        raise LayoutError(f"host shape {shape} has {len(shape)} axes, {', '.join(axes)} has {len(axes)}")
    for name, extent, whole in zip(axes, shape, padded, strict=True):
        block = blocks.get(name, 1) or 1
        if -(-extent // block) * block != whole:
            raise LayoutError(
                f"host shape {shape}: {name} = {extent} does not fit {whole} in blocks of {block}: "
                "is the host's axis order right?"
            )
