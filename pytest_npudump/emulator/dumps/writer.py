"""Dump files: header length, ``DumpData`` header, payload, where CANN writes them and under its names.

Names: ``OpDumpTask::DumpPath`` (hicann/runtime ``dump_task.cpp``); files: adump's ``file_utils.cpp``.
"""

from __future__ import annotations

import errno
import os
import struct
import threading
import time
from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.dump.files.container import dump_data_class
from pytest_npudump.dump.records import sanitise
from pytest_npudump.emulator.dumps import stats_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_npudump.onnxmodels.tensor_types import Tensor

    _Described = tuple[tuple[int, int, int, int, int], tuple[int, ...], tuple[int, ...]]

_KEPT = 4096
"""How many headers are kept, but for the time in them."""
NO_OFFSET = 2**64 - 1
"""``offset`` of a tensor of a single operator."""
_MASK = (1 << 64) - 1
_MULTIPLIER = 0xC6A4A7935BD1E995
_SEED = 0xC70F6907
_SHIFT = 47
_WORD = 8
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

    def described(self) -> _Described:
        """Return what the header says of it: type, layout, size, address and offset; both shapes."""
        tensor = self.tensor
        numbers = tensor.dtype.proto, self.format, tensor.nbytes, self.address, self.offset
        return numbers, tensor.shape, tensor.shape if self.original_shape is None else self.original_shape


def encode_header(time: int, op_name: str, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> bytes:
    """Serialize ``DumpData`` as the device's writer does: outputs before inputs, empty shapes present.

    ``time`` is in microseconds since the epoch; ``op_name`` is raw.
    """
    kinds = ([slot.described() for slot in side] for side in (inputs, outputs))
    # The fields that come first: the version and the time, which differs from file to file.
    beginning: bytes = dump_data_class()(version="2.0", dump_time=time).SerializeToString()
    return beginning + _rest(op_name, *map(tuple, kinds))


@lru_cache(_KEPT)
def _rest(op_name: str, inputs: tuple[_Described, ...], outputs: tuple[_Described, ...]) -> bytes:
    """Serialize the fields behind the time, which are the same in every run of a model."""
    message: Any = dump_data_class()(op_name=op_name)
    for repeated, side in ((message.output, outputs), (message.input, inputs)):
        for numbers, *shapes in side:
            field = repeated.add()
            field.data_type, field.format, field.size, field.address, field.offset = numbers
            for written, dims in zip((field.shape, field.original_shape), shapes, strict=True):
                written.SetInParent()
                written.dim.extend(dims)
    encoded: bytes = message.SerializeToString(deterministic=True)
    return encoded


def prefix(header: bytes) -> bytes:
    """Return what precedes the payload: the header's length as u64 little-endian, and the header."""
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
        name, content = f"{name}.csv", [stats_text.csv(tensors[0], tensors[1], file.statistics).encode()]
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
        short = str(path_hash((hashed or path).encode("utf-8", "surrogateescape")))
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


def path_hash(data: bytes) -> int:
    """Return libstdc++'s ``std::hash<std::string>`` on 64-bit machines (MurmurHash64A)."""
    value = _SEED ^ (len(data) * _MULTIPLIER & _MASK)
    whole = len(data) - len(data) % _WORD
    for start in range(0, whole, _WORD):
        word = int.from_bytes(data[start : start + _WORD], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> _SHIFT) * _MULTIPLIER & _MASK
        value = (value ^ word) * _MULTIPLIER & _MASK
    if data[whole:]:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> _SHIFT) * _MULTIPLIER & _MASK
    return value ^ value >> _SHIFT


def data_directory(dump_path: str, now: float) -> str:
    """Return adump's directory for a configuration set at ``now``: ``{dump_path}/{YYYYmmddHHMMSS}/``."""
    stamp = time.strftime("%Y%m%d%H%M%S", time.localtime(now))
    return f"{PurePosixPath(os.path.abspath(dump_path))}/{stamp}/"  # noqa: PTH100 - a text, as adump has it
