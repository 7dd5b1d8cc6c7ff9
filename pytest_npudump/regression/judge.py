"""The first run's dump: read it, and record it in the golden or compare it with the golden."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.compare.stats.calls import compare_runs, under_golden_keys
from pytest_npudump.compare.stats.verdict import EXTRA
from pytest_npudump.compare.tolerances.of_test import MARKER_RULES
from pytest_npudump.dump.records import sanitise
from pytest_npudump.dump.selection import (
    absent_layers,
    asked_statistics,
    both_spellings,
    resolve_raw_names,
    select_layers,
    suggest,
    with_raw_names,
)
from pytest_npudump.dump.table import StatsTable, layer_of
from pytest_npudump.errors import DumpError, EmptyDumpError, GoldenError, GoldenMissingError
from pytest_npudump.golden.pair import left_out
from pytest_npudump.golden.tensors_of_test import missing_tensors, stored_tensors
from pytest_npudump.ranks.parts import by_rank
from pytest_npudump.regression import outcome as status
from pytest_npudump.regression.diagnose import explain_empty
from pytest_npudump.regression.empty_operators import changed, empty_operators, notes_on
from pytest_npudump.regression.golden_elements import judge_elements
from pytest_npudump.regression.notes import notes_of
from pytest_npudump.regression.outcome import Outcome
from pytest_npudump.regression.printed import as_recorded, is_printed
from pytest_npudump.regression.ranks import judge_parts, shared
from pytest_npudump.regression.record import golden_to_start_from, left_out_notes, record
from pytest_npudump.regression.reference import by_reference_alone, not_recorded, with_reference
from pytest_npudump.regression.scenes import JUDGES
from pytest_npudump.regression.unwritten import (
    NOT_LOOKED_FOR,
    depends_on_memory,
    entries_of,
    keep_probe,
    read_probe,
    unjudged_note,
    without,
)
from pytest_npudump.request import matches_any
from pytest_npudump.runtime.loads import loads_without_order

if TYPE_CHECKING:
    from pytest_npudump.dump.records import Dump
    from pytest_npudump.golden.text import Golden
    from pytest_npudump.regression.session import MarkedTest


_NOTHING_JUDGED = (
    "no value was judged: the golden and the dump share neither a finite statistic nor a hash of any tensor "
    '(the notes say why); use dump_data="tensor", with golden_tensors where NaN or Inf hide the rest'
)


def judge(test: MarkedTest) -> Outcome:
    """Read the dump of the first run, and record it, compare it or have its scene judge it.

    Whatever cannot be read or decided is an outcome that fails the test, never an exception.
    """
    undumped = tuple(test.runtime.activity.evidence.undumped)
    failed = Outcome(status.ERROR, test.goldens.path, problems=undumped)
    outcome = failed if undumped else _judged(test)
    return replace(outcome, notes=outcome.notes + notes_of(test))


def probe(test: MarkedTest) -> Outcome:
    """Keep the statistics of a run in other memory, for the run that is recorded; its dump is deleted."""
    try:
        table = StatsTable.from_records(collect(test, golden_to_start_from(test)).records)
    except (DumpError, GoldenError) as error:
        return Outcome(status.ERROR, None, problems=(str(error),))
    keep_probe(test.directory, table)
    shutil.rmtree(test.attempt.directory, ignore_errors=True)
    return Outcome(status.UNCHANGED, None, tensors=len(table))


def _judged(test: MarkedTest) -> Outcome:
    scene = JUDGES.get(test.request.scene)
    if scene is not None:
        return scene(test)
    try:
        golden = golden_to_start_from(test)
        test.dump = _without_unwritten(test, collect(test, golden), golden)
        table = StatsTable.from_records(test.dump.records)
    except (DumpError, GoldenError) as error:
        return Outcome(status.ERROR, test.goldens.path, problems=(str(error),))
    reference = test.reference
    compared = reference.judge(test.dump.records, test.request) if reference is not None else None
    if test.settings.update_golden:
        if compared is not None and not compared.good:
            return not_recorded(test.goldens.path, compared, tensors=len(table))
        return with_reference(_judge_ranks(test, golden, table), compared)
    try:
        return with_reference(_judge_ranks(test, golden, table), compared)
    except GoldenError as error:
        return Outcome(status.ERROR, test.goldens.path, problems=(str(error),))


def _judge_ranks(test: MarkedTest, golden: Golden | None, table: StatsTable) -> Outcome:
    """Record or compare the dump: rank by rank where it holds several that share a golden."""
    assert test.dump is not None  # noqa: S101 - judge() has set it
    parts = by_rank(test.dump) if test.request.ranks == "same" else {}
    if len(parts) > 1:
        return judge_parts(test, golden, parts, _compare, _record)
    return (_record if test.settings.update_golden else _compare)(test, golden, table)


def collect(test: MarkedTest, golden: Golden | None) -> Dump:
    """Read the dump and keep the layers asked for.

    Raises:
        DumpError: it holds nothing, or nothing that was asked for; the message has the likely cause.
    """
    attempt = test.attempt
    activity = test.runtime.activity
    try:
        dump = attempt.read(test.progress)
        if golden is not None and not test.settings.update_golden and is_printed(test.request, golden.table):
            dump = as_recorded(dump, attempt.read(acl=True), golden.table)
    except DumpError as error:
        # Files that are no dump, such as MindSpore's own lists, say less than a runtime that knows the cause.
        seen = "" if isinstance(error, EmptyDumpError) and activity.likely_cause else str(error)
        raise DumpError(explain_empty(test.request, activity, attempt.dump_path, seen)) from error
    if not dump.records and not dump.problems:
        raise DumpError(explain_empty(test.request, activity, attempt.dump_path, ""))
    selected = asked_statistics(select_layers(dump, test.request), test.request)
    if not selected.records and not dump.problems:
        names = ", ".join(map(repr, test.request.layers))
        hint = suggest(test.request.layers[0], (record.key.layer for record in dump.records))
        raise DumpError(f"the dump has none of the layers that the marker names ({names}); {hint}")
    if test.settings.update_golden:
        return _named(test, golden, selected)
    return selected


def _without_unwritten(test: MarkedTest, dump: Dump, golden: Golden | None) -> Dump:
    """Leave out what the golden says nothing wrote, unless it has the tensor; an update finds out anew."""
    if golden is None or test.settings.update_golden:
        return dump
    entries = entries_of(golden)
    rest = without(dump, entries, golden.table.keys)
    return replace(rest, notes=rest.notes + unjudged_note(entries, dump, rest))


def _named(test: MarkedTest, golden: Golden | None, dump: Dump) -> Dump:
    raw = resolve_raw_names(
        {sanitise(record.key.layer) for record in dump.records},
        request=test.request,
        golden_keys=golden.table.keys if golden else (),
        models=test.runtime.activity.models,
        tree=dump.root,
    )
    return with_raw_names(dump, raw)


def _told_by_raw_names(test: MarkedTest, golden: Golden, dump: Dump) -> Dump:
    try:
        return _named(test, golden, dump)
    except DumpError:  # the model's file cannot be read any more
        return dump


def _problems(test: MarkedTest, dump: Dump, table: StatsTable, known: set[str]) -> tuple[str, ...]:
    unreadable = tuple(f"unreadable file in the dump: {problem}" for problem in dump.problems)
    layers = [record.key.layer for record in dump.records]
    absent = tuple(
        f"layer {name!r}, named in the marker, is not in the dump; {suggest(name, layers)}"
        for name in absent_layers(dump, test.request)
        if sanitise(name) not in known
    )
    unmatched = tuple(
        f"tolerance rule {rule.describe()} of the marker matches nothing this test dumped; "
        f"correct its layer, dtype or statistic, or remove it"
        for rule in test.tolerances.unmatched(table)
        if rule.source == MARKER_RULES
    )
    kept = tuple(
        f"golden_tensors {pattern!r} of the marker names no layer of the dump; {suggest(pattern, layers)}"
        for pattern in test.request.golden_tensors
        if not any(matches_any(both_spellings([pattern]), layer) for layer in layers)
    )
    loads = tuple(loads_without_order(dump.records, test.runtime.activity.evidence.loaders))
    return unreadable + absent + unmatched + kept + loads + _nothing_told(table)


def _nothing_told(table: StatsTable) -> tuple[str, ...]:
    """Refuse a dump that tells no value of any tensor, which a test would pass whatever these are."""
    holding = [count for count in table.counts if count != 0]
    if not holding or table.known.any() or table.digests:
        return ()
    problem = (
        f"the dump tells neither statistics nor hashes of any of its {len(holding)} tensors (ACL "
        f'computes none of bfloat16, say): there is nothing to judge, use dump_data="tensor"'
    )
    return (problem,)


def _compare(test: MarkedTest, golden: Golden | None, table: StatsTable) -> Outcome:
    assert test.dump is not None  # noqa: S101 - judge() has set it
    if golden is None and test.reference is not None:
        problems = _problems(test, test.dump, table, set())
        return by_reference_alone(
            test.goldens.path, tensors=len(table), problems=problems, notes=test.dump.notes
        )
    if golden is None:
        problem = str(GoldenMissingError(f"no golden file {test.goldens.path}"))
        return Outcome(status.MISSING_GOLDEN, test.goldens.path, problems=(problem,), tensors=len(table))
    comparison = compare_runs(golden.table, table, test.tolerances)
    if comparison.count(EXTRA):  # the golden knows no raw names for them
        test.dump = _told_by_raw_names(test, golden, test.dump)
        comparison = compare_runs(golden.table, StatsTable.from_records(test.dump.records), test.tolerances)
    lost: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()
    if kept := test.request.golden_tensors:
        stored = stored_tensors(golden)
        comparison = judge_elements(comparison, stored, kept, test.dump.records, test.tolerances)
        lost = _lost_tensors(golden, missing_tensors(golden, stored, kept))
        doubtful = left_out_notes(left_out(golden))
    test.dump = replace(test.dump, records=under_golden_keys(test.dump.records, comparison.own_keys))
    known = {sanitise(verdict.key.layer) for verdict in comparison.failing if verdict.status == "missing"}
    known |= {sanitise(layer_of(key)) for key in entries_of(golden)}
    silent = empty_operators(test)
    problems = (
        *test.goldens.foreign(golden),
        *changed(golden, silent),
        *_problems(test, test.dump, table, known),
        *lost,
    )
    if not problems and comparison.nothing_judged:
        problems = (_NOTHING_JUDGED,)
    good = not comparison.failing and not problems
    return Outcome(
        status.PASSED if good else status.FAILED,
        golden.path,
        comparison=comparison,
        problems=problems,
        notes=test.dump.notes
        + test.goldens.unsaid(golden)
        + notes_on(golden, silent)
        + doubtful
        + comparison.notes,
        tensors=len(table),
        environment=test.goldens.differences(golden, test.runtime.producer()),
    )


def _depends_on_memory(test: MarkedTest, golden: Golden | None, table: StatsTable) -> bool:
    """Whether the run differs from one in other memory; where none can tell, a note says so."""
    assert test.dump is not None  # noqa: S101 - judge() has set it
    found = read_probe(test.directory)
    if found is not None:
        return depends_on_memory(table, found, test.tolerances, golden)
    if test.runtime.producer().get("device_target") == "CPU":
        test.dump = replace(test.dump, notes=(*test.dump.notes, NOT_LOOKED_FOR))
    return False


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


def _record(test: MarkedTest, golden: Golden | None, table: StatsTable) -> Outcome:
    assert test.dump is not None  # noqa: S101 - judge() has set it
    problems = _problems(test, test.dump, table, set())
    if problems:
        return Outcome(status.ERROR, test.goldens.path, problems=problems, tensors=len(table))
    if (outcome := shared(test, table)) is not None:
        return outcome
    depends = _depends_on_memory(test, golden, table)
    if test.request.golden_tensors or depends:
        needing = "the golden tensors need" if test.request.golden_tensors else "unwritten outputs need"
        waiting = f"nothing was recorded: {needing} a second run, which did not take place"
        return Outcome(status.PENDING, test.goldens.path, problems=(waiting,), tensors=len(table))
    return record(test, golden, table)
