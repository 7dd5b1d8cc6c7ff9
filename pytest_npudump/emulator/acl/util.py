"""``acl.util``: pointers from and to Python's objects."""

from __future__ import annotations

import ctypes
import math
import warnings
from typing import Any, NoReturn

import numpy as np

from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.parse_tuple import parse
from pytest_npudump.emulator.machine.reports import ApplicationThread
from pytest_npudump.emulator.process.state import process
from pytest_npudump.emulator.unsupported import missing

__all__ = [
    "bytes_to_ptr",
    "numpy_contiguous_to_ptr",
    "numpy_to_ptr",
    "ptr_to_bytes",
    "ptr_to_numpy",
    "start_thread",
    "stop_thread",
]

_SHARED = 2
"""Bytes objects shorter than this are shared by the whole interpreter and must never be written to."""


def bytes_to_ptr(*args: object) -> int:
    """``(bytes) -> ptr`` to the object's own memory, which a later ``memcpy`` may change.

    Raises:
        ValueError: the argument is not bytes.
    """
    (data,) = parse("acl.util.bytes_to_ptr", "O", args)
    if not isinstance(data, bytes):
        raise ValueError("needs an byte as argument")  # noqa: TRY004 - pyACL raises ValueError here
    if len(data) < _SHARED:
        return _borrow_array(np.frombuffer(data, np.uint8).copy())
    address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
    return process().memory.borrow(address or 0, len(data), data)


def ptr_to_bytes(*args: object) -> bytes:
    """``(ptr, size) -> bytes``, a copy.

    Raises:
        ValueError: these bytes are not memory that the emulator knows; pyACL would crash.
    """
    address, size = parse("acl.util.ptr_to_bytes", "kk", args)
    return _memory("acl.util.ptr_to_bytes", address, size).tobytes()


def numpy_to_ptr(*args: object) -> int:
    """``(array) -> ptr`` to the array's first element.

    Raises:
        ValueError: the argument is no array.
    """
    (array,) = _array("acl.util.numpy_to_ptr", args)
    _warn("acl.util.numpy_to_ptr will be deprecated. Please use acl.util.bytes_to_ptr instead.")
    if not array.flags.c_contiguous:
        _warn("The input ndarray is discontiguous. Please use acl.util.bytes_to_ptr instead.")
    return _borrow_array(array)


def numpy_contiguous_to_ptr(*args: object) -> tuple[int, np.ndarray[Any, Any]]:
    """``(array) -> (ptr, contiguous array)``.

    Raises:
        ValueError: the argument is no array.
    """
    (array,) = _array("acl.util.numpy_contiguous_to_ptr", args)
    _warn("acl.util.numpy_contiguous_to_ptr will be deprecated. Please use acl.util.bytes_to_ptr instead.")
    contiguous = np.ascontiguousarray(array).reshape(array.shape)
    return _borrow_array(contiguous), contiguous


def ptr_to_numpy(*args: object) -> np.ndarray[Any, Any]:
    """``(ptr, shape, numpy type number) -> array`` that shares the memory.

    Raises:
        ValueError: this is not memory that the emulator knows; pyACL would crash.
        TypeError: the shape is no tuple of ints, or the type number is none of numpy's.
    """
    call = "acl.util.ptr_to_numpy"
    address, shape, number = parse(call, "kOi", args)
    if not isinstance(shape, tuple) or not all(isinstance(dim, int) and dim >= 0 for dim in shape):
        raise TypeError(f"{call} args parse failed!")
    _warn("acl.util.ptr_to_numpy will be deprecated. Please use acl.util.ptr_to_bytes instead.")
    dtype = _numpy_type(call, number)
    data = _memory(call, address, math.prod(shape) * dtype.itemsize)
    return data.view(dtype).reshape(shape)


def _numpy_type(call: str, number: int) -> np.dtype[Any]:
    for character in np.typecodes["All"]:
        dtype = np.dtype(character)
        if dtype.num == number and dtype.itemsize and not dtype.hasobject:
            return dtype
    raise TypeError(f"{call}: {number} is no type number of numpy that fixed-size memory can hold")


def _array(call: str, args: tuple[object, ...]) -> tuple[np.ndarray[Any, Any]]:
    (array,) = parse(call, "O", args)
    if not isinstance(array, np.ndarray):
        raise ValueError("needs an ndarray as argument")  # noqa: TRY004 - pyACL raises ValueError here
    return (array,)


def _borrow_array(array: np.ndarray[Any, Any]) -> int:
    first = int(array.ctypes.data)
    spans = [(dim - 1) * step for dim, step in zip(array.shape, array.strides, strict=True)]
    below = sum(span for span in spans if span < 0)
    above = sum(span for span in spans if span > 0) + array.itemsize
    process().memory.borrow(first + below, above - below if array.size else 0, array)
    return first


def _memory(call: str, address: int, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    found = process().memory.find(address, size)
    if found is None:
        raise ValueError(f"{call}: {size} bytes at {address:#x} are not allocated memory")
    return found


def _warn(text: str) -> None:
    warnings.warn(text, Warning, stacklevel=3)


def start_thread(*args: object) -> tuple[int, int]:
    """``(function, args) -> (thread id, ret)``: the function is called with the list ``args``, if not None.

    What the function raises is printed; ``stop_thread`` raises it.
    """
    function, argument = parse("acl.util.start_thread", "OO", args)
    if not callable(function):
        raise TypeError("parameter must be callable")
    thread = ApplicationThread(function, argument)
    state = process()
    with state.lock:
        thread.start()
        ident = thread.ident or 0
        state.threads[ident] = thread
    return ident, codes.SUCCESS


def stop_thread(*args: object) -> int:
    """``(thread id) -> ret``, when the thread has ended.

    Raises:
        RuntimeError: its function raised something.
    """
    (ident,) = parse("acl.util.stop_thread", "K", args)
    thread = process().threads.pop(ident, None)
    if thread is None:
        return codes.INVALID_PARAM
    thread.join()
    if thread.problem:
        raise RuntimeError(thread.problem)
    return codes.SUCCESS


def __getattr__(name: str) -> NoReturn:
    missing("acl.util", name)
