"""A run's snapshot against its golden: the judgement that the plugin makes, and that can be made again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.compare.stats.both_sides import told_by_both
from pytest_npudump.compare.stats.eager_calls import compare_runs
from pytest_npudump.compare.stats.measured_bounds import bounds_by_measurement
from pytest_npudump.compare.stats.not_finite import describe_not_finite
from pytest_npudump.compare.tolerances.calibrated import calibrated_of
from pytest_npudump.compare.tolerances.numerics import AUTO, SAME, Numerics, numerics_of
from pytest_npudump.compare.tolerances.rules import MARKER_RULES
from pytest_npudump.compare.tolerances.tolerance import GOLDEN as AGAINST_GOLDEN
from pytest_npudump.dump.records import sanitise
from pytest_npudump.dump.table import layer_of
from pytest_npudump.errors import GoldenError, GoldenMissingError
from pytest_npudump.golden.content.unwritten_entries import left_out_of
from pytest_npudump.golden.kept_tensors import missing_tensors, stored_tensors
from pytest_npudump.golden.objects.stored_golden import fetch_tensors
from pytest_npudump.golden.pair import left_out
from pytest_npudump.regression import outcome as status
from pytest_npudump.regression.first_run.changed_within import Changes, changes_of
from pytest_npudump.regression.first_run.golden_elements import judge_elements
from pytest_npudump.regression.kept_layers import compared_patterns
from pytest_npudump.regression.outcome import Outcome
from pytest_npudump.regression.record import left_out_notes
from pytest_npudump.regression.run.dataflow import sources_of
from pytest_npudump.regression.run.empty_operators import changed, notes_on
from pytest_npudump.regression.run.snapshot import problems_of
from pytest_npudump.request import AUTO_LAYERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.compare.stats.verdict import Comparison
    from pytest_npudump.dump.records import Dump
    from pytest_npudump.golden.content.text import Golden
    from pytest_npudump.regression.case import Case
    from pytest_npudump.regression.run.snapshot import Snapshot

CHANGE = "change"
"""The value of ``--npudump-fail-on`` with which a value that is not the golden's fails its test."""

_NOTHING_JUDGED = (
    "no value was judged: the golden and the dump share neither a finite statistic nor a hash of any tensor "
    '(the notes say why); use dump_data="tensor", with golden_tensors where NaN or Inf hide the rest'
)


def without_golden(case: Case, snapshot: Snapshot) -> Outcome:
    """Return the outcome of a test that has no golden to be compared with."""
    problem = str(GoldenMissingError(f"no golden file {case.goldens.path}"))
    path, word = case.goldens.path, status.MISSING_GOLDEN
    notes = tuple(filter(None, [describe_not_finite(snapshot.table)]))
    return Outcome(word, path, problems=(problem,), notes=notes, tensors=len(snapshot.table))


def judge_snapshot(case: Case, golden: Golden, snapshot: Snapshot, dump: Dump | None = None) -> Outcome:
    """Compare a run with its golden.

    Args:
        case: the test.
        golden: what counts.
        snapshot: what the run left.
        dump: its tensors, in the order of the snapshot's table; None where they are not at hand, and elements
            are not judged.

    Raises:
        GoldenError: the golden's tensors cannot be read.
    """
    environment = case.goldens.differences(golden, snapshot.facts)
    numerics = _numerics_for(case, environment, snapshot.facts)
    measured = calibrated_of(golden)
    tolerances = case.tolerances.under(numerics.bounds).with_measured(measured)
    comparison = compare_runs(golden.table, snapshot.table, tolerances)
    lost: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    if kept := compared_patterns(case):
        stored = stored_tensors(golden, store=case.goldens.store)
        try:
            if dump is not None:
                fetch_tensors(stored.values(), kept)
                comparison = judge_elements(comparison, stored, kept, dump.records, tolerances)
        except GoldenError as error:
            lacking = (str(error),)
        lost = _lost_tensors(golden, missing_tensors(golden, stored, case.request.golden_tensors))
        if AUTO_LAYERS in case.request.golden_tensors and not stored:
            lost = (*lost, _nothing_kept(golden))
        doubtful = left_out_notes(left_out(golden))
    known = {sanitise(verdict.key.layer) for verdict in comparison.failing if verdict.status == "missing"}
    known |= {sanitise(layer_of(key)) for key in left_out_of(golden, snapshot.facts)}
    changes = changes_of(comparison, golden) if case.settings.fail_on == CHANGE else Changes()
    problems = (
        *case.goldens.foreign(golden),
        *changed(golden, snapshot.empty),
        *problems_of(case, snapshot, known),
        *_not_approved(case, snapshot, comparison),
        *lost,
        *_changes(comparison, changes),
    )
    if not problems and comparison.nothing_judged:
        problems = (_NOTHING_JUDGED,)
    verdict = status.PASSED if not comparison.failing and not problems else status.FAILED
    if lacking and verdict == status.PASSED:
        verdict = status.ERROR
    sources, unread = sources_of(case, golden, dump, comparison, tolerances, same=numerics.bounds == SAME)
    why = (case.goldens.why,) if case.goldens.why else ()
    notes = (why, snapshot.notes, case.goldens.unsaid(golden), notes_on(golden, snapshot.empty))
    return Outcome(
        verdict,
        golden.path,
        comparison=comparison,
        problems=(*problems, *lacking),
        notes=(*(note for group in notes for note in group), *doubtful, *comparison.notes, *unread),
        tensors=len(snapshot.table),
        numerics=numerics,
        measured=measured,
        measured_bounds=bounds_by_measurement(comparison, tolerances),
        environment=environment,
        sources=sources,
        changes=changes.found,
        idle_rules=_idle_rules(case, comparison),
    )


def _not_approved(case: Case, snapshot: Snapshot, comparison: Comparison) -> tuple[str, ...]:
    """Name rules of the marker for what the run has and the golden lacks: they decide nothing."""
    of_marker = case.tolerances.having(lambda rule: rule.source == MARKER_RULES)
    if not of_marker.rules:
        return ()
    absent = of_marker.unmatched(snapshot.table)
    return tuple(
        f"tolerance rule {rule.describe()} of the marker decides nothing: the golden has no "
        f"{rule.statistic} of the tensors that it matches; approve anew, or remove it"
        for rule in of_marker.unmatched(told_by_both(comparison)[1])
        if rule not in absent
    )


def _idle_rules(case: Case, comparison: Comparison) -> tuple[str, ...]:
    """Return the rules of files that decide about no tensor of this test; they may about another's."""
    of_files = case.tolerances.having(
        lambda rule: rule.source != MARKER_RULES and rule.against == AGAINST_GOLDEN
    )
    if not of_files.rules:
        return ()
    return tuple(rule.describe() for rule in of_files.unmatched(told_by_both(comparison)[1]))


def _lost_tensors(golden: Golden, missing: tuple[str, ...]) -> tuple[str, ...]:
    """Say which tensors the marker wants kept and the golden has not, lost or never recorded."""
    if not missing:
        return ()
    first = f"{missing[0]}" + (f" and {len(missing) - 1} more" if missing[1:] else "")
    problem = (
        f"golden tensors named in the marker are not beside {golden.path.name}: {first}; restore the "
        f"safetensors file from version control, or approve anew with --npudump-update-golden"
    )
    return (problem,)


def _nothing_kept(golden: Golden) -> str:
    return (
        f"golden_tensors is 'auto', and {golden.path.name} keeps no tensors: restore it from version "
        f"control, or approve anew with --npudump-update-golden"
    )


def _numerics_for(
    case: Case, differences: Mapping[str, tuple[str, str]], facts: Mapping[str, str]
) -> Numerics:
    """Decide by what produced the golden and this run; the marker, then the option, may have decided."""
    option = case.settings.numerics or AUTO
    preset = case.tolerances.preset
    return numerics_of(differences, facts, marker=case.request.numerics, option=option, preset=preset)


def _changes(comparison: Comparison, changes: Changes) -> tuple[str, ...]:
    """Return the problem that values within tolerance are, where the run is to fail for any change."""
    if not changes.found:
        return ()
    words = f"{len(changes.found)} of {comparison.expected} tensors changed within tolerance"
    if changes.following:
        words += f", beside {changes.following} that follow from tensors that do not repeat"
    way_out = "--npudump-fail-on=change lets nothing pass but the golden's own digits"
    return (f"{words}, first {changes.found[0].key}; {way_out}",)
