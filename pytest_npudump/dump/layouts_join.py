"""Joining the axes that a device layout has split."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_npudump.errors import DumpError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np


class LayoutError(DumpError):
    """A device layout that cannot be converted, or shapes that do not fit it."""


def join(
    array: np.ndarray,
    names: Sequence[str],
    parts: Mapping[str, tuple[str, ...]],
    axes: Sequence[str],
    shape: tuple[int, ...] | None,
) -> np.ndarray:
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
    found: np.ndarray = array.transpose(order).reshape(padded)
    if shape is not None:
        found = found[tuple(slice(extent) for extent in shape)]
    return found


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
