"""``npudump overflow``: what the overflow records of a dump say, and which layer they are about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.output import add_json_option, columns, emit, write_json
from pytest_npudump.cli.reading import report_problems
from pytest_npudump.dump.container import read_container
from pytest_npudump.dump.overflow import read_overflow
from pytest_npudump.dump.tree import find_files
from pytest_npudump.errors import DumpError, FormatError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from pytest_npudump.dump.overflow import OverflowRecord, OverflowUnit
    from pytest_npudump.dump.tree import Tree

DESCRIPTION = (
    "Say what the overflow records of a dump (Opdebug.Node_OpDebug..., from dump_debug) report. The layer is "
    "found by the record's stream and task among the dump's files. Exit 0: no overflow; 1: an overflow; 2: "
    "an unreadable or empty input."
)
_COLUMNS = ("unit", "overflow", "layer", "model", "stream", "task", "file")
_Task = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Found:
    """One overflow record.

    Attributes:
        path: its file.
        record: what it says.
        layers: for each unit, operator type and name of the dumped layers with its stream and task.
    """

    path: Path
    record: OverflowRecord
    layers: tuple[tuple[str, ...], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the file, the units that overflowed in words, and the object CANN's tool writes."""
        units = [
            {"unit": unit.name, "reasons": list(unit.describe()), "layers": list(layers)}
            for unit, layers in zip(self.record.units, self.layers, strict=True)
            if unit.overflowed
        ]
        return {"file": str(self.path), "overflowed": units, "record": self.record.to_json()}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("dump", type=Path, metavar="PATH", help="a dump's directory, or one overflow record")
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the records, or write JSON; 1 where an overflow is reported."""
    found, problems = read_records(arguments.dump)
    if arguments.json:
        write_json([record.to_json() for record in found], arguments.json)
    if arguments.json != "-":
        emit(_lines(found))
    report_problems(problems)
    if problems:
        return 2
    return 1 if any(record.record.overflowed for record in found) else 0


def read_records(path: Path) -> tuple[list[Found], list[FormatError]]:
    """Read the overflow records of a dump's directory, or one file; and what cannot be read.

    Raises:
        DumpError: there is no such path, or nothing of a dump in it.
    """
    if path.is_file():
        paths, layers, problems = [path], {}, []
    else:
        tree = find_files(path)
        paths, layers, problems = tree.overflow, _layers(tree), list(tree.problems)
        if not (paths or tree.files or tree.statistics or problems):
            raise DumpError(
                f"{path} holds no dump file: was the dump switched on, and is this its dump_path?"
            )
    found: list[Found] = []
    for file in paths:
        records, problem = _read(file, layers)
        found += records
        problems += [problem] if problem is not None else []
    return found, problems


def _read(path: Path, layers: Mapping[_Task, tuple[str, ...]]) -> tuple[list[Found], FormatError | None]:
    found: list[Found] = []
    try:
        tensors = [tensor for record in read_container(path) for tensor in record.tensors]
        payloads = [tensor.payload for tensor in tensors if tensor.payload is not None]
        for payload in payloads:
            record = read_overflow(payload)
            found.append(Found(path, record, tuple(layers.get(_task(unit), ()) for unit in record.units)))
    except FormatError as error:
        return found, error
    if not found:
        return [], FormatError(path, "an overflow record without data: collect the dump again")
    return found, None


def _layers(tree: Tree) -> dict[_Task, tuple[str, ...]]:
    """Type and name of what was dumped, by stream and task."""
    found: dict[_Task, dict[str, None]] = {}
    for file in tree.files:
        name = file.name
        if name is not None and name.stream is not None and name.task is not None:
            found.setdefault((name.stream, name.task), {})[f"{name.op_type} {name.op_name}"] = None
    return {task: tuple(names) for task, names in found.items()}


def _task(unit: OverflowUnit) -> _Task:
    return unit.fields["stream_id"], unit.fields["task_id"]


def _lines(found: list[Found]) -> Iterator[str]:
    rows = [
        (unit.name, text, ", ".join(layers) or "-", *_ids(unit), str(record.path))
        for record in found
        for unit, layers in zip(record.record.units, record.layers, strict=True)
        for text in unit.describe()
    ]
    quiet = sum(not record.record.overflowed for record in found)
    if rows:
        yield from columns(rows, _COLUMNS)
        yield "CANN records only the first overflow of a step; later ones are not listed"
    if quiet or not found:
        yield f"{quiet} overflow records report no overflow" if quiet else "no overflow records"


def _ids(unit: OverflowUnit) -> tuple[str, str, str]:
    return (str(unit.fields["model_id"]), str(unit.fields["stream_id"]), str(unit.fields["task_id"]))
