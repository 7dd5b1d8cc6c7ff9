"""Overflow records and dumps to findings: which operator overflowed, what happened, and what it worked on.

CANN keeps the first overflow of an execution: a record of what happened, and a dump of the operator, which
the record names by its task and stream. Nothing else is dumped (``dump_debug``), so that an operator whose
dump no record names overflowed too.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_npudump.dump.files.container import read_container
from pytest_npudump.dump.files.overflow import OverflowUnit, read_overflow
from pytest_npudump.errors import FormatError
from pytest_npudump.regression.scenes.operator_tensors import OperatorTensor, described

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_npudump.dump.records import TensorKey, TensorRecord

_BY_MINDSPORE = ("detected by MindSpore",)
_NO_RECORD = ("dumped, and no overflow record tells what happened: the record is lost",)


@dataclass(frozen=True, slots=True)
class Overflow:
    """An operator that overflowed.

    Attributes:
        layer: its name; "" where the record names a task of which there is no dump.
        op_type: its type.
        kinds: what happened, as ``unit: words``.
        task, stream: ids in the record.
        record: the file of the record; that of the dump where there is no record.
        place: what tells this execution from others, as ``name=value``; "" if nothing.
        tensors: its inputs and outputs in the first execution in which it overflowed.
        executions: how many executions of the model have it.
        name: what a golden lists it as, ``layer[#capture=...,rank=...,device=...,model=...]``; "" without a
            layer.
    """

    layer: str
    op_type: str
    kinds: tuple[str, ...]
    task: int
    stream: int
    record: Path
    place: str = ""
    tensors: tuple[OperatorTensor, ...] = ()
    executions: int = 1
    name: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain JSON data."""
        return {
            "kind": "overflow",
            "operator": self.layer or None,
            "listed_as": self.name or None,
            "type": self.op_type or None,
            "what": list(self.kinds),
            "task": self.task,
            "stream": self.stream,
            "place": self.place or None,
            "executions": self.executions,
            "record": str(self.record),
            "tensors": [tensor.to_json() for tensor in self.tensors],
        }


def find_overflows(
    paths: Iterable[Path], dumped: Sequence[TensorRecord]
) -> tuple[tuple[Overflow, ...], tuple[str, ...]]:
    """Read overflow records and find their operators; operators that no record names come last.

    Args:
        paths: files of overflow records.
        dumped: the tensors of the same dump.

    Returns:
        One finding an operator and kind, in the order of time, and what could not be read.
    """
    found: list[Overflow] = []
    problems = []
    named: set[Path] = set()
    for path in sorted(paths, key=lambda path: path.name.rpartition(".")[2]):
        try:
            units = [unit for record in _records(path) for unit in record]
        except FormatError as error:
            problems.append(f"unreadable overflow record: {error}")
            continue
        if not units:
            problems.append(f"{path}: the overflow record names no unit that overflowed")
        for unit in units:
            operators = _operators(unit, path, dumped)
            named.update(operators)
            found.append(_overflow(unit, path, operators))
    found += _without_record(record for record in dumped if record.path not in named)
    return _grouped(found), tuple(problems)


def detected_by_mindspore(dumped: Iterable[TensorRecord]) -> tuple[Overflow, ...]:
    """Return the operators that MindSpore dumped because it found that they overflowed, in the order of time.

    Its synchronous dump (``op_debug_mode`` 3) leaves their inputs and outputs as npy files, and no record.
    """
    by_mindspore = (record for record in dumped if _is_mindspore(record) and record.op_type != "Parameter")
    return _grouped(_found(operator, _BY_MINDSPORE) for operator in _executions(by_mindspore))


def _without_record(dumped: Iterable[TensorRecord]) -> Iterator[Overflow]:
    of_cann = (record for record in dumped if not _is_mindspore(record))
    return (_found(operator, _NO_RECORD) for operator in _executions(of_cann))


def _is_mindspore(record: TensorRecord) -> bool:
    return record.path.suffix == ".npy"


def _executions(dumped: Iterable[TensorRecord]) -> Iterable[Sequence[TensorRecord]]:
    executions: defaultdict[object, list[TensorRecord]] = defaultdict(list)
    for record in dumped:
        executions[replace(record.key, io="", slot=0)].append(record)
    return executions.values()


def _grouped(found: Iterable[Overflow]) -> tuple[Overflow, ...]:
    """Return one finding an operator, place and kind: the first, with the number of executions."""
    groups: dict[tuple[object, ...], Overflow] = {}
    for one in found:
        key = (one.name, one.kinds, *(() if one.layer else (one.task, one.stream)))
        earlier = groups.get(key)
        groups[key] = one if earlier is None else replace(earlier, executions=earlier.executions + 1)
    return tuple(groups.values())


def _records(path: Path) -> Iterator[tuple[OverflowUnit, ...]]:
    for container in read_container(path):
        for tensor in container.tensors:
            if tensor.payload is None:
                raise FormatError(path, f"the overflow record has no data {tensor.note}".rstrip())
            yield read_overflow(tensor.payload).overflowed


def _overflow(unit: OverflowUnit, path: Path, operators: Mapping[Path, Sequence[TensorRecord]]) -> Overflow:
    """Return what a record tells; of which operator is not guessed where several may be meant."""
    task, stream = unit.fields["task_id"], unit.fields["stream_id"]
    kinds = tuple(text if text.startswith(unit.name) else f"{unit.name}: {text}" for text in unit.describe())
    if len(operators) != 1:
        return Overflow("", "", kinds, task, stream, path)
    (operator,) = operators.values()
    return replace(_found(operator, kinds), task=task, stream=stream, record=path)


def _found(operator: Sequence[TensorRecord], kinds: tuple[str, ...]) -> Overflow:
    first = operator[0]
    _, sign, qualifiers = _head(first.key).partition("#")
    return Overflow(
        first.key.layer,
        first.op_type,
        kinds,
        first.task or 0,
        first.stream or 0,
        first.path,
        qualifiers if sign else "",
        tuple(map(_tensor, operator)),
        name=_head(replace(first.key, turn=0, step=0, load=0)),
    )


def _head(key: TensorKey) -> str:
    return str(key).rpartition(":")[0]


def _operators(
    unit: OverflowUnit, path: Path, dumped: Sequence[TensorRecord]
) -> Mapping[Path, Sequence[TensorRecord]]:
    """Return the tensors of the operators that a record may mean, by file.

    The record lies beside the operator's dump; where it does not, the ids have to be those of one file.
    """
    task, stream = unit.fields["task_id"], unit.fields["stream_id"]
    same = [r for r in dumped if r.task == task and r.stream in {stream, None}]
    files: defaultdict[Path, list[TensorRecord]] = defaultdict(list)
    for record in [r for r in same if r.path.parent == path.parent] or same:
        files[record.path].append(record)
    return files


def _tensor(record: TensorRecord) -> OperatorTensor:
    slot = (record.key.io, record.key.slot)
    if record.payload is None:
        return OperatorTensor(*slot, None, record.note or "no data", record.path)
    return described(slot, record.payload, record.dtype, record.shape)
