"""Dump of a second run under the first one's names, and the golden recorded of both.

A recording that keeps tensors takes the statistics of the first run and the tensors of the second, if the two
agree.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.judge import RUN, judge_tables
from pytest_npudump.compare.stats.alignment import under_golden_keys
from pytest_npudump.compare.stats.allowances import deviations
from pytest_npudump.dump.records import Dump, TensorKey, TensorRecord, sanitise
from pytest_npudump.dump.selection import alike_layers, by_file_names, with_raw_names
from pytest_npudump.dump.stats.compact_projections import as_printed
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.dump.tree.mindspore import under_first_keys
from pytest_npudump.errors import DumpError, GoldenError, joined, said
from pytest_npudump.golden.stored_tensors import KeptTensors
from pytest_npudump.language.text import first_of
from pytest_npudump.regression.calibration import (
    fed_otherwise,
    fed_words,
    once,
    repeated,
    with_steady_outputs,
)
from pytest_npudump.regression.dataflow import named_layers
from pytest_npudump.regression.judgement import left_out_notes, with_reference
from pytest_npudump.regression.result import Escalation, KeptLayers, Result
from pytest_npudump.regression.run_plan import Plan, fed
from pytest_npudump.regression.run_record import (
    Measured,
    by_rank,
    golden_to_start_from,
    record,
    without_unwritten,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.regression.attempt import Attempt, Progress
    from pytest_npudump.regression.case import Case
    from pytest_npudump.request import DumpRequest


_SHOWN = 3
_RECOMPUTED = 1e-6
"""Share of a statistic's scale by which a run of tensors may differ from a run of statistics and be alike.

Six digits are printed, and those of a mean near zero depend on the order in which it was added up.
"""


def read_again(attempt: Attempt, first: Result, progress: Progress | None = None) -> Dump:
    """Read a second run's dump, under the first one's names; its statistics are defined as that one's.

    Raises:
        DumpError: it cannot be read.
    """
    dump = attempt.copies.completed(attempt.read(progress, acl=was_text(first, attempt.request)))
    if first.part:
        dump = by_rank(dump).get(first.part, dump)
    if first.run.dump is not None:
        dump = under_first_keys(first.run.dump, dump)
    if first.comparison is not None:
        failing = by_file_names(verdict.key.layer for verdict in first.comparison.failing)
        dump = with_raw_names(dump, by_file_names(attempt.layers or ()) | failing)
    return dump


def was_text(first: Result, request: DumpRequest) -> bool:
    """Return whether a run's statistics are CANN's own, printed with few digits: not of tensors it chose."""
    return not request.chosen and any(
        record.stats is not None and record.stats.digits is not None for record in first.run.records
    )


def matched(dump: Dump, plan: Plan, first: Result) -> tuple[Mapping[str, TensorRecord], Collection[str]]:
    """Match the planned layers of a second run's dump to the first run.

    Returns:
        Its tensors by sanitised key, in execution order, under the keys that the comparison gave to the first
        run's; and sanitised names that several of its layers share: the first run cannot tell which is which,
        so that there are no records of them.

    Raises:
        DumpError: a file of the dump cannot be read.
    """
    if dump.problems:
        raise DumpError(joined("; ", map(str, dump.problems)))
    alike = alike_layers(*filter(None, (first.run.dump, dump)))
    kept: Iterable[TensorRecord] = planned(dump, plan)
    if first.comparison is not None:
        kept = under_golden_keys(kept, first.comparison.own_keys)
    keyed: dict[str, TensorRecord] = {}
    for one in kept:
        if sanitise(one.key.layer) not in alike:
            keyed.setdefault(str(one.key.sanitised), one)
    return keyed, alike


def planned(dump: Dump, plan: Plan) -> list[TensorRecord]:
    """Return the tensors of the layers that a run was to dump."""
    wanted = {sanitise(layer) for layer in plan.layers}
    return [one for one in dump.records if sanitise(one.key.layer) in wanted]


def delete_others(dump: Dump, plan: Plan) -> None:
    """Delete the files of all layers that a run was not to dump: some dump more than they are asked for."""
    others = {one.path for one in dump.records} - {one.path for one in planned(dump, plan)}
    for path in others - {dump.root}:  # of what left no file
        path.unlink()


def disagreements(
    tolerances: Tolerances, first: Result, keys: Iterable[TensorKey], records: Mapping[str, TensorRecord]
) -> tuple[dict[str, dict[str, tuple[object, object]]], frozenset[str]]:
    """Return the statistics in which two runs disagree beyond the test's tolerances, by sanitised key.

    The second run's statistics are recomputed from its tensors, with ACL's own way of treating NaN, and are
    rounded where the first one's are.

    Returns:
        Also the sanitised keys of tensors with the same statistics in both, digit for digit.
    """
    wanted = {str(key.sanitised) for key in keys} & records.keys()
    before = [record for record in first.run.records if str(record.key.sanitised) in wanted]
    after = [records[str(record.key.sanitised)] for record in before]
    one = StatsTable.from_records(before)
    other = StatsTable.from_records(as_printed(after) if one.summed else after)
    alike = one.same_rows(other)
    same = frozenset(str(record.key.sanitised) for record in compress(after, alike))
    if alike.all():
        return {}, same
    comparison = judge_tables(one, other, for_layers(tolerances, first), RUN)
    found: dict[str, dict[str, tuple[object, object]]] = {
        str(verdict.key.sanitised): {r.statistic: (r.golden, r.actual) for r in verdict.reasons}
        for verdict in comparison.failing
    }
    return found, same


def for_layers(tolerances: Tolerances, first: Result) -> Tolerances:
    """Return a test's tolerances for all layers of the first run and its golden, failing or not."""
    if (comparison := first.comparison) is not None:
        return tolerances.for_layers_of(comparison.golden.keys, comparison.actual.keys)
    return tolerances.for_layers_of(str(record.key) for record in first.run.records)


def unusable(run: Path, plan: Plan, cause: Exception | Sequence[str]) -> Escalation:
    """Return the escalation of a second run whose dump is incomplete or raises an error."""
    problem = (
        f"what the second run dumped cannot be compared: {cause}"
        if isinstance(cause, Exception)
        else f"not all that the second run ran is in its dump: {'; '.join(cause)}"
    )
    return Escalation(problem=problem, directory=run, notes=plan.notes)


def record_both(case: Case, first: Result, plan: Plan, attempt: Attempt) -> tuple[Result, Escalation]:
    """Record the statistics of the first run and the tensors of the second, where the two match.

    Returns:
        The first run with the outcome of the recording, and what became of the second one.
    """
    if undumped := case.runtime.activity.evidence.undumped:
        return first, unusable(attempt.directory, plan, undumped)
    try:
        dump = read_again(attempt, first, case.steps_of(said("reading the second dump")))
        dump = without_unwritten(case, dump, golden_to_start_from(case))
        measured = _measured(case, first, dump)
        records, alike = matched(dump, plan, first)
        layers = tuple(dict.fromkeys(record.key.layer for record in records.values()))
        again = Escalation((), layers, (), attempt.directory, "", plan.notes)
        delete_others(dump, plan)
        first = with_steady_outputs(case, first, dump.outputs)
        keys = [record.key for record in records.values()]
        differing, _ = disagreements(case.tolerances, first, keys, records)
        differs = differing or measured.cells
        unlike = fed_otherwise(first.run.fed, fed(case), case.tolerances) if differs else ()
        problem = fed_words(unlike) if unlike else ""
        if differing and not unlike:
            names = {str(record.key.sanitised): str(record.key) for record in first.run.records}
            problem = said(
                "two runs of the test differ in {keys}; make it deterministic first",
                keys=first_of((names.get(key, key) for key in differing), _SHOWN),
            )
        return _recorded(case, first, (records, alike), again, measured=measured, problem=problem)
    except (DumpError, GoldenError) as error:
        return first, unusable(attempt.directory, plan, error)


def _measured(case: Case, first: Result, dump: Dump) -> Measured:
    """Return whether the test repeats, as far as a run with tensors of some layers shows."""
    if was_text(first, case.request) and case.runtime.name != "emulator":
        return once("the second run dumped tensors, whose statistics no device has computed")
    before = StatsTable.from_records(first.run.records)
    again = judge_tables(before, StatsTable.from_records(dump.records), case.tolerances)
    found = deviations(again, case.tolerances)
    strays = np.any(found.largest > _RECOMPUTED, axis=1) | found.uncountable
    alike = [replace(found, differs=found.differs & strays)]
    at_once = not case.request.golden_tensors and case.exchange is None
    return repeated(alike, filtered=bool(case.request.layers), measurable=at_once)


def _recorded(
    case: Case,
    first: Result,
    matched: tuple[Mapping[str, TensorRecord], Collection[str]],
    second: Escalation,
    *,
    measured: Measured,
    problem: str,
) -> tuple[Result, Escalation]:
    """Write the golden, unless the runs differ, as ``problem`` describes, or tensors are missing."""
    kept, tensors = first.run.kept or KeptLayers(()), None
    left_out, lost = _not_dumped(case, first, matched, kept)
    records, _ = matched
    if not problem and (lost or (case.request.golden_tensors and not records)):
        problem = (
            f"the second run has no tensor of {first_of(lost or left_out, _SHOWN)}, or cannot tell it from a "
            f"layer whose name is the same in file names"
        )
    if not problem:
        try:
            table = StatsTable.from_records(first.run.records)
            if case.request.golden_tensors:
                tensors = KeptTensors.of(records.values(), left_out, kept.sources)
                tensors.refuse_beyond(case.settings.tensor_budget)
        except DumpError as error:
            problem = said("the golden tensors cannot be written: {error}", error=str(error))
        except GoldenError as error:
            problem = str(error)
    if not problem:
        golden = golden_to_start_from(case)
        outcome = record(case, golden, first, table, tensors, measured=measured)
        if outcome.good:
            outcome = replace(outcome, notes=outcome.notes + left_out_notes(left_out))
            return with_reference(outcome, first.reference), second
        problem = outcome.problems[0]
    words = said("nothing was recorded: {problem}", problem=problem)
    return replace(first, problems=(words,)), replace(second, problem=words)


def _not_dumped(
    case: Case, first: Result, matched: tuple[Mapping[str, TensorRecord], Collection[str]], kept: KeptLayers
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return layers that globs match and that cannot be told apart, and keys that the second run lacks."""
    if first.run.dump is None or not kept.layers:
        return (), ()
    (records, alike), wanted = matched, {*kept.layers}
    held = {key for key, record in records.items() if record.payload is not None}
    keys = [record.key for record in first.run.dump.records if record.key.layer in wanted]
    missing = [key for key in keys if str(key.sanitised) not in held]
    doubtful = [key for key in missing if sanitise(key.layer) in set(alike) - named_layers(case)]
    left_out = tuple(dict.fromkeys(sanitise(key.layer) for key in doubtful))
    return left_out, tuple(str(key) for key in missing if key not in doubtful)
