"""One golden for all ranks: each rank of a dump is compared with it, and what is recorded holds for all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.dump.table import StatsTable
from pytest_npudump.errors import GoldenError
from pytest_npudump.language.text import first_of
from pytest_npudump.ranks.agreement import differing, nothing_recorded, stand_aside, why_not_shared
from pytest_npudump.regression import result as status
from pytest_npudump.regression.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_npudump.dump.records import Dump, TensorKey, TensorRecord
    from pytest_npudump.record.record import Record
    from pytest_npudump.regression.case import Case

    Judge = Callable[[Case, Record | None, Dump, StatsTable], Result]

_FEW = 8


def _rank_name(key: TensorKey) -> str:
    """Return ``rank 1``, ``device 0`` or both, by what a key is qualified with; "" without."""
    parts = [f"{name} {value}" for name, value in (("rank", key.rank), ("device", key.device)) if value >= 0]
    return " ".join(parts)


def by_rank(dump: Dump) -> dict[str, Dump]:
    """Return a dump a rank, or a device where the dump tells no ranks apart; one, named "", without both."""
    parts: dict[str, list[TensorRecord]] = {}
    for record in dump.records:
        key = replace(record.key, rank=-1, device=-1)
        parts.setdefault(_rank_name(record.key), []).append(replace(record, key=key))
    return {name: replace(dump, records=tuple(records)) for name, records in parts.items()}


def shared(case: Case, table: StatsTable) -> Result | None:
    """Judge an update by the golden that all ranks share, which rank 0 records if it holds for each.

    Args:
        case: the test.
        table: what this rank would record.

    Returns:
        What came of the test on a rank that records nothing; None on the one that does.
    """
    exchange = case.exchange
    if exchange is None or case.request.ranks != "same":
        return None
    try:
        alone = exchange.rank.spans_machines
        why = "" if alone else why_not_shared(exchange, case.nodeid, table, case.tolerances)
    except GoldenError as error:
        why = f"the statistics of the ranks cannot be compared: {error}"
        stand_aside(exchange, case.nodeid, why)
    if why:
        problems = (nothing_recorded(why),)
        return Result(status.ERROR, case.goldens.path, problems=problems, tensors=len(table))
    if exchange.rank.number == 0:
        return None
    held = "it was not compared with this rank's values" if alone else "it holds for this rank"
    note = f"{exchange.rank}: rank 0 records the golden that all ranks share; {held}"
    return Result(status.UNCHANGED, case.goldens.path, notes=(note,), tensors=len(table))


def judge_parts(
    case: Case, golden: Record | None, parts: Mapping[str, Dump], compare: Judge, record: Judge
) -> Result:
    """Judge each rank, or device, of a dump by the golden they share; the first that fails is reported.

    Args:
        case: the test.
        golden: the shared golden; None where there is none.
        parts: the dump of each, by name.
        compare: compares one of them with the golden.
        record: writes the golden from one of them.

    Raises:
        GoldenError: the golden's tensors cannot be read.
    """
    if case.settings.update_golden:
        return _record(case, golden, parts, record)
    runs = {
        name: compare(case, golden, dump, StatsTable.from_records(dump.records))
        for name, dump in parts.items()
    }
    bad = [name for name, run in runs.items() if not run.good]
    compared = {name: run.comparison for name, run in runs.items()}
    changed = [name for name, comparison in compared.items() if comparison is not None and comparison.changed]
    shown = (bad or changed or [*runs])[0]
    differing_ranks = f"{first_of(bad, _FEW)} of {len(parts)} differ; shown is {shown}"
    note = differing_ranks if bad else f"{len(parts)} ranks agree"
    return replace(runs[shown], notes=(note, *runs[shown].notes), part=shown)


def _record(case: Case, golden: Record | None, parts: Mapping[str, Dump], record: Judge) -> Result:
    """Record the first rank, if every other one passes a comparison with it."""
    (first, dump), *others = parts.items()
    table = StatsTable.from_records(dump.records)
    for name, other in others:
        why = differing(name, first, table, StatsTable.from_records(other.records), case.tolerances)
        if why:
            problem = nothing_recorded(why)
            path = case.goldens.path
            return Result(status.ERROR, path, problems=(problem,), tensors=len(table))
    return replace(record(case, golden, dump, table), part=first)
