"""``acl.util``: pointers from and to Python's objects."""

from __future__ import annotations

import ctypes
import math
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from pytest_npudump.emulator import codes
from pytest_npudump.emulator.acl._base import CODE, UTIL
from pytest_npudump.emulator.codes import RefusedError, missing
from pytest_npudump.emulator.process import process
from pytest_npudump.emulator.streams import ApplicationThread

_SHARED = 2
"""Bytes objects shorter than this are shared by the whole interpreter and must never be written to."""


@UTIL("O", refused=0)
def bytes_to_ptr(data: object) -> int:
    """``(bytes) -> ptr`` to the object's own memory, which a later ``memcpy`` may change.

    Raises:
        ValueError: the argument is not bytes.
    """
    if not isinstance(data, bytes):
        raise ValueError("needs an byte as argument")  # noqa: TRY004 - pyACL raises ValueError here
    if len(data) < _SHARED:
        return _borrow_array(np.frombuffer(data, np.uint8).copy())
    address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
    return process().memory.borrow(address or 0, len(data), data)


@UTIL("kk", refused=b"")
def ptr_to_bytes(address: int, size: int) -> bytes:
    """``(ptr, size) -> bytes``, a copy.

    Raises:
        ValueError: these bytes are not memory that the emulator knows; pyACL would crash.
    """
    return _memory("acl.util.ptr_to_bytes", address, size).tobytes()


@UTIL("O", refused=0)
def numpy_to_ptr(array: object) -> int:
    """``(array) -> ptr`` to the array's first element.

    Raises:
        ValueError: the argument is no array.
    """
    found = _array(array)
    _warn("acl.util.numpy_to_ptr will be deprecated. Please use acl.util.bytes_to_ptr instead.")
    if not found.flags.c_contiguous:
        _warn("The input ndarray is discontiguous. Please use acl.util.bytes_to_ptr instead.")
    return _borrow_array(found)


@UTIL("O", refused=0)
def numpy_contiguous_to_ptr(array: object) -> tuple[int, np.ndarray[Any, Any]]:
    """``(array) -> (ptr, contiguous array)``.

    Raises:
        ValueError: the argument is no array.
    """
    found = _array(array)
    _warn("acl.util.numpy_contiguous_to_ptr will be deprecated. Please use acl.util.bytes_to_ptr instead.")
    contiguous = np.ascontiguousarray(found).reshape(found.shape)
    return _borrow_array(contiguous), contiguous


@UTIL("kOi", refused=None)
def ptr_to_numpy(address: int, shape: object, number: int) -> np.ndarray[Any, Any]:
    """``(ptr, shape, numpy type number) -> array`` that shares the memory.

    Raises:
        ValueError: this is not memory that the emulator knows; pyACL would crash.
        TypeError: the shape is no tuple of ints, or the type number is none of numpy's.
    """
    call = "acl.util.ptr_to_numpy"
    if not isinstance(shape, tuple) or not all(isinstance(dim, int) and dim >= 0 for dim in shape):
        raise TypeError(f"{call} args parse failed!")
    _warn("acl.util.ptr_to_numpy will be deprecated. Please use acl.util.ptr_to_bytes instead.")
    every = (np.dtype(character) for character in np.typecodes["All"])
    dtype = next((t for t in every if t.num == number and t.itemsize and not t.hasobject), None)
    if dtype is None:
        raise TypeError(f"{call}: {number} is no type number of numpy that fixed-size memory can hold")
    data = _memory(call, address, math.prod(shape) * dtype.itemsize)
    return data.view(dtype).reshape(shape)


def _array(array: object) -> np.ndarray[Any, Any]:
    if not isinstance(array, np.ndarray):
        raise ValueError("needs an ndarray as argument")  # noqa: TRY004 - pyACL raises ValueError here
    return array


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
    warnings.warn(text, Warning, stacklevel=4)  # at the caller of the call


@UTIL("OO", refused=(0, CODE))
def start_thread(function: Callable[..., object], argument: object) -> int:
    """``(function, args) -> (thread id, ret)``: the function is called with the list ``args``, if not None.

    What the function raises is printed; ``stop_thread`` raises it.
    """
    if not callable(function):
        raise TypeError("parameter must be callable")
    thread = ApplicationThread(function, argument)
    state = process()
    with state.lock:
        thread.start()
        ident = thread.ident or 0
        state.threads[ident] = thread
    return ident


@UTIL("K")
def stop_thread(ident: int) -> None:
    """``(thread id) -> ret``, when the thread has ended.

    Raises:
        RuntimeError: its function raised something.
    """
    thread = process().threads.pop(ident, None)
    if thread is None:
        raise RefusedError(codes.INVALID_PARAM, f"no thread that was started has the id {ident}")
    thread.join()
    if thread.problem:
        raise RuntimeError(thread.problem)


globals()["__all__"] = [*UTIL.calls]


def __getattr__(name: str) -> NoReturn:
    missing("acl.util", name)
