"""The second run: what the tensors of the failing layers say, or the recording of those that are kept."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.judge import RUN, judge_tables
from pytest_npudump.compare.patterns.pattern_search import SEARCHED, find_pattern
from pytest_npudump.compare.stats.alignment import ABSENT, under_golden_keys
from pytest_npudump.compare.stats.allowances import deviations
from pytest_npudump.compare.stats.verdict import EXTRA, FAIL
from pytest_npudump.compare.tensors.difference import compare_tensors
from pytest_npudump.compare.tensors.element_verdict import BYTES, ELEMENTS, SPECIAL
from pytest_npudump.compare.tensors.picture import describe_tensor, draw, draw_alone
from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.dump.records import TensorKey, TensorRecord, sanitise
from pytest_npudump.dump.selection import alike_layers, by_file_names, with_raw_names
from pytest_npudump.dump.table import JUDGED, StatsTable
from pytest_npudump.dump.tree.mindspore import under_first_keys
from pytest_npudump.errors import DumpError, GoldenError, NpudumpError, joined, said
from pytest_npudump.golden.stored_tensors import read_tensors
from pytest_npudump.regression import result as status
from pytest_npudump.regression.calibration import fed, fed_otherwise, fed_words
from pytest_npudump.regression.measured_noise import once, repeated
from pytest_npudump.regression.recording import (
    SecondRun,
    disagreement_words,
    drawing_alike,
    leave_out_unwritten,
    record_with_tensors,
)
from pytest_npudump.regression.result import Escalation, Finding, Result
from pytest_npudump.regression.second_run.alone import isolate_suspects
from pytest_npudump.regression.shared_by_ranks import by_rank

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pytest_npudump.compare.stats.verdict import Comparison
    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.dump.records import Dump
    from pytest_npudump.regression.attempt import Attempt
    from pytest_npudump.regression.case import Case
    from pytest_npudump.regression.measured_noise import Measured
    from pytest_npudump.regression.second_run.run_plan import Plan


_RECOMPUTED = 1e-6
"""Share of a statistic's scale by which a run of tensors may differ from a run of statistics and be alike.

Six digits are printed, and those of a mean near zero depend on the order in which it was added up.
"""


def examine_second_run(case: Case, first: Result, plan: Plan, attempt: Attempt) -> tuple[Result, Escalation]:
    """Read the tensors of the second run, and record them or say what they show of the failure.

    Returns:
        The first run, whose outcome is that of the recording where there is one, and the second one's.
    """
    directory, notes = attempt.directory, plan.notes
    if undumped := case.runtime.activity.evidence.undumped:
        problem = f"not all that the second run ran is in its dump: {'; '.join(undumped)}"
        return first, Escalation(problem=problem, directory=directory, notes=notes)
    try:
        if first.status == status.PENDING:
            return _recorded(case, first, plan, attempt)
        return first, _explained(case, first, plan, attempt)
    except (DumpError, GoldenError) as error:
        problem = f"what the second run dumped cannot be judged: {error}"
        return first, Escalation(problem=problem, directory=directory, notes=notes)


def _recorded(case: Case, first: Result, plan: Plan, attempt: Attempt) -> tuple[Result, Escalation]:
    first, dump = leave_out_unwritten(case, first, _read(case, first, attempt))
    measured = _measured(case, first, dump)
    second = _second(first, plan, attempt, dump)
    keys = [record.key for record in second.records.values()]
    disagreements = _disagreements(case, first, keys, second.records)
    differs = disagreements or measured.cells
    unlike = fed_otherwise(first.run.fed, fed(case), case.tolerances) if differs else ()
    problem = disagreement_words(first, disagreements) if disagreements else ""
    return record_with_tensors(case, first, second, fed_words(unlike) if unlike else problem, measured)


def _measured(case: Case, first: Result, dump: Dump) -> Measured:
    """Return whether the test repeats, as far as a run that dumps tensors of some layers can tell."""
    if _was_text(first) and case.runtime.name != "emulator":
        return once("the second run dumped tensors, whose statistics no device has computed")
    before = StatsTable.from_records(first.run.records)
    again = judge_tables(before, StatsTable.from_records(dump.records), case.tolerances)
    found = deviations(again, case.tolerances)
    strays = np.any(found.largest > _RECOMPUTED, axis=1) | found.uncountable
    alike = [replace(found, differs=found.differs & strays)]
    return repeated(alike, filtered=bool(case.request.layers))


def _explained(case: Case, first: Result, plan: Plan, attempt: Attempt) -> Escalation:
    dump = _read(case, first, attempt)
    second = _second(first, plan, attempt, dump)
    golden = case.goldens.read_if_any()
    tensors = read_tensors(golden, case.goldens.store) if golden is not None else {}
    findings = _findings(case, first, plan, second.records, tensors)
    findings = with_patterns(findings, second.records, tensors)
    findings, notes = _against_reference(case, first, findings, second.records)
    lost = {str(finding.key.sanitised) for finding in findings if finding.healthy}
    records = [*second.records.values()]
    isolated, told = isolate_suspects(
        case, first, plan, dump, records, folder=attempt.directory, healthy=lost
    )
    notes += told
    layers = tuple(dict.fromkeys(r.key.layer for r in second.records.values() if r.payload is not None))
    drawing = drawing_alike(case, first.run.dump) if first.run.dump is not None else ()
    return Escalation(
        findings,
        layers,
        plan.omitted,
        second.directory,
        notes=plan.notes + notes,
        drawing=drawing,
        isolated=isolated,
        alike=_alike(case, first, second.records),
    )


def _alike(case: Case, first: Result, records: Mapping[str, TensorRecord]) -> Mapping[str, TensorRecord]:
    """Return the tensors that the golden is to keep and that are those of the first run."""
    if first.run.kept is None:
        return {}
    wanted = {sanitise(layer) for layer in first.run.kept.layers}
    kept = {key: one for key, one in records.items() if one.payload and sanitise(one.key.layer) in wanted}
    disagreements = _disagreements(case, first, [one.key for one in kept.values()], records)
    return {key: one for key, one in kept.items() if key not in disagreements}


def _read(case: Case, first: Result, attempt: Attempt) -> Dump:
    """Read the second run's dump, under the first one's names; its statistics are defined as that one's."""
    comparison = first.comparison
    dump = attempt.read(case.steps_of("reading the second dump"), acl=_was_text(first))
    if first.part:
        dump = by_rank(dump).get(first.part, dump)
    if first.run.dump is not None:
        dump = under_first_keys(first.run.dump, dump)
    if comparison is not None:
        dump = with_raw_names(dump, by_file_names(v.key.layer for v in comparison.failing))
    return dump


def _was_text(first: Result) -> bool:
    """Whether the first run's statistics are CANN's own, printed with few digits, and not computed here."""
    records = first.run.records
    return any(record.stats is not None and record.stats.digits is not None for record in records)


def _second(first: Result, plan: Plan, attempt: Attempt, dump: Dump) -> SecondRun:
    alike = alike_layers(*filter(None, (first.run.dump, dump)))
    records = _wanted_records(dump, plan, first.comparison, alike)
    return SecondRun(attempt.directory, records, alike, plan.notes)


def _wanted_records(
    dump: Dump, plan: Plan, comparison: Comparison | None, alike: Collection[str]
) -> dict[str, TensorRecord]:
    """Return the records of the plan's layers by sanitised key, deleting files of all others.

    Layers whose names are ``alike`` in file names are left out: the first run cannot tell which is which.
    The keys are those that ``comparison`` gave to the first run's tensors.

    Raises:
        DumpError: a file of the dump cannot be read.
    """
    if dump.problems:
        raise DumpError(joined("; ", map(str, dump.problems)))
    wanted = {sanitise(layer) for layer in plan.layers}
    kept = [record for record in dump.records if sanitise(record.key.layer) in wanted]
    paths = {record.path for record in kept}
    for path in {record.path for record in dump.records} - paths:
        path.unlink()
    if comparison is not None:
        kept = [*under_golden_keys(kept, comparison.own_keys)]
    keyed: dict[str, TensorRecord] = {}
    for record in kept:
        keyed.setdefault(str(record.key.sanitised), record)
    return {key: record for key, record in keyed.items() if sanitise(record.key.layer) not in alike}


def _findings(
    case: Case,
    first: Result,
    plan: Plan,
    records: Mapping[str, TensorRecord],
    tensors: Mapping[str, np.ndarray],
) -> tuple[Finding, ...]:
    layers = {sanitise(layer) for layer in plan.layers}
    failing = [key for key in first.failing_keys if sanitise(key.layer) in layers]
    disagreements = _disagreements(case, first, failing, records)
    numerics = first.numerics
    tolerances = _tolerances(case, first)
    tolerances = tolerances.under(numerics.bounds) if numerics is not None else tolerances
    found, told = [], case.steps_of("comparing the tensors of the second run")
    for number, key in enumerate(failing, 1):
        found.append(_finding(tolerances, key, records.get(str(key.sanitised)), disagreements, tensors))
        if told is not None:
            told(number, len(failing))
    return _against_golden(first, tolerances, found, records)


def _against_golden(
    first: Result, tolerances: Tolerances, findings: Sequence[Finding], records: Mapping[str, TensorRecord]
) -> tuple[Finding, ...]:
    """Add to the findings how the second run's tensors compare with the golden.

    Where all that failed in the first run is within tolerance in the second one, that has not reproduced it.
    """
    before = first.comparison
    if before is None:
        return tuple(findings)
    here = [records[key] for f in findings if (key := str(f.key.sanitised)) in records]
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
        if row == ABSENT or verdict is None or verdict.status == EXTRA:
            found.append(finding)
        elif verdict.status == FAIL or (difference is not None and difference.outside):
            found.append(replace(finding, now=status.OUTSIDE))
        elif at in unjudged or not known.issuperset(reason.statistic for reason in reasons.get(key, ())):
            found.append(finding)
        else:
            now = status.WITHIN if at in changed else status.AS_PRINTED
            found.append(replace(finding, now=now, reproduced=finding.reproduced and key not in reasons))
    return tuple(found)


def _tolerances(case: Case, first: Result) -> Tolerances:
    """Return the test's tolerances for all layers of the first run and its golden, failing or not."""
    comparison = first.comparison
    if comparison is not None:
        return case.tolerances.for_layers_of(comparison.golden.keys, comparison.actual.keys)
    records = first.run.records
    return case.tolerances.for_layers_of(str(record.key) for record in records)


def _disagreements(
    case: Case, first: Result, failing: Iterable[TensorKey], records: Mapping[str, TensorRecord]
) -> dict[str, dict[str, tuple[object, object]]]:
    """Statistics in which the runs disagree beyond the test's tolerances, by sanitised key.

    The second run's statistics are recomputed from its tensors, with ACL's own way of treating NaN.
    """
    dumped = first.run.records
    wanted = {str(key.sanitised) for key in failing} & records.keys()
    before = [record for record in dumped if str(record.key.sanitised) in wanted]
    after = [records[str(record.key.sanitised)] for record in before]
    tables = StatsTable.from_records(before), StatsTable.from_records(after)
    comparison = judge_tables(*tables, _tolerances(case, first), RUN)
    return {
        str(verdict.key.sanitised): {r.statistic: (r.golden, r.actual) for r in verdict.reasons}
        for verdict in comparison.failing
    }


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
    rtol, atol = tolerances.elements(record.key.layer, record.dtype, op_type=record.op_type)
    return replace(finding, difference=compare_tensors(golden, actual, rtol=rtol, atol=atol))


_AT_HAND = 16
"""Other tensors whose values a wrong one may turn out to hold."""


def with_patterns(
    findings: Sequence[Finding], records: Mapping[str, TensorRecord], tensors: Mapping[str, np.ndarray]
) -> tuple[Finding, ...]:
    """Add to the first findings what can be drawn of them, and where elements differ what explains that.

    Args:
        findings: one a failing tensor, in execution order.
        records: the second run's tensors by sanitised key.
        tensors: the golden's, the same way.
    """
    told = list(findings)
    differing = [at for at, f in enumerate(findings) if f.difference is not None and f.difference.outside]
    for at in differing[:SEARCHED]:
        name, difference = str(findings[at].key.sanitised), findings[at].difference
        record = records[name]
        actual = _loaded(record)
        if actual is None or difference is None:
            continue
        others = _others(name, actual, records, tensors)
        pattern = find_pattern(tensors[name], actual, difference, layout=record.format, others=others)
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
    """Return tensors of the same type and size: those of this run, and the golden's."""
    found: dict[str, np.ndarray] = {}
    for key, record in records.items():
        alike = record.dtype == records[name].dtype and math.prod(record.shape or ()) == actual.size
        array = _loaded(record) if alike and key != name and len(found) < _AT_HAND else None
        if array is not None:
            found[str(record.key)] = array
    for key, array in tensors.items():
        same = array.dtype == actual.dtype and array.size == actual.size
        if same and key != name and len(found) < _AT_HAND:
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
    case: Case, first: Result, findings: Sequence[Finding], records: Mapping[str, TensorRecord]
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Add to the findings what the elements are off from the reference's.

    The reference runs again, on what the second run was fed, for just these layers.

    Returns:
        The findings, and a note where the reference could not be computed.
    """
    result = first.reference
    if case.reference is None or result is None or result.comparison is None or not result.failing:
        return tuple(findings), ()
    failing = {str(verdict.key.sanitised) for verdict in result.comparison.failing}
    layers = {sanitise(verdict.key.layer) for verdict in result.comparison.failing}
    wanted = [record for record in records.values() if sanitise(record.key.layer) in layers]
    dumped = first.run.records
    case.reference.settle(case.goldens.facts(case.runtime.producer()))  # this may be another process
    try:
        compared = case.reference.compare(wanted, dumped=dumped, patterns=SEARCHED)
    except NpudumpError as error:
        return tuple(findings), (f"the second run was not compared with the reference: {error}",)
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
