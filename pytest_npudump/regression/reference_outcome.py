"""What the comparison with the reference does to the outcome of a test."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.compare.stats.verdict import FAIL
from pytest_npudump.explain.rounding import only_wide
from pytest_npudump.graph.sources import find_sources
from pytest_npudump.regression import result as status
from pytest_npudump.regression.dataflow import edges_kept, edges_of_models
from pytest_npudump.regression.result import Result

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.dump.records import Dump
    from pytest_npudump.dump.table import StatsTable
    from pytest_npudump.explain.reference import ReferenceResult
    from pytest_npudump.record.record import Record
    from pytest_npudump.regression.case import Case


def with_reference(outcome: Result, result: ReferenceResult | None) -> Result:
    """Return ``outcome`` with what the comparison with the reference says: both must hold.

    Args:
        outcome: of the comparison with the golden, or of its recording.
        result: None where the test names no reference.
    """
    if result is None:
        return outcome
    failed = outcome.good and not result.good
    return replace(
        outcome,
        status=status.FAILED if failed else outcome.status,
        problems=outcome.problems + result.problems,
        notes=outcome.notes + result.notes,
        reference=result,
    )


def with_sources_off_reference(
    case: Case, golden: Record | None, dump: Dump, table: StatsTable, outcome: Result
) -> Result:
    """Return the outcome with the sources of what differs from the reference, where the golden agrees.

    In formats of 16 bits and fewer all tensors differ by rounding: no change is followed among those that
    pass.

    Args:
        case: the test.
        golden: what the run was compared with; None without one.
        dump: of the run.
        table: its statistics.
        outcome: of both comparisons.
    """
    result = outcome.reference
    if result is None or result.comparison is None or result.tolerances is None:
        return outcome
    differs = outcome.comparison is not None and outcome.comparison.count(FAIL)
    if differs or not result.comparison.count(FAIL):
        return outcome
    edges, notes = edges_kept(golden, table), tuple[str, ...]()
    if not edges.feeds:
        edges, notes = edges_of_models(case, dump.root, table)
    found = find_sources(result.comparison, edges, result.tolerances, walks=only_wide(table.dtypes))
    return replace(outcome, sources=found, notes=outcome.notes + notes)


def by_reference_alone(
    path: Path, *, tensors: int, problems: tuple[str, ...], notes: tuple[str, ...]
) -> Result:
    """Return the outcome of a test without a golden, before its reference is heard.

    Args:
        path: where the golden would be.
        tensors: number of tensors that were dumped and selected.
        problems: what is wrong with the dump; any of them fails the test.
        notes: of the dump's reader.
    """
    said = f"there is no golden {path.name}: the layers were compared with the reference only"
    word = status.FAILED if problems else status.PASSED
    return Result(word, path, problems=problems, notes=(*notes, said), tensors=tensors)


def not_recorded(path: Path, result: ReferenceResult, *, tensors: int) -> Result:
    """Return the outcome of an update whose layers differ from the reference: nothing is approved."""
    problem = (
        f"nothing was recorded: the layers are not shown to agree with the reference {result.model.name}; "
        f"to record them all the same, take reference out of the marker or give it the tolerance"
    )
    outcome = Result(status.FAILED, path, problems=(problem,), tensors=tensors)
    return with_reference(outcome, result)
