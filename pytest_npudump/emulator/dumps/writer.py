"""Dump files: header length, ``DumpData`` header, payload, where CANN writes them and under its names.

Names: ``OpDumpTask::DumpPath`` (hicann/runtime ``dump_task.cpp``); files: adump's ``file_utils.cpp``.

Statistics are in the text that CANN's device-side dump code prints. The default set follows
``OpDumpTask::ProcessDumpStats`` and ``DataStats`` (hicann/runtime, ``dump_task.cpp`` and ``dump_task.h``); a
set chosen with ``dump_stats`` follows the layout of the host-side converter (``adx_dump_record.cpp``), whose
operator on the device is not public: where it would fail for a type is not known, and types that numpy
cannot compute with are written as failed (``NA``).
"""

from __future__ import annotations

import errno
import math
import os
import struct
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.config.cann import STATISTICS
from pytest_npudump.dump.dtypes import DType, is_of_numpy
from pytest_npudump.dump.names import libstdcxx_hash
from pytest_npudump.dump.records import sanitise

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_npudump.onnxmodels.tensor_types import Tensor

    Array = np.ndarray[Any, np.dtype[Any]]


DEFAULT_MASK = 0x3F

_BASE = "Input/Output,Index,Data Size,Data Type,Format,Shape"
_COLUMNS = (
    "Max Value",
    "Min Value",
    "Avg Value",
    "Nan Count",
    "Negative Inf Count",
    "Positive Inf Count",
    "l2norm",
)
_COUNT_AFTER = 3
_EPSILON = sys.float_info.epsilon
_SMALLEST = math.ulp(0.0)
_BLOCK = 1024
"""Values that are added up at once, to know the sum of the first ones as well."""
_LAST_NAMED_TYPE = 25
_UNNAMED_ON_HOST = {"complex32", "hifloat4", "hifloat4_scale"}
_COMPUTED = {
    "float32",
    "float16",
    "float64",
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}
_COMPUTED_ON_HOST = _COMPUTED - {"float64"} | {"bfloat16", "float8_e5m2", "float8_e4m3fn"}


def mask(names: Iterable[str]) -> int:
    """Return the bit mask of ``dump_stats`` names."""
    return sum(1 << STATISTICS.index(name) for name in set(names))


def csv(inputs: Sequence[Tensor], outputs: Sequence[Tensor], items: int = DEFAULT_MASK) -> str:
    """Return the file's text: a header, the inputs, the outputs; ``items`` is the mask of statistics."""
    custom = items != DEFAULT_MASK
    columns = *_COLUMNS[:_COUNT_AFTER], "Count", *_COLUMNS[_COUNT_AFTER:-1]
    if custom:
        columns = "Count", *(name for bit, name in enumerate(_COLUMNS) if items >> bit & 1)
    lines = [",".join((_BASE, *columns))]
    for io, tensors in (("Input", inputs), ("Output", outputs)):
        for index, tensor in enumerate(tensors):
            shape = "x".join(map(str, tensor.shape)) or "-"
            name = f"DT_{tensor.dtype.cann}"
            if tensor.dtype.name in _UNNAMED_ON_HOST if custom else tensor.dtype.proto > _LAST_NAMED_TYPE:
                name = "UNKNOW" if custom else "-"
            cells = _custom_cells(tensor, items) if custom else _default_cells(tensor)
            lines.append(f"{io},{index},{tensor.nbytes},{name},ND,{shape},{cells}")
    return "\n".join(lines) + "\n"


def _default_cells(tensor: Tensor) -> str:
    if tensor.dtype.name not in _COMPUTED or not tensor.nbytes:
        return "," * 6
    values = _as_numbers(tensor)
    if (bounds := _finite_bounds(values)) is not None:
        largest, smallest = bounds
        nans = negative = positive = 0
        mean = running_mean(values, *bounds)
    else:
        largest, smallest = _extremes(values)
        nans, negative, positive = _specials(values)
        mean = _special_mean(values, negative, positive)
    head = f"{_number(largest)},{_number(smallest)},{_number(mean)}"
    return f"{head},{values.size},{nans},{negative},{positive}"


def _finite_bounds(values: Array) -> tuple[Any, Any] | None:
    """Return maximum and minimum as :func:`_extremes` does, None where a value is infinite or NaN."""
    with np.errstate(invalid="ignore"):  # signalling NaNs
        largest, smallest = values.max(), values.min()
    if values.dtype.kind in "iub":
        return largest, smallest
    if not (math.isfinite(largest) and math.isfinite(smallest)):
        return None
    return _first_equal(values, largest), _first_equal(values, smallest)


def _special_mean(values: Array, negative: int, positive: int) -> float:
    """Mean of values that are not all finite: an infinity of one sign decides, else it is NaN.

    The NaN is the first one of the tensor, with its sign, unless the infinities made one before it.
    """
    if bool(negative) != bool(positive):
        return math.inf if positive else -math.inf
    missing, infinite = np.isnan(values), np.isinf(values)
    first = int(np.argmax(missing)) if missing.any() else values.size
    if first == values.size or (infinite.any() and first > int(np.argmax(infinite)) + 1):
        return math.nan
    return float(values[first])


def _custom_cells(tensor: Tensor, items: int) -> str:
    """Cells of the host converter: Count first, no Count at all where the operator failed."""
    if tensor.dtype.name not in _COMPUTED_ON_HOST or not tensor.nbytes:
        return ",".join(["NA"] * items.bit_count())
    values = _as_numbers(tensor)
    nans, negative, positive = _specials(values)
    with np.errstate(over="ignore", invalid="ignore"):
        wide = values.astype(np.float64)
        mean, norm = np.float32(wide.mean()), np.float32(math.sqrt(float(np.dot(wide, wide))))
    largest, smallest = (_host_extreme(tensor.dtype, value) for value in _extremes(values))
    cells = (largest, smallest, _number(mean), str(nans), str(negative), str(positive), _number(norm))
    return ",".join((str(math.prod(tensor.shape)), *(c for bit, c in enumerate(cells) if items >> bit & 1)))


def _host_extreme(dtype: DType, value: Any) -> str:
    """Print a maximum as the host does: any integer but INT64 by its low 32 bits, signed."""
    if dtype.kind == "float" or dtype.name == "int64":
        return _number(value)
    low = int(value) & 0xFFFFFFFF
    return str(low - (1 << 32) if low >> 31 else low)


def _as_numbers(tensor: Tensor) -> Array:
    """Return the elements; bools as the bytes they are, types that numpy lacks as float32."""
    if tensor.dtype.name == "bool":
        return tensor.data.view(np.uint8)
    return tensor.data if is_of_numpy(tensor.data.dtype) else tensor.data.astype(np.float32)


def _specials(values: Array) -> tuple[int, int, int]:
    if values.dtype.kind in "iub":
        return 0, 0, 0
    infinite = np.isinf(values)
    positive = int(np.count_nonzero(infinite & (values > 0)))
    return int(np.count_nonzero(np.isnan(values))), int(np.count_nonzero(infinite)) - positive, positive


def _extremes(values: Array) -> tuple[Any, Any]:
    """Maximum and minimum by ordinary comparisons from element 0: a NaN counts only there."""
    if (bounds := _finite_bounds(values)) is not None:
        return bounds
    first = values[0]
    missing = np.isnan(values)
    if missing[0]:
        return first, first
    seen = np.where(missing, first, values) if missing.any() else values
    return _first_equal(seen, seen.max()), _first_equal(seen, seen.min())


def _first_equal(values: Array, extreme: Any) -> Any:
    """Return the extreme as it occurs first: of 0 and -0, which are equal, the earlier one stays."""
    return extreme or values[np.argmax(values == 0)]


def running_mean(values: Array, largest: Any, smallest: Any) -> float:
    """Mean as the device computes it: ``mean += (x - mean) / n`` in double, element by element.

    That loop is slow here, so its order is followed only where it can show in six digits: where the errors of
    both ways to the mean leave more than one text possible. ``values`` must be finite, and lie between
    ``smallest`` and ``largest``.
    """
    magnitude = max(abs(float(largest)), abs(float(smallest)))
    if not magnitude:
        return 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        mean, bound = _fast_mean(values, magnitude)
    bound += _SMALLEST * values.size  # what is rounded below the normal numbers
    if math.isfinite(mean) and math.isfinite(bound) and f"{mean - bound:g}" == f"{mean + bound:g}":
        return mean
    mean = 0.0
    for count, value in enumerate(values.tolist(), 1):
        mean += (value - mean) / count
    return mean


def _fast_mean(values: Array, magnitude: float) -> tuple[float, float]:
    """Return the mean, and how far the device's loop may be from it.

    What the loop rounds in step ``k`` of ``n``, at most ``eps`` times ``|mean_k| + 4 * max(|x|) / k``, counts
    only ``k / n`` in the end: ``sum(|S_k|) / n + 4 * max(|x|)`` times ``eps``. ``S_k``, the sum of the first
    ``k`` values, is at most that of the whole blocks before it and a block of the largest value. numpy's own
    sums add less than ``32 * max(|x|)`` times ``eps``.
    """
    size = values.size
    if size <= _BLOCK:
        return float(values.sum(dtype=np.float64)) / size, 4 * _EPSILON * size * magnitude
    whole = size - size % _BLOCK
    sums = np.cumsum(values[:whole].reshape(-1, _BLOCK).sum(axis=1, dtype=np.float64))
    total = float(sums[-1]) + float(values[whole:].sum(dtype=np.float64))
    before = float(np.abs(sums).sum()) * (_BLOCK / size)
    return total / size, 2 * _EPSILON * (before + magnitude * (_BLOCK + 64))


def _number(value: Any) -> str:
    """Print as an ``ostringstream`` does: integers in full, floats with 6 digits, a NaN with its sign."""
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if math.isnan(value):
        return "-nan" if np.signbit(value) else "nan"
    return format(float(value), "g")


NO_OFFSET = 2**64 - 1
"""``offset`` of a tensor of a single operator."""
_CHUNKS = 1024
"""``IOV_MAX`` of Linux: how many chunks one call takes."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One tensor of a dump file, as the header describes it.

    Attributes:
        tensor: type, shape and bytes.
        address: address on the device; 0 leaves the field out, as for a tensor without memory.
        offset: the task's offset for it; 0 leaves the field out.
        format: CANN's number of the layout.
        original_shape: shape before layout conversion; the same shape where None.
    """

    tensor: Tensor
    address: int
    offset: int = 0
    format: int = 2
    original_shape: tuple[int, ...] | None = None


def encode_header(time: int, op_name: str, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> bytes:
    """Serialize ``DumpData`` as the device's writer does: outputs before inputs, empty shapes present.

    ``time`` is in microseconds since the epoch; ``op_name`` is raw.
    """
    from pytest_npudump.dump.files.container import dump_data_class  # noqa: PLC0415 - of tensors only

    message: Any = dump_data_class()(version="2.0", dump_time=time, op_name=op_name)
    for repeated, side in ((message.output, outputs), (message.input, inputs)):
        for slot in side:
            field, tensor = repeated.add(), slot.tensor
            field.data_type, field.format, field.size = tensor.dtype.proto, slot.format, tensor.nbytes
            field.address, field.offset = slot.address, slot.offset
            original = tensor.shape if slot.original_shape is None else slot.original_shape
            for written, dims in ((field.shape, tensor.shape), (field.original_shape, original)):
                written.SetInParent()
                written.dim.extend(dims)
    return bytes(message.SerializeToString(deterministic=True))


def prefix(header: bytes) -> bytes:
    """Return the part before the payload: the header's length as u64 little-endian, and the header."""
    return struct.pack("<Q", len(header)) + header


class Clock:
    """Microseconds since the epoch, never the same twice."""

    def __init__(self) -> None:
        self._last = 0
        self._lock = threading.Lock()

    def __call__(self) -> int:
        """Return the present time, or one more than the last answer where that is later."""
        with self._lock:
            self._last = max(self._last + 1, time.time_ns() // 1000)
            return self._last


@dataclass(frozen=True, slots=True)
class TaskFile:
    """One operator's dump.

    Attributes:
        op_type, op_name: raw.
        task, stream: ids.
        inputs, outputs: its tensors.
        statistics: mask of the statistics to write; 0 for full tensors.
    """

    op_type: str
    op_name: str
    task: int
    stream: int
    inputs: Sequence[Slot]
    outputs: Sequence[Slot]
    statistics: int = 0


def write(directory: str, file: TaskFile, timestamp: int) -> bool:
    """Write one operator's file below ``directory``, which is created with its parents.

    Nothing is written where no tensor holds a byte (``OpDumpTask``, ``no data need to dump``).

    Returns:
        Whether there was anything to write.
    """
    slots = (*file.inputs, *file.outputs)
    if not any(slot.tensor.nbytes for slot in slots):
        return False
    name = f"{sanitise(file.op_type)}.{sanitise(file.op_name)}.{file.task}.{file.stream}.{timestamp}"
    content: list[bytes | memoryview]
    if file.statistics:
        tensors = [[slot.tensor for slot in side] for side in (file.inputs, file.outputs)]
        name, content = f"{name}.csv", [csv(tensors[0], tensors[1], file.statistics).encode()]
    else:
        header = encode_header(timestamp, file.op_name, file.inputs, file.outputs)
        payload = (slot.tensor.data.view(np.uint8).data for slot in slots if slot.tensor.nbytes)
        content = [prefix(header), *payload]
    path = f"{directory}/{name}"
    try:
        append(path, content)
    except FileNotFoundError:
        os.makedirs(directory, exist_ok=True)  # noqa: PTH103 - the path keeps its double slash
        append(path, content)
    return True


def append(path: str, chunks: Iterable[bytes | memoryview], *, hashed: str | None = None) -> str:
    """Append to ``path``, created with mode 0600, and return the path of the file.

    A name the file system finds too long is replaced by the hash of ``hashed``, which is the whole path where
    it is None, and ``mapping.csv`` beside it tells which name it stands for.
    """
    try:
        descriptor = _open(path)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        directory, _, name = path.rpartition("/")
        short = str(libstdcxx_hash((hashed or path).encode("utf-8", "surrogateescape")))
        append(f"{directory}/mapping.csv", [f"{short},{name}\n".encode("utf-8", "surrogateescape")])
        path = f"{directory}/{short}"
        descriptor = _open(path)
    try:
        left = deque(memoryview(chunk) for chunk in chunks if len(chunk))
        while left:
            written = os.writev(descriptor, [*islice(left, _CHUNKS)])
            while left and written >= len(left[0]):
                written -= len(left.popleft())
            if written:
                left[0] = left[0][written:]
    finally:
        os.close(descriptor)
    return path


def _open(path: str) -> int:
    if "\0" in path:
        raise OSError(errno.EINVAL, "an operator's name with a NUL byte makes no file name", path)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def folder_above(root: str) -> str:
    """Return the folder that the ``dump_path`` of such a directory is in."""
    return os.path.dirname(os.path.dirname(root[:-1]))  # noqa: PTH120 - a text, as adump has it


def data_directory(dump_path: str, now: float) -> str:
    """Return adump's directory for a configuration set at ``now``: ``{dump_path}/{YYYYmmddHHMMSS}/``."""
    stamp = time.strftime("%Y%m%d%H%M%S", time.localtime(now))
    return f"{PurePosixPath(os.path.abspath(dump_path))}/{stamp}/"  # noqa: PTH100 - a text, as adump has it
