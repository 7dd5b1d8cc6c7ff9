"""An update: the golden is written beside the one it is to replace, with the tensors that are to be kept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.compare.stats.tables import describe_not_finite
from pytest_npudump.errors import GoldenError, said
from pytest_npudump.golden.variants import replaced_words
from pytest_npudump.language.text import first_of, number_of
from pytest_npudump.onnxmodels.graph import EAGER, drawing_words
from pytest_npudump.record.record import EMPTY, JUDGED, MODELS, REASON, UNWRITTEN, Record, entries_of
from pytest_npudump.regression import result as status
from pytest_npudump.regression.dataflow import edges_to_keep
from pytest_npudump.regression.measured_noise import Measured, by_layer, new_entries, unwritten_of
from pytest_npudump.regression.result import Result, recorded
from pytest_npudump.regression.run_record import empty_operators

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pytest_npudump.dump.records import Dump
    from pytest_npudump.dump.table import StatsTable
    from pytest_npudump.golden.stored_tensors import KeptTensors
    from pytest_npudump.regression.case import Case


_SHOWN = 3


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
        problem = said("nothing was recorded: no kernel wrote any of the dumped tensors")
        return Result(status.ERROR, case.goldens.path, problems=(problem,), part=first.part, run=first.run)
    measured = measured.with_calibration_of(golden, table)
    producer = case.runtime.producer()
    lost = case.goldens.lost_by_update(golden) + replaced_words(case.goldens, golden, producer)
    blocks = {MODELS: first.run.models} if first.run.models else {}
    unwritten = unwritten_of(first.run.records, producer)
    if first.run.dump is not None:
        edges, unread = edges_to_keep(case, golden, first.run.dump, table)
        blocks, lost = {**edges, **blocks}, lost + unread
    try:
        known = dict(measured.head)
        empty = empty_operators(case, first.run.dump) if first.run.dump is not None else None
        known |= {} if empty is None else {EMPTY: empty}
        entries = new_entries(golden, unwritten)
        known |= {UNWRITTEN: by_layer(entries)} if entries else {}
        known |= {REASON: case.settings.reason} if case.settings.reason else {}
        recording = case.goldens.record(golden, measured.on(table), producer, tensors, known, blocks=blocks)
    except GoldenError as error:
        failed = Result(status.ERROR, case.goldens.path, problems=(str(error),), tensors=len(table))
        return replace(failed, part=first.part, run=first.run)
    notes = (*first.run.dump.notes, *_random_notes(case, first.run.dump)) if first.run.dump else ()
    notes += tuple(filter(None, [describe_not_finite(table)]))
    if unwritten:
        notes += (
            (
                f"left out of the golden: {number_of(len(unwritten), 'tensor')} that MindSpore's CPU kernels "
                f"do not write: {first_of(unwritten)}; to have one compared all the same, write {JUDGED!r} "
                f"behind it under {UNWRITTEN!r} in the golden, and accept anew"
            ),
        )
    result = recorded(recording, notes=(*lost, *notes, *measured.notes), tensors=len(table))
    return replace(result, part=first.part, run=first.run)


def _random_notes(case: Case, dump: Dump) -> tuple[str, ...]:
    from pytest_npudump.onnxmodels.sessions import random_layers  # noqa: PLC0415 - a run that is recorded

    drawing = random_layers(dump, case.runtime.activity.models)
    if not drawing:
        return ()
    note = said(
        "{words}: the golden is valid for this run's numbers only, unless a seed is fixed; give these "
        "operators one, or exclude their downstream layers with layers=",
        words=drawing_words(drawing),
    )
    return (note,)


def drawing_alike(dump: Dump, models: Iterable[Path]) -> tuple[str, ...]:
    """Return the layers of a dump whose random numbers are the same in every run of one process."""
    from pytest_npudump.onnxmodels.sessions import random_layers  # noqa: PLC0415 - the same

    layers = random_layers(dump, models)
    return tuple(name for name in layers if EAGER not in name.rpartition("(")[2])


def needs_processes(case: Case, dump: Dump) -> str:
    """Explain why two runs in one process cannot show that a test is deterministic; "" where they can."""
    drawing = () if case.isolated else drawing_alike(dump, case.runtime.activity.models)
    if not drawing:
        return ""
    return said(
        "{words}, maybe from a seed of this process, so that later runs differ: give these "
        'operators a seed, or record with isolation="process"',
        words=drawing_words(drawing),
    )
