"""An update: the golden is written, with the tensors that are to be kept or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump import outcome as status
from pytest_npudump.compare.table import StatsTable
from pytest_npudump.errors import DumpError, GoldenError
from pytest_npudump.golden_tensors import write_tensors
from pytest_npudump.layers import both_spellings
from pytest_npudump.outcome import Escalation, Outcome
from pytest_npudump.random_operators import EAGER, drawing_words, random_layers
from pytest_npudump.reference.outcomes import with_reference
from pytest_npudump.request import matches_any
from pytest_npudump.unwritten import find_unwritten, new_entries, read_probe, without

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.dump.records import Dump, TensorRecord
    from pytest_npudump.escalate import Plan
    from pytest_npudump.golden.text import Golden
    from pytest_npudump.session import MarkedTest

_SHOWN = 3


def golden_to_start_from(test: MarkedTest) -> Golden | None:
    """Read the golden, if there is one; a damaged one stands in the way of a comparison, not of an update.

    Raises:
        GoldenError: the file cannot be read, and is not about to be replaced.
    """
    try:
        return test.goldens.read_if_any()
    except GoldenError:
        if test.settings.update_golden:
            return None
        raise


def record(test: MarkedTest, golden: Golden | None, table: StatsTable) -> Outcome:
    """Write the golden file of the first run's statistics; a file that cannot be written fails the test."""
    try:
        unwritten = new_entries(golden, test.unwritten)
        path, written = test.goldens.write(golden, table, test.runtime.producer(), unwritten)
    except GoldenError as error:
        return Outcome(status.ERROR, test.goldens.path, problems=(str(error),), tensors=len(table))
    word = status.RECORDED if written else status.UNCHANGED
    notes = (*test.dump.notes, *_random_notes(test, test.dump)) if test.dump else ()
    return Outcome(word, path, notes=notes, tensors=len(table))


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
) -> Escalation:
    """Write the second run's tensors and the first run's statistics, if the two runs agree.

    Args:
        test: the test, whose outcome becomes that of the recording.
        plan: what the second run dumped.
        records: its tensors by sanitised key.
        disagreements: statistics in which the runs disagree, by sanitised key.
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
    lost = _not_dumped(test, records)
    if lost:
        problem = (
            f"nothing was recorded: the second run has no tensor of {', '.join(lost[:_SHOWN])}, or cannot "
            f"tell it from a layer whose name is the same in file names"
        )
        return _failed(test, Escalation((), layers, (), directory, problem, plan.notes))
    try:
        table = StatsTable.from_records(test.dump.records)
        if test.request.golden_tensors:
            write_tensors(test.goldens, records.values(), table)
        compared = test.outcome.reference if test.outcome is not None else None
        test.outcome = with_reference(record(test, golden_to_start_from(test), table), compared)
    except (GoldenError, DumpError) as error:
        problem = f"nothing was recorded: the golden tensors cannot be written: {error}"
        return _failed(test, Escalation((), layers, (), directory, problem, plan.notes))
    return Escalation((), layers, (), directory, "", plan.notes)


def _not_dumped(test: MarkedTest, records: Mapping[str, TensorRecord]) -> list[str]:
    assert test.dump is not None  # noqa: S101 - a plan exists only behind a dump
    wanted = both_spellings(test.request.golden_tensors)
    held = {key for key, record in records.items() if record.payload is not None}
    keys = [record.key for record in test.dump.records if matches_any(wanted, record.key.layer)]
    return [str(key) for key in keys if str(key.sanitised) not in held]


def _failed(test: MarkedTest, escalation: Escalation) -> Escalation:
    assert test.outcome is not None  # noqa: S101 - a plan exists only behind an outcome
    test.outcome = replace(test.outcome, problems=(escalation.problem,))
    return escalation
