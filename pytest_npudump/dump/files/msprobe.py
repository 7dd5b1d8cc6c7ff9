"""Dumps of msprobe's ``PrecisionDebugger``, of torch and of MindSpore.

``dump.json`` has, by the name of a call, statistics of its tensors, nested as they were handed over, and in
``data_name`` the files of ``dump_tensor_data`` that hold them. ``md5`` is a CRC-32. Names of calls::

    Module.block.fc.Linear.forward.1      layer block.fc, type Linear, turn 1 (MindSpore: Cell)
    Module.block.fc.Linear.backward.0     layer block.fc.backward
    Module.block.fc.Linear.parameters_grad.0   layers block.fc.weight.grad, block.fc.bias.grad
    Functional.linear.2.forward           layer Functional.linear, type linear, turn 2

Parameters of a module are outputs of layers ``block.fc.weight``. A slot is the place of an argument; where
that is a list or a dict, each tensor in it has a slot. ``stack.json`` has the lines that called.
"""

from __future__ import annotations

import json
import math
import re
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from pytest_npudump.dump.arrays.decode import read_npy_header
from pytest_npudump.dump.columns import Execution, TensorPart, with_projections_of
from pytest_npudump.dump.dtypes import dtype_name, is_exact
from pytest_npudump.dump.files.pt import read_pt
from pytest_npudump.dump.names import MSPROBE, MSPROBE_TENSORS, PARAMETER
from pytest_npudump.dump.records import Payload, Stats, TensorKey
from pytest_npudump.dump.stats.tensor import file_stats, with_stats
from pytest_npudump.errors import FormatError
from pytest_npudump.storage.regular_file import read_small

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pytest_npudump.dump.files.formats import Job

    _Told = tuple[str, str, int, Mapping[str, Any]]
    """Layer, direction, slot and description of a tensor."""

_MODULE = re.compile(
    r"(?:Module|Cell)\.(?P<layer>.+)\.(?P<type>[^.]+)\.(?P<way>forward|backward|parameters_grad)(?:\.(?P<call>\d{1,9}))?",
    re.ASCII | re.DOTALL,
)
_API = re.compile(
    r"(?P<layer>(?:.+\.)?(?P<type>[^.]+))\.(?P<call>\d{1,9})\.(?P<way>forward|backward)", re.ASCII | re.DOTALL
)
_STATISTICS = {"Max": "max", "Min": "min", "Mean": "avg", "Norm": "l2norm"}
_DIRECTIONS = (
    *(("input_args", "input"), ("input_kwargs", "input"), ("input", "input"), ("output", "output")),
)
_HASHES = {8: "crc32", 32: "md5"}
"""Kinds of hashes, by their hexadecimal digits."""
_WIDENED = frozenset({"bfloat16", "float8_e4m3fn", "float8_e5m2", "hifloat8"})
"""Types that MindSpore's tensors are stored as float32 of."""
_DEPTH = 64
_DIM_LIMIT = 1 << 63


def read_file(
    job: Job, _table: tuple[TensorPart, ...], *, stats: bool, acl: bool, projections: bool
) -> tuple[list[Execution], list[FormatError]]:
    """Read the executions of a ``dump.json``, and the problems of single tensors.

    What msprobe computed stands; statistics of a tensor that it left out are computed from its file.

    Raises:
        FormatError: the file is damaged.
    """
    path, place = job.file.path, job.file.place._replace(counted=True)
    data = _read_json(path).get("data")
    if not isinstance(data, dict):
        raise FormatError(path, "no object data of calls, which msprobe's PrecisionDebugger writes")
    problems: list[FormatError] = []
    computed = partial(file_stats, acl=acl, projections=projections)
    executions: list[Execution] = []
    for number, (name, said) in enumerate(data.items()):
        layer, op_type, turn = call_of(name)
        try:
            found: dict[str, list[_Told]] = {}
            for told in _tensors_of(layer, said):
                found.setdefault(told[0], []).append(told)
            for of, slots in found.items():
                parts = []
                for _of, io, slot, tensor in slots:
                    part, data_name = _part(io, slot, tensor)
                    if data_name:
                        part, failed = _with_tensor(part, path.parent / MSPROBE_TENSORS, data_name)
                        problems += failed
                    if stats and part.payload is not None and (part.stats is None or projections):
                        own, failed = with_stats(part, part.payload.path, computed)
                        problems += failed
                        known = part.stats
                        both = own.stats if known is None else with_projections_of(known, own.stats)
                        part = own._replace(stats=both)
                    parts.append(part)
                kind, order = op_type, 2 * number + 1
                if of != layer:  # parameters stand before the call that reads them
                    kind, order = ("Gradient" if layer.endswith(".grad") else PARAMETER), 2 * number
                executions.append(
                    Execution(place, path, kind, of, True, 0, order, None, tuple(parts), turn=turn)  # noqa: FBT003
                )
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
            at = read_small(path).find(json.dumps(name).encode())
            raise FormatError(path, f"{name}: {error}", offset=at if at >= 0 else None) from error
    return executions, problems


def _read_json(path: Path) -> dict[str, Any]:
    text = read_small(path)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        at = len(text.decode("utf-8", "replace")[: getattr(error, "pos", 0)].encode())
        raise FormatError(path, f"no JSON: {error}: it is truncated or damaged", offset=at) from error
    if not isinstance(found, dict):
        raise FormatError(path, "a JSON file without an object", offset=0)
    return found


def call_of(name: str) -> tuple[str, str, int]:
    """Return layer, type and turn of a call."""
    found = _MODULE.fullmatch(name) or _API.fullmatch(name)
    if found is None:
        return name, "", 0
    way = {"forward": "", "backward": ".backward", "parameters_grad": ".grad"}[found["way"]]
    return f"{found['layer']}{way}", found["type"], int(found["call"] or 0)


def _tensors_of(layer: str, said: Mapping[str, Any]) -> Iterator[_Told]:
    """Yield layer, direction, slot and description of each tensor of a call."""
    if layer.endswith(".grad"):
        for name, value in said.items():
            of = f"{layer.removesuffix('.grad')}.{name}.grad"
            yield from ((of, "output", slot, one) for slot, one in enumerate(_leaves(value)))
        return
    slots = {"input": 0, "output": 0}
    for key, io in _DIRECTIONS:
        values = said.get(key) or []
        if not isinstance(values, (dict, list)):
            raise TypeError(f"{key} is {values!r:.40}, expected a list or an object")
        for value in map(values.get, sorted(values)) if isinstance(values, dict) else values:
            inside = [*_leaves(value)]
            yield from ((layer, io, slots[io] + at, one) for at, one in enumerate(inside))
            slots[io] += max(len(inside), 1)
    for name, value in (said.get("parameters") or {}).items():
        yield from ((f"{layer}.{name}", "output", slot, one) for slot, one in enumerate(_leaves(value)))


def _leaves(value: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield the descriptions of tensors in a value."""
    if depth > _DEPTH:
        raise ValueError(f"arguments nested deeper than {_DEPTH}")
    if isinstance(value, dict) and "dtype" in value and "shape" in value:
        yield value
    elif isinstance(value, (dict, list)):
        # As modules are captured: in whatever order a dict was filled.
        for inner in map(value.get, sorted(value)) if isinstance(value, dict) else value:
            yield from _leaves(inner, depth + 1)


def _part(io: str, slot: int, said: Mapping[str, Any]) -> tuple[TensorPart, str]:
    """Return a tensor as ``dump.json`` describes it, and the name of its file; "" where it has none.

    Raises:
        ValueError: it is described in another way.
    """
    type_, shape = said["dtype"], said["shape"]
    if not isinstance(type_, str):
        raise TypeError(f"{io} {slot}: dtype {type_!r}")
    dtype = dtype_name(type_.rpartition(".")[2].removesuffix("Tensor"))
    if not isinstance(shape, list) or any(type(dim) is not int or not 0 <= dim < _DIM_LIMIT for dim in shape):
        raise ValueError(f"{io} {slot}: shape {shape!r}")
    values = {field: _number(said.get(name), dtype) for name, field in _STATISTICS.items()}
    known = any(value is not None for value in values.values())
    stats = Stats(count=math.prod(shape), **values) if known else None  # type: ignore[arg-type]
    digest = said.get("md5") or ""
    if digest and not (isinstance(digest, str) and digest.isalnum() and digest.isascii()):
        raise ValueError(f"{io} {slot}: md5 {digest!r}")
    digest = digest and f"{_HASHES.get(len(digest), 'checksum')}:{digest.lower()}"
    name = said.get("data_name") or ""
    if not isinstance(name, str) or "/" in name or "\0" in name:
        raise ValueError(f"{io} {slot}: data_name {name!r} is no file beside")
    return TensorPart(io, slot, dtype, tuple(shape), stats=stats, digest=digest), name


def _number(value: object, dtype: str) -> float | int | None:
    """Return a statistic: a whole number of an exact type as such, as msprobe makes some of them floats."""
    if value is None:
        return None
    if not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is no number")
    if not is_exact(dtype):
        return float(value)
    return int(value) if isinstance(value, int) or value.is_integer() else value


def _with_tensor(part: TensorPart, folder: Path, name: str) -> tuple[TensorPart, list[FormatError]]:
    """Return a tensor with where its elements lie, or what is wrong with its file."""
    path = folder / name
    try:
        if name.endswith(".npy"):
            header = read_npy_header(path)
            dtype, shape = dtype_name(header.dtype.name), header.shape
            payload = Payload(path, header.offset, header.nbytes, "npy")
            fits = dtype == part.dtype or (dtype == "float32" and part.dtype in _WIDENED)
        else:
            ((_names, dtype, shape, payload, problem),) = read_pt(path)
            if problem:
                raise FormatError(path, problem)  # noqa: TRY301 - as readers raise
            fits = dtype == part.dtype
        if not fits or shape != part.shape:
            said = f"{dtype} of shape {shape}, {MSPROBE} says {part.dtype} of shape {part.shape}"
            raise FormatError(path, f"{said}: another run wrote one of the two")  # noqa: TRY301 - as readers raise
    except FormatError as error:
        return part, [error]
    except ValueError:
        return part, [FormatError(path, "expected one tensor")]
    return part._replace(payload=payload, size=payload.nbytes), []


@lru_cache(maxsize=8)
def _stacks(folder: Path) -> Mapping[tuple[str, int], tuple[str, ...]]:
    """Return the lines of the stack of each call, by layer and turn; none without the file.

    Raises:
        FormatError: it cannot be read.
    """
    path = folder / "stack.json"
    if not path.exists():
        return {}
    said = _read_json(path)
    try:
        return {call_of(name)[::2]: tuple(lines) for names, lines in said.values() for name in names}
    except (ValueError, TypeError, AttributeError) as error:
        raise FormatError(path, f"holds no stacks of calls: {error}") from error


_FRAME = re.compile(
    r"File (?P<path>.+), line (?P<line>\d+), in (?P<function>.+?), \s*(?P<code>.*)", re.DOTALL
)
_LIBRARY = re.compile(r"/(?:torch|torch_npu|mindspore|msprobe)/")


def source_line(path: Path, key: TensorKey) -> str:
    """Return the line of a program that called a layer, ``net.py:15 in forward: y = fc(x)``; "" if unknown.

    Args:
        path: of the tensor's record, a ``dump.json`` or a file of a tensor.
        key: of the tensor.

    Raises:
        FormatError: the file of the stacks cannot be read.
    """
    folder = path.parent.parent if path.parent.name == MSPROBE_TENSORS else path.parent
    stacks, parent = _stacks(folder), key.layer.rpartition(".")[0]  # of a parameter, its module
    for line in stacks.get((key.layer, key.turn), stacks.get((parent, key.turn), ())):
        frame = _FRAME.fullmatch(line) if isinstance(line, str) and not _LIBRARY.search(line) else None
        if frame is not None:
            return f"{frame['path']}:{frame['line']} in {frame['function']}: {frame['code'].strip()}"
    return ""
