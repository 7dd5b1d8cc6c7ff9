"""Memory of the device and what stands for it in pyACL, freed by the stack it is put on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.runtime.acl.return_codes import check, value

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import ExitStack

    import numpy as np

_MALLOC_HUGE_FIRST = 0
_HOST_TO_DEVICE = 1
_DEVICE_TO_HOST = 2
_FORMAT_ND = 2


def allocate(acl: Any, stack: ExitStack, size: int) -> int:
    """Return the address of ``size`` bytes on the device; raise AclError where there are none."""
    __tracebackhide__ = True
    address: int = value(acl, f"acl.rt.malloc({size})", acl.rt.malloc(max(size, 1), _MALLOC_HUGE_FIRST))
    stack.callback(acl.rt.free, address)
    return address


def upload(acl: Any, address: int, array: np.ndarray) -> None:
    """Copy a contiguous array to the device; raise AclError where that fails."""
    __tracebackhide__ = True
    if array.nbytes:
        data = array.tobytes()
        source = acl.util.bytes_to_ptr(data)
        code = acl.rt.memcpy(address, array.nbytes, source, array.nbytes, _HOST_TO_DEVICE)
        check(acl, "acl.rt.memcpy(host to device)", code)


def read(acl: Any, address: int, size: int) -> bytes:
    """Return ``size`` bytes of the device; raise AclError where they cannot be copied."""
    __tracebackhide__ = True
    host = value(acl, f"acl.rt.malloc_host({size})", acl.rt.malloc_host(size))
    try:
        code = acl.rt.memcpy(host, size, address, size, _DEVICE_TO_HOST)
        check(acl, "acl.rt.memcpy(device to host)", code)
        data: bytes = acl.util.ptr_to_bytes(host, size)
        return data
    finally:
        acl.rt.free_host(host)


def append(acl: Any, stack: ExitStack, dataset: int, address: int, size: int) -> int:
    """Return a new data buffer over ``size`` bytes at ``address``, added to a dataset."""
    __tracebackhide__ = True
    buffer: int = acl.create_data_buffer(address, size)
    stack.callback(acl.destroy_data_buffer, buffer)
    value(acl, "acl.mdl.add_dataset_buffer()", acl.mdl.add_dataset_buffer(dataset, buffer))
    return buffer


def output_buffer(acl: Any, stack: ExitStack, dataset: int, size: int) -> int:
    """Return a new data buffer for an output, added to a dataset; its size is 0 where ACL cannot tell it."""
    if size:
        return append(acl, stack, dataset, allocate(acl, stack, size), size)
    # A size that ACL cannot tell beforehand: an empty buffer makes it allocate the output itself.
    buffer = append(acl, stack, dataset, 0, 0)
    stack.callback(_free_buffer, acl, buffer)
    return buffer


def _free_buffer(acl: Any, buffer: int) -> None:
    address = acl.get_data_buffer_addr(buffer)
    if address:
        acl.rt.free(address)


def shape_desc(acl: Any, stack: ExitStack, dtype: int, shape: Sequence[int]) -> int:
    """Return a tensor description of an ``aclDataType`` and a shape."""
    desc: int = acl.create_tensor_desc(dtype, list(shape), _FORMAT_ND)
    stack.callback(acl.destroy_tensor_desc, desc)
    return desc
