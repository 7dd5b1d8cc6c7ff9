"""Files of exception dumps to findings: which operator failed, and what it worked on."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_npudump.dump.files.container import read_container
from pytest_npudump.dump.files.core import read_core
from pytest_npudump.regression.scenes.operator_tensors import OperatorTensor, described

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_npudump.dump.files.container import ContainerTensor
    from pytest_npudump.dump.files.core import Core
    from pytest_npudump.dump.names import DumpName
    from pytest_npudump.dump.places import DumpFile

NORM, BRIEF, CALLBACK, CUSTOM, DETAIL = "norm", "brief", "callback", "custom", "detail"
_NAMELESS = re.compile(r"(?:display|exception_info)(?:\.\w+\.\w+)?")
_CORE_OF_CALLBACK = re.compile(r"\.\w+\.\w+\Z")
_IDS = re.compile(r"stream_id:(\d+), task_id:(\d+)")
_UNTYPED = "the dump tells no data type"


@dataclass(frozen=True, slots=True)
class FailedOperator:
    """An operator that failed on the device, and the dump it left.

    Attributes:
        layer: its name, raw unless the file cannot be read; "" where the dump has none.
        op_type: its type; "" where the dump has none.
        kernel: the kernel that failed; "" where the dump has none.
        kind: ``norm``, ``brief``, ``callback``, ``custom`` or ``detail``.
        task, stream, device: ids; None where neither the dump nor its name has them.
        dump: the file.
        tensors: its inputs and outputs in the first of its dumps.
        attached: files that belong to it: the kernel's object and description.
        message: what CANN logged, as the dump has it.
        capture: the capture it failed in.
        outside: the variable, or the dump, that had CANN write outside of the test's own; "" where none had.
        executions: how many dumps of it there are.
    """

    layer: str
    op_type: str
    kernel: str
    kind: str
    task: int | None
    stream: int | None
    device: int | None
    dump: Path
    tensors: tuple[OperatorTensor, ...] = ()
    attached: tuple[Path, ...] = ()
    message: str = ""
    capture: str = ""
    outside: str = ""
    executions: int = 1

    @property
    def identity(self) -> tuple[object, ...]:
        """What dumps of one operator share; those that name none are told apart by their task."""
        ids = () if self.layer else (self.kernel, self.task, self.stream)
        return (self.kind, self.layer, self.op_type, self.device, self.capture, *ids)

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain JSON data."""
        return {
            "kind": "exception",
            "operator": self.layer or None,
            "type": self.op_type or None,
            "kernel": self.kernel or None,
            "dump_kind": self.kind,
            "task": self.task,
            "stream": self.stream,
            "device": self.device,
            "capture": self.capture or None,
            "executions": self.executions,
            "file": str(self.dump),
            "attached": [str(path) for path in self.attached],
            "outside": self.outside or None,
            "message": self.message or None,
            "tensors": [tensor.to_json() for tensor in self.tensors],
        }


def from_name(file: DumpFile) -> FailedOperator:
    """Return what the name and the directory of a dump tell, without a look inside."""
    name, place = file.name, file.place
    device = place.device if place.device >= 0 else None
    if name is None:
        return FailedOperator("", "", "", CUSTOM, None, None, device, file.path)
    kind = _kind(name)
    kernel = ""
    if kind == DETAIL:
        kernel = name.op_name
    elif kind in {BRIEF, CALLBACK} and not _NAMELESS.fullmatch(name.op_name):
        kernel = _CORE_OF_CALLBACK.sub("", name.op_name)
    layer = name.op_name if kind in {NORM, CUSTOM} else ""
    return FailedOperator(layer, name.op_type, kernel, kind, name.task, name.stream, device, file.path)


def _kind(name: DumpName) -> str:
    if name.kind == "core":
        return DETAIL
    if name.op_type:
        return NORM
    if name.task is None:
        return CUSTOM
    return BRIEF if name.op_name in {"display", "exception_info"} else CALLBACK


def with_content(failed: FailedOperator, *, tensors: bool) -> FailedOperator:
    """Add to what :func:`from_name` tells what the dump itself does; ``tensors`` asks for those too.

    Raises:
        FormatError: the file is truncated or damaged.
    """
    if failed.kind == DETAIL:
        core = read_core(failed.dump)
        held = tuple(_core_tensors(core, failed.dump)) if tensors else ()
        return replace(failed, kernel=core.kernel or failed.kernel, tensors=held)
    records = read_container(failed.dump)
    record = records[0]
    ids = _IDS.search(record.dfx_message)
    stream = int(ids[1]) if failed.stream is None and ids else failed.stream
    task = int(ids[2]) if failed.task is None and ids else failed.task
    return replace(
        failed,
        layer=record.op_name or failed.layer,
        stream=stream,
        task=task,
        tensors=tuple(_tensor(tensor, failed.dump) for tensor in record.tensors) if tensors else (),
        message=record.dfx_message,
        executions=len(records),
    )


def _tensor(tensor: ContainerTensor, path: Path) -> OperatorTensor:
    slot = (tensor.io, tensor.slot)
    if tensor.payload is None:
        return OperatorTensor(*slot, None, tensor.note or "no data", path)
    if tensor.dtype == "undefined":
        return OperatorTensor(*slot, None, _untyped(tensor.size, tensor.shape), tensor.payload.path)
    return described(slot, tensor.payload, tensor.dtype, tensor.shape)


def _untyped(size: int, shape: tuple[int, ...] | None) -> str:
    return f"{size} bytes{'' if shape is None else f' of shape {list(shape)}'}, {_UNTYPED}"


def _core_tensors(core: Core, path: Path) -> Iterator[OperatorTensor]:
    """Yield the regions of a core; they are numbered by kind, and none has a data type."""
    slots: Counter[str] = Counter()
    for region in core.regions:
        slot = (region.name, slots[region.name])
        slots[region.name] += 1
        note = "the device's memory could not be read"
        if region.payload is not None:
            note = _untyped(region.payload.nbytes, region.shape)
        yield OperatorTensor(*slot, None, note, path)
