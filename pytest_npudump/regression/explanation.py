"""Explanation of a failed test by the tensors of a run behind its first one.

The tensors of the failing layers that it dumped are held against the golden's and the reference's, and each
operator under suspicion against what its own inputs give, by a model or by the calls of torch that the run
has kept.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.judge import judge_tables
from pytest_npudump.compare.patterns.pattern_search import (
    SEARCHED,
    Limits,
    find_pattern,
    leave_out,
    note_on_limits,
)
from pytest_npudump.compare.patterns.possible_changes import PLACE
from pytest_npudump.compare.stats.alignment import ABSENT, Alignment
from pytest_npudump.compare.stats.verdict import EXTRA, FAIL, GRAPH_INPUT
from pytest_npudump.compare.tensors.difference import compare_tensors
from pytest_npudump.compare.tensors.element_verdict import BYTES, ELEMENTS, SPECIAL
from pytest_npudump.compare.tensors.picture import describe_tensor, draw, draw_alone
from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.dump.records import Dump, TensorKey, TensorRecord, sanitise
from pytest_npudump.dump.stats.compact_projections import as_printed
from pytest_npudump.dump.stats.tensor import projected_stats
from pytest_npudump.dump.table import JUDGED, StatsTable
from pytest_npudump.dump.tree.keys import is_eager
from pytest_npudump.errors import DumpError, GoldenError, NpudumpError, said
from pytest_npudump.explain.called_operators import CallArchive, CallBench
from pytest_npudump.explain.dumped_operators import ModelBench
from pytest_npudump.explain.matches import NameMap
from pytest_npudump.explain.operator_alone import UNKNOWN, Alone, JudgedOperator, Search
from pytest_npudump.explain.reference_model import ReferenceModel
from pytest_npudump.golden.stored_tensors import read_tensors
from pytest_npudump.graph.sources import relative_differences
from pytest_npudump.language.text import first_of
from pytest_npudump.record.model_lines import fed_otherwise_in
from pytest_npudump.regression import result as status
from pytest_npudump.regression.case import Case, onnx_models
from pytest_npudump.regression.dataflow import edges_of_device
from pytest_npudump.regression.result import Escalation, Finding, Result, ThirdRun
from pytest_npudump.regression.run_record import drawing_alike, with_empty
from pytest_npudump.regression.second_run import (
    delete_others,
    disagreements,
    for_layers,
    matched,
    planned,
    read_again,
    unusable,
)
from pytest_npudump.runtime.aten.kept_calls import CallKeepingRuntime, KeptRun, WantedOutput

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.explain.operator_alone import Changes
    from pytest_npudump.regression.attempt import Attempt
    from pytest_npudump.regression.run_plan import Plan


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
    told = ThirdRun(third.layers, third.directory, third.problem)
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
    for key, record in records.items():
        alike = record.dtype == records[name].dtype and math.prod(record.shape or ()) == actual.size
        array = _loaded(record) if alike and key != name and len(found) <= _AT_HAND else None
        if array is not None:
            found[str(record.key)] = array
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
        report = case.steps_of("recomputing calls on the CPU")
        by_call = bench.isolate(_calls_among(first, suspects, healthy), own, report, changes)
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
