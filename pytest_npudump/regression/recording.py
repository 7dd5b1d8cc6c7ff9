"""An update: the golden is written beside the one it is to replace, with the tensors that are to be kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_npudump.compare.stats.tables import describe_not_finite
from pytest_npudump.dump.records import sanitise
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.errors import DumpError, GoldenError, said
from pytest_npudump.golden.stored_tensors import KeptTensors
from pytest_npudump.golden.variants import replaced_words
from pytest_npudump.language.text import first_of
from pytest_npudump.onnxmodels.graph import EAGER, drawing_words
from pytest_npudump.record.record import EMPTY, REASON, UNWRITTEN, entries_of
from pytest_npudump.regression import result as status
from pytest_npudump.regression.dataflow import edges_to_keep, named_layers
from pytest_npudump.regression.judgement import left_out_notes, with_reference
from pytest_npudump.regression.result import Escalation, KeptLayers, Result, recorded
from pytest_npudump.regression.run_record import empty_operators
from pytest_npudump.regression.unwritten import by_layer, find_unwritten, new_entries, without

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from pytest_npudump.dump.records import Dump, TensorRecord
    from pytest_npudump.record.record import Record
    from pytest_npudump.regression.case import Case
    from pytest_npudump.regression.measured_noise import Measured


_SHOWN = 3


@dataclass(frozen=True, slots=True)
class SecondRun:
    """What a second run has dumped for the first one.

    Attributes:
        directory: where its dump lies.
        records: its tensors by sanitised key.
        alike: sanitised names that several of its layers share, of which there are no records.
        notes: on what it was to dump.
    """

    directory: Path
    records: Mapping[str, TensorRecord]
    alike: Collection[str] = ()
    notes: tuple[str, ...] = ()

    def escalation(self) -> Escalation:
        """Return what became of it, where nothing went wrong and it explains nothing."""
        layers = tuple(dict.fromkeys(record.key.layer for record in self.records.values()))
        return Escalation((), layers, (), self.directory, "", self.notes)


def golden_to_start_from(case: Case) -> Record | None:
    """Read the golden, if there is one; a damaged one stands in the way of a comparison, not of an update.

    Raises:
        GoldenError: the file cannot be read, and is not about to be replaced.
    """
    try:
        golden = case.goldens.read_if_any()
        entries_of(golden)
    except GoldenError:
        if case.settings.update_golden:
            return None
        raise
    return golden


def record(
    case: Case,
    golden: Record | None,
    first: Result,
    table: StatsTable,
    tensors: KeptTensors | None = None,
    *,
    measured: Measured,
) -> Result:
    """Record the first run's statistics; a file that cannot be written fails the test.

    Args:
        case: the test.
        golden: the file that is there; None where there is none that could be read.
        first: the run; its outcome does not matter.
        table: its statistics.
        tensors: those kept beside the file; None for none.
        measured: what is known of its noise.
    """
    if not len(table):
        problem = said("nothing was recorded: no kernel writes any of the tensors that were dumped")
        return Result(status.ERROR, case.goldens.path, problems=(problem,), part=first.part, run=first.run)
    measured = measured.with_calibration_of(golden, table)
    producer = case.runtime.producer()
    lost = case.goldens.lost_by_update(golden) + replaced_words(case.goldens, golden, producer)
    blocks: Mapping[str, str] = {}
    if first.run.dump is not None:
        blocks, unread = edges_to_keep(case, golden, first.run.dump, table)
        lost += unread
    try:
        known = dict(measured.head)
        empty = empty_operators(case, first.run.dump) if first.run.dump is not None else None
        known |= {} if empty is None else {EMPTY: empty}
        unwritten = by_layer(new_entries(golden, first.run.unwritten))
        known |= {UNWRITTEN: unwritten} if unwritten else {}
        known |= {REASON: case.settings.reason} if case.settings.reason else {}
        recording = case.goldens.record(golden, measured.on(table), producer, tensors, known, blocks=blocks)
    except GoldenError as error:
        failed = Result(status.ERROR, case.goldens.path, problems=(str(error),), tensors=len(table))
        return replace(failed, part=first.part, run=first.run)
    notes = (*first.run.dump.notes, *_random_notes(case, first.run.dump)) if first.run.dump else ()
    notes += tuple(filter(None, [describe_not_finite(table)]))
    result = recorded(recording, notes=(*lost, *notes, *measured.notes), tensors=len(table))
    return replace(result, part=first.part, run=first.run)


def _random_notes(case: Case, dump: Dump) -> tuple[str, ...]:
    from pytest_npudump.onnxmodels.sessions import random_layers  # noqa: PLC0415 - a run that is recorded

    drawing = random_layers(dump, case.runtime.activity.models)
    if not drawing:
        return ()
    note = said(
        "{words}: the golden holds for the numbers of this run only, unless a seed "
        "is fixed; give these operators one, or leave what depends on them out with layers",
        words=drawing_words(drawing),
    )
    return (note,)


def drawing_alike(case: Case, dump: Dump) -> tuple[str, ...]:
    """Return the layers whose random numbers are the same in every run of one process, if runs share one."""
    if case.isolated:
        return ()
    from pytest_npudump.onnxmodels.sessions import random_layers  # noqa: PLC0415 - the same

    layers = random_layers(dump, case.runtime.activity.models)
    return tuple(name for name in layers if EAGER not in name.rpartition("(")[2])


def needs_processes(case: Case, dump: Dump) -> str:
    """Say why two runs in one process cannot show that a test is deterministic; "" where they can."""
    drawing = drawing_alike(case, dump)
    if not drawing:
        return ""
    return said(
        "{words}, from a seed that may be this process's, so that two runs here "
        "agree and later ones do not: give these operators a seed, or record with "
        'isolation="process", where each run has a process of its own',
        words=drawing_words(drawing),
    )


def leave_out_unwritten(case: Case, first: Result, again: Dump) -> tuple[Result, Dump]:
    """Return both runs without what nothing writes."""
    probe = case.folder.read_probe()
    if probe is None or first.run.dump is None:
        return first, again
    found = find_unwritten(first.run.dump, probe, again, case.tolerances)
    entries = new_entries(golden_to_start_from(case), found.left_out)
    dump = replace(without(first.run.dump, entries), notes=first.run.dump.notes + found.notes)
    return first.with_run(dump=dump, unwritten=found.left_out), without(again, entries)


def record_with_tensors(
    case: Case,
    first: Result,
    second: SecondRun,
    problem: str,
    measured: Measured,
) -> tuple[Result, Escalation]:
    """Write the second run's tensors and the first run's statistics, if the two runs agree.

    Args:
        case: the test.
        first: the run whose statistics become the golden.
        second: the run whose tensors are kept.
        problem: in what the runs disagree, in words; "" for nothing.
        measured: what both have shown of the test's noise.

    Returns:
        The first run with the outcome of the recording, and what became of the second one.
    """
    if problem:
        return _not_recorded(first, second, problem)
    golden = golden_to_start_from(case)
    kept = first.run.kept or KeptLayers(())
    left_out, lost = _not_dumped(case, first, second, kept)
    if lost or (case.request.golden_tensors and not second.records):
        problem = (
            f"the second run has no tensor of {first_of(lost or left_out, _SHOWN)}, or cannot tell it from a "
            f"layer whose name is the same in file names"
        )
        return _not_recorded(first, second, problem)
    tensors = None
    try:
        table = StatsTable.from_records(first.run.records)
        if case.request.golden_tensors:
            tensors = KeptTensors.of(second.records.values(), left_out, kept.sources)
            tensors.refuse_beyond(case.settings.tensor_budget)
    except DumpError as error:
        return _not_recorded(
            first, second, said("the golden tensors cannot be written: {error}", error=str(error))
        )
    except GoldenError as error:
        return _not_recorded(first, second, str(error))
    outcome = record(case, golden, first, table, tensors, measured=measured)
    if not outcome.good:
        return _not_recorded(first, second, outcome.problems[0])
    outcome = replace(outcome, notes=outcome.notes + left_out_notes(left_out))
    return with_reference(outcome, first.reference), second.escalation()


def disagreement_words(first: Result, disagreements: Iterable[str]) -> str:
    """Say in which tensors two runs disagree, by their sanitised keys."""
    dumped = first.run.records
    names = {str(record.key.sanitised): str(record.key) for record in dumped}
    keys = first_of((names.get(key, key) for key in disagreements), _SHOWN)
    return said("two runs of the test disagree in {keys}; make it deterministic first", keys=keys)


def _not_dumped(
    case: Case, first: Result, second: SecondRun, kept: KeptLayers
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return layers that globs want and that cannot be told apart, and keys that the second run lacks."""
    if first.run.dump is None or not kept.layers:
        return (), ()
    wanted = {*kept.layers}
    held = {key for key, record in second.records.items() if record.payload is not None}
    keys = [record.key for record in first.run.dump.records if record.key.layer in wanted]
    missing = [key for key in keys if str(key.sanitised) not in held]
    doubtful = [key for key in missing if sanitise(key.layer) in set(second.alike) - named_layers(case)]
    left_out = tuple(dict.fromkeys(sanitise(key.layer) for key in doubtful))
    return left_out, tuple(str(key) for key in missing if key not in doubtful)


def _not_recorded(first: Result, second: SecondRun, problem: str) -> tuple[Result, Escalation]:
    words = said("nothing was recorded: {problem}", problem=problem)
    return replace(first, problems=(words,)), replace(second.escalation(), problem=words)
