"""Tensors in files of their own, which a folder holds in place of a dump: what people and other tools save.

``.pt`` (torch.save), ``.npy``, ``.npz``, ``.safetensors``, and ATB's ``.bin``, which begin with ``$Version``.
A tensor without a name is called after its file; names in a file are layers. Some tools say more by names of
files: SGLang's ``dumper`` and its forward hooks, ``torch.ops.npu.save_npugraph_tensor`` and ATB::

    name=attn_out___rank=0___dump_index=3___step=1___layer_id=2.pt     layer attn_out.layer_id=2
    TP0_PP0_Rank0_pid7/Pass00001.pt                                    a dict of module to tensor
    logits_device_0_1.pt                                               layer logits, device 0, second capture
    data/0_7/1/2_MlpOperation/0_LinearOperation/after/outtensor0.bin   device and process, execution, layers
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections import Counter
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_npudump.dump.arrays.decode import npy_header
from pytest_npudump.dump.columns import IO_ORDER, Execution, TensorPart
from pytest_npudump.dump.dtypes import BY_GE, BY_NAME, dtype_name
from pytest_npudump.dump.filebytes import RawFile, open_raw
from pytest_npudump.dump.files.pt import Stored, members, read_pt, strided
from pytest_npudump.dump.names import DumpFile, Place
from pytest_npudump.dump.records import Payload, TensorKey
from pytest_npudump.dump.stats.tensor import file_stats, with_stats
from pytest_npudump.errors import FormatError, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_npudump.dump.files.formats import Job


_HOOKS = re.compile(r"TP\d+_PP\d+_Rank(\d+)_pid\d+", re.ASCII)
_PASS = re.compile(r"Pass(\d+)", re.ASCII)
_CAPTURED = re.compile(r"(.+)_device_(\d+)(?:_(\d+))?", re.ASCII | re.DOTALL)
_ATB_FILE = re.compile(r"(in|out)tensor(\d+)", re.ASCII)
_ATB_LAYER = re.compile(r"\d+_[A-Za-z].*", re.ASCII | re.DOTALL)
_ATB_DEVICE = re.compile(r"(\d+)_\d+", re.ASCII)
_ATB_START = b"$Version="
_ATB_HEADER = 1 << 12
_SIZE = re.compile(r"\d{1,18}", re.ASCII)
_AXES = 32
_ELEMENTS = 1 << 58
"""Of an array of numpy 1, with elements of 32 bytes at most."""
_SAFETENSORS_LIMIT = 100 << 20
_SAFETENSORS = {
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{
        f"{letter}{bits}": f"{name}{bits}"
        for letter, name in (("I", "int"), ("U", "uint"))
        for bits in (8, 16, 32, 64)
    },
    "BF16": "bfloat16",
    "BOOL": "bool",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}


def read_file(
    job: Job, _table: tuple[TensorPart, ...], *, stats: bool, acl: bool, projections: bool
) -> tuple[list[Execution], list[FormatError]]:
    """Return the executions that a file has the tensors of, and the problems of single ones.

    Raises:
        FormatError: the file is damaged, or holds no tensor.
    """
    path = job.file.path
    found = _READERS[path.suffix](path)
    if not found:
        raise FormatError(path, "it holds no tensor")
    return executions(named(job.file, found), path, stats=stats, acl=acl, projections=projections)


class PlacedTensor(NamedTuple):
    """A tensor and what it is called.

    Attributes:
        place: of its execution.
        number: which in the order of executions.
        key: of the tensor, without what its place tells.
        tensor: where it lies.
    """

    place: Place
    number: int
    key: TensorKey
    tensor: Stored


def executions(
    tensors: Iterable[PlacedTensor], path: Path, *, stats: bool, acl: bool, projections: bool
) -> tuple[list[Execution], list[FormatError]]:
    """Return the executions of tensors of a file, and the problems of single ones.

    Args:
        tensors: in their order.
        path: the file.
        stats: as ``Reader`` has it.
        acl: the same.
        projections: the same.
    """
    problems: list[FormatError] = []
    parts: dict[tuple[Place, int, str, int], list[TensorPart]] = {}
    computed = partial(file_stats, acl=acl, projections=projections)
    for place, number, key, (_names, dtype, shape, payload, said) in tensors:
        nbytes = -(-math.prod(shape) * BY_NAME[dtype].bits // 8)
        problem = said
        if len(shape) > _AXES or math.prod(filter(None, shape)) > _ELEMENTS:
            problem = f"an array of shape {shape} is larger than numpy makes them"
        part = TensorPart(key.io, key.slot, dtype, shape, size=nbytes, payload=payload)
        if problem:
            problems.append(FormatError(path, f"{key}: {problem}"))
            part = part._replace(payload=None)
        elif stats:
            part, failed = with_stats(part, path, computed)
            problems += failed
        parts.setdefault((place, number, key.layer, key.turn), []).append(part)
    found = [
        Execution(place, path, "", layer, True, 0, number, None, tuple(held), turn=turn)  # noqa: FBT003
        for (place, number, layer, turn), held in parts.items()
    ]
    return found, problems


def named(file: DumpFile, found: Sequence[Stored]) -> Iterator[PlacedTensor]:
    """Yield the tensors of a file with what they are called, by the names of the file and in it."""
    path, place, number, stem = file.path, file.place, 0, file.path.stem
    base: TensorKey | None = None
    hooks = _HOOKS.fullmatch(path.parent.name) if _PASS.fullmatch(stem) else None
    pairs = _pairs(stem) if path.suffix == ".pt" else {}
    captured = _CAPTURED.fullmatch(stem) if path.suffix == ".pt" else None
    if hooks:
        place = place._replace(rank=int(hooks[1]), step=int(stem.removeprefix("Pass")), model="")
    elif pairs:
        more = "".join(f".{name}={value}" for name, value in pairs.items() if name not in _KNOWN)
        rank, step, number = (_number(pairs, *names) for names in (("rank",), _STEPS, ("dump_index",)))
        place = place._replace(rank=rank, step=step, model="")
        base = TensorKey(pairs["name"] + more, "output", 0)
        found = [one._replace(names=one.names[1:]) for one in found if one.names[:1] == ("value",)] or found
    elif captured:
        place = place._replace(device=int(captured[2]))
        base = TensorKey(captured[1], "output", 0, int(captured[3] or 0))
    elif path.suffix == ".bin":
        place, base = _atb(path, place)
    elif found and not found[0].names:
        base = TensorKey(stem, "output", 0)
    slots: Counter[str] = Counter()
    numbers: dict[str, int] = {}
    for at, one in enumerate(found):
        key, where = base, place
        text = ".".join(takewhile(lambda name: isinstance(name, str), one.names))  # type: ignore[arg-type]
        if key is None and (key := _key_of(text)) is not None:
            where = place._replace(step=key.step or place.step, rank=max(key.rank, place.rank))
        elif key is None or one.names:
            name = text or stem if key is None else key.layer
            key = TensorKey(name, "output", slots[name], 0 if key is None else key.turn)
            slots[name] += 1
            if base is None and not hooks:  # of several such files each is a model
                where = place._replace(model="/".join(filter(None, (place.model, stem))))
        yield PlacedTensor(where, number or numbers.setdefault(key.layer, at), key, one)


_STEPS = ("step", "curr_step", "forward_pass_id")
_KNOWN = frozenset({"name", "rank", "dump_index", *_STEPS})


def _pairs(stem: str) -> dict[str, str]:
    """Parse a name of SGLang's dumper; nothing for another name."""
    pairs = dict(part.partition("=")[::2] for part in stem.split("___"))
    if pairs.get("recompute_status") == "disabled":  # which newer ones have in each name
        del pairs["recompute_status"]
    return pairs if pairs.get("name") and "rank" in pairs else {}


def _number(pairs: Mapping[str, str], *names: str) -> int:
    text = next((pairs[name] for name in names if name in pairs), "")
    return int(text) if text.isdecimal() and len(text) < 19 else -1  # noqa: PLR2004 - digits of 64 bits


def _key_of(name: str) -> TensorKey | None:
    """Return the key that a name is, as safetensors files of ours have it; None for another name."""
    try:
        key = TensorKey.parse(name)
    except RequestError:
        return None
    return key if key.io in IO_ORDER and not (key.model or key.capture or key.load) else None


def _atb(path: Path, place: Place) -> tuple[Place, TensorKey]:
    """Return the place and key of a tensor of ATB, by its name and folders."""
    direction = _ATB_FILE.fullmatch(path.stem)
    layers: list[str] = []
    folders = [parent.name for parent in path.parents if parent.name not in {"before", "after"}]
    while folders and _ATB_LAYER.fullmatch(folders[0]):
        layers.insert(0, folders.pop(0))
    if direction is None or not layers:
        return place, TensorKey(path.stem, "output", 0)
    step = int(folders.pop(0)) if folders and folders[0].isdecimal() else -1
    device = _ATB_DEVICE.fullmatch(folders[0]) if folders else None
    place = Place(place.run, place.rank, int(device[1]) if device else -1, step=step)
    return place, TensorKey("/".join(layers), f"{direction[1]}put", int(direction[2]))


def _read_npy(path: Path) -> list[Stored]:
    with open_raw(path) as file:
        return [_npy(file, (), 0, file.size)]


def _npy(file: RawFile, names: tuple[str | int, ...], begin: int, size: int) -> Stored:
    header = npy_header(file, begin, size)
    dtype = dtype_name(header.dtype.name)
    if not header.dtype.newbyteorder("<") == header.dtype and header.dtype.itemsize > 1:
        raise file.error(begin, f"elements of {header.dtype.str!r}: save them in the order of this machine")
    strides = [math.prod(header.shape[:at]) for at in range(len(header.shape))]
    if not header.fortran_order:
        strides = [math.prod(header.shape[at + 1 :]) for at in range(len(header.shape))]
    axes = [*zip(header.shape, strides, strict=True)]
    return Stored(names, dtype, header.shape, strided(file.path, dtype, axes, header.offset, header.nbytes))


def _read_npz(path: Path) -> list[Stored]:
    with open_raw(path) as file:
        held = members(file)
        if other := [name for name in held if not name.endswith(".npy")]:
            raise file.error(held[other[0]][0], f"{other[0]}: expected members that numpy.savez writes")
        return [_npy(file, (name.removesuffix(".npy"),), *where) for name, where in held.items()]


def _read_safetensors(path: Path) -> list[Stored]:
    with open_raw(path) as file:
        (length,) = struct.unpack("<Q", file.read(0, 8, "the header's length"))
        if length > _SAFETENSORS_LIMIT:
            raise file.error(0, f"header of {length} bytes, expected at most {_SAFETENSORS_LIMIT}")
        try:
            said = json.loads(file.read(8, length, "the header"))
            said.pop("__metadata__", None)
            found = [_tensor_of(path, name, one, 8 + length, file.size) for name, one in said.items()]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise file.error(8, f"the header is none of safetensors: {error!r}"[:300]) from error
        if sum(one.payload.nbytes for one in found) != file.size - 8 - length:
            raise file.error(8, f"tensors do not take the {file.size - 8 - length} bytes behind the header")
        return found


def _tensor_of(path: Path, name: str, said: Any, start: int, size: int) -> Stored:
    if (kind := said["dtype"]) not in _SAFETENSORS:
        raise FormatError(path, f"{name}: dtype {kind} is not read, only {', '.join(_SAFETENSORS)}", offset=8)
    dtype, (first, last), shape = _SAFETENSORS[kind], said["data_offsets"], tuple(said["shape"])
    if any(type(number) is not int or number < 0 for number in (first, last, *shape)):
        raise ValueError(f"{name}: shape {shape}, bytes {first} to {last}")
    if math.prod(shape) * BY_NAME[dtype].bits // 8 != last - first or start + last > size:
        raise ValueError(f"{name}: {dtype} of shape {shape} in bytes {first} to {last} of {size - start}")
    return Stored((name,), dtype, shape, Payload(path, start + first, last - first))


def _read_atb(path: Path) -> list[Stored]:
    with open_raw(path) as file:
        head = file.read(0, min(file.size, _ATB_HEADER), "the header")
        if not head.startswith(_ATB_START):
            raise file.error(
                0, "no header of ATB; of files of elements alone give npudump --bin float16:1x3x224x224"
            )
        lines, end, _ = head.partition(b"\n$End=1\n")
        if not end:
            raise file.error(0, "the header has no line $End=1: it is truncated or damaged")
        start = len(lines) + len(end)
        said = dict(line.partition("=")[::2] for line in lines.decode("ascii", "replace").splitlines())
        try:
            dtype = BY_GE[int(said["dtype"])].name
            shape = tuple(map(int, filter(None, said["dims"].split(","))))
            nbytes = math.prod(shape) * BY_NAME[dtype].bits // 8
        except (KeyError, ValueError) as error:
            raise file.error(0, f"no dtype and dims of ATB: {error}") from error
        if min((0, *shape)) < 0 or nbytes != file.size - start or BY_NAME[dtype].bits % 8:
            held = file.size - start
            raise file.error(
                start, f"{dtype} of shape {shape} needs {nbytes} bytes, the file has {held} for it"
            )
        return [Stored((), dtype, shape, Payload(path, start, nbytes))]


def raw_bin(path: Path, said: str) -> Stored:
    """Return the tensor of a file of nothing but elements.

    Args:
        path: the file.
        said: its type and shape, such as ``float16:1x3x224x224`` or ``float16:1,3,224,224``.

    Raises:
        FormatError: the file has another size.
        RequestError: ``said`` is no type and shape.
    """
    name, _, sizes = said.partition(":")
    dtype = dtype_name(name)
    words = re.split("[x,]", sizes) if sizes else []
    if dtype not in BY_NAME or not BY_NAME[dtype].bits or not all(map(_SIZE.fullmatch, words)):
        raise RequestError(f"{said!r} is no type and shape, expected such as float16:1x3x224x224")
    shape = tuple(map(int, words))
    nbytes = -(-math.prod(shape) * BY_NAME[dtype].bits // 8)
    with open_raw(path) as file:
        if file.size != nbytes:
            raise file.error(
                0, f"{dtype} of shape {sizes or '()'} takes {nbytes} bytes, the file has {file.size}"
            )
    return Stored((), dtype, shape, Payload(path, 0, nbytes))


_READERS: Mapping[str, Callable[[Path], list[Stored]]] = {
    **dict.fromkeys((".pt", ".pth"), read_pt),
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".safetensors": _read_safetensors,
    ".bin": _read_atb,
}
