"""Run behind the first one: a golden recorded of both, or a failure explained by its tensors.

Its dump is read under the first one's names. A recording that keeps tensors takes the statistics of the first
run and the tensors of the second, if the two agree. Of a failure the tensors of the failing layers are held
against the golden's and the reference's, and each operator under suspicion against what its own inputs give,
by a model or by the calls of torch that the run has kept.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache, partial
from itertools import compress, islice
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.judge import RUN, judge_tables
from pytest_npudump.compare.patterns.pattern_search import (
    SEARCHED,
    Limits,
    find_pattern,
    leave_out,
    note_on_limits,
)
from pytest_npudump.compare.patterns.possible_changes import PLACE
from pytest_npudump.compare.stats.alignment import ABSENT, Alignment, under_golden_keys
from pytest_npudump.compare.stats.allowances import deviations
from pytest_npudump.compare.stats.verdict import EXTRA, FAIL, GRAPH_INPUT
from pytest_npudump.compare.tensors.difference import compare_tensors
from pytest_npudump.compare.tensors.element_verdict import BYTES, ELEMENTS, SPECIAL
from pytest_npudump.compare.tensors.picture import describe_tensor, draw, draw_alone
from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.dump.records import Dump, TensorKey, TensorRecord, sanitise
from pytest_npudump.dump.selection import alike_layers, by_file_names, with_raw_names
from pytest_npudump.dump.stats.compact_projections import as_printed
from pytest_npudump.dump.stats.tensor import projected_stats
from pytest_npudump.dump.table import JUDGED, StatsTable
from pytest_npudump.dump.tree.keys import is_eager
from pytest_npudump.dump.tree.mindspore import under_first_keys
from pytest_npudump.errors import DumpError, GoldenError, NpudumpError, joined, said
from pytest_npudump.explain.called_operators import CallArchive, CallBench
from pytest_npudump.explain.dumped_operators import ModelBench
from pytest_npudump.explain.matches import NameMap
from pytest_npudump.explain.operator_alone import UNKNOWN, Alone, JudgedOperator, Search
from pytest_npudump.explain.reference_model import ReferenceModel
from pytest_npudump.golden.stored_tensors import KeptTensors, read_tensors
from pytest_npudump.graph.sources import relative_differences
from pytest_npudump.language.text import first_of
from pytest_npudump.record.model_lines import fed_otherwise_in
from pytest_npudump.regression import result as status
from pytest_npudump.regression.calibration import (
    fed_otherwise,
    fed_words,
    once,
    repeated,
    with_steady_outputs,
)
from pytest_npudump.regression.case import Case, onnx_models
from pytest_npudump.regression.dataflow import edges_of_device, named_layers
from pytest_npudump.regression.judgement import left_out_notes, with_reference
from pytest_npudump.regression.result import Escalation, Finding, KeptLayers, Result
from pytest_npudump.regression.run_plan import Plan, fed
from pytest_npudump.regression.run_record import (
    Measured,
    by_rank,
    drawing_alike,
    golden_to_start_from,
    record,
    with_empty,
    without_unwritten,
)
from pytest_npudump.runtime.aten import CallKeepingRuntime, KeptRun, WantedOutput

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.explain.operator_alone import Changes
    from pytest_npudump.regression.attempt import Attempt, Progress
    from pytest_npudump.regression.case import Case
    from pytest_npudump.regression.run_plan import Plan
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


_OFF = "off"


def explain(case: Case, first: Result, plan: Plan, attempt: Attempt) -> Escalation:
    """Explain a failure by the tensors of a run that has ended and the runs before it.

    Files of layers that were dumped besides those that were asked for are deleted.

    Args:
        case: the test.
        first: what came of the first run.
        plan: what the run was to find out.
        attempt: the run.
    """
    runtime, calls = case.runtime, None
    if isinstance(runtime, CallKeepingRuntime) and case.settings.recompute != _OFF:
        calls = runtime.kept_calls()
        runtime.keep_calls((), 0)
    try:
        if undumped := runtime.activity.evidence.undumped:
            found = unusable(attempt.directory, plan, undumped)
        else:
            found = _explained(case, first, plan, attempt, calls)
    except (DumpError, GoldenError) as error:
        found = unusable(attempt.directory, plan, error)
    return found if plan.earlier is None else _joined(plan.earlier, found)


def _joined(second: Escalation, third: Escalation) -> Escalation:
    """Unite the findings of two runs; the third run's count where both have one."""
    told = Escalation(layers=third.layers, directory=third.directory, problem=third.problem)
    if third.problem:
        return replace(second, third=told)
    again = {str(finding.key.sanitised) for finding in third.findings}
    judged = {str(one.key.sanitised) for one in third.isolated if one.alone.verdict != UNKNOWN}
    known = {str(one.key.sanitised) for one in second.isolated} - judged
    isolated = (
        *(one for one in second.isolated if str(one.key.sanitised) not in judged),
        *(one for one in third.isolated if str(one.key.sanitised) not in known),
    )
    return replace(
        second,
        findings=(*(f for f in second.findings if str(f.key.sanitised) not in again), *third.findings),
        isolated=isolated,
        omitted=third.omitted,
        ended=third.ended,
        alike={**second.alike, **third.alike},
        notes=(
            *dict.fromkeys((*second.notes, *third.notes)),
            said("a third run (-o npudump_escalate=twice) dumped {names}", names=", ".join(third.layers)),
        ),
        third=told,
    )


def _explained(case: Case, first: Result, plan: Plan, attempt: Attempt, calls: KeptRun | None) -> Escalation:
    dump = read_again(attempt, first, case.steps_of("reading the second dump"))
    dump = with_empty(case, dump, first.run.golden)
    records, _ = matched(dump, plan, first)
    delete_others(dump, plan)
    golden = first.run.golden if first.run.golden is not None else case.goldens.read_if_any()
    tensors = read_tensors(golden, case.goldens.store) if golden is not None else {}
    limits = Limits()
    progress = case.steps_of(said("comparing the tensors of the second run"))
    layers = {sanitise(layer) for layer in plan.layers}
    failing = [key for key in first.failing_keys if sanitise(key.layer) in layers]
    differing, same = disagreements(case.tolerances, first, failing, records)
    tolerances = for_layers(case.tolerances, first)
    if (before := first.comparison) is not None:
        tolerances = tolerances.under(before.numerics.bounds) if before.numerics is not None else tolerances
        tolerances = replace(tolerances, upstream=before.tolerances.upstream, alone=before.tolerances.alone)
    told = []
    for number, key in enumerate(failing, 1):
        told.append(_finding(tolerances, key, records.get(str(key.sanitised)), differing, tensors))
        if progress is not None:
            progress(number, len(failing))
    against = _against_golden(first, tolerances, told, records, same)
    findings = with_patterns(against, records, tensors, limits)
    findings, notes = _against_reference(case, first, findings, records, limits)
    lost = {str(finding.key.sanitised) for finding in findings if finding.healthy}
    # CANN dumps an input of the graph with each operator that reads it, under one name.
    inputs = [one for one in planned(dump, plan) if one.op_type == GRAPH_INPUT]
    isolated, ended, unsaved = _isolated(
        case,
        first,
        plan,
        ([*records.values()], inputs),
        lost,
        folder=attempt.directory / "calls",
        kept=calls,
    )
    first_dump = first.run.dump
    return Escalation(
        findings,
        tuple(dict.fromkeys(r.key.layer for r in records.values() if r.payload is not None)),
        plan.omitted,
        attempt.directory,
        notes=(*plan.notes, *notes, *unsaved, *note_on_limits(limits)),
        drawing=() if first_dump is None else drawing_alike(case, first_dump),
        isolated=isolated,
        ended=ended,
        alike=_alike(case, first, records),
        fed=_fed_otherwise(findings, first_dump, dump),
    )


def _fed_otherwise(findings: Sequence[Finding], first: Dump | None, second: Dump) -> tuple[str, ...]:
    """Return the inputs of models with other values in the second run; none where it reproduced the first."""
    other = {str(one.key.sanitised) for one in findings if one.reproduced is False}
    if not other or first is None:
        return ()
    models = fed_otherwise_in(first.fed, second.fed)
    if first.fed and second.fed and not models:
        return ()  # something wrote to them
    fed = [
        one.key.layer
        for one in first.records
        if one.op_type == GRAPH_INPUT and str(one.key.sanitised) in other
    ]
    return tuple(dict.fromkeys(fed)) or models


def _alike(case: Case, first: Result, records: Mapping[str, TensorRecord]) -> Mapping[str, TensorRecord]:
    """Return the tensors that the golden is to keep and that are those of the first run."""
    if first.run.kept is None:
        return {}
    wanted = {sanitise(layer) for layer in first.run.kept.layers}
    kept = {key: one for key, one in records.items() if one.payload and sanitise(one.key.layer) in wanted}
    differing, _ = disagreements(case.tolerances, first, [one.key for one in kept.values()], records)
    return {key: one for key, one in kept.items() if key not in differing}


_OF_TABLES = frozenset(("dtype", "shape", "count", *JUDGED))
"""Reasons of a failure for which a tensor's elements are not needed."""


def _against_golden(
    first: Result,
    tolerances: Tolerances,
    findings: Sequence[Finding],
    records: Mapping[str, TensorRecord],
    same: Collection[str],
) -> tuple[Finding, ...]:
    """Add to the findings how the second run's tensors compare with the golden.

    Where all that failed in the first run is within tolerance in the second one, that has not reproduced it.
    What failed by statistics that are the ``same`` in both runs fails again, and is not judged once more.
    """
    before = first.comparison
    if before is None:
        return tuple(findings)
    again = {
        key
        for verdict in before.failing
        if verdict.status == FAIL and any(reason.statistic in _OF_TABLES for reason in verdict.reasons)
        if (key := str(verdict.key.sanitised)) in same
    }
    here = [records[key] for f in findings if (key := str(f.key.sanitised)) in records and key not in again]
    findings = [
        replace(one, now=status.OUTSIDE) if str(one.key.sanitised) in again else one for one in findings
    ]
    if not here:
        return tuple(findings)
    measured = tolerances.with_measured(first.measured)
    after = judge_tables(before.golden, StatsTable.from_records(here), measured)
    reasons = {str(verdict.key.sanitised): verdict.reasons for verdict in before.failing}
    places = {str(verdict.key.sanitised): (at, verdict) for at, verdict in enumerate(after.verdicts())}
    unjudged = frozenset[int]().union(*(doubt.unjudged for doubt in after.doubts))
    changed = after.differing | after.within_noise
    found = []
    for finding in findings:
        key, difference = str(finding.key.sanitised), finding.difference
        at, verdict = places.get(key, (ABSENT, None))
        known = {"dtype", "shape", "count", *((ELEMENTS, SPECIAL, BYTES) if difference is not None else ())}
        row = int(after.alignment.actual[at]) if verdict is not None else ABSENT
        known |= {name for name in JUDGED if row != ABSENT and after.actual.tells(name)[row]}
        if row == ABSENT or verdict is None or verdict.status == EXTRA or key in again:
            found.append(finding)
        elif verdict.status == FAIL or (difference is not None and difference.outside):
            found.append(replace(finding, now=status.OUTSIDE))
        elif at in unjudged or not known.issuperset(reason.statistic for reason in reasons.get(key, ())):
            found.append(finding)
        else:
            now = status.WITHIN if at in changed else status.AS_PRINTED
            found.append(replace(finding, now=now, reproduced=finding.reproduced and key not in reasons))
    return tuple(found)


def _finding(
    tolerances: Tolerances,
    key: TensorKey,
    record: TensorRecord | None,
    disagreements: Mapping[str, Mapping[str, tuple[object, object]]],
    tensors: Mapping[str, np.ndarray],
) -> Finding:
    if record is None:
        return Finding(
            key, None, note=said("the second run did not dump it, or its name in files is not its own")
        )
    differences = disagreements.get(str(key.sanitised), {})
    finding = Finding(record.key, not differences, differences, path=record.path)
    if record.payload is None:
        return replace(finding, note=record.note or "the dump holds no data for it")
    try:
        actual = load(record.payload, record.dtype, record.shape)
    except DumpError as error:
        return replace(finding, note=str(error))
    golden = tensors.get(str(key.sanitised))
    if golden is None:
        return replace(finding, description=describe_tensor(actual))
    if golden.shape != actual.shape or golden.dtype != actual.dtype:
        shapes = f"{golden.dtype} {list(golden.shape)}, this one {actual.dtype} {list(actual.shape)}"
        return replace(finding, description=describe_tensor(actual), note=f"the golden tensor is {shapes}")
    rtol, atol = tolerances.elements(record.key.layer, record.dtype, str(key), record.op_type)
    return replace(finding, difference=compare_tensors(golden, actual, rtol=rtol, atol=atol))


_AT_HAND = 16
"""Other tensors whose values a wrong one may turn out to hold."""


def with_patterns(
    findings: Sequence[Finding],
    records: Mapping[str, TensorRecord],
    tensors: Mapping[str, np.ndarray],
    limits: Limits,
) -> tuple[Finding, ...]:
    """Add to the first findings what can be drawn of them, and where elements differ what explains that.

    Args:
        findings: one a failing tensor, in execution order.
        records: the second run's tensors by sanitised key.
        tensors: the golden's, the same way.
        limits: counts what was left out.
    """
    told = list(findings)
    differing = [at for at, f in enumerate(findings) if f.difference is not None and f.difference.outside]
    leave_out(limits, len(differing) - SEARCHED)
    for at in differing[:SEARCHED]:
        name, difference = str(findings[at].key.sanitised), findings[at].difference
        record = records[name]
        actual = _loaded(record)
        if actual is None or difference is None:
            continue
        others = _others(name, actual, records, tensors)
        capped = len(others) > _AT_HAND and others.popitem()
        pattern = find_pattern(
            tensors[name], actual, difference, layout=record.format, others=others, limits=limits
        )
        if capped and (pattern is None or pattern.kind == PLACE):
            limits[said("with more than {number} others of their type and size", number=_AT_HAND)] += 1
        picture = draw(tensors[name], actual, rtol=difference.rtol, atol=difference.atol)
        told[at] = replace(findings[at], pattern=pattern, picture=picture)
    alone = [at for at, finding in enumerate(findings) if finding.description is not None]
    for at in alone[:SEARCHED]:
        actual = _loaded(records[str(findings[at].key.sanitised)])
        told[at] = replace(findings[at], picture=None if actual is None else draw_alone(actual))
    return tuple(told)


def _others(
    name: str, actual: np.ndarray, records: Mapping[str, TensorRecord], tensors: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return tensors of the same type and size, one more than are needed: of this run, and the golden's."""
    found: dict[str, np.ndarray] = {}
    for key, one in records.items():
        alike = one.dtype == records[name].dtype and math.prod(one.shape or ()) == actual.size
        array = _loaded(one) if alike and key != name and len(found) <= _AT_HAND else None
        if array is not None:
            found[str(one.key)] = array
    for key, array in tensors.items():
        same = array.dtype == actual.dtype and array.size == actual.size
        if same and key != name and len(found) <= _AT_HAND:
            found[f"the golden's {key}"] = array
    return found


def _loaded(record: TensorRecord) -> np.ndarray | None:
    if record.payload is None:
        return None
    try:
        return load(record.payload, record.dtype, record.shape)
    except DumpError:
        return None  # a note of the finding says so


def _against_reference(
    case: Case,
    first: Result,
    findings: Sequence[Finding],
    records: Mapping[str, TensorRecord],
    limits: Limits,
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Add to the findings what the elements are off from the reference's, to the limits what was left out.

    The reference runs again, on what the second run was fed, for just these layers.

    Returns:
        The findings, and a note where the reference could not be computed.
    """
    reference, result = case.reference, first.reference
    if reference is None or result is None or result.comparison is None or not result.failing:
        return tuple(findings), ()
    reference.settle(
        case.goldens.facts(case.runtime.producer())
    )  # this may be another process than the first run's
    failing = {str(verdict.key.sanitised) for verdict in result.comparison.failing}
    layers = {sanitise(verdict.key.layer) for verdict in result.comparison.failing}
    wanted = [record for record in records.values() if sanitise(record.key.layer) in layers]
    searched = Limits()
    try:
        compared = reference.compare(wanted, dumped=first.run.records, limits=searched)
    except NpudumpError as error:
        return tuple(findings), (f"the second run was not compared with the reference: {error}",)
    limits |= searched  # a tensor may be in both
    found = {str(e.actual.key.sanitised): e for e in compared.expected}
    added = []
    for finding in findings:
        key = str(finding.key.sanitised)
        expected = found.get(key) if key in failing else None
        if expected is not None and expected.elements is not None:
            told = replace(finding, reference=expected.elements.difference)
            added.append(replace(told, reference_pattern=expected.pattern))
        else:
            added.append(replace(finding, reference=None))
    return tuple(added), compared.notes


_ADVICE = said("reference= names the ONNX model to recompute an operator with")
_MOST = 8
"""Outputs that are judged by their calls, at most: each call is computed several times."""


def keep_suspected(case: Case, first: Result | None, plan: Plan | None) -> None:
    """Have the next run keep the calls of the suspects, if the runtime can and it is a second run."""
    if not isinstance(case.runtime, CallKeepingRuntime) or case.settings.recompute == _OFF:
        return
    wanted = []
    if first is not None and plan is not None:
        comparison, dump = first.comparison, first.run.dump
        own = comparison.own_keys if comparison is not None else {}
        records = {str(record.key.sanitised): record for record in dump.records} if dump is not None else {}
        for key in _calls_among(first, plan.suspects):
            record = records.get(str(own.get(key, key).sanitised))
            if record is None or record.shape is None:
                continue
            stats, extremes = record.stats, None
            if stats is not None and stats.min is not None and stats.max is not None:
                extremes = float(stats.min), float(stats.max)
            wanted.append(WantedOutput(key.layer.partition(">")[0], record.dtype, record.shape, extremes))
    case.runtime.keep_calls(wanted, case.settings.dump_limit)


def _calls_among(
    first: Result, suspects: Sequence[TensorKey], healthy: Collection[str] = ()
) -> tuple[TensorKey, ...]:
    """Return the outputs of calls to judge: the suspects, and others that fail, as any may be a source."""
    if not suspects:
        return ()
    failing = (key for key in first.failing_keys if key.io == "output")
    wanted = (key for key in dict.fromkeys((*suspects, *failing)) if str(key.sanitised) not in healthy)
    return tuple(islice((key for key in wanted if is_eager(key.layer)), _MOST))


def _isolated(
    case: Case,
    first: Result,
    plan: Plan,
    records: tuple[Sequence[TensorRecord], Sequence[TensorRecord]],
    healthy: Collection[str],
    *,
    folder: Path,
    kept: KeptRun | None,
) -> tuple[tuple[JudgedOperator, ...], str, tuple[str, ...]]:
    """Judge the suspects by what a second run has of their inputs: by a model, else by calls of torch.

    Args:
        case: the test.
        first: its first run.
        plan: with the outputs under suspicion.
        records: the run's tensors, in execution order, and the graph's inputs as often as it dumped them.
        healthy: sanitised keys of tensors that failed in the first run only. They are not judged, nor are
            outputs where the changes of these begin.
        folder: where calls that are convicted are saved.
        kept: the run's calls of torch; None where the runtime keeps none.

    Returns:
        Verdicts in execution order; where the search for a cause ended; and notes where there can be none, or
        a call could not be saved.
    """
    sources = first.sources.independent if first.sources is not None else ()
    again = [source for source in sources if str(source.key.sanitised) not in healthy]
    begun = {source.begins for source in sources} - {source.begins for source in again}
    suspects = [key for key in plan.suspects if key not in begun and str(key.sanitised) not in healthy]
    own, inputs = records
    dumped = [*(record for record in own if record.op_type != GRAPH_INPUT), *inputs]
    changes = _changes(first, own)
    by_model, ended, notes = _by_model(case, first, suspects, dumped, changes) if suspects else ((), "", ())
    by_call: tuple[JudgedOperator, ...] = ()
    if kept is not None:
        told = case.runtime.producer().get("hf32")
        hf32 = frozenset({"matmul", "conv"} if told is None else told.split("+"))
        archive = CallArchive(folder, case.settings.dump_limit)
        bench = CallBench(kept, case.settings.recompute, hf32, archive)
        by_call = bench.isolate(_calls_among(first, suspects, healthy), own, changes)
        notes = (*notes, *archive.notes)
    calls = {one.key: one for one in by_call}
    judged = [
        calls.pop(one.key) if one.alone.verdict == UNKNOWN and one.key in calls else one for one in by_model
    ]
    known = {one.key for one in by_model}
    isolated = (*judged, *(one for key, one in calls.items() if key not in known))
    order = {str(record.key.sanitised): at for at, record in enumerate(own)}
    isolated = (*sorted(isolated, key=lambda one: order.get(str(one.key.sanitised), len(order))),)
    return tuple(one for one in isolated if str(one.key.sanitised) not in healthy), ended, tuple(notes)


def _changes(first: Result, records: Sequence[TensorRecord]) -> Changes | None:
    """Return a measure of how far an output is off the golden, and how far another in its place would be.

    The latter is infinite where it says nothing of who is wrong: of tensors that are not known to have
    changed, and of elements that are in another order in the dump.
    """
    before = first.comparison
    if before is None:
        return None
    known, alignment = cache(partial(_changed, first)), before.alignment
    dumped = {str(record.key.sanitised): record for record in records}

    @cache
    def places() -> Mapping[str, int]:
        return {str(key.sanitised): at for at, (key, _) in enumerate(before.aligned_keys())}

    def off(table: StatsTable, at: int, row: int) -> float:
        here = Alignment(alignment.golden[[at]], np.array([row]))
        return float(relative_differences(replace(before, actual=table, alignment=here))[0])

    def changes(key: TensorKey, output: np.ndarray, other: np.ndarray) -> tuple[float, float]:
        name = str(key.sanitised)
        at, record = places().get(name), dumped.get(name)
        if at is None or record is None or at in before.within_noise:
            return 0.0, math.inf
        changed, device = off(before.actual, at, int(alignment.actual[at])), _loaded(record)
        same = device is not None and np.array_equal(device.ravel(), output.ravel(), equal_nan=True)
        if name not in known() or not same:
            return changed, math.inf
        told = [replace(record, stats=projected_stats(other))]
        return changed, off(
            StatsTable.from_records(as_printed(told) if before.actual.summed else told), at, 0
        )

    return changes


def _by_model(
    case: Case,
    first: Result,
    suspects: Sequence[TensorKey],
    records: Sequence[TensorRecord],
    changes: Changes | None,
) -> tuple[Sequence[JudgedOperator], str, Sequence[str]]:
    """Judge suspects by the test's reference, else by the ONNX models that ran, or lie beside what ran.

    Of several models it is the one that the tensor's key names. Others that fail are judged too, as far as
    the run dumped what they read: a fault behind another is no source.
    """
    activity, reference = case.runtime.activity, case.reference
    if first.run.dump is None:
        return (), "", ()
    plain, edges = case.runtime.name == "emulator", cache(partial(edges_of_device, case, first))
    files = onnx_models(case) if reference is None else [reference.path]
    changed = _changed(first)

    def file_of(key: TensorKey) -> Path | None:
        named = [file for file in files if len(files) == 1 or sanitise(file.stem) == sanitise(key.model)]
        return named[0] if len(named) == 1 else None

    found: list[JudgedOperator] = []
    notes, search = [], Search(case.settings.dump_limit)
    if len(files) > 1 and (untold := [key for key in suspects if file_of(key) is None]):
        names, keys = ", ".join(file.name for file in files), first_of(untold)
        notes.append(f"not recomputed: {keys}, as several models ran ({names}); {_ADVICE}")
    for file in files:
        own = [key for key in suspects if file_of(key) == file]
        here = [record for record in records if file_of(record.key) == file]
        layers = {record.key.layer for record in first.run.dump.records if file_of(record.key) == file}
        if own and not activity.evidence.files.keeps_weights(file):
            alone = Alone(
                UNKNOWN, why=f"{file.name} was written again after it was loaded, and may be another model"
            )
            found += [JudgedOperator(key, "", file.name, reference is None, alone) for key in own]
            continue
        try:
            if not own:
                continue
            if reference is not None:
                bench = reference.bench(plain=plain, edges=edges())
            else:
                converted = not plain and file not in activity.models
                bench = ModelBench(
                    ReferenceModel.of_file(file),
                    NameMap(),
                    own=True,
                    converted=converted,
                    plain=plain,
                    edges=edges() if converted else None,
                )
            failing = [key for key in first.failing_keys if key.io == "output" and file_of(key) == file]
            explained = [key for key in own if first.models is not None and first.models.names(key)]
            found += bench.isolate(
                own,
                here,
                layers,
                changed,
                explained=explained,
                others=failing,
                search=search,
                changes=changes,
            )
        except NpudumpError as error:
            notes.append(f"no operator was recomputed: {error}")
    return found, str(search), notes


def _changed(first: Result) -> frozenset[str]:
    """Return the sanitised keys of tensors that changed, of a golden that repeats in the run's numerics."""
    comparison, numerics = first.comparison, first.numerics
    if comparison is None or not comparison.repeats or numerics is None:
        return frozenset()
    if not numerics.same or numerics.differs:
        return frozenset()
    differing = comparison.differing - comparison.unsteady
    return frozenset(str(comparison.key(at).sanitised) for at in differing)
