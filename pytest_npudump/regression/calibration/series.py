"""Runs behind the first one that measure how far a healthy test strays: each is measured, then all count."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.judge import RUN, judge_tables
from pytest_npudump.compare.stats.deviations import Deviations, deviations, structural_difference
from pytest_npudump.compare.stats.projection_distances import told
from pytest_npudump.compare.stats.verdict import EXTRA
from pytest_npudump.dump.table import MEASURED, StatsTable
from pytest_npudump.errors import DumpError
from pytest_npudump.language.excerpt import first_of
from pytest_npudump.onnxmodels.variation import PLAIN, Variation
from pytest_npudump.regression import outcome as status
from pytest_npudump.regression.calibration.members import variation_of
from pytest_npudump.regression.measured_noise import further_runs
from pytest_npudump.regression.record import golden_to_start_from
from pytest_npudump.regression.run.run_dump import collect, told_by_raw_names, unreadable, without_unwritten
from pytest_npudump.regression.shared_by_ranks import by_rank
from pytest_npudump.runtime.base import VaryingRuntime

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_npudump.compare.stats.verdict import Comparison
    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.dump.records import TensorRecord
    from pytest_npudump.golden.content.text import Golden
    from pytest_npudump.regression.attempt import Attempt
    from pytest_npudump.regression.case import Case
    from pytest_npudump.regression.outcome import FirstRun

_BY_TENSOR = ("largest", "floor", "differs", "uncountable", "compared", "exact")


@dataclass(frozen=True, slots=True)
class Member:
    """One of these runs.

    Attributes:
        variation: in what it differed on purpose.
        strayed: it against the first run, never against another golden: what lies between that golden and
            the first run is there in each member, so that it is a change and no noise.
        unperturbed: inputs of models that were not perturbed, as they hold no floating-point values.
        unreached: inputs that were not for another reason, in words.
        fed_otherwise: inputs of models to which the test gave other values than in the first run.
    """

    variation: Variation
    strayed: Deviations
    unperturbed: tuple[str, ...] = ()
    unreached: tuple[str, ...] = ()
    fed_otherwise: frozenset[str] = frozenset()


def vary(case: Case, member: int | None) -> None:
    """Have the next run differ by what a member of the test's calibration differs by, and look at its inputs.

    Args:
        case: the test.
        member: from 1; 0 for a run that is none, None behind a run.
    """
    if not isinstance(case.runtime, VaryingRuntime):
        return
    calibrates = bool(case.settings.calibrate) and case.request.scene == "model"
    wanted = variation_of(member, case.runtime.varies) if calibrates and member else PLAIN
    records = bool(case.settings.update_golden) and further_runs(case) > 0
    looks = member is not None and (calibrates or records)
    case.runtime.vary(replace(wanted, looks=looks, waits=looks and calibrates))


def fed(case: Case) -> tuple[TensorRecord, ...]:
    """Return what the models of the run that has ended were fed, as far as it was looked at."""
    return tuple(case.runtime.varying.fed) if isinstance(case.runtime, VaryingRuntime) else ()


def fed_otherwise(
    first: Sequence[TensorRecord], later: Sequence[TensorRecord], tolerances: Tolerances
) -> frozenset[str]:
    """Return the inputs that two runs of a test gave values that differ by more than their tolerance.

    Executions of one thread are compared in their order. Those of several come in any: equal values are taken
    out before others are compared.
    """
    names: set[str] = set()
    ordered = _of_one_thread(first) and _of_one_thread(later)
    for name in dict.fromkeys(record.key.layer for record in (*first, *later)):
        here, there = ([each for each in run if each.key.layer == name] for run in (first, later))
        if ordered:
            pairs = enumerate(zip(here, there, strict=False))
            same = {number for number, (one, other) in pairs if one.digest == other.digest}
            here = [each for number, each in enumerate(here) if number not in same]
            there = [each for number, each in enumerate(there) if number not in same]
        else:
            alike = Counter(each.digest for each in here) & Counter(each.digest for each in there)
            here, there = _without(here, alike), _without(there, alike)
        known = all(each.stats is not None for each in (*here, *there))
        before, after = (StatsTable.from_records(_numbered(run)) for run in (here, there))
        if not known or judge_tables(before, after, tolerances, RUN).failing:
            names.add(name)
    return frozenset(names)


def _begun_otherwise(
    first: Sequence[TensorRecord], later: Sequence[TensorRecord], tolerances: Tolerances
) -> frozenset[str]:
    """Return the inputs of a varied run's first execution with other values than that of the first run.

    Later ones may be made of what the model put out, which varies with it. Where several threads ran the
    model, it is compared with all executions of the first run.
    """
    if _of_one_thread(first) and _of_one_thread(later):
        first = [each for each in first if not each.key.step]
    known = {each.digest for each in first}
    begun = [each for each in later if not each.key.step and each.digest not in known]
    return frozenset(
        each.key.layer
        for each in begun
        if all(fed_otherwise([one], [each], tolerances) for one in first if one.key.layer == each.key.layer)
    )


def fed_words(names: Iterable[str]) -> str:
    """Say that a test has no data of its own for these inputs."""
    return (
        f"the test feeds its model other values in each run: {first_of(sorted(names))}; give these a seed, "
        f"or make them inside of the test, so that each run has the same"
    )


def _of_one_thread(run: Sequence[TensorRecord]) -> bool:
    return len({each.stream for each in run}) < 2  # noqa: PLR2004 - one, or none where nothing was fed


def _without(run: Sequence[TensorRecord], digests: Counter[str]) -> list[TensorRecord]:
    left, rest = digests.copy(), []
    for each in run:
        if left[each.digest]:
            left[each.digest] -= 1
        else:
            rest.append(each)
    return rest


def _numbered(run: Sequence[TensorRecord]) -> Iterator[TensorRecord]:
    for number, each in enumerate(run):
        yield replace(each, key=replace(each.key, step=number), digest="")


def measure(case: Case, first: FirstRun, attempt: Attempt, member: int) -> Member | str:
    """Read the dump of one of these runs, measure it, and delete it unless all are kept.

    Args:
        case: the test.
        first: its first run.
        attempt: the run.
        member: which one it is, from 1.

    Returns:
        The member, or in what its tensors differ from the first run's besides values, in words.

    Raises:
        DumpError: it cannot be read.
        GoldenError: the golden cannot be read.
    """
    golden = golden_to_start_from(case)
    table = _table(case, first, attempt, golden)
    before = StatsTable.from_records(first.dump.records if first.dump is not None else ())
    bounds = first.outcome.numerics.bounds if first.outcome.numerics is not None else ""
    tolerances = case.tolerances.under(bounds) if bounds else case.tolerances
    variation = _variation(case, member)
    again = judge_tables(before, table, tolerances)
    if difference := structural_difference(again):
        return difference
    strayed = deviations(again, tolerances)
    if first.outcome.status != status.PENDING and golden is not None:
        strayed = _under_golden(strayed, judge_tables(golden.table, before, tolerances))
    if case.settings.keep_dumps != "all":
        shutil.rmtree(attempt.directory, ignore_errors=True)
    differing = fed_otherwise if variation.plain else _begun_otherwise
    unlike = differing(first.fed, fed(case), tolerances)
    if member == 1 or not isinstance(case.runtime, VaryingRuntime):
        return Member(variation, strayed, fed_otherwise=unlike)
    left = case.runtime.varying
    unperturbed, unreached = tuple(sorted(left.unperturbed)), tuple(sorted(left.unreached))
    return Member(variation, strayed, unperturbed, unreached, unlike)


def _table(case: Case, first: FirstRun, attempt: Attempt, golden: Golden | None) -> StatsTable:
    undumped = case.runtime.activity.evidence.undumped
    if undumped:
        raise DumpError(f"not all that it ran is in its dump: {'; '.join(undumped)}")
    dump = without_unwritten(case, collect(case, attempt, golden), golden)
    if problems := unreadable(dump):
        raise DumpError("; ".join(problems))
    if first.part:
        dump = by_rank(dump).get(first.part, dump)
    table = StatsTable.from_records(dump.records)
    if golden is not None and first.outcome.status != status.PENDING:
        comparison = judge_tables(golden.table, table, case.tolerances)
        if comparison.count(EXTRA):
            table = StatsTable.from_records(told_by_raw_names(case, golden, dump).records)
    return table


def _variation(case: Case, member: int) -> Variation:
    """Return what the run really differed by: programs of their own are out of reach, as are operators."""
    runtime = case.runtime
    reached = case.request.scene == "model" and not runtime.activity.programs
    if not isinstance(runtime, VaryingRuntime) or not case.settings.calibrate or not reached:
        return PLAIN
    wanted = variation_of(member, runtime.varies)
    return wanted if runtime.varying.perturbed else replace(wanted, seed=None)


def _under_golden(strayed: Deviations, comparison: Comparison) -> Deviations:
    """Return what was measured against the first run for the golden's tensors, in their order.

    Args:
        strayed: a later run against the first.
        comparison: the first run against the golden.
    """
    alignment, golden = comparison.alignment, comparison.golden
    order = np.empty(len(golden), dtype=np.intp)
    order[alignment.golden] = alignment.actual
    kept = np.column_stack([golden.known[:, :MEASURED], told(golden)])
    rows = {name: getattr(strayed, name)[order] for name in _BY_TENSOR}
    rows["largest"] = np.where(kept, rows["largest"], 0.0)
    return replace(strayed, keys=golden.keys, **rows)
