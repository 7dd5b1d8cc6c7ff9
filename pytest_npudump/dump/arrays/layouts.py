"""From the device's memory layouts to the host's.

A device layout splits some axes: C into C1 blocks of C0 elements, N into N1 blocks of 16, padded with
zeros. Each layout is a table: the names of the device axes, and for each host axis the device axes that
make it up, outermost first. The rest is one transposition, one reshape (a view where no split axis has
to be joined) and the cut of the padding. Source: GE's format transfers, formats.md section 5.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.arrays.layouts_fractal import fits, fractal_z, fractal_z_transposed
from pytest_npudump.dump.arrays.layouts_join import JoinedTensor, LayoutError, join

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["JoinedTensor", "LayoutError", "in_host_layout"]

HOST_AXES = {
    name: tuple(name)
    for name in ("NCHW", "NHWC", "HWCN", "CHWN", "NCDHW", "NDHWC", "DHWCN", "DHWNC", "NCL", "CN", "NC")
}
"""Axes of each host layout."""

_SPLIT = {
    "NC1HWC0": ("N", "C1", "H", "W", "C0"),
    "NC1HWC0_C04": ("N", "C1", "H", "W", "C0"),
    "NHWC1C0": ("N", "H", "W", "C1", "C0"),
    "C1HWNC0": ("C1", "H", "W", "N", "C0"),
    "NDC1HWC0": ("N", "D", "C1", "H", "W", "C0"),
}
_FRACTAL_Z = {"FRACTAL_Z", "FRACTAL_Z_G", "FRACTAL_Z_3D"}
_ND = {"ND", "MD", ""}
_WEIGHTS = ("NCHW", "NHWC", "HWCN", "CHWN", "NCDHW", "NDHWC", "DHWCN", "DHWNC")
"""Orders of axes that weights may have."""

_PIECE = 1 << 18


def in_host_layout(
    array: np.ndarray,
    *,
    device_format: str,
    host_format: str,
    original_shape: Sequence[int] | None,
    sub_format: int = 0,
) -> np.ndarray | JoinedTensor:
    """The elements of ``array`` in the order of ``host_format``, without the device's padding.

    Args:
        array: in the device's shape.
        device_format: name after :mod:`pytest_npudump.dump.values.formats`.
        host_format: ``NCHW``, ``NHWC``, ``HWCN``, ``NCDHW`` ... ; ``ND`` stands for the host's own axis
            order in FRACTAL_NZ, and for NCHW or NCDHW in layouts that split C.
        original_shape: shape on the host, in the axis order of ``host_format``. None keeps the padding,
            which only the layouts that show all axes can do.
        sub_format: number of groups of FRACTAL_Z; 0 and 1 mean none.

    Returns:
        The tensor of ``original_shape``: a view where none of its axes has to be joined from two, else what
        makes it piece by piece; of FRACTAL_Z with groups, whose blocks lie on a diagonal, a copy.

    Raises:
        LayoutError: the layout is unknown, the shapes do not fit it, or a FRACTAL_Z, whose shape often fits
            several orders of axes, holds values in the padding.
    """
    found = _in_host_layout(array, device_format, host_format, original_shape, sub_format)
    return found.whole() if isinstance(found, JoinedTensor) and found.is_view() else found


def _in_host_layout(
    array: np.ndarray,
    device_format: str,
    host_format: str,
    original_shape: Sequence[int] | None,
    sub_format: int,
) -> np.ndarray | JoinedTensor:
    # CANN writes an empty original shape where it has none; a scalar is never in a device layout.
    shape = tuple(original_shape) if original_shape else None
    if device_format == "FRACTAL_NZ" or device_format.startswith("FRACTAL_NZ_C0_"):
        return _from_nz(array, shape)
    if device_format == host_format or device_format in _ND:
        return _same(array, shape, device_format)
    if device_format in HOST_AXES:
        names = HOST_AXES[device_format]
        return join(array, names, {name: (name,) for name in names}, _axes(host_format, len(names)), shape)
    if device_format in _SPLIT:
        return _from_split(array, device_format, host_format, shape)
    if device_format == "C1HWNCoC0":
        return _from_diagonal(array, host_format, shape)
    if device_format in _FRACTAL_Z or device_format == "FRACTAL_Z_3D_TRANSPOSE":
        return _from_fractal_z(array, device_format, host_format, shape, max(sub_format, 1))
    raise LayoutError(
        f"no conversion from {device_format} to {host_format}: CANN does not document the layout; "
        "compare the tensor as it lies on the device"
    )


def _axes(host_format: str, rank: int) -> tuple[str, ...]:
    if host_format in _ND:
        host_format = {4: "NCHW", 5: "NCDHW"}.get(rank, host_format)
    axes = HOST_AXES.get(host_format)
    if axes is None:
        raise LayoutError(
            f"no conversion to {host_format or 'an unnamed layout'} of rank {rank}, expected one of "
            f"{', '.join(HOST_AXES)}"
        )
    return axes


def _same(array: np.ndarray, shape: tuple[int, ...] | None, name: str) -> np.ndarray:
    if shape is None or array.shape == shape:
        return array
    if array.size != math.prod(shape):
        raise LayoutError(f"{name or 'ND'} of shape {array.shape} cannot be of host shape {shape}")
    return array.reshape(shape)


def _from_split(
    array: np.ndarray, device_format: str, host_format: str, shape: tuple[int, ...] | None
) -> JoinedTensor:
    names = _SPLIT[device_format]
    axes = _axes(host_format, len(names) - 1)
    parts = {name: ("C1", "C0") if name == "C" else (name,) for name in axes}
    return join(array, names, parts, axes, shape)


def _from_diagonal(array: np.ndarray, host_format: str, shape: tuple[int, ...] | None) -> JoinedTensor:
    """C1HWNCoC0 holds depthwise weights: values lie on the diagonal of the last two axes only."""
    if array.ndim != 6 or array.shape[4] != array.shape[5]:  # noqa: PLR2004 - C1, H, W, N, Co, C0
        raise LayoutError(
            f"C1HWNCoC0 of shape {array.shape}, expected 6 axes of which the last two are equal"
        )
    diagonal = np.diagonal(array, axis1=4, axis2=5)
    return _from_split(diagonal, "C1HWNC0", host_format, shape)


def _from_nz(array: np.ndarray, shape: tuple[int, ...] | None) -> JoinedTensor:
    """(..., W1, H1, H0, W0) to (..., H, W); a host tensor of one axis counts as (1, W)."""
    if array.ndim < 4:  # noqa: PLR2004 - the four axes of a fractal
        raise LayoutError(f"FRACTAL_NZ of shape {array.shape}, expected at least 4 axes")
    if shape is not None and math.prod(shape[:-2]) != math.prod(array.shape[:-4]):
        raise LayoutError(f"FRACTAL_NZ of shape {array.shape} cannot be of host shape {shape}")
    if shape is not None:
        array = array.reshape(*shape[:-2], *array.shape[-4:])
    batch = tuple(f"B{i}" for i in range(array.ndim - 4))
    matrix = None if shape is None else (1, *shape)[-2:] if len(shape) == 1 else shape[-2:]
    axes = (*batch, "H", "W")
    parts = {**{name: (name,) for name in batch}, "H": ("H1", "H0"), "W": ("W1", "W0")}
    target = None if matrix is None else array.shape[:-4] + matrix
    found = join(array, (*batch, "W1", "H1", "H0", "W0"), parts, axes, target)
    return found if shape is None else found.reshaped(shape)


def _from_fractal_z(
    array: np.ndarray, device_format: str, host_format: str, shape: tuple[int, ...] | None, groups: int
) -> np.ndarray | JoinedTensor:
    if shape is None:
        raise LayoutError(f"{device_format} joins C1, H and W in one axis: the original shape is needed")
    axes = _axes(host_format, len(shape))
    if len(axes) != len(shape) or not {"N", "C", "H", "W"} <= set(axes):
        raise LayoutError(f"{device_format} cannot be of host shape {shape} in {host_format}")
    extents = dict(zip(axes, shape, strict=True))
    if device_format.endswith("TRANSPOSE"):
        found = fractal_z_transposed(array, axes, extents)
    else:
        found = fractal_z(array, axes, extents, groups)
    if _is_ambiguous(array.shape, axes, shape, groups) and _nonzero(found) != _nonzero(array):
        raise LayoutError(
            f"{device_format} of shape {array.shape} holds values where {''.join(axes)} of shape {shape} has "
            f"padding, which is zero: is the host's axis order right?"
        )
    return found


def _is_ambiguous(
    device: tuple[int, ...], axes: tuple[str, ...], shape: tuple[int, ...], groups: int
) -> bool:
    """Whether the host's shape fits the device's in another order of axes, too."""
    others = (HOST_AXES[name] for name in _WEIGHTS if len(name) == len(axes) and HOST_AXES[name] != axes)
    return groups > 1 or any(fits(device, dict(zip(other, shape, strict=True))) for other in others)


def _nonzero(values: np.ndarray | JoinedTensor) -> int:
    """How many elements are not 0."""
    pieces = values.pieces(_PIECE) if isinstance(values, JoinedTensor) else iter([values])
    # E8M0 has no zero: padding is bytes of 0, which mean 2**-127.
    codes = values.dtype.name == "float8_e8m0fnu"
    return sum(int(np.count_nonzero(piece.view(np.uint8) if codes else piece)) for piece in pieces)
