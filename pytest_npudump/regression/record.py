"""An update: the golden is written, with the tensors that are to be kept or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.dump.records import sanitise
from pytest_npudump.dump.selection import both_spellings
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.errors import DumpError, GoldenError
from pytest_npudump.golden.tensors_of_test import KeptTensors
from pytest_npudump.golden.text import EMPTY, UNWRITTEN
from pytest_npudump.onnxmodels.random_operators import EAGER, drawing_words, random_layers
from pytest_npudump.regression import outcome as status
from pytest_npudump.regression.empty_operators import empty_operators
from pytest_npudump.regression.outcome import Escalation, Outcome
from pytest_npudump.regression.reference import with_reference
from pytest_npudump.regression.unwritten import (
    by_layer,
    entries_of,
    find_unwritten,
    new_entries,
    read_probe,
    without,
)
from pytest_npudump.request import is_glob, matches_any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pytest_npudump.dump.records import Dump, TensorRecord
    from pytest_npudump.golden.text import Golden
    from pytest_npudump.regression.second_run import Plan
    from pytest_npudump.regression.session import MarkedTest

_SHOWN = 3


def golden_to_start_from(test: MarkedTest) -> Golden | None:
    """Read the golden, if there is one; a damaged one stands in the way of a comparison, not of an update.

    Raises:
        GoldenError: the file cannot be read, and is not about to be replaced.
    """
    try:
        golden = test.goldens.read_if_any()
        entries_of(golden)
    except GoldenError:
        if test.settings.update_golden:
            return None
        raise
    return golden


def record(
    test: MarkedTest, golden: Golden | None, table: StatsTable, tensors: KeptTensors | None = None
) -> Outcome:
    """Write the golden file of the first run's statistics; a file that cannot be written fails the test."""
    lost = test.goldens.lost_by_update(golden)
    try:
        known = _known_of_run(test, golden)
        path, written = test.goldens.write(golden, table, test.runtime.producer(), tensors, known)
    except GoldenError as error:
        return Outcome(status.ERROR, test.goldens.path, problems=(str(error),), tensors=len(table))
    word = status.RECORDED if written else status.UNCHANGED
    notes = (*test.dump.notes, *_random_notes(test, test.dump)) if test.dump else ()
    return Outcome(word, path, notes=(*lost, *notes), tensors=len(table))


def _known_of_run(test: MarkedTest, golden: Golden | None) -> dict[str, object]:
    """Return what the golden says of tensors that have no row in it."""
    empty, unwritten = empty_operators(test), by_layer(new_entries(golden, test.unwritten))
    return ({EMPTY: empty} if empty else {}) | ({UNWRITTEN: unwritten} if unwritten else {})


def _random_notes(test: MarkedTest, dump: Dump) -> tuple[str, ...]:
    drawing = random_layers(dump, test.runtime.activity.models)
    if not drawing:
        return ()
    note = (
        f"{drawing_words(drawing)}: the golden holds for the numbers of this run only, unless a seed is "
        f"fixed; give these operators one, or leave what depends on them out with layers"
    )
    return (note,)


def needs_processes(test: MarkedTest, dump: Dump) -> str:
    """Say why two runs in one process cannot show that a test is deterministic; "" where they can."""
    if test.isolated:
        return ""
    layers = random_layers(dump, test.runtime.activity.models)
    drawing = tuple(name for name in layers if EAGER not in name.rpartition("(")[2])
    if not drawing:
        return ""
    return (
        f"{drawing_words(drawing)}, from a seed that may be this process's, so that two runs here agree and "
        f'later ones do not: give these operators a seed, or record with isolation="process", where each run '
        f"has a process of its own"
    )


def leave_out_unwritten(test: MarkedTest, again: Dump) -> Dump:
    """Take what nothing writes out of the first run's dump, and of the second one's, which is returned."""
    assert test.dump is not None  # noqa: S101 - a plan exists only behind a dump
    probe = read_probe(test.directory)
    if probe is None:
        return again
    found = find_unwritten(test.dump, probe, again, test.tolerances)
    entries = new_entries(golden_to_start_from(test), found.left_out)
    test.unwritten = found.left_out
    test.dump = replace(without(test.dump, entries), notes=test.dump.notes + found.notes)
    return without(again, entries)


def record_with_tensors(
    test: MarkedTest,
    plan: Plan,
    records: Mapping[str, TensorRecord],
    disagreements: Mapping[str, Mapping[str, tuple[object, object]]],
    alike: Collection[str],
) -> Escalation:
    """Write the second run's tensors and the first run's statistics, if the two runs agree.

    Args:
        test: the test, whose outcome becomes that of the recording.
        plan: what the second run dumped.
        records: its tensors by sanitised key.
        disagreements: statistics in which the runs disagree, by sanitised key.
        alike: sanitised names that several layers of the second run share, of which there are no records.
    """
    assert test.dump is not None  # noqa: S101 - a plan exists only behind a dump
    directory = test.attempt.directory
    layers = tuple(dict.fromkeys(record.key.layer for record in records.values()))
    if disagreements:
        names = {str(record.key.sanitised): str(record.key) for record in test.dump.records}
        keys = ", ".join([names.get(key, key) for key in disagreements][:_SHOWN])
        problem = (
            f"nothing was recorded: two runs of the test disagree in {keys}; make it deterministic first"
        )
        return _failed(test, Escalation((), layers, (), directory, problem, plan.notes))
    left_out, lost = _not_dumped(test, records, alike)
    if lost or (test.request.golden_tensors and not records):
        shown = ", ".join((lost or left_out)[:_SHOWN])
        problem = (
            f"nothing was recorded: the second run has no tensor of {shown}, or cannot tell it from "
            f"a layer whose name is the same in file names"
        )
        return _failed(test, Escalation((), layers, (), directory, problem, plan.notes))
    try:
        table = StatsTable.from_records(test.dump.records)
        table = StatsTable.from_records(test.dump.records)
        tensors = KeptTensors.of(records.values(), left_out) if test.request.golden_tensors else None
    except DumpError as error:
        problem = f"nothing was recorded: the golden tensors cannot be written: {error}"
        return _failed(test, Escalation((), layers, (), directory, problem, plan.notes))
    compared = test.outcome.reference if test.outcome is not None else None
    outcome = record(test, golden_to_start_from(test), table, tensors)
    if not outcome.good:
        problem = f"nothing was recorded: {outcome.problems[0]}"
        return _failed(test, Escalation((), layers, (), directory, problem, plan.notes))
    notes = outcome.notes + left_out_notes(left_out)
    test.outcome = with_reference(replace(outcome, notes=notes), compared)
    return Escalation((), layers, (), directory, "", plan.notes)


def left_out_notes(layers: Sequence[str]) -> tuple[str, ...]:
    """Say of which layers a golden has no tensors, as the recording could not tell them apart."""
    if not layers:
        return ()
    shown = ", ".join(layers[:_SHOWN]) + (f" and {len(layers) - _SHOWN} more" if layers[_SHOWN:] else "")
    note = (
        f"no golden tensors of {shown}, only statistics: several layers go by this file name, and the second "
        f"run cannot tell which is which"
    )
    return (note,)


def _not_dumped(
    test: MarkedTest, records: Mapping[str, TensorRecord], alike: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return layers that globs want and that cannot be told apart, and keys that the second run lacks.

    Args:
        test: the test.
        records: of the second run, by sanitised key.
        alike: sanitised names that several layers share.
    """
    assert test.dump is not None  # noqa: S101 - a plan exists only behind a dump
    patterns = test.request.golden_tensors
    wanted = both_spellings(patterns)
    named = {sanitise(pattern) for pattern in patterns if not is_glob(pattern)}
    held = {key for key, record in records.items() if record.payload is not None}
    keys = [record.key for record in test.dump.records if matches_any(wanted, record.key.layer)]
    missing = [key for key in keys if str(key.sanitised) not in held]
    doubtful = [key for key in missing if sanitise(key.layer) in set(alike) - named]
    left_out = tuple(dict.fromkeys(sanitise(key.layer) for key in doubtful))
    return left_out, tuple(str(key) for key in missing if key not in doubtful)


def _failed(test: MarkedTest, escalation: Escalation) -> Escalation:
    assert test.outcome is not None  # noqa: S101 - a plan exists only behind an outcome
    test.outcome = replace(test.outcome, problems=(escalation.problem,))
    return escalation
