"""One golden for all ranks is recorded only where it holds for each: they compare before rank 0 writes.

Each rank is a process with a dump of its own. Rank 0 shows its statistics, the others compare theirs, and
one decision holds for all: either the golden is recorded, or every rank fails with the same words.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.compare.judge import judge_tables
from pytest_npudump.golden.store import read_golden, write_golden
from pytest_npudump.ranks.agreement import sharing_question, why_missing
from pytest_npudump.record.record import Record

if TYPE_CHECKING:
    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.dump.table import StatsTable
    from pytest_npudump.ranks.exchange import Exchange

_FIRST = 0


def why_not_shared(exchange: Exchange, test: str, table: StatsTable, tolerances: Tolerances) -> str:
    """Compare the statistics of all ranks with those of rank 0, which are about to become the golden.

    Args:
        exchange: of this rank; its ranks are on one machine.
        test: its name, the same on every rank.
        table: what this rank would record.
        tolerances: what it may differ by.

    Returns:
        Why nothing may be recorded, the same on every rank; "" where the golden holds for all.

    Raises:
        GoldenError: the statistics cannot be written, or those of rank 0 cannot be read.
    """
    settled = exchange.decided(sharing_question(test))
    if settled is not None:
        return str(settled)
    if exchange.rank.number == _FIRST:
        _show(exchange, test, table)
        problem = ""
    else:
        problem = _compare(exchange, test, table, tolerances)
    return str(exchange.decide(sharing_question(test), problem or _heard(exchange, test)))


def differing(name: str, first: str, table: StatsTable, other: StatsTable, tolerances: Tolerances) -> str:
    """Return how the rank ``name`` differs from the rank ``first``, "" where one golden holds for both.

    Args:
        name: of the rank, or device.
        first: the one whose statistics are the golden.
        table: of that one.
        other: of the rank ``name``.
        tolerances: what they may differ by.
    """
    comparison = judge_tables(table, other, tolerances)
    if comparison.first is None:
        return ""
    return (
        f"{name} differs from {first} in {comparison.first.key} ({len(comparison.failing)} tensors); give "
        f"each rank a golden of its own with ranks='each'"
    )


def nothing_recorded(why: str) -> str:
    """Return the problem of a shared golden that is not recorded."""
    return f"nothing was recorded: ranks='same', and {why}"


def _show(exchange: Exchange, test: str, table: StatsTable) -> None:
    path = exchange.folder / f"statistics-{blake2b(test.encode(), digest_size=10).hexdigest()}.yaml"
    write_golden(path, Record(test=test, producer={}, table=table, path=path))
    exchange.post(_statistics(test), str(path))
    exchange.post(_verdict(test), "")


def _compare(exchange: Exchange, test: str, table: StatsTable, tolerances: Tolerances) -> str:
    shown = exchange.gather(_statistics(test), of=(_FIRST,), unless=sharing_question(test))
    if missing := why_missing(exchange, shown, of=(_FIRST,)):
        return missing
    first = read_golden(Path(shown[_FIRST])).table
    problem = differing(f"rank {exchange.rank.number}", f"rank {_FIRST}", first, table, tolerances)
    exchange.post(_verdict(test), problem)
    return problem


def _heard(exchange: Exchange, test: str) -> str:
    told = exchange.gather(_verdict(test), unless=sharing_question(test))
    problems = [str(problem) for _, problem in sorted(told.items()) if problem]
    return problems[0] if problems else why_missing(exchange, told)


def _statistics(test: str) -> str:
    return f"statistics of {test}"


def _verdict(test: str) -> str:
    return f"verdict on {test}"
