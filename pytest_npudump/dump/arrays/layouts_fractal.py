"""Convolution weights: FRACTAL_Z, with groups and in three dimensions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.arrays.layouts_join import JoinedTensor, LayoutError, join

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CUBE = 16
"""Rows of a fractal: N comes in blocks of 16."""

_RANK = 4


def fractal_z(
    array: np.ndarray, axes: Sequence[str], extents: Mapping[str, int], groups: int
) -> np.ndarray | JoinedTensor:
    """From (D*C1*H*W, N1, 16, C0) to ``axes``, of the host's ``extents``.

    With groups, C is the number of channels of one group and N that of all groups. E groups share a
    fractal, their blocks on its diagonal: E = min(lcm(lcm(c, C0) / c, lcm(n, 16) / n), groups).

    Raises:
        LayoutError: the extents do not fit.
    """
    shape = tuple(extents[name] for name in axes)
    names: tuple[str, ...]
    if groups == 1:
        names = ("D", "C1", "H", "W", "N1", "N0", "C0")
        device = _expand(array, extents, 1, extents["N"], extents["C"])[0]
        if "D" not in axes:
            names, device = names[1:], device[0]
        parts = {"N": ("N1", "N0"), "C": ("C1", "C0")}
        return join(device, names, {name: parts.get(name, (name,)) for name in axes}, axes, shape)
    found = _grouped(array, extents, groups)
    names = ("N", "C", "D", "H", "W")
    if "D" not in axes:
        names, found = ("N", "C", "H", "W"), found[:, :, 0]
    return np.transpose(found, [names.index(name) for name in axes])


def fits(device: tuple[int, ...], extents: Mapping[str, int]) -> bool:
    """Whether a FRACTAL_Z without groups can be of the host's ``extents``, N and C exchanged or not."""
    if len(device) != _RANK or not device[3]:
        return False
    first, n1, n0, c0 = device
    area = extents.get("D", 1) * extents["H"] * extents["W"]
    pairs = (extents["N"], extents["C"]), (extents["C"], extents["N"])
    return any(first == -(-c // c0) * area and n1 == -(-n // max(n0, 1)) for n, c in pairs)


def fractal_z_transposed(
    array: np.ndarray, axes: Sequence[str], extents: Mapping[str, int]
) -> np.ndarray | JoinedTensor:
    """From FRACTAL_Z_3D_TRANSPOSE: as FRACTAL_Z_3D with N and C exchanged."""
    exchange = {"N": "C", "C": "N"}
    other = {exchange.get(name, name): extent for name, extent in extents.items()}
    return fractal_z(array, [exchange.get(name, name) for name in axes], other, 1)


def _grouped(array: np.ndarray, extents: Mapping[str, int], groups: int) -> np.ndarray:
    """A copy of shape (N, C, D, H, W): block diagonals cannot be a view."""
    if extents["N"] % groups or not extents["N"] or not extents["C"]:
        raise LayoutError(f"FRACTAL_Z of {groups} groups: N = {extents['N']} is not a multiple of that")
    if array.ndim != _RANK:
        raise LayoutError(f"FRACTAL_Z of shape {array.shape}, expected 4 axes")
    n, c, c0 = extents["N"] // groups, extents["C"], array.shape[3]
    shared = min(math.lcm(math.lcm(c, c0) // c, math.lcm(n, _CUBE) // n), groups)
    batches = -(-groups // shared)
    device = _expand(array, extents, batches, shared * n, shared * c)
    depth, height, width = device.shape[1], extents["H"], extents["W"]
    # (batches, D, C1, H, W, N1, N0, C0) to (batches, N, C, D, H, W)
    whole = device.transpose(0, 5, 6, 2, 7, 1, 3, 4).reshape(
        batches, -1, device.shape[2] * c0, depth, height, width
    )
    found = np.empty((batches, shared, n, c, depth, height, width), array.dtype)
    for index in range(shared):
        found[:, index] = whole[:, index * n : (index + 1) * n, index * c : (index + 1) * c]
    return found.reshape(batches * shared * n, c, depth, height, width)[: extents["N"]]


def _expand(array: np.ndarray, extents: Mapping[str, int], batches: int, n: int, c: int) -> np.ndarray:
    """The view (batches, D, C1, H, W, N1, N0, C0) for ``n`` and ``c`` elements of N and C a batch."""
    if array.ndim != _RANK or not array.shape[3]:
        raise LayoutError(f"FRACTAL_Z of shape {array.shape}, expected (C1*H*W, N1, 16, C0)")
    first, n1, n0, c0 = array.shape
    c1 = -(-c // c0)
    depth, height, width = extents.get("D", 1), extents["H"], extents["W"]
    if first != batches * depth * c1 * height * width or n1 != -(-n // max(n0, 1)):
        raise LayoutError(
            f"FRACTAL_Z of shape {array.shape} cannot be of N, C, D, H, W = "
            f"{extents['N']}, {extents['C']}, {depth}, {height}, {width}; is the host's axis order right?"
        )
    return array.reshape(batches, depth, c1, height, width, n1, n0, c0)
