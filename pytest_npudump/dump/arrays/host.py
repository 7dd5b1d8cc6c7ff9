"""A dumped tensor as the host would hold it, or as it lies on the device where that cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.dump.arrays.layouts import HOST_AXES, JoinedTensor, LayoutError, in_host_layout

if TYPE_CHECKING:
    import numpy as np

    from pytest_npudump.dump.records import TensorRecord

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
    """What :func:`host_array` returns, or what can return it piece by piece where that would be a copy.

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
    """Whether the host layout called ``layout`` is how the tensor lies already, so that nothing moves."""
    if layout == "ND" or record.format not in HOST_AXES:
        return record.format in _PLAIN
    return record.format == layout or record.shape is None or len(record.shape) != len(layout)


def has_axes(record: TensorRecord) -> bool:
    """Whether the layout is one of the host's that names as many axes as the tensor has."""
    return record.format in HOST_AXES and record.shape is not None and len(record.shape) == len(record.format)


def is_private(record: TensorRecord) -> bool:
    """Whether the layout is one of the device's own."""
    return record.format not in _PLAIN
