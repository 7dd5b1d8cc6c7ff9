"""``npudump stats``: the statistics of every tensor of a dump."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.executors import add_executor_option, open_workers
from pytest_npudump.cli.common.output import (
    add_json_option,
    columns,
    emit,
    write_json,
)
from pytest_npudump.cli.common.reading import add_latest_option, read_source, report_problems
from pytest_npudump.dump.table import shape_text
from pytest_npudump.dump.values.dtypes import UNKNOWN
from pytest_npudump.report.verdicts import number

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pytest_npudump.dump.records import TensorRecord

DESCRIPTION = (
    "Print the statistics of every tensor of a dump, in execution order: those its files tell, computed from "
    "the tensors where they tell none. Exit 0; 2 where a file cannot be read, after printing the others."
)
_STATISTICS = ("count", "max", "min", "avg", "l2norm", "nan", "neg_inf", "pos_inf")
_ZERO = "zero"
_COLUMNS = ("layer", "type", "tensor", "dtype", "shape", *_STATISTICS)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("dump", type=Path, metavar="PATH", help="a dump's directory, or one file of a dump")
    parser.add_argument(
        "--acl",
        action="store_true",
        help="compute the statistics of tensors as ACL does on the device: NaN for max and min where the "
        "first element is NaN, and none for types that it leaves out (bf16, fp8, int4, complex and others)",
    )
    add_latest_option(parser)
    add_executor_option(parser)
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the table, or write JSON; 0, or 2 where something could not be read."""
    with open_workers(arguments.executor) as workers:
        dump = read_source(arguments.dump, workers, stats=True, acl=arguments.acl, latest=arguments.latest)
    if arguments.json:
        write_json([_as_json(record) for record in dump.records], arguments.json)
    if arguments.json != "-" and dump.records:
        emit(_table(dump.records))
        emit(f"note: {note}" for note in dump.notes)
    report_problems(dump.problems)
    return 2 if dump.problems else 0


def _values(record: TensorRecord) -> dict[str, Any]:
    return {name: getattr(record.stats, name, None) for name in _STATISTICS}


def _as_json(record: TensorRecord) -> dict[str, Any]:
    zero = _zero(record)
    data = identity(record) | _values(record) | ({} if zero is None else {_ZERO: zero})
    return data | {"note": record.note} if record.note else data


def identity(record: TensorRecord) -> dict[str, Any]:
    """Which tensor a record is, as plain JSON data; ``key`` only where layer, io and slot do not tell it."""
    key = record.key
    data: dict[str, Any] = {
        "layer": key.layer,
        "op_type": record.op_type or None,
        "io": key.io,
        "slot": key.slot,
        "dtype": None if record.dtype == UNKNOWN else record.dtype,
        "shape": None if record.shape is None else list(record.shape),
    }
    return data if str(key) == f"{key.layer}:{key.io}.{key.slot}" else data | {"key": str(key)}


def place(record: TensorRecord) -> str:
    """Return ``output.0`` with whatever else tells a tensor from others of its layer."""
    head, _, slot = str(record.key).rpartition(":")
    qualifiers = head.partition("#")[2]
    return f"{slot} ({qualifiers})" if qualifiers else slot


def _table(records: Sequence[TensorRecord]) -> list[str]:
    """Lay the records out; zeros only where some tensor's are known, as ACL's files never tell them."""
    zeros = [_zero(record) for record in records]
    rows = [_row(record) for record in records]
    if all(zero is None for zero in zeros):
        return columns(rows, _COLUMNS)
    return columns([(*row, number(zero)) for row, zero in zip(rows, zeros, strict=True)], (*_COLUMNS, _ZERO))


def _zero(record: TensorRecord) -> int | None:
    return None if record.stats is None else record.stats.zero


def _row(record: TensorRecord) -> tuple[str, ...]:
    numbers = tuple(number(value) for value in _values(record).values())
    head = (record.key.layer, record.op_type, place(record), record.dtype, shape_text(record.shape))
    return (*head, *numbers)
