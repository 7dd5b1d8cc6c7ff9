"""The first run's dump: read it, and record it in the golden or compare it with the golden."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.compare.stats.eager_calls import compare_runs, under_golden_keys
from pytest_npudump.compare.stats.verdict import EXTRA
from pytest_npudump.compare.tolerances.rules import MARKER_RULES
from pytest_npudump.dump.records import sanitise
from pytest_npudump.dump.selection import (
    absent_layers,
    both_spellings,
    suggest,
)
from pytest_npudump.dump.table import StatsTable, layer_of
from pytest_npudump.errors import DumpError, GoldenError, GoldenMissingError
from pytest_npudump.golden.kept_tensors import missing_tensors, stored_tensors
from pytest_npudump.golden.pair import left_out
from pytest_npudump.regression import outcome as status
from pytest_npudump.regression.bounds import changes, numerics_for
from pytest_npudump.regression.diagnose import full_words, notes_of
from pytest_npudump.regression.empty_operators import changed, empty_operators, notes_on
from pytest_npudump.regression.golden_elements import judge_elements
from pytest_npudump.regression.outcome import FirstRun, Outcome
from pytest_npudump.regression.ranks import by_rank, judge_parts, shared
from pytest_npudump.regression.record import golden_to_start_from, left_out_notes, record
from pytest_npudump.regression.reference_outcome import by_reference_alone, not_recorded, with_reference
from pytest_npudump.regression.run_dump import collect, told_by_raw_names, unreadable, without_unwritten
from pytest_npudump.regression.scenes import JUDGES
from pytest_npudump.regression.unwritten import (
    NOT_LOOKED_FOR,
    depends_on_memory,
    entries_of,
    keep_probe,
    read_probe,
)
from pytest_npudump.request import matches_any
from pytest_npudump.runtime.thread_order import loads_without_order, runs_without_order

if TYPE_CHECKING:
    from pytest_npudump.dump.records import Dump
    from pytest_npudump.golden.text import Golden
    from pytest_npudump.regression.attempt import Attempt
    from pytest_npudump.regression.case import Case


_NOTHING_JUDGED = (
    "no value was judged: the golden and the dump share neither a finite statistic nor a hash of any tensor "
    '(the notes say why); use dump_data="tensor", with golden_tensors where NaN or Inf hide the rest'
)


def judge(case: Case, attempt: Attempt) -> FirstRun:
    """Read the dump of a first run, and record it, compare it or have its scene judge it.

    Whatever cannot be read or decided is an outcome that fails the test, never an exception.
    """
    undumped = tuple(case.runtime.activity.evidence.undumped)
    failed = Outcome(status.ERROR, case.goldens.path, problems=undumped)
    first = FirstRun(failed) if undumped else _judged(case, attempt)
    # What has passed has all that the golden lists.
    full = full_words(case.directory) if first.outcome.status != status.PASSED else ""
    return _noted(first, (*notes_of(case), *filter(None, [full])))


def _noted(first: FirstRun, notes: tuple[str, ...]) -> FirstRun:
    return replace(first, outcome=replace(first.outcome, notes=first.outcome.notes + notes))


def probe(case: Case, attempt: Attempt) -> Outcome:
    """Keep the statistics of a run in other memory, for the run that is recorded; its dump is deleted."""
    try:
        table = StatsTable.from_records(collect(case, attempt, golden_to_start_from(case)).records)
    except (DumpError, GoldenError) as error:
        return Outcome(status.ERROR, None, problems=(str(error),))
    keep_probe(case.directory, table)
    shutil.rmtree(attempt.directory, ignore_errors=True)
    return Outcome(status.UNCHANGED, None, tensors=len(table))


def _judged(case: Case, attempt: Attempt) -> FirstRun:
    scene = JUDGES.get(case.request.scene)
    if scene is not None:
        return FirstRun(scene(case, attempt))
    try:
        golden = golden_to_start_from(case)
        dump = without_unwritten(case, collect(case, attempt, golden), golden)
        table = StatsTable.from_records(dump.records)
    except (DumpError, GoldenError) as error:
        return FirstRun(Outcome(status.ERROR, case.goldens.path, problems=(str(error),)))
    reference = case.reference
    compared = reference.judge(dump.records, case.request) if reference is not None else None
    if case.settings.update_golden and compared is not None and not compared.good:
        return FirstRun(not_recorded(case.goldens.path, compared, tensors=len(table)), dump)
    try:
        first = _judge_ranks(case, golden, dump, table)
    except GoldenError as error:
        if case.settings.update_golden:
            raise
        return FirstRun(Outcome(status.ERROR, case.goldens.path, problems=(str(error),)), dump)
    return replace(first, outcome=with_reference(first.outcome, compared))


def _judge_ranks(case: Case, golden: Golden | None, dump: Dump, table: StatsTable) -> FirstRun:
    """Record or compare the dump: rank by rank where it holds several that share a golden."""
    parts = by_rank(dump) if case.request.ranks == "same" else {}
    if len(parts) > 1:
        return judge_parts(case, golden, parts, _compare, _record)
    return (_record if case.settings.update_golden else _compare)(case, golden, dump, table)


def _problems(case: Case, dump: Dump, table: StatsTable, known: set[str]) -> tuple[str, ...]:
    layers = [record.key.layer for record in dump.records]
    absent = tuple(
        f"layer {name!r}, named in the marker, is not in the dump; {suggest(name, layers)}"
        for name in absent_layers(dump, case.request)
        if sanitise(name) not in known
    )
    unmatched = tuple(
        f"tolerance rule {rule.describe()} of the marker matches nothing this test dumped; "
        f"correct its layer, dtype or statistic, or remove it"
        for rule in case.tolerances.unmatched(table)
        if rule.source == MARKER_RULES
    )
    kept = tuple(
        f"golden_tensors {pattern!r} of the marker names no layer of the dump; {suggest(pattern, layers)}"
        for pattern in case.request.golden_tensors
        if not any(matches_any(both_spellings([pattern]), layer) for layer in layers)
    )
    evidence = case.runtime.activity.evidence
    threads = (
        *loads_without_order(dump.records, evidence.loaders),
        *runs_without_order(dump.records, evidence.runners),
    )
    return unreadable(dump) + absent + unmatched + kept + threads + _nothing_told(table)


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


def _compare(case: Case, golden: Golden | None, dump: Dump, table: StatsTable) -> FirstRun:
    if golden is None and case.reference is not None:
        problems = _problems(case, dump, table, set())
        path, notes = case.goldens.path, dump.notes
        return FirstRun(by_reference_alone(path, tensors=len(table), problems=problems, notes=notes), dump)
    if golden is None:
        problem = str(GoldenMissingError(f"no golden file {case.goldens.path}"))
        path, word = case.goldens.path, status.MISSING_GOLDEN
        return FirstRun(Outcome(word, path, problems=(problem,), tensors=len(table)), dump)
    producer = case.runtime.producer()
    environment = case.goldens.differences(golden, producer)
    numerics = numerics_for(case, environment, producer)
    tolerances = case.tolerances.under(numerics.bounds)
    comparison = compare_runs(golden.table, table, tolerances)
    if comparison.count(EXTRA):  # the golden knows no raw names for them
        dump = told_by_raw_names(case, golden, dump)
        comparison = compare_runs(golden.table, StatsTable.from_records(dump.records), tolerances)
    lost: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()
    if kept := case.request.golden_tensors:
        stored = stored_tensors(golden)
        comparison = judge_elements(comparison, stored, kept, dump.records, tolerances)
        lost = _lost_tensors(golden, missing_tensors(golden, stored, kept))
        doubtful = left_out_notes(left_out(golden))
    dump = replace(dump, records=under_golden_keys(dump.records, comparison.own_keys))
    known = {sanitise(verdict.key.layer) for verdict in comparison.failing if verdict.status == "missing"}
    known |= {sanitise(layer_of(key)) for key in entries_of(golden)}
    silent = empty_operators(case, dump)
    problems = (
        *case.goldens.foreign(golden),
        *changed(golden, silent),
        *_problems(case, dump, table, known),
        *lost,
        *changes(case, comparison),
    )
    if not problems and comparison.nothing_judged:
        problems = (_NOTHING_JUDGED,)
    good = not comparison.failing and not problems
    outcome = Outcome(
        status.PASSED if good else status.FAILED,
        golden.path,
        comparison=comparison,
        problems=problems,
        notes=dump.notes
        + case.goldens.unsaid(golden)
        + notes_on(golden, silent)
        + doubtful
        + comparison.notes,
        tensors=len(table),
        numerics=numerics,
        environment=environment,
    )
    return FirstRun(outcome, dump)


def _depends_on_memory(case: Case, golden: Golden | None, dump: Dump, table: StatsTable) -> tuple[bool, Dump]:
    """Return whether the run differs from one in other memory, and its dump: a note says if none can tell."""
    found = read_probe(case.directory)
    if found is not None:
        return depends_on_memory(table, found, case.tolerances, golden), dump
    if case.runtime.producer().get("device_target") == "CPU":
        dump = replace(dump, notes=(*dump.notes, NOT_LOOKED_FOR))
    return False, dump


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


def _record(case: Case, golden: Golden | None, dump: Dump, table: StatsTable) -> FirstRun:
    path, count = case.goldens.path, len(table)
    problems = _problems(case, dump, table, set())
    if problems:
        return FirstRun(Outcome(status.ERROR, path, problems=problems, tensors=count), dump)
    if (outcome := shared(case, table)) is not None:
        return FirstRun(outcome, dump)
    depends, dump = _depends_on_memory(case, golden, dump, table)
    needing = "the golden tensors need" if case.request.golden_tensors else "unwritten outputs need"
    waiting = f"nothing was recorded: {needing} a second run, which did not take place"
    first = FirstRun(Outcome(status.PENDING, path, problems=(waiting,), tensors=count), dump)
    if case.request.golden_tensors or depends:
        return first
    return replace(first, outcome=record(case, golden, first, table))
