"""``npudump stats``: the statistics of every tensor of a dump."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.executors import open_workers
from pytest_npudump.cli.common.listing import COLUMNS, cells, identity, write_listing
from pytest_npudump.cli.common.output import columns
from pytest_npudump.cli.common.source import read_source
from pytest_npudump.report.verdicts import number

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pytest_npudump.dump.records import TensorRecord

_STATISTICS = ("count", "max", "min", "avg", "l2norm", "nan", "neg_inf", "pos_inf")
_ZERO = "zero"
_COLUMNS = (*COLUMNS, *_STATISTICS)


def run(arguments: argparse.Namespace) -> int:
    """Print the table, or write JSON; 0, or 2 where something could not be read."""
    with open_workers(arguments.executor) as workers:
        dump = read_source(arguments.dump, workers, stats=True, acl=arguments.acl, latest=arguments.latest)
        if not arguments.projections:
            return write_listing(dump, arguments, _as_json, _lines)
        from pytest_npudump.cli.stats import projections  # noqa: PLC0415 - only where asked for

        sums, problems = projections.projections_of(dump.records, workers)

    def as_json(record: TensorRecord) -> dict[str, Any]:
        found = sums[str(record.key)]
        return _as_json(record) | {"projections": None if found is None else list(found.sums)}

    def as_lines(records: Sequence[TensorRecord]) -> list[str]:
        rows = [(*_row(record), *projections.cells(sums[str(record.key)])) for record in records]
        return columns(rows, (*_COLUMNS, *projections.COLUMNS)) if rows else []

    dump = replace(dump, problems=(*dump.problems, *problems))
    return write_listing(dump, arguments, as_json, as_lines)


def _values(record: TensorRecord) -> dict[str, Any]:
    return {name: getattr(record.stats, name, None) for name in _STATISTICS}


def _as_json(record: TensorRecord) -> dict[str, Any]:
    zero = _zero(record)
    data = identity(record) | _values(record) | ({} if zero is None else {_ZERO: zero})
    return data | {"note": record.note} if record.note else data


def _lines(records: Sequence[TensorRecord]) -> list[str]:
    """Lay the records out; zeros only where some tensor's are known, as ACL's files never tell them."""
    if not records:
        return []
    zeros = [_zero(record) for record in records]
    rows = [_row(record) for record in records]
    if all(zero is None for zero in zeros):
        return columns(rows, _COLUMNS)
    return columns([(*row, number(zero)) for row, zero in zip(rows, zeros, strict=True)], (*_COLUMNS, _ZERO))


def _zero(record: TensorRecord) -> int | None:
    return None if record.stats is None else record.stats.zero


def _row(record: TensorRecord) -> tuple[str, ...]:
    return (*cells(record), *map(number, _values(record).values()))
