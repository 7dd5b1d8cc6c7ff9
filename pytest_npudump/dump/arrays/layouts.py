"""Conversion of the device's memory layouts to the host's.

A device layout splits some axes: C into C1 blocks of C0 elements, N into N1 blocks of 16, padded with
zeros. Each layout is a table: the names of the device axes, and for each host axis the device axes that
make it up, outermost first. The rest is one transposition, one reshape (a view where no split axis has
to be joined) and the cut of the padding. Convolution weights in FRACTAL_Z, with groups and in three
dimensions, are expanded first. Source: GE's format transfers, formats.md section 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.filebytes import released, slabs
from pytest_npudump.errors import DumpError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_npudump.dump.records import TensorRecord


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
        """Number of elements."""
        return math.prod(self.cut)

    def is_view(self) -> bool:
        """Return whether no axis is really split, so that the tensor needs no copy."""
        ends = [sum(self.counts[: axis + 1]) for axis in range(len(self.counts))]
        extents = [self.split.shape[end - count : end] for end, count in zip(ends, self.counts, strict=True)]
        return all(sum(extent > 1 for extent in parts) < 2 for parts in extents)  # noqa: PLR2004 - both parts

    def whole(self) -> np.ndarray:
        """All elements, of ``shape``: a view where none of its axes has to be joined from two."""
        return _joined(self.split, self.counts, self.cut).reshape(self.shape)

    def pieces(self, limit: int) -> Iterator[np.ndarray]:
        """All elements in C order, cut as :func:`c_order_chunks` cuts an array of shape ``cut``."""
        return released((self._slab(index) for index in slabs(self.cut, limit)), self.split)

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
        blocks = {name: extents[parts[name][-1]] for name in axes if len(parts[name]) > 1}
        if len(shape) != len(padded):
            raise LayoutError(f"host shape {shape} has {len(shape)} axes, {', '.join(axes)} has {len(axes)}")
        for name, extent, whole in zip(axes, shape, padded, strict=True):
            block = blocks.get(name, 1) or 1
            if -(-extent // block) * block != whole:
                raise LayoutError(
                    f"host shape {shape}: {name} = {extent} does not fit {whole} in blocks of {block}: "
                    "is the host's axis order right?"
                )
    order = [names.index(part) for name in axes for part in parts[name]]
    cut = padded if shape is None else shape
    return JoinedTensor(array.transpose(order), tuple(len(parts[name]) for name in axes), cut, cut)


_CUBE = 16
"""Rows of a fractal: N comes in blocks of 16."""

_RANK = 4


def _fractal_z(
    array: np.ndarray, axes: Sequence[str], extents: Mapping[str, int], groups: int
) -> np.ndarray | JoinedTensor:
    """Convert (D*C1*H*W, N1, 16, C0) to ``axes``, of the host's ``extents``.

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


def _fits(device: tuple[int, ...], extents: Mapping[str, int]) -> bool:
    """Return whether a FRACTAL_Z without groups can have the host's ``extents``, N and C in any order."""
    if len(device) != _RANK or not device[3]:
        return False
    first, n1, n0, c0 = device
    area = extents.get("D", 1) * extents["H"] * extents["W"]
    pairs = (extents["N"], extents["C"]), (extents["C"], extents["N"])
    return any(first == -(-c // c0) * area and n1 == -(-n // max(n0, 1)) for n, c in pairs)


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
_PARTS = {"C": ("C1", "C0")}
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
        device_format: name after :mod:`pytest_npudump.dump.dtypes`.
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
        return found if shape is None else replace(found, shape=shape)
    if device_format == host_format or device_format in _ND:
        if shape is None or array.shape == shape:
            return array
        if array.size != math.prod(shape):
            name = device_format or "ND"
            raise LayoutError(f"{name} of shape {array.shape} cannot be of host shape {shape}")
        return array.reshape(shape)
    if device_format in HOST_AXES:
        names = HOST_AXES[device_format]
        return join(array, names, {name: (name,) for name in names}, _axes(host_format, len(names)), shape)
    if device_format == "C1HWNCoC0":  # depthwise weights: values on the diagonal of the last two axes only
        if array.ndim != 6 or array.shape[4] != array.shape[5]:  # noqa: PLR2004 - C1, H, W, N, Co, C0
            raise LayoutError(
                f"C1HWNCoC0 of shape {array.shape}, expected 6 axes of which the last two are equal"
            )
        array, device_format = np.diagonal(array, axis1=4, axis2=5), "C1HWNC0"
    if device_format in _SPLIT:
        names = _SPLIT[device_format]
        axes = _axes(host_format, len(names) - 1)
        return join(array, names, {name: _PARTS.get(name, (name,)) for name in axes}, axes, shape)
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


def _from_fractal_z(
    array: np.ndarray, device_format: str, host_format: str, shape: tuple[int, ...] | None, groups: int
) -> np.ndarray | JoinedTensor:
    if shape is None:
        raise LayoutError(f"{device_format} joins C1, H and W in one axis: the original shape is needed")
    axes = _axes(host_format, len(shape))
    if len(axes) != len(shape) or not {"N", "C", "H", "W"} <= set(axes):
        raise LayoutError(f"{device_format} cannot be of host shape {shape} in {host_format}")
    extents = dict(zip(axes, shape, strict=True))
    if device_format.endswith("TRANSPOSE"):  # as FRACTAL_Z_3D with N and C exchanged
        exchange = {"N": "C", "C": "N"}
        other = {exchange.get(name, name): extent for name, extent in extents.items()}
        found = _fractal_z(array, [exchange.get(name, name) for name in axes], other, 1)
    else:
        found = _fractal_z(array, axes, extents, groups)
    # Whether the host's shape fits the device's in another order of axes, too.
    orders = (HOST_AXES[name] for name in _WEIGHTS if len(name) == len(axes) and HOST_AXES[name] != axes)
    ambiguous = groups > 1 or any(
        _fits(array.shape, dict(zip(order, shape, strict=True))) for order in orders
    )
    if ambiguous and _nonzero(found) != _nonzero(array):
        raise LayoutError(
            f"{device_format} of shape {array.shape} holds values where {''.join(axes)} of shape {shape} has "
            f"padding, which is zero: is the host's axis order right?"
        )
    return found


def _nonzero(values: np.ndarray | JoinedTensor) -> int:
    pieces = values.pieces(_PIECE) if isinstance(values, JoinedTensor) else iter([values])
    # E8M0 has no zero: padding is bytes of 0, which mean 2**-127.
    codes = values.dtype.name == "float8_e8m0fnu"
    return sum(int(np.count_nonzero(piece.view(np.uint8) if codes else piece)) for piece in pieces)


_PLAIN = frozenset({"", "ND", "MD", "DefaultFormat", *HOST_AXES})
"""Layouts that are the host's already; ``DefaultFormat`` is MindSpore's word for it."""


def host_array(array: np.ndarray, record: TensorRecord, layout: str) -> np.ndarray:
    """Return ``array``, in the device's shape of ``record``, in the host layout called ``layout``.

    Raises:
        LayoutError: the layout cannot be converted, or the shapes do not fit it.
    """
    found = host_values(array, record, layout)
    return found.whole() if isinstance(found, JoinedTensor) else found


def host_values(array: np.ndarray, record: TensorRecord, layout: str) -> np.ndarray | JoinedTensor:
    """Return the result of :func:`host_array`, or a source of its pieces where that would be a copy.

    Raises:
        LayoutError: as :func:`host_array`.
    """
    if record.format in _PLAIN:
        if layout == "ND" or record.format not in HOST_AXES or array.ndim != len(layout):
            return array
        return in_host_layout(array, device_format=record.format, host_format=layout, original_shape=None)
    if array.ndim == 0:
        raise LayoutError(f"a scalar cannot be in the layout {record.format}")
    return in_host_layout(
        array,
        device_format=record.format,
        host_format=layout,
        original_shape=record.original_shape,
        sub_format=record.sub_format,
    )


def lies_in(record: TensorRecord, layout: str) -> bool:
    """Return whether the tensor already lies in the host layout called ``layout``, so that nothing moves."""
    if layout == "ND" or record.format not in HOST_AXES:
        return record.format in _PLAIN
    return record.format == layout or record.shape is None or len(record.shape) != len(layout)


def has_axes(record: TensorRecord) -> bool:
    """Return whether the layout is one of the host's that names as many axes as the tensor has."""
    return record.format in HOST_AXES and record.shape is not None and len(record.shape) == len(record.format)


def is_private(record: TensorRecord) -> bool:
    """Return whether the layout is one of the device's own."""
    return record.format not in _PLAIN
