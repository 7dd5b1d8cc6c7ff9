"""``npudump stats``: the statistics of every tensor of a dump."""

from __future__ import annotations

from functools import partial
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
_PROJECTIONS = tuple(f"p{place}" for place in range(8))


def run(arguments: argparse.Namespace) -> int:
    """Print the table, or write JSON; 0, or 2 where something could not be read."""
    wanted: bool = arguments.projections
    with open_workers(arguments.executor) as workers:
        dump = read_source(
            arguments.dump,
            workers,
            stats=True,
            acl=arguments.acl,
            projections=wanted,
            latest=arguments.latest,
        )
    return write_listing(
        dump, arguments, partial(_as_json, projections=wanted), partial(_lines, projections=wanted)
    )


def _values(record: TensorRecord) -> dict[str, Any]:
    return {name: getattr(record.stats, name, None) for name in _STATISTICS}


def _as_json(record: TensorRecord, *, projections: bool) -> dict[str, Any]:
    zero = _zero(record)
    data = identity(record) | _values(record) | ({} if zero is None else {_ZERO: zero})
    if projections:
        found = getattr(record.stats, "projections", None)
        data["projections"] = None if found is None else list(found)
    return data | {"note": record.note} if record.note else data


def _lines(records: Sequence[TensorRecord], *, projections: bool) -> list[str]:
    """Lay the records out; zeros only where some tensor's are known, as ACL's files never tell them."""
    if not records:
        return []
    names = _COLUMNS if all(_zero(record) is None for record in records) else (*_COLUMNS, _ZERO)
    sums = _PROJECTIONS if projections else ()
    return columns(
        [(*_row(record, names), *_sums(record)[: len(sums)]) for record in records], (*names, *sums)
    )


def _zero(record: TensorRecord) -> int | None:
    return None if record.stats is None else record.stats.zero


def _row(record: TensorRecord, names: Sequence[str]) -> tuple[str, ...]:
    zero = (number(_zero(record)),) if _ZERO in names else ()
    return (*cells(record), *map(number, _values(record).values()), *zero)


def _sums(record: TensorRecord) -> tuple[str, ...]:
    found = getattr(record.stats, "projections", None)
    return tuple(map(number, found or (None,) * len(_PROJECTIONS)))
