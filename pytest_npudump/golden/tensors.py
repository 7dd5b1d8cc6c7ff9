"""Golden tensors: a safetensors file beside the golden file, memory-mapped when read, never pickle.

The file is laid out here rather than by the safetensors package, whose writing interface differs between
its versions and wants all tensors in memory; what is read is checked by that package first.
Layout: u64 little-endian length of the header, the header (JSON, padded with spaces), the data.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from pytest_npudump.errors import GoldenError
from pytest_npudump.storage.atomic import locked, replace_file
from pytest_npudump.storage.regular_file import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    Tensor = np.ndarray[Any, np.dtype[Any]]


_BYTES = "npudump.bytes"
_DTYPES = "npudump.dtypes"
_SAME = "npudump.same"
_DIGESTS = "npudump.digests"
_ALIGNMENT = 8
_LFS = b"version https://git-lfs.github.com/spec/"


def save_tensors(
    path: Path, tensors: Mapping[str, tuple[Tensor, str]], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors to ``path``, atomically; those of one type, shape and content once.

    Args:
        path: the file; an existing one is replaced.
        tensors: by key text, the values and the name of the type they had on the device, which is kept in
            the metadata where the array has another one.
        metadata: further texts to keep.

    Raises:
        GoldenError: the file cannot be written; an existing one is as it was.
    """
    same = copies_of(tensors)
    # Larger elements first, as safetensors orders them: every tensor is then aligned to its own type.
    ordered = sorted(tensors.keys() - same.keys(), key=lambda key: (-tensors[key][0].dtype.itemsize, key))
    arrays = {key: portable(tensors[key][0]) for key in ordered}
    texts = {**(metadata or {}), **({_SAME: json.dumps(same)} if same else {})}
    texts[_DIGESTS] = json.dumps({key: _digest(array) for key, array in arrays.items()})
    header = _header(arrays, {key: name for key, (_, name) in tensors.items()}, texts)
    with locked(path) as target:
        replace_file(target, chain([struct.pack("<Q", len(header)), header], *map(chunks, arrays.values())))


def read_metadata(path: Path) -> dict[str, str]:
    """Return the texts kept with the tensors of ``path``.

    Raises:
        GoldenError: the file cannot be read, or is not one of tensors.
    """
    try:
        _refuse_others(path)
        with safe_open(path, framework="numpy") as file:
            return dict(file.metadata() or {})
    except (SafetensorError, OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def is_foreign(path: Path) -> bool:
    """Return whether a file of tensors is another program's, as the weights of a model are."""
    try:
        return _BYTES not in read_metadata(path)
    except GoldenError:
        return False


@dataclass(frozen=True, slots=True)
class TensorFile:
    """A file of golden tensors whose header has been read, and nothing else of it.

    Attributes:
        path: the file.
        start: byte at which the data begins.
        entries: by key text, what the header says of the tensor.
        foreign: by key text, name and shape of a tensor whose type safetensors does not know.
        digests: by key text, that of the tensor's bytes; none in files of earlier versions and others.
    """

    path: Path
    start: int
    entries: Mapping[str, Any]
    foreign: Mapping[str, Any]
    digests: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> TensorFile:
        """Read the header.

        Raises:
            GoldenError: the file cannot be read, or is not one that :func:`save_tensors` wrote.
        """
        try:
            _refuse_others(path)
            with safe_open(path, framework="numpy"), path.open("rb") as file:
                (length,) = struct.unpack("<Q", file.read(8))
                header: dict[str, Any] = json.loads(file.read(length))
        except (SafetensorError, OSError, ValueError) as error:
            raise _unreadable(path, error) from error
        metadata = header.pop("__metadata__", {})
        foreign, digests = (_json_metadata(metadata, name, path) for name in (_BYTES, _DIGESTS))
        for copy, original in _json_metadata(metadata, _SAME, path).items():
            if copy in header or not isinstance(original, str) or original not in header:
                raise GoldenError(
                    f"{path}: the metadata {_SAME} says that {copy!r} is {original!r}, which does not go "
                    f"with the tensors that are there; restore the file from version control"
                )
            header[copy], foreign[copy] = header[original], foreign.get(original)
            if digests:
                digests[copy] = digests.get(original)
        return cls(path, 8 + length, header, foreign, digests)

    def tensor(self, key: str) -> Tensor:
        """Map one tensor, read-only, once the digest of its bytes was found right; its memory goes with it.

        Raises:
            KeyError: the file has no such tensor.
            GoldenError: the file cannot be read, what it says of the tensor does not go together, or the
                bytes are others than were written.
        """
        begin, end = self.entries[key]["data_offsets"]
        chunk: Tensor = np.empty(0, np.uint8)
        try:
            if end - begin:
                place: Any = {"offset": self.start + begin, "shape": (end - begin,)}
                chunk = np.asarray(np.memmap(self.path, dtype=np.uint8, mode="r", **place))
        except (OSError, ValueError) as error:
            raise _unreadable(self.path, error) from error
        if self.digests and self.digests.get(key) != _digest(chunk):
            raise GoldenError(
                f"{self.path}: the bytes of tensor {key} are not those that were recorded: restore the file "
                f"from version control, or record it anew with --npudump-update-golden"
            )
        kept, entry = self.foreign.get(key), self.entries[key]
        ours = {theirs: name for name, theirs in SAFETENSORS_NAMES.items()}
        name, shape = ours.get(entry["dtype"], entry["dtype"]), entry["shape"]
        if isinstance(kept, list) and len(kept) == len(("name", "shape")):
            name, shape = kept
        return viewed(chunk, name, shape, f"{self.path}: tensor {key}")


def _refuse_others(path: Path) -> None:
    """Refuse all but regular files: safetensors would wait for a pipe, and cannot name a directory.

    Raises:
        GoldenError: it stands for a file that Git LFS has not fetched.
        OSError: it is none.
    """
    with open_regular(path) as file:
        if file.read(len(_LFS)) == _LFS:
            raise GoldenError(
                f"{path}: Git LFS has not fetched this file of golden tensors, only its pointer is there: "
                f"run 'git lfs pull', behind 'git lfs install' where this machine has never used it"
            )


def _unreadable(path: Path, error: Exception) -> GoldenError:
    reason = error.strerror or error if isinstance(error, OSError) else error
    return GoldenError(
        f"{path}: not a file of golden tensors: {reason}; restore it from version control, or record it anew "
        f"with --npudump-update-golden"
    )


def _header(arrays: Mapping[str, Tensor], dtypes: Mapping[str, str], metadata: Mapping[str, str]) -> bytes:
    entries: dict[str, Any] = {}
    kept: dict[str, tuple[str, tuple[int, ...]]] = {}
    position = 0
    for key, array in arrays.items():
        name = SAFETENSORS_NAMES.get(array.dtype.name)
        if name is None:
            kept[key] = (array.dtype.name, array.shape)
        entries[key] = {
            "dtype": name or "U8",
            "shape": list(array.shape) if name else [array.nbytes],
            "data_offsets": [position, position + array.nbytes],
        }
        position += array.nbytes
    foreign = {key: name for key, name in dtypes.items() if key in arrays and name != arrays[key].dtype.name}
    texts = {**metadata, _BYTES: json.dumps(kept), _DTYPES: json.dumps(foreign)}
    text = json.dumps({"__metadata__": texts, **entries}, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % _ALIGNMENT)


def _json_metadata(metadata: Mapping[str, str], name: str, path: Path) -> dict[str, Any]:
    try:
        found = json.loads(metadata.get(name, "{}"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise GoldenError(f"{path}: the metadata {name} is not JSON; restore the file from version control")
    return found


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor kept beside a golden file.

    Attributes:
        path: the safetensors file.
        key: its name in there.
    """

    path: Path
    key: str

    def array(self) -> Tensor:
        """Map the tensor, read-only, so that the memory of those before it is free.

        Raises:
            OSError: the file is not there.
            GoldenError: it cannot be read.
        """
        found = self.path.stat()
        return _opened(self.path, (found.st_ino, found.st_mtime_ns, found.st_size)).tensor(self.key)


@lru_cache(maxsize=8)
def _opened(path: Path, _version: tuple[int, int, int]) -> TensorFile:
    """Read a file's header, once for each version of it: an update of the same process may replace it."""
    return TensorFile.read(path)


SAFETENSORS_NAMES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
"""Types that every version of safetensors knows; others are kept as bytes with their name in the metadata."""

_COMPLEX = ("complex64", "complex128")
_CHUNK = 1 << 22


def copies_of(tensors: Mapping[str, tuple[Tensor, str]]) -> dict[str, str]:
    """Return by key text of each tensor that is another one's copy, bit for bit, that one's key."""
    sizes = Counter(array.nbytes for array, _ in tensors.values())
    first: dict[tuple[object, ...], str] = {}
    copies = {}
    for key, (array, name) in sorted(tensors.items()):
        if sizes[array.nbytes] > 1 and array.nbytes:
            content = (array.dtype.name, name, array.shape, _digest(array))
            if (original := first.setdefault(content, key)) != key:
                copies[key] = original
    return copies


def tensors_digest(tensors: Mapping[str, tuple[Tensor, str]]) -> str:
    """Return a hash of the keys, types, shapes and values that :func:`save_tensors` would write."""
    digest = blake2b(digest_size=16)
    for key, (array, name) in sorted(tensors.items()):
        little = portable(array)
        digest.update(f"{key} {little.dtype.name} {name} {little.shape}\n".encode())
        for chunk in chunks(little):
            digest.update(chunk)
    return digest.hexdigest()


def _digest(array: Tensor) -> str:
    digest = blake2b(digest_size=32)
    for chunk in chunks(portable(array)):
        digest.update(chunk)
    return digest.hexdigest()


def portable(array: Tensor) -> Tensor:
    """Return an array as it is written: contiguous and little-endian."""
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    # ascontiguousarray makes a scalar one-dimensional.
    result: Tensor = little.reshape(array.shape)
    return result


def chunks(array: Tensor) -> Iterator[memoryview]:
    """Return the bytes of a contiguous array, 4 MiB at a time."""
    flat: Any = array.reshape(-1).view(np.uint8)
    return (memoryview(flat[at : at + _CHUNK]) for at in range(0, flat.size, _CHUNK))


def viewed(chunk: Tensor, name: object, shape: Any, what: str) -> Tensor:
    """Return bytes as an array.

    Args:
        chunk: the bytes.
        name: of numpy's or ml_dtypes' type, as :func:`portable` arrays have it.
        shape: of the array.
        what: whose bytes they are, for errors.

    Raises:
        GoldenError: these do not go together.
    """
    sized = isinstance(shape, list | tuple) and all(type(size) is int and size >= 0 for size in shape)
    dtype = _dtype(name) if sized else None
    if dtype is None or math.prod(shape) * dtype.itemsize != chunk.size:
        raise GoldenError(
            f"{what} has {chunk.size} bytes, type {name!r} and shape {shape!r}, which do not go together; "
            f"restore the file from version control"
        )
    view: Tensor = chunk.view(dtype).reshape(shape)
    return view


def _dtype(name: object) -> np.dtype[Any] | None:
    """The type of that name, little-endian; None for what is no plain number (objects, texts, records)."""
    if not isinstance(name, str):
        return None
    if name in SAFETENSORS_NAMES.keys() - {"bfloat16", "float8_e4m3fn", "float8_e5m2"} or name in _COMPLEX:
        little: np.dtype[Any] = np.dtype(name).newbyteorder("<")
        return little
    scalar = getattr(ml_dtypes, name, None)
    return np.dtype(scalar) if isinstance(scalar, type) and issubclass(scalar, np.generic) else None
