"""One golden for all ranks: each rank of a dump is compared with it, and what is recorded holds for all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.dump.table import StatsTable
from pytest_npudump.errors import GoldenError
from pytest_npudump.ranks.agreement import stand_aside
from pytest_npudump.ranks.sharing import differing, nothing_recorded, why_not_shared
from pytest_npudump.regression import outcome as status
from pytest_npudump.regression.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_npudump.dump.records import Dump
    from pytest_npudump.golden.text import Golden
    from pytest_npudump.regression.session import MarkedTest

    Judge = Callable[[MarkedTest, Golden | None, StatsTable], Outcome]

_FEW = 8


def shared(test: MarkedTest, table: StatsTable) -> Outcome | None:
    """Judge an update by the golden that all ranks share, which rank 0 records if it holds for each.

    Args:
        test: the test.
        table: what this rank would record.

    Returns:
        What came of the test on a rank that records nothing; None on the one that does.
    """
    exchange = test.exchange
    if exchange is None or test.request.ranks != "same":
        return None
    try:
        alone = exchange.rank.spans_machines
        why = "" if alone else why_not_shared(exchange, test.nodeid, table, test.tolerances)
    except GoldenError as error:
        why = f"the statistics of the ranks cannot be compared: {error}"
        stand_aside(exchange, test.nodeid, why)
    if why:
        problems = (nothing_recorded(why),)
        return Outcome(status.ERROR, test.goldens.path, problems=problems, tensors=len(table))
    if exchange.rank.number == 0:
        return None
    held = "it was not compared with this rank's values" if alone else "it holds for this rank"
    note = f"{exchange.rank}: rank 0 records the golden that all ranks share; {held}"
    return Outcome(status.UNCHANGED, test.goldens.path, notes=(note,), tensors=len(table))


def judge_parts(
    test: MarkedTest, golden: Golden | None, parts: Mapping[str, Dump], compare: Judge, record: Judge
) -> Outcome:
    """Judge each rank, or device, of a dump by the golden they share; the first that fails is reported.

    Args:
        test: the test; its dump and its part become those of the rank that is reported.
        golden: the shared golden; None where there is none.
        parts: the dump of each, by name.
        compare: compares one of them with the golden.
        record: writes the golden from one of them.

    Raises:
        GoldenError: the golden's tensors cannot be read.
    """
    if test.settings.update_golden:
        return _record(test, golden, parts, record)
    outcomes: dict[str, Outcome] = {}
    dumps: dict[str, Dump] = {}
    for name, dump in parts.items():
        test.dump = dump
        outcomes[name] = compare(test, golden, StatsTable.from_records(dump.records))
        dumps[name] = test.dump
    bad = [name for name, outcome in outcomes.items() if not outcome.good]
    shown = (bad or [*outcomes])[0]
    test.dump, test.part = dumps[shown], shown
    note = f"{_list(bad)} of {len(parts)} differ; shown is {shown}" if bad else f"{len(parts)} ranks agree"
    return replace(outcomes[shown], notes=(note, *outcomes[shown].notes))


def _record(test: MarkedTest, golden: Golden | None, parts: Mapping[str, Dump], record: Judge) -> Outcome:
    """Record the first rank, if every other one passes a comparison with it."""
    (first, dump), *others = parts.items()
    table = StatsTable.from_records(dump.records)
    for name, other in others:
        why = differing(name, first, table, StatsTable.from_records(other.records), test.tolerances)
        if why:
            problem = nothing_recorded(why)
            return Outcome(status.ERROR, test.goldens.path, problems=(problem,), tensors=len(table))
    test.dump, test.part = dump, first
    return record(test, golden, table)


def _list(names: list[str]) -> str:
    return ", ".join(names[:_FEW]) + (" ..." if len(names) > _FEW else "")
