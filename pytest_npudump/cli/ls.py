"""``npudump ls``: what a dump holds, without reading the values of its tensors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.executors import add_executor_option, open_workers
from pytest_npudump.cli.common.output import (
    add_json_option,
    byte_size,
    columns,
    emit,
    write_json,
)
from pytest_npudump.cli.common.reading import add_latest_option, read_source, report_problems
from pytest_npudump.cli.stats import identity, place
from pytest_npudump.dump.table import shape_text

if TYPE_CHECKING:
    import argparse

    from pytest_npudump.dump.records import Dump, TensorRecord

DESCRIPTION = (
    "List the tensors of a dump in execution order, without reading their values. Exit 0; 2 where a file "
    "cannot be read, after listing the others."
)
_COLUMNS = ("layer", "type", "tensor", "dtype", "shape", "layout", "bytes", "holds", "file")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("dump", type=Path, metavar="TREE", help="a dump's directory, or one file of a dump")
    add_latest_option(parser)
    add_executor_option(parser)
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the table and a summary, or write JSON; 0, or 2 where something could not be read."""
    with open_workers(arguments.executor) as workers:
        dump = read_source(arguments.dump, workers, stats=False, latest=arguments.latest, overflow=True)
    if arguments.json:
        write_json([_as_json(record, dump.root) for record in dump.records], arguments.json)
    if arguments.json != "-":
        if dump.records:
            emit([*columns([_row(record, dump.root) for record in dump.records], _COLUMNS), ""])
        emit([_summary(dump)])
        emit(f"note: {note}" for note in dump.notes)
    report_problems(dump.problems)
    return 2 if dump.problems else 0


def _as_json(record: TensorRecord, root: Path) -> dict[str, Any]:
    original = record.original_shape
    return identity(record) | {
        "layout": record.format or None,
        "original_shape": None if original is None else list(original),
        "bytes": _bytes(record),
        "holds": _holds(record),
        "file": _file(record, root),
        "time": record.time or None,
        "note": record.note,
    }


def _row(record: TensorRecord, root: Path) -> tuple[str, ...]:
    nbytes = _bytes(record)
    return (
        record.key.layer,
        record.op_type,
        place(record),
        record.dtype,
        shape_text(record.shape),
        record.format or "-",
        "-" if nbytes is None else str(nbytes),
        _holds(record) + (f" ({record.note})" if record.note else ""),
        _file(record, root),
    )


def _bytes(record: TensorRecord) -> int | None:
    return record.payload.nbytes if record.payload is not None else record.size


def _holds(record: TensorRecord) -> str:
    held = [name for name, what in (("tensor", record.payload), ("statistics", record.stats)) if what]
    return "+".join(held) or "nothing"


def _file(record: TensorRecord, root: Path) -> str:
    return os.path.relpath(record.path, root if root.is_dir() else root.parent)


def _summary(dump: Dump) -> str:
    records = dump.records
    data = sum(record.payload.nbytes for record in records if record.payload is not None)
    counts = {
        "tensors": len(records),
        "layers": len({record.key.layer for record in records}),
        "files": len({record.path for record in records}),
        "with statistics": sum(record.stats is not None for record in records),
        "with data": sum(record.payload is not None for record in records),
    }
    steps = {(r.key.step, r.key.model, r.key.load, r.key.device, r.key.rank) for r in records}
    parts = [f"{count} {what}" for what, count in counts.items()]
    if len(steps) > 1:
        parts.append(f"{len(steps)} executions of models")
    return f"{', '.join(parts)} ({byte_size(data)})"
