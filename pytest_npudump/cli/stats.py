"""``npudump stats``: the statistics of every tensor of a dump."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.reading import add_json_option, read_tree, write_json
from pytest_npudump.dump.dtypes import UNKNOWN
from pytest_npudump.report.verdicts import number, table

if TYPE_CHECKING:
    import argparse

    from pytest_npudump.dump.records import TensorRecord

SUMMARY = "print the statistics of every tensor of a dump, in execution order"
_STATISTICS = ("count", "max", "min", "avg", "l2norm", "nan", "neg_inf", "pos_inf")
_COLUMNS = ("layer", "type", "tensor", "dtype", "shape", *_STATISTICS)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("dump", type=Path, metavar="DIR", help="a dump path, or a directory inside it")
    parser.add_argument("--latest", action="store_true", help="of several runs in DIR take the last")
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the table, or write JSON; 0 unless something cannot be read."""
    dump = read_tree(arguments.dump, latest=arguments.latest)
    if arguments.json:
        write_json([_as_json(record) for record in dump.records], arguments.json)
    if arguments.json != "-":
        for line in table([_row(record) for record in dump.records], _COLUMNS, indent=0):
            print(line)
        for note in dump.notes:
            print(f"note: {note}")
    return 0


def _values(record: TensorRecord) -> dict[str, Any]:
    return {name: getattr(record.stats, name, None) for name in _STATISTICS}


def _as_json(record: TensorRecord) -> dict[str, Any]:
    key = record.key
    data: dict[str, Any] = {
        "layer": key.layer,
        "op_type": record.op_type or None,
        "io": key.io,
        "slot": key.slot,
        "dtype": None if record.dtype == UNKNOWN else record.dtype,
        "shape": None if record.shape is None else list(record.shape),
        **_values(record),
    }
    return data if str(key) == f"{key.layer}:{key.io}.{key.slot}" else data | {"key": str(key)}


def _row(record: TensorRecord) -> tuple[str, ...]:
    place = str(record.key).rpartition(":")[2]
    shape = "?" if record.shape is None else "x".join(map(str, record.shape)) or "-"
    numbers = tuple(number(value) for value in _values(record).values())
    return (record.key.layer, record.op_type, place, record.dtype, shape, *numbers)
