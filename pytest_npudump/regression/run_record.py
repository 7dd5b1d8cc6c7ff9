"""Record of a run: its dump, cut to the test's layers, without its files; and the golden made of one.

A judgement of it needs no device and no dump, so that it can be made again. CANN writes no file where no
tensor of an operator holds a byte: an output of shape 0x3 then has no row, and could become 3x0, or no output
at all, unseen. The emulator knows which operators these were, and the shapes they had; a golden lists them
under its key ``empty``, in the spelling of the keys of its tensors. An NPU, and a program of its own process,
tell nothing of them. Outputs that no kernel writes hold what is left over in memory, and have no place in a
golden.
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.stats.tables import describe_not_finite
from pytest_npudump.compare.tolerances.rules import MARKER_RULES
from pytest_npudump.config.cann import STATISTICS, default_statistics
from pytest_npudump.dump.records import Dump, Payload, Stats, TensorKey, TensorRecord, sanitise
from pytest_npudump.dump.selection import (
    absent_layers,
    asked_statistics,
    layers_meant,
    resolve_raw_names,
    select_layers,
    suggest,
    with_raw_names,
)
from pytest_npudump.dump.stats.compact_projections import as_printed
from pytest_npudump.dump.table import StatsTable, layer_of, sanitised_key, shape_of, shape_text
from pytest_npudump.errors import DumpError, EmptyDumpError, GoldenError, said
from pytest_npudump.golden.store import KEY
from pytest_npudump.golden.variants import replaced_words
from pytest_npudump.language.text import first_of, number_of
from pytest_npudump.onnxmodels.graph import EAGER, drawing_words
from pytest_npudump.record.noise import CALIBRATION
from pytest_npudump.record.record import (
    EMPTY,
    JUDGED,
    LEFT_OUT,
    MODELS,
    OUTPUTS,
    REASON,
    SHARDS,
    UNWRITTEN,
    Record,
    entries_of,
    left_out_of,
    rows_of,
)
from pytest_npudump.record.run_folder import capture_of
from pytest_npudump.regression import result as status
from pytest_npudump.regression.dataflow import edges_to_keep, models_to_keep
from pytest_npudump.regression.diagnose import explain_empty
from pytest_npudump.regression.result import Result, recorded
from pytest_npudump.request import AUTO_LAYERS
from pytest_npudump.runtime.base import RecordingRuntime
from pytest_npudump.runtime.concurrency import loads_without_order, runs_without_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_npudump.compare.judge import Terms
    from pytest_npudump.emulator.dumps.recorder import DumpedExecution
    from pytest_npudump.golden.stored_tensors import KeptTensors
    from pytest_npudump.regression.attempt import Attempt
    from pytest_npudump.regression.case import Case


def read_run(case: Case, attempt: Attempt) -> Dump:
    """Read the dump of a run that has ended.

    Raises:
        DumpError: it holds nothing; the message has the likely cause.
    """
    activity = case.runtime.activity
    try:
        dump = attempt.read(case.steps_of(said("reading the dump")))
        if dump.records or dump.problems:
            return dump
        seen = ""
    except DumpError as error:
        # Files that are no dump, such as MindSpore's own lists, say less than a runtime that knows the cause.
        seen = "" if isinstance(error, EmptyDumpError) and activity.likely_cause else str(error)
    silent = _without_elements(case, Dump(attempt.dump_path, ()))
    modules = case.runtime.name == "modules"
    raise DumpError(
        explain_empty(case.request, activity, attempt.dump_path, seen, silent=silent, modules=modules)
    )


def _without_elements(case: Case, dump: Dump) -> str:
    """Describe operators without a file, which are all that a test has of what it asks for; "" for none."""
    if not (empty := empty_operators(case, dump)):
        return ""
    return said(
        "{names} returned no elements, and the dump has no other layer that the test asks for; name layers "
        "with elements in layers=",
        names=first_of(map(_layer, empty)),
    )


def collect(case: Case, attempt: Attempt, golden: Record | None) -> Dump:
    """Read the dump and keep the layers asked for.

    Raises:
        DumpError: it holds nothing, or nothing that was asked for; the message has the likely cause.
    """
    dump = read_run(case, attempt)
    default = default_statistics(case.runtime.producer().get("soc", ""))
    default = STATISTICS if case.runtime.name == "modules" else default
    selected = asked_statistics(select_layers(dump, case.request), case.request.dump_stats or default)
    selected = attempt.copies.completed(selected)
    if case.request.chosen:
        selected = replace(selected, records=as_printed(selected.records))
    if not selected.records and not dump.problems:
        if words := _without_elements(case, dump):
            raise DumpError(words)
        names = ", ".join(map(repr, case.request.layers))
        told = with_raw_names(dump, _resolved(case, None, dump))
        hint = suggest(case.request.layers[0], (record.key.layer for record in told.records))
        raise DumpError(
            said(
                "the dump has none of the layers that the marker names ({names}); {hint}",
                names=names,
                hint=hint,
            )
        )
    if case.settings.update_golden:
        return with_raw_names(selected, _resolved(case, golden, selected))
    return with_empty(case, selected, golden)


def by_rank(dump: Dump) -> dict[str, Dump]:
    """Split a dump by rank, device or both, as ``rank 1 device 0``; one part, "", where it has neither."""
    parts: dict[str, list[TensorRecord]] = {}
    for record in dump.records:
        told = (("rank", record.key.rank), ("device", record.key.device))
        name = " ".join(f"{word} {value}" for word, value in told if value >= 0)
        key = replace(record.key, rank=-1, device=-1)
        parts.setdefault(name, []).append(replace(record, key=key))
    return {name: replace(dump, records=tuple(records)) for name, records in parts.items()}


def without_unwritten(case: Case, dump: Dump, golden: Record | None) -> Dump:
    """Leave out tensors that nothing writes: those that the golden lists, unless it has them.

    An update leaves out those that are known not to be written.
    """
    facts = case.goldens.facts(case.runtime.producer())
    if case.settings.update_golden:
        return without(dump, new_entries(golden, unwritten_of(dump.records, facts)))
    return dump if golden is None else without(dump, left_out_of(golden, facts), golden.table.keys)


def raw_names(case: Case, golden: Record | None, dump: Dump) -> dict[str, tuple[str, ...]]:
    """Return the raw names of a dump's layers by those of its files, from golden, marker and models.

    Nothing is told where the dump has them already, or a model's file cannot be read any more.
    """
    try:
        return _resolved(case, golden, dump)
    except DumpError:
        return {}


def _resolved(case: Case, golden: Record | None, dump: Dump) -> dict[str, tuple[str, ...]]:
    if dump.raw_names:
        return {}
    return resolve_raw_names(
        {sanitise(record.key.layer) for record in dump.records},
        request=case.request,
        golden_keys=golden.table.keys if golden else (),
        models=case.runtime.activity.models,
        tree=dump.root,
    )


def told_by_raw_names(case: Case, golden: Record | None, dump: Dump) -> Dump:
    """Give the layers of a dump their raw names, as far as the golden and the test's models have them."""
    return with_raw_names(dump, raw_names(case, golden, dump))


def unreadable(dump: Dump) -> tuple[str, ...]:
    """Return the problems of a dump in words."""
    return tuple(said("unreadable file in the dump: {problem}", problem=problem) for problem in dump.problems)


def record_of_run(case: Case, golden: Record | None, dump: Dump, table: StatsTable) -> Record:
    """Return the record of a run, but for edges, and for digests of parameters: to know these takes time.

    Args:
        case: the test.
        golden: its golden, which knows raw names; None where there is none.
        dump: what the run dumped, as far as the test asks for it.
        table: the statistics of that.
    """
    evidence = case.runtime.activity.evidence
    elements = bool(case.request.golden_tensors)
    raw = raw_names(case, golden, dump)
    single = {name: names[0] for name, names in raw.items() if len(names) == 1 and names[0] != name}
    table = table.under_names(single) if single else table
    empty = empty_operators(case, dump)
    models = models_to_keep(case, golden, dump) if golden is None or not evidence.parameters else {}
    return Record(
        case.goldens.test,
        case.goldens.facts(case.runtime.producer()),
        table,
        case.goldens.path,
        {key: told for key, told in ((EMPTY, empty), (SHARDS, evidence.shards or None)) if told is not None},
        {**models, **outputs_to_keep(case, dump)},
        tensors=dump.records if elements and any(one.payload is not None for one in dump.records) else (),
        file_names=not dump.raw_names,
        problems=problems_of_dump(case, dump),
        notes=dump.notes,
    )


def problems_of_dump(case: Case, dump: Dump) -> tuple[str, ...]:
    """Return the parts of a dump that could not be read, and whether threads make its order unknown."""
    evidence = case.runtime.activity.evidence
    return (
        *unreadable(dump),
        *loads_without_order(dump.records, evidence.loaders),
        *runs_without_order(dump.records, evidence.runners),
    )


def problems_of(terms: Terms, run: Record, known: set[str] | frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Describe problems besides values that keep a run from being a golden, or from passing by one.

    Args:
        terms: what it is judged by.
        run: what the run left.
        known: layers, as file names spell them, that are told to be missing elsewhere.
    """
    table = run.table
    layers = [layer_of(key) for key in table.keys]
    absent = tuple(
        said(
            "layer {name!r}, named in the marker, is not in the dump; {hint}",
            name=name,
            hint=suggest(name, layers),
        )
        for name in absent_layers(layers, terms.layers)
        if sanitise(name) not in known
    )
    unmatched = tuple(
        said(
            "tolerance rule {rule} of the marker matches nothing this test dumped; correct "
            "its layer, op_type, dtype or statistic, or remove it",
            rule=rule.describe(),
        )
        for rule in terms.tolerances.having(lambda rule: rule.source == MARKER_RULES).unmatched(table)
    )
    kept = tuple(
        said(
            "golden_tensors {pattern!r} of the marker names no layer of the dump; {hint}",
            pattern=pattern,
            hint=suggest(pattern, layers),
        )
        for pattern in terms.kept
        if pattern != AUTO_LAYERS and not layers_meant([pattern], layers)
    )
    return run.problems + absent + unmatched + kept + _nothing_told(table)


def _nothing_told(table: StatsTable) -> tuple[str, ...]:
    """Refuse a dump without a value of any tensor, which a test would pass whatever these are."""
    if not len(table):
        return (said("no tensor was compared: the run has none, or the golden excludes them all"),)
    holding = [count for count in table.counts if count != 0]
    if not holding or table.known.any() or table.digests:
        return ()
    problem = said(
        "the dump has neither statistics nor hashes of its tensors ({count}; ACL computes none of bfloat16, "
        'for example): there is nothing to compare, use acl_json={{"dump_data": "tensor"}}',
        count=len(holding),
    )
    return (problem,)


_SHOWN = 3
_SLOT = ":output.0"


def empty_operators(case: Case, dump: Dump) -> dict[str, list[str]] | None:
    """Return shapes of the outputs of the operators that left no file; None where they are unknown.

    The shapes are those of the run, of the inputs where only these are dumped. They are listed by operator,
    with the qualifiers that keys of tensors have: ``name#model=net,step=1``.
    """
    if not isinstance(case.runtime, RecordingRuntime):
        return None
    root = Path(os.path.abspath(case.directory))  # noqa: PTH100 - links are kept, as in the dump's own paths
    run = root / Path(os.path.abspath(dump.root)).relative_to(root).parts[0]  # noqa: PTH100 - the same
    parts: defaultdict[str, list[DumpedExecution]] = defaultdict(list)
    for execution in case.runtime.dumped_executions(run):
        parts[capture_of(Path(execution.directory).relative_to(run).parts[0])].append(execution)
    if not parts:
        return None
    found: dict[str, list[str]] = {}
    for part, executions in parts.items():
        found |= _in_part(part, executions)
    layers = (*map(_layer, found), *(record.key.layer for record in dump.records))
    wanted = layers_meant(case.request.layers or ["*"], layers)
    return {name: shapes for name, shapes in found.items() if _layer(name) in wanted}


def _in_part(capture: str, executions: Sequence[DumpedExecution]) -> dict[str, list[str]]:
    """Return the operators of one dump, told apart as the reader of dumps tells tensors apart."""
    if not any(execution.silent for execution in executions):
        return {}
    places = [execution.place for execution in executions]
    models, devices = {place.model for place in places}, {place.device for place in places}
    loads: defaultdict[tuple[int, str], set[int]] = defaultdict(set)
    first: dict[int, int] = {}
    for place in places:
        loads[place.device, place.model].add(place.model_id)
        first[place.model_id] = min(place.index, first.get(place.model_id, place.index))
    found: dict[str, list[str]] = {}
    for execution in executions:
        place = execution.place
        for name, shapes in execution.silent.items():
            key = TensorKey(
                name,
                "output",
                0,
                step=place.index - first[place.model_id],
                model=place.model if len(models) > 1 else "",
                load=sorted(loads[place.device, place.model]).index(place.model_id),
                device=place.device if len(devices) > 1 else -1,
                capture=capture,
            )
            found[str(key).removesuffix(_SLOT)] = [shape_text(shape) for shape in shapes]
    return found


def with_empty(case: Case, dump: Dump, golden: Record | None) -> Dump:
    """Add outputs without elements, which left no file, where the golden has others, so that they mismatch.

    Args:
        case: the test.
        dump: of a run.
        golden: whose types they have; None for nothing to add.
    """
    told = (empty_operators(case, dump) or {}) if golden is not None else {}
    if golden is None or not told:
        return dump
    shapes = _shapes(told)
    table, places = golden.table, {sanitised_key(key): row for row, key in enumerate(golden.table.keys)}
    if shapes.keys().isdisjoint(places):
        return dump
    records = [*dump.records]
    known = {str(record.key.sanitised) for record in records}
    held = any(record.payload is not None for record in records)
    payload = Payload(dump.root, 0, 0, "none") if held else None
    for key, row in places.items():
        if key in known or key not in shapes:
            continue
        own, shape = TensorKey.parse(table.keys[row]), shape_of(shapes[key])
        made = TensorRecord(
            own, "", table.dtypes[row], shape, dump.root, size=0, stats=Stats(0), payload=payload
        )
        behind = (at for at, one in enumerate(records) if places.get(str(one.key.sanitised), -1) > row)
        records.insert(next(behind, len(records)), made)
    return replace(dump, records=tuple(records))


def with_listed(golden: Record, run: Record) -> Record:
    """Return a golden with rows of outputs that it lists as without elements, where a run has others.

    The same of a kept run and a golden.
    """
    listed = golden.extra.get(EMPTY)
    if not isinstance(listed, dict) or listed == run.extra.get(EMPTY):
        return golden
    before, shapes = {sanitised_key(key): row for row, key in enumerate(golden.table.keys)}, _shapes(listed)
    rows, records, last = [(float(row), 0, row) for row in before.values()], list[TensorRecord](), -1
    for row, (key, dtype) in enumerate(zip(run.table.keys, run.table.dtypes, strict=True)):
        name = sanitised_key(key)
        last = before.get(name, last)
        if name in shapes and name not in before:
            rows.append((last + 0.5, 1, len(records)))
            shape, kind = shape_of(shapes[name]), run.table.op_types[row]
            records.append(TensorRecord(TensorKey.parse(key), kind, dtype, shape, Path(), stats=Stats(0)))
    if not records:
        return golden
    added = StatsTable.from_records(records)
    added = replace(added, noise=("-",) * len(records) if golden.table.noise else ())
    order = [(which, row) for _, which, row in sorted(rows)]
    return replace(golden, table=rows_of((golden.table, added), order))


def without_listed(run: Record) -> Record:
    """Return a run without the rows that it has only as its golden has elements there."""
    if not (shapes := _shapes(run.extra.get(EMPTY) or {})):
        return run
    rows = [(0, row) for row, key in enumerate(run.table.keys) if sanitised_key(key) not in shapes]
    return run if len(rows) == len(run.table) else replace(run, table=rows_of((run.table, run.table), rows))


def _shapes(told: Mapping[str, list[str]]) -> dict[str, str]:
    """Return the shapes of outputs without elements by key, as file names spell it."""
    return {
        sanitised_key(f"{name}:output.{slot}"): shape
        for name, some in told.items()
        for slot, shape in enumerate(some)
    }


def _layer(name: str) -> str:
    return TensorKey.parse(f"{name}{_SLOT}").layer


def changed(golden: Record, now: Mapping[str, list[str]] | None) -> tuple[str, ...]:
    """Name operators without a file that differ from the golden's list."""
    listed = golden.extra.get(EMPTY)
    if EMPTY not in golden.extra or now is None or listed == now:
        return ()
    before: Mapping[str, Any] = listed if isinstance(listed, dict) else {}
    names = [name for name in dict.fromkeys([*before, *now]) if before.get(name) != now.get(name)]
    shown = first_of(
        (f"{name}: {_text(before, name)} -> {_text(now, name)}" for name in names),
        _SHOWN,
        "; ",
    )
    return (f"operators whose tensors hold no element, and which leave no file, differ: {shown}",)


def notes_on(golden: Record, now: Mapping[str, list[str]] | None) -> tuple[str, ...]:
    """Name the operators without a file that are not compared, as one side lacks them."""
    listed = golden.extra.get(EMPTY)
    if now is None and listed:
        names = first_of(listed, _SHOWN)
        return (f"{names}: not compared, as no tensor of it holds an element, and only the emulator tells",)
    if not now or EMPTY in golden.extra:
        return ()
    note = (
        f"{first_of(now, _SHOWN)}: not compared, as no tensor of it holds an element, and it left no file; "
        f"accept anew to have the golden list its shapes"
    )
    return (note,)


def _text(side: Mapping[str, Any], name: str) -> str:
    shapes = side.get(name)
    return ", ".join(map(str, shapes)) if isinstance(shapes, list) else "not among them"


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


@dataclass(frozen=True, slots=True)
class Measured:
    """Noise of a test, for its golden.

    Attributes:
        cells: of the column ``noise``, one a tensor of the golden; empty where none strays.
        head: the golden's keys ``repeats`` and ``calibration``.
        notes: what a person who accepts the golden should know.
    """

    cells: tuple[str, ...]
    head: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    def with_calibration_of(self, previous: Record | None, table: StatsTable) -> Measured:
        """Return the same with the calibration of the golden that was there, if its values are the same.

        Args:
            previous: that golden; None without one.
            table: the values that are recorded.
        """
        if previous is None or CALIBRATION not in previous.extra or CALIBRATION in self.head:
            return self
        if self.cells or not same_values(previous.table, table):
            note = said(
                "the calibration of the previous golden was removed, as its values changed; {anew}",
                anew=measured_anew(previous.extra),
            )
            return replace(self, notes=(*self.notes, note))
        head = {**self.head, CALIBRATION: previous.extra[CALIBRATION]}
        return replace(self, cells=previous.table.noise, head=head)


def measured_anew(extra: Mapping[str, object]) -> str:
    """Return how the noise that a golden of these keys had is measured anew.

    A calibration alone needs a run that passes, which one whose noise is not known may not.
    """
    option = "--npudump-update-golden"
    if CALIBRATION not in extra:
        return said("measured anew by {option}", option=option)
    if KEY in extra:  # a recording with golden tensors is not calibrated at once
        return said("measured anew by {option}, then {option}=calibrate", option=option)
    return said("measured anew by {option}", option=f"{option} {option}=calibrate")


def same_values(one: StatsTable, other: StatsTable) -> bool:
    """Return whether two tables have the same tensors, and the same statistics of each."""
    columns = (one.keys, one.dtypes, one.shapes) == (other.keys, other.dtypes, other.shapes)
    return columns and np.array_equal(one.values, other.values, equal_nan=True)


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
    blocks = {MODELS: first.run.models} if first.run.models else dict[str, str]()
    unwritten = unwritten_of(first.run.records, producer)
    if first.run.dump is not None:
        edges, unread = edges_to_keep(case, golden, first.run.dump, table)
        blocks, lost = {**edges, **blocks, **outputs_to_keep(case, first.run.dump)}, lost + unread
    try:
        known = dict(measured.head)
        empty = empty_operators(case, first.run.dump) if first.run.dump is not None else None
        known |= {} if empty is None else {EMPTY: empty}
        shards = case.runtime.activity.evidence.shards
        known |= {SHARDS: shards} if len(shards) == 1 else {}
        entries = new_entries(golden, unwritten)
        known |= {UNWRITTEN: by_layer(entries)} if entries else {}
        known |= {REASON: case.settings.reason} if case.settings.reason else {}
        recording = case.goldens.record(
            golden, replace(table, noise=measured.cells), producer, tensors, known, blocks=blocks
        )
    except GoldenError as error:
        failed = Result(status.ERROR, case.goldens.path, problems=(str(error),), tensors=len(table))
        return replace(failed, part=first.part, run=first.run)
    notes = first.run.dump.notes if first.run.dump is not None else ()
    if first.run.dump is not None and (drawing := _drawing(case, first.run.dump)):
        note = said(
            "{words}: the golden is valid for this run's numbers only, unless a seed is fixed; give these "
            "operators one, or exclude their downstream layers with layers=",
            words=drawing_words(drawing),
        )
        notes += (note,)
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


def outputs_to_keep(case: Case, dump: Dump) -> dict[str, str]:
    """Return the block of outputs of models that the test does not have dumped; none of models that draw."""
    return {OUTPUTS: dump.outputs} if dump.outputs and not _drawing(case, dump) else {}


def _drawing(case: Case, dump: Dump) -> tuple[str, ...]:
    from pytest_npudump.onnxmodels.sessions import random_layers  # noqa: PLC0415 - a run that is recorded

    return random_layers(dump, case.runtime.activity.models)


def drawing_alike(case: Case, dump: Dump) -> tuple[str, ...]:
    """Return the layers of a dump whose random numbers are the same in every run of this process.

    Modules and eager operators draw from a generator that goes on from run to run.
    """
    if case.isolated or case.runtime.name == "modules":
        return ()
    return tuple(name for name in _drawing(case, dump) if EAGER not in name.rpartition("(")[2])


def needs_processes(case: Case, dump: Dump) -> str:
    """Explain why two runs in one process cannot show that a test is deterministic; "" where they can."""
    if not (drawing := drawing_alike(case, dump)):
        return ""
    return said(
        "{words}, maybe from a seed of this process, so that later runs differ: give these "
        'operators a seed, or record with isolation="process"',
        words=drawing_words(drawing),
    )


_NOT_WRITTEN = {"BatchNorm": (1, 2, 3, 4), "LSTM": (3, 4)}
"""Outputs that MindSpore's CPU kernels leave as memory was, by types of operators; some but in inference."""


def unwritten_of(records: Iterable[TensorRecord], facts: Mapping[str, str]) -> list[TensorKey]:
    """Return the outputs of a run of these facts that hold what memory held before."""
    if (facts.get("runtime"), facts.get("device_target")) != ("mindspore", "CPU"):
        return []
    return [
        replace(one.key, slot=slot)
        for one in records
        if one.key.io == "output" and not one.key.slot
        for slot in _NOT_WRITTEN.get(one.op_type, ())
    ]


def new_entries(previous: Record | None, left_out: Iterable[TensorKey]) -> dict[str, str]:
    """Return a new golden's list of unwritten tensors; those that a person marked as judged stay so."""
    judged = {key: word for key, word in entries_of(previous).items() if word == JUDGED}
    plain = set(map(sanitised_key, judged))
    return judged | {str(key): LEFT_OUT for key in left_out if str(key.sanitised) not in plain}


def by_layer(entries: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return entries as a golden file holds them: a line for each layer."""
    layers: dict[str, dict[str, str]] = {}
    for key, word in entries.items():
        layer, _, slot = key.rpartition(":")
        layers.setdefault(layer, {})[slot] = word
    return layers


def without(dump: Dump, entries: Mapping[str, str], kept: Iterable[str] = ()) -> Dump:
    """Return a dump without the tensors that ``entries`` leave out, unless ``kept`` names them."""
    left_out = {sanitised_key(key) for key, word in entries.items() if word == LEFT_OUT}
    left_out -= set(map(sanitised_key, kept))
    if not left_out:
        return dump
    return replace(
        dump, records=tuple(record for record in dump.records if str(record.key.sanitised) not in left_out)
    )
