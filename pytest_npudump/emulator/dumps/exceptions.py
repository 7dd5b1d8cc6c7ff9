"""Exception dump (``dump_scene: aic_err_...``): what the runtime leaves of an operator that fails.

Rules: ``exception_dumper.cpp`` and ``dump_manager.cpp`` of adump. The first kind that is switched on stays on
until ``aclmdlFinalizeDump``, the detail dump until the end of the process; so does its path.

Files (hicann/runtime, ``src/dfx/adump/adump/exception``): ``dump_file.cpp`` for the container,
``dump_operator.cpp`` and ``dump_args.cpp`` for names, ``dump_core.cpp`` and ``dump_ELF.cpp`` for the core.
"""

from __future__ import annotations

import os
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.config.acl_keys import SCENE_TYPES, exception_path
from pytest_npudump.dump.records import sanitise
from pytest_npudump.emulator.dumps.writer import append

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_npudump.onnxmodels.tensor_types import Tensor


_INPUT = 2
_FORMAT_ND = 2
_ADDRESS = 0x12C0_0000_0000
_ALIGNMENT = 16
_LOUSER = 0x8000_0000
_SECTION_TYPES = {
    "": 0,
    ".ascend.global": _LOUSER + 1,
    ".ascend.devtbl": _LOUSER + 4,
    ".ascend.kernel_info": _LOUSER + 10,
    ".shstrtab": 3,
}

NORM = "EXCEPTION"
BRIEF = "ARGS_EXCEPTION"
DETAIL = "AIC_ERR_DETAIL_DUMP"
_HERE = "./"
_READ_ONLY = 0o400
_FAILURE = 1
_NAME_LIMIT = 255
_MILLISECOND = 1000
_SCENES = ("aic_err_brief_dump", "aic_err_norm_dump", "aic_err_detail_dump")
"""Values that ``ASCEND_DUMP_SCENE`` takes."""


@dataclass(frozen=True, slots=True)
class ExceptionArgument:
    """A tensor among the arguments of a kernel.

    Attributes:
        tensor: type, shape and bytes.
        index: position among the arguments.
        format: GE's number of the layout, all of its 32 bits.
    """

    tensor: Tensor
    index: int
    format: int = _FORMAT_ND


@dataclass(frozen=True, slots=True)
class FailedTask:
    """An operator that failed, with what it worked on.

    Attributes:
        name, op_type: raw.
        task, stream, device: ids.
        inputs, outputs: its tensors; those without memory are left out by the writer.
    """

    name: str
    op_type: str
    task: int
    stream: int
    device: int
    inputs: Sequence[ExceptionArgument] = field(default=())
    outputs: Sequence[ExceptionArgument] = field(default=())


def exception_header(
    time: int,
    operator: FailedTask,
    *,
    brief: bool = False,
    message: str = "",
    attributes: Mapping[str, str] | None = None,
) -> bytes:
    """Serialize the header of ``aic_err_norm_dump``: types, layouts and shapes of every tensor.

    Args:
        time: microseconds since the epoch.
        operator: what failed.
        brief: for ``aic_err_brief_dump``: shapes and sizes, no name, types or layouts.
        message: log text (``dfx_message``).
        attributes: ``user_tag`` of a custom dump and the like.
    """
    from pytest_npudump.dump.files.container import dump_data_class  # noqa: PLC0415 - of failures only

    header: Any = dump_data_class()()
    header.version, header.dump_time, header.dfx_message = "2.0", time, message
    header.op_name = "" if brief else operator.name
    for key, value in (attributes or {}).items():
        header.attr.add(name=key, value=value)
    for repeated, arguments in ((header.input, operator.inputs), (header.output, operator.outputs)):
        for argument in arguments:
            field, tensor = repeated.add(), argument.tensor
            field.size, field.arg_index = tensor.nbytes, argument.index
            if tensor.shape:  # a scalar has no shape at all, as only its dimensions are added
                field.shape.dim.extend(tensor.shape)
            if not brief:
                field.data_type, field.format = tensor.dtype.proto, argument.format
    for field in header.input:
        field.input_type = _INPUT
    return bytes(header.SerializeToString(deterministic=True))


def container(header: bytes, operator: FailedTask) -> list[bytes]:
    """Return the pieces of the file: length, header, inputs, outputs."""
    payload = [
        argument.tensor.data.view(np.uint8).tobytes() for argument in (*operator.inputs, *operator.outputs)
    ]
    return [struct.pack("<Q", len(header)), header, *payload]


def core(kernel: str, operator: FailedTask) -> bytes:
    """Return the core of ``aic_err_detail_dump``: an ELF file with the device memory of the kernel.

    Sections, in this order: the device, a region for each tensor, the kernel's name. Registers and the memory
    of AI Cores, which are not emulated, are not in it, and nothing says which region is what.
    """
    tensors = [argument.tensor for argument in (*operator.inputs, *operator.outputs)]
    regions = enumerate((tensor.data.view(np.uint8).tobytes() for tensor in tensors), 1)
    name = kernel.encode()
    return _elf(
        [
            ("", b"", 0),
            (".ascend.devtbl", struct.pack("<4Q2I", 1, 0, 0, 0, operator.device, 0), 0),
            *((".ascend.global", data, _ADDRESS + 0x1000 * at) for at, data in regions),
            (".ascend.kernel_info", struct.pack("<I", len(name)) + name, 0),
        ]
    )


def _elf(sections: Sequence[tuple[str, bytes, int]]) -> bytes:
    names = b"\0"
    offsets = {"": 0}
    for name in [*(name for name, _, _ in sections), ".shstrtab"]:
        if name not in offsets:
            offsets[name] = len(names)
            names += name.encode() + b"\0"
    body, rows = b"", b""
    for name, data, address in [*sections, (".shstrtab", names, 0)]:
        place = (address, 64 + len(body), len(data))
        rows += struct.pack("<IIQQQQIIQQ", offsets[name], _SECTION_TYPES[name], 0, *place, 0, 0, 0, 0)
        body += data
    body += b"\0" * (-len(body) % _ALIGNMENT)
    count = len(sections) + 1
    # ELFCLASS64, ELFDATA2LSB, EV_CURRENT; ET_CORE, EM_HIIPU
    head = b"\x7fELF\2\1\1".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 4, 0x1029, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, count, count - 1
    )
    return head + body + rows


@dataclass(frozen=True, slots=True)
class ExceptionDump:
    """An exception dump that is on.

    Attributes:
        kind: :data:`NORM`, :data:`BRIEF` or :data:`DETAIL`.
        base: directory above ``extra-info``; a relative one is that of the failure's working directory.
    """

    kind: str
    base: str

    def write(self, operator: FailedTask, clock: Callable[[], int]) -> Path:
        """Write the dump of an operator and return its path; a detail dump ends the process.

        Raises:
            OSError: it cannot be written.
        """
        folder = Path(self.base or _HERE).resolve() / "extra-info" / "data-dump" / str(operator.device)
        folder.mkdir(parents=True, exist_ok=True)
        now = clock()
        ids = f"{operator.stream}.{operator.task}"
        op_type, name = sanitise(operator.op_type), sanitise(operator.name)
        if self.kind == DETAIL:
            kernel = f"te_{op_type.lower()}_{name}__kernel0"
            path = folder / f"{kernel}.{ids}.{_stamp(now)}.core"[-_NAME_LIMIT:]
            append(str(path), [core(kernel, operator)])
        else:
            brief = self.kind == BRIEF
            stem = f"exception_info.{ids}" if brief else f"{op_type}.{name}.{operator.task}"
            # the first line of the log (DumpOperator::LogExceptionInfo)
            message = (
                f"[AIC_INFO] node_name:{operator.name}, node_type:{operator.op_type}, "
                f"stream_id:{operator.stream}, task_id:{operator.task}, context_id:4294967295\n"
            )
            header = exception_header(now, operator, brief=brief, message="" if brief else message)
            file = f"{stem}.{_stamp(now)}"
            while len(file) <= _NAME_LIMIT and (folder / file).exists():
                now += _MILLISECOND
                file = f"{stem}.{_stamp(now)}"
            path = Path(append(f"{folder}/{file}", container(header, operator), hashed=file))
        path.chmod(_READ_ONLY)
        if self.kind == DETAIL:
            # ExceptionDumper::Exit: neither atexit handlers nor buffered output outlive it.
            os._exit(_FAILURE)
        return path


def _stamp(now: int) -> str:
    """Return local time to the millisecond, 17 digits."""
    return time.strftime("%Y%m%d%H%M%S", time.localtime(now // 1_000_000)) + f"{now // 1000 % 1000:03}"


def dumped(dump: ExceptionDump | None, operator: FailedTask, clock: Callable[[], int]) -> str:
    """Write the dump of an operator, if one is on, and return the error message's part on it."""
    if dump is None:
        return ""
    try:
        return f"; dump exception to file, file: {dump.write(operator, clock)}"
    except OSError as error:
        return f"; its exception dump cannot be written: {error}"


def from_environment(environ: Mapping[str, str]) -> ExceptionDump | None:
    """Return the dump that the environment of a new process switches on, if any.

    ``ASCEND_DUMP_SCENE``, else ``NPU_COLLECT_PATH``, whose directory has to be usable.
    """
    if (scene := environ.get("ASCEND_DUMP_SCENE", "")) in _SCENES:
        return ExceptionDump(SCENE_TYPES[scene], exception_path({}, Path.cwd(), environ) or _HERE)
    collect = environ.get("NPU_COLLECT_PATH", "")
    usable = exception_path({}, Path.cwd(), {"ASCEND_DUMP_PATH": collect}) if collect else ""
    return ExceptionDump(NORM, usable) if usable else None
