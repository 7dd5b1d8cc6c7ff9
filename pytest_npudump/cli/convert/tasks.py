"""One file to write: what a worker is given and returns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from pytest_npudump.dump.arrays.decode import VIEWED, is_of_numpy, load
from pytest_npudump.dump.arrays.layouts import JoinedTensor, LayoutError, host_array, host_values
from pytest_npudump.dump.arrays.packed import coded_tensor, packed_tensor
from pytest_npudump.dump.bytes.chunks import c_order_chunks, file_pieces
from pytest_npudump.dump.bytes.rawfile import raw_bytes
from pytest_npudump.errors import DumpError, NpudumpError
from pytest_npudump.language.translation import reason_of, said

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pytest_npudump.dump.records import TensorRecord

    Array = np.ndarray[Any, np.dtype[Any]]
    Reached = Callable[[Path, int], None]

Result = TypeVar("Result")

_CHUNK = 1 << 20
"""Elements converted at a time; a multiple of 8, so that packed types are cut between bytes."""

_BUFFER = 1 << 20
"""Bytes copied at a time; a multiple of every type's size. Measured: a quarter of it is slower."""


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file to write.

    Attributes:
        path: where.
        temporary: where the file is written before it gets its name; removed if that fails.
        records: its tensors; one in an npy file.
        kind: ``npy`` or ``safetensors``.
        layout: host layout; "" for the tensors as they lie on the device.
    """

    path: Path
    temporary: Path
    records: tuple[TensorRecord, ...]
    kind: str
    layout: str

    @property
    def nbytes(self) -> int:
        """Bytes to read."""
        return sum(record.payload.nbytes for record in self.records if record.payload is not None)


@dataclass(frozen=True, slots=True)
class Converted:
    """What became of an output file.

    Attributes:
        tensors: how many were written.
        nbytes: bytes of their values in the file.
        failures: what was not converted, and why.
        note: what a user should know; "" if nothing.
    """

    tensors: int = 0
    nbytes: int = 0
    failures: tuple[str, ...] = ()
    note: str = ""


def convert(file: OutputFile, reached: Reached | None = None) -> Converted:
    """Write one file; what cannot be converted comes back as failures.

    Args:
        file: what to write.
        reached: called with the file's path and how many of its ``nbytes`` are dealt with, as they are.
    """
    reached = reached or _untold
    try:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        return _safetensors(file, reached) if file.kind == "safetensors" else _npy(file, reached)
    except OSError as error:
        return Converted(
            failures=(
                said(
                    "{path}: cannot be written: {reason}", path=file.path, reason=error.strerror or str(error)
                ),
            )
        )
    finally:
        reached(file.path, file.nbytes)


def _untold(_path: Path, _nbytes: int) -> None:
    """Nobody asked how far the work is."""


def _npy(file: OutputFile, reached: Reached) -> Converted:
    (record,) = file.records
    try:
        dtype, shape, chunks = values(record, file.layout)
    except NpudumpError as error:
        return Converted(failures=(_failure(record, error),))
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    count, done = math.prod(shape), 0
    try:
        with file.temporary.open("xb") as out:
            np.lib.format.write_array_header_1_0(out, header)
            for chunk in chunks:
                out.write(np.ascontiguousarray(chunk, dtype).view(np.uint8).data)
                done += chunk.size
                reached(file.path, file.nbytes * done // max(count, 1))
        file.temporary.replace(file.path)
    except NpudumpError as error:
        return Converted(failures=(_failure(record, error),))
    finally:
        file.temporary.unlink(missing_ok=True)
    return Converted(1, count * dtype.itemsize)


def _safetensors(file: OutputFile, reached: Reached) -> Converted:
    """Write the tensors of one dump file under their keys, in the types of the device where it has them."""
    from pytest_npudump.golden.tensors import save_tensors  # noqa: PLC0415 - safetensors only where asked for

    arrays: dict[str, tuple[Array, str]] = {}
    failures = []
    done = 0
    for record in file.records:
        array, failure = _try_array(record, file.layout)
        done += record.payload.nbytes if record.payload is not None else 0
        reached(file.path, done)
        failures += [failure] if failure else []
        if array is not None:
            arrays[str(record.key)] = (array, record.dtype)
    if arrays:
        try:
            save_tensors(file.temporary, arrays)
            file.temporary.replace(file.path)
        except NpudumpError as error:
            reason = getattr(error.__cause__, "strerror", None) or error.__cause__ or error
            return Converted(
                failures=(
                    *failures,
                    said("{path}: cannot be written: {reason}", path=file.path, reason=str(reason)),
                )
            )
        finally:
            file.temporary.unlink(missing_ok=True)
    nbytes = sum(array.nbytes for array, _ in arrays.values())
    return Converted(len(arrays), nbytes, tuple(failures))


def _try_array(record: TensorRecord, layout: str) -> tuple[Array | None, str]:
    try:
        if not layout:
            return _raw_array(record), ""
        return _naming_ways_out(partial(host_array, _load(record)), record, layout), ""
    except NpudumpError as error:
        return None, _failure(record, error)


def _failure(record: TensorRecord, error: NpudumpError) -> str:
    text, path = reason_of(error), str(record.path)
    if path in text:
        return said("{path}: {reason}", path=str(record.key), reason=text)
    return said("{key} of {path}: {reason}", key=str(record.key), path=path, reason=text)


def values(record: TensorRecord, layout: str) -> tuple[np.dtype[Any], tuple[int, ...], Iterator[Array]]:
    """Type, shape and values in C order, in pieces of one axis, as an npy file is to hold them.

    Raises:
        DumpError: the tensor has no values, or its layout cannot be converted.
    """
    packed = packed_tensor(record, layout) if layout else None
    if packed is not None:
        return packed.dtype, packed.shape, packed.pieces(_CHUNK)
    coded = _naming_ways_out(coded_tensor, record, layout) if layout else None
    if coded is not None:
        return coded.dtype, coded.shape, coded.pieces(_CHUNK)
    loaded = _load(record) if layout else _raw_array(record)
    array = _naming_ways_out(partial(host_values, loaded), record, layout) if layout else loaded
    payload = record.payload
    if array is loaded and is_of_numpy(array.dtype) and payload is not None and payload.kind == "raw":
        octets = file_pieces(payload.path, payload.offset, array.nbytes, _BUFFER)
        return array.dtype, array.shape, (piece.view(array.dtype) for piece in octets)
    dtype = array.dtype if is_of_numpy(array.dtype) else np.dtype("<f4")
    if isinstance(array, JoinedTensor):
        return dtype, array.shape, array.pieces(_CHUNK)
    return dtype, array.shape, c_order_chunks(array, _CHUNK, flat=array.flags.c_contiguous)


def _load(record: TensorRecord) -> Array:
    if record.payload is None:
        raise DumpError(said("no data"))
    if record.shape is None:
        raise DumpError(said("the header has no shape: --raw writes the bytes"))
    return load(record.payload, record.dtype, record.shape)


def _naming_ways_out(
    function: Callable[[TensorRecord, str], Result], record: TensorRecord, layout: str
) -> Result:
    try:
        return function(record, layout)
    except LayoutError as error:
        raise LayoutError(
            said("{error}; --layout names another host layout, --raw keeps the device's", error=str(error))
        ) from error


def _raw_array(record: TensorRecord) -> Array:
    """Return the tensor as it lies on the device, a type that numpy lacks as its bits.

    Raises:
        DumpError: the bytes cannot be read.
    """
    if record.payload is None:
        raise DumpError(said("no data"))
    if record.payload.kind == "raw" and (record.dtype not in VIEWED or record.shape is None):
        return raw_bytes(record.payload)
    array = load(record.payload, record.dtype, record.shape)
    return array if is_of_numpy(array.dtype) else array.view(np.dtype(f"<u{array.dtype.itemsize}"))
