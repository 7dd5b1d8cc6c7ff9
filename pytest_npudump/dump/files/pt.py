"""Files of ``torch.save``, read without torch, and without running their content.

Such a file is a zip of a pickle and of what tensors hold, uncompressed: ``{stem}/data.pkl`` and
``{stem}/data/{number}``. The pickle is read by Python's own code for opcodes, those that plain values and
tensors need. It imports nothing, calls nothing but what makes them, and any other name ends the reading.
"""

from __future__ import annotations

import math
import pickle
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from pytest_npudump.dump.dtypes import BY_NAME, dtype_name
from pytest_npudump.dump.filebytes import RawFile, open_raw
from pytest_npudump.dump.records import Payload


class Stored(NamedTuple):
    """A tensor of a file.

    Attributes:
        names: keys of dicts that it is in, outermost first, and indices of lists; none where the file is it.
        dtype, shape, payload: as ``TensorRecord`` has them.
        problem: why its values are not read; "" where they are.
    """

    names: tuple[str | int, ...]
    dtype: str
    shape: tuple[int, ...]
    payload: Payload
    problem: str = ""


_LOCAL_HEADER = struct.Struct("<4s22xHH")
_PICKLE_LIMIT = 1 << 26
_DEPTH, _VALUES = 32, 1 << 18
"""Depth and size of the largest structure of tensors that is read."""


def members(file: RawFile) -> dict[str, tuple[int, int]]:
    """Return the members of a zip: first byte and size by name.

    Raises:
        FormatError: it is no zip, is cut off, or a member is compressed, there twice or damaged.
    """
    found: dict[str, tuple[int, int]] = {}
    try:
        archive = zipfile.ZipFile(file.path)
    except (
        zipfile.BadZipFile,
        NotImplementedError,
        ValueError,
        OverflowError,
        struct.error,
        EOFError,
    ) as error:
        raise file.error(
            0, f"no zip, which torch.save and numpy.savez write, or one that is damaged or cut off: {error}"
        ) from error
    with archive:
        for info in archive.infolist():
            at = info.header_offset
            if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
                reason = (
                    f"{info.filename} is compressed or encrypted: write it with torch.save or numpy.savez"
                )
                raise file.error(at, reason)
            if not 0 <= at <= file.size - _LOCAL_HEADER.size:
                raise file.error(
                    0, f"{info.filename} is said to begin at byte {at} of {file.size}: it is damaged"
                )
            magic, name, extra = _LOCAL_HEADER.unpack(file.read(at, _LOCAL_HEADER.size, info.filename))
            start = at + _LOCAL_HEADER.size + name + extra
            if magic != b"PK\x03\x04" or start + info.file_size > file.size or info.filename in found:
                raise file.error(
                    at, f"{info.filename} is there twice, cut off or without header: it is damaged"
                )
            found[info.filename] = start, info.file_size
        try:
            wrong = archive.testzip()
        except (NotImplementedError, ValueError, RuntimeError, EOFError) as error:
            raise file.error(0, f"a member cannot be read: {error}: it is damaged") from error
    if wrong is not None:
        at = found[wrong][0]
        raise file.error(
            at, f"{wrong}: the checksum is another one: it is damaged, or written without checksums"
        )
    return found


def strided(path: Path, dtype: str, axes: Sequence[tuple[int, int]], first: int, room: int) -> Payload:
    """Return the place of a strided tensor.

    Args:
        path: the file.
        dtype: name of the type of the elements, which take whole bytes.
        axes: size and stride of each axis, in elements.
        first: byte of the file at which the first element lies.
        room: bytes from there on.

    Raises:
        ValueError: it needs more bytes than there are, or its elements overlap.
    """
    width = BY_NAME[dtype].bits // 8
    count = math.prod(size for size, _ in axes)
    extent = 1 + sum((size - 1) * stride for size, stride in axes) if count else 0
    if extent * width > room:
        raise ValueError(f"a tensor needs {extent * width} bytes, its storage has {max(room, 0)}")
    if count > extent:
        raise ValueError("elements of a tensor overlap, as after expand(): save tensor.contiguous()")
    step, plain = 1, True
    for size, stride in reversed(axes):
        plain &= size == 1 or stride == step or not count
        step *= size
    if plain:
        return Payload(path, first, count * width)
    return Payload(path, first, extent * width, "strided", tuple(axes))


def read_pt(path: Path) -> list[Stored]:
    """Return the tensors of a file that ``torch.save`` wrote, in its order.

    Raises:
        FormatError: it is damaged, of torch before 1.6, or holds something that is no tensor or plain value.
    """
    with open_raw(path) as file:
        if file.read(0, 2, "the magic") == b"\x80\x02":
            raise file.error(0, "a pickle of torch before 1.6: load it and torch.save it again")
        held = members(file)
        pickles = [name for name in held if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise file.error(
                None, f"{len(pickles)} members data.pkl, expected one: torch.save did not write it"
            )
        root = pickles[0].removesuffix("data.pkl")
        place = held.get(f"{root}byteorder")
        if place and (order := file.read(*place, "the byte order")) != b"little":
            raise file.error(place[0], f"byte order {order[:20]!r}, expected 'little'")
        at, size = held[pickles[0]]
        if size > _PICKLE_LIMIT:
            raise file.error(at, f"a pickle of {size} bytes, expected at most {_PICKLE_LIMIT}")
        stream = BytesIO(file.read(at, size, "the pickle"))
        try:
            value = _Unpickler(stream, file, held, f"{root}data/").load()
        except (
            *(ValueError, TypeError, LookupError, AttributeError, RecursionError, EOFError),
            *(struct.error, pickle.UnpicklingError),
        ) as error:
            raise file.error(at + stream.tell(), f"the pickle cannot be read: {error}") from error
        left = [_VALUES]
        return [*_tensors(file, value, (), left)]


def _tensors(file: RawFile, value: object, names: tuple[str | int, ...], left: list[int]) -> Iterator[Stored]:
    left[0] -= 1
    if len(names) > _DEPTH or left[0] < 0:
        raise file.error(None, "a structure without end, or of more than 262,144 values")
    if isinstance(value, _Pickled):
        quantised = _QUANTISED if value.dtype.startswith(("qint", "quint")) else ""
        yield Stored(names, value.dtype, value.shape, value.payload, quantised)
    elif isinstance(value, (dict, list, tuple)):
        keys: Iterable[str | int] = map(str, value) if isinstance(value, dict) else range(len(value))
        for key, inner in zip(keys, value.values() if isinstance(value, dict) else value, strict=True):
            yield from _tensors(file, inner, (*names, key), left)


@dataclass(frozen=True, slots=True)
class _Name:
    """A name that a pickle wants to import: ``torch FloatStorage``.

    Called by a pickle, it gives what :func:`_made` makes of it.
    """

    text: str
    path: Path

    def __call__(self, *arguments: Any) -> object:
        return _made(self.path, self.text, arguments)


@dataclass(frozen=True, slots=True)
class _Storage:
    dtype: str
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class _Pickled:
    dtype: str
    shape: tuple[int, ...]
    payload: Payload


_STORAGES = {
    "torch.storage UntypedStorage": "",
    **{
        f"torch {name}Storage": dtype
        for name, dtype in (
            *(("Float", "float32"), ("Half", "float16"), ("Double", "float64"), ("BFloat16", "bfloat16")),
            *(("Long", "int64"), ("Int", "int32"), ("Short", "int16"), ("Char", "int8"), ("Byte", "uint8")),
            *(("Bool", "bool"), ("ComplexFloat", "complex64"), ("ComplexDouble", "complex128")),
            *(("QInt8", "qint8"), ("QUInt8", "quint8"), ("QInt32", "qint32")),
        )
    },
}
_TENSORS = {
    *(f"torch._utils _rebuild_tensor{version}" for version in ("", "_v2", "_v3")),
    "torch._utils _rebuild_qtensor",
    "torch_npu.utils.storage _rebuild_npu_tensor",
}
_QUANTISED = "a quantised tensor, whose scale is not read: save its dequantize()"
_TYPED = 6
"""Position of the type in ``_rebuild_tensor_v3``'s arguments."""
_OPCODE_NAMES = (
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINBYTES", "SHORT_BINBYTES", "BINUNICODE"),
    *("SHORT_BINUNICODE", "BINUNICODE8", "NONE", "NEWTRUE", "NEWFALSE", "EMPTY_DICT", "EMPTY_LIST"),
    *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "POP", "APPEND", "APPENDS", "SETITEM"),
    *("SETITEMS", "BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET", "MARK", "GLOBAL"),
    *("STACK_GLOBAL", "BINPERSID", "REDUCE", "NEWOBJ", "BUILD", "PROTO", "FRAME", "STOP"),
)
"""Opcodes that torch.save writes of tensors and plain values; those of any other are not even read."""
_OPCODES = {
    code: pickle._Unpickler.dispatch[code]  # noqa: SLF001 - in C the table of opcodes cannot be replaced
    for code in (getattr(pickle, name)[0] for name in _OPCODE_NAMES)
}


class _Opcodes(dict[int, Any]):
    """Action for each of these opcodes, by its byte."""

    def __missing__(self, code: int) -> Any:
        raise ValueError(
            f"opcode {bytes([code])!r}, which torch.save does not write for tensors and plain values"
        )


class _Unpickler(pickle._Unpickler):  # noqa: SLF001 - the same
    """Unpickler of plain values, tensors, and names that nothing is done with.

    Args:
        file: what the pickle is in.
        held: members of the zip.
        root: what those begin with that tensors lie in.
    """

    stack: list[Any]

    def __init__(
        self, stream: BytesIO, file: RawFile, held: Mapping[str, tuple[int, int]], root: str
    ) -> None:
        super().__init__(stream)
        self._path, self._held, self._root = file.path, held, root

    def find_class(self, module: str, name: str) -> _Name:
        return _Name(f"{module} {name}", self._path)

    def persistent_load(self, pid: Any) -> _Storage:
        kind, type_, key, _location, count = pid
        dtype = _STORAGES.get(type_.text)
        if kind != "storage" or dtype is None:
            raise ValueError(f"a storage of {type_.text}, which is not known")
        offset, nbytes = self._held[f"{self._root}{key}"]
        if not isinstance(count, int) or count * (BY_NAME[dtype].bits // 8 if dtype else 1) > nbytes:
            raise ValueError(
                f"storage {key} needs {count} elements of {dtype or 'bytes'}, has {nbytes} bytes"
            )
        return _Storage(dtype, offset, nbytes)

    def load_build(self) -> None:
        """Drop attributes of an OrderedDict, which are no tensors."""
        self.stack.pop()
        if not isinstance(self.stack[-1], dict):
            raise TypeError("attributes of what is no OrderedDict")

    dispatch = _Opcodes(
        _OPCODES | {pickle.BUILD[0]: load_build, pickle.NEWOBJ[0]: _OPCODES[pickle.REDUCE[0]]}
    )


def _made(path: Path, function: str, arguments: tuple[Any, ...]) -> object:
    """Return the result of calling what ``function`` names, where that is a tensor or a plain value.

    Raises:
        ValueError: it is anything else, or a tensor beyond its storage.
    """
    if function in _TENSORS:
        storage, offset, sizes, strides, *_ = arguments
        dtype = (
            dtype_name(arguments[_TYPED].text.removeprefix("torch ")) if not storage.dtype else storage.dtype
        )
        if any(isinstance(one, dict) and (one.get("conj") or one.get("neg")) for one in arguments):
            raise ValueError("a view with pending conj() or neg(): save its resolve_conj().resolve_neg()")
        axes = [*zip(sizes, strides, strict=True)]
        numbers = (offset, *(number for axis in axes for number in axis))
        if any(type(number) is not int or not 0 <= number < 1 << 63 for number in numbers):
            raise ValueError(f"shape {sizes}, strides {strides}, offset {offset}")
        if dtype not in BY_NAME or BY_NAME[dtype].bits % 8:
            raise ValueError(f"a tensor of {dtype}, which is not known")
        begin = offset * BY_NAME[dtype].bits // 8
        payload = strided(path, dtype, axes, storage.offset + begin, storage.nbytes - begin)
        return _Pickled(dtype, tuple(sizes), payload)
    if function == "torch._utils _rebuild_parameter" and isinstance(arguments[0], _Pickled):
        return arguments[0]
    if function == "collections OrderedDict":
        return dict(*arguments)
    if function in {"torch Size", "torch device"}:
        return arguments[0]
    raise ValueError(f"{function} is neither a tensor nor a plain value, and is not run")
