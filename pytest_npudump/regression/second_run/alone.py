"""Each operator under suspicion alone, by a model or by the calls of torch that the second run keeps."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from pytest_npudump.compare.stats.verdict import GRAPH_INPUT, aligned_keys
from pytest_npudump.compare.tolerances.numerics import SAME
from pytest_npudump.dump.records import sanitise
from pytest_npudump.dump.tree.keys import is_eager
from pytest_npudump.errors import NpudumpError, said
from pytest_npudump.explain.called_operators import CallArchive, CallBench
from pytest_npudump.explain.dumped_operators import ModelBench
from pytest_npudump.explain.matches import NameMap
from pytest_npudump.explain.operator_alone import (
    ACQUITTED,
    CONVICTED,
    UNKNOWN,
    UPSTREAM,
    Alone,
    JudgedOperator,
)
from pytest_npudump.explain.reference_model import ReferenceModel
from pytest_npudump.language.text import first_of
from pytest_npudump.record.run_folder import calls_folder
from pytest_npudump.regression.case import onnx_files
from pytest_npudump.regression.dataflow import edges_of_device
from pytest_npudump.runtime.aten.kept_calls import CallKeepingRuntime, WantedOutput

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from pytest_npudump.dump.records import Dump, TensorKey, TensorRecord
    from pytest_npudump.regression.case import Case
    from pytest_npudump.regression.result import Result
    from pytest_npudump.regression.second_run.run_plan import Plan


_ADVICE = said("reference= names the ONNX model by which an operator can be judged alone")
_OFF = "off"
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


def isolate_suspects(
    case: Case,
    first: Result,
    plan: Plan,
    dump: Dump,
    records: Sequence[TensorRecord],
    *,
    folder: Path,
    healthy: Collection[str],
) -> tuple[tuple[JudgedOperator, ...], tuple[str, ...]]:
    """Judge the suspects by what the second run has of their inputs: by a model, else by calls of torch.

    Args:
        case: the test.
        first: its first run.
        plan: of the second run, with the outputs under suspicion.
        dump: all that it dumped.
        records: its tensors, in execution order.
        folder: of the second run, in which the calls that are convicted are saved.
        healthy: sanitised keys of tensors that failed in the first run only. They are not judged, nor are
            outputs where the changes of these begin.

    Returns:
        One verdict a suspect, and notes where there can be none, or a call could not be saved.
    """
    sources = first.sources.independent if first.sources is not None else ()
    again = [source for source in sources if str(source.key.sanitised) not in healthy]
    begun = {source.begins for source in sources} - {source.begins for source in again}
    suspects = [key for key in plan.suspects if key not in begun and str(key.sanitised) not in healthy]
    layers = {sanitise(layer) for layer in plan.layers}
    # CANN dumps an input of the graph with each operator that reads it, under one name.
    inputs = (r for r in dump.records if r.op_type == GRAPH_INPUT and sanitise(r.key.layer) in layers)
    dumped = [*(record for record in records if record.op_type != GRAPH_INPUT), *inputs]
    by_model, notes = _by_model(case, first, suspects, dumped) if suspects else ((), ())
    by_call, unsaved = _by_call(case, first, suspects, records, folder=folder, healthy=healthy)
    calls = {one.key: one for one in by_call}
    kept = [
        calls.pop(one.key) if one.alone.verdict == UNKNOWN and one.key in calls else one for one in by_model
    ]
    known = {one.key for one in by_model}
    isolated = (*kept, *(one for key, one in calls.items() if key not in known))
    return tuple(one for one in isolated if str(one.key.sanitised) not in healthy), (*notes, *unsaved)


def _by_model(
    case: Case, first: Result, suspects: Sequence[TensorKey], records: Sequence[TensorRecord]
) -> tuple[Sequence[JudgedOperator], Sequence[str]]:
    """Judge suspects by the test's reference, else by the ONNX models that ran, or lie beside what ran.

    Of several models it is the one that the tensor's key names. Where the reference can judge none of the
    suspects, others that fail are looked at.
    """
    if first.run.dump is None:
        return (), ()
    activity, reference = case.runtime.activity, case.reference
    plain, edges = case.runtime.name == "emulator", edges_of_device(case, first, first.run.dump)
    files = onnx_files(case) if reference is None else [reference.path]
    changed = _changed(first)

    def file_of(key: TensorKey) -> Path | None:
        named = [file for file in files if len(files) == 1 or sanitise(file.stem) == sanitise(key.model)]
        return named[0] if len(named) == 1 else None

    found: list[JudgedOperator] = []
    notes = []
    if len(files) > 1 and (untold := [key for key in suspects if file_of(key) is None]):
        models, keys = ", ".join(file.name for file in files), first_of(untold)
        notes.append(f"not judged alone: {keys}, as several models ran ({models}); {_ADVICE}")
    for file in files:
        own = [key for key in suspects if file_of(key) == file]
        here = [record for record in records if file_of(record.key) == file]
        layers = {record.key.layer for record in first.run.dump.records if file_of(record.key) == file}
        if own and not activity.evidence.files.keeps_weights(file):
            why = f"{file.name} was written again after it was loaded, and may be another model"
            alone = Alone(UNKNOWN, why=why)
            found += [JudgedOperator(key, "", file.name, reference is None, alone) for key in own]
            continue
        try:
            if not own:
                continue
            if reference is not None:
                bench = reference.bench(plain=plain, edges=edges)
            else:
                converted = not plain and file not in activity.models
                bench = ModelBench(
                    ReferenceModel.read(file),
                    NameMap(),
                    own=True,
                    converted=converted,
                    plain=plain,
                    edges=edges if converted else None,
                )
            judged = bench.isolate(own, here, layers, changed)
            further: tuple[JudgedOperator, ...] = ()
            if reference is not None and not {one.alone.verdict for one in judged} & {CONVICTED, ACQUITTED}:
                known = {one.key for one in judged}
                failing = first.failing_keys
                others = [key for key in failing if key.io == "output" and key not in known]
                further = bench.isolate(others[:UPSTREAM], here, layers, changed)
            found += (*judged, *(one for one in further if one.alone.verdict == CONVICTED))
        except NpudumpError as error:
            notes.append(f"no operator was judged alone: {error}")
    return found, notes


def _changed(first: Result) -> frozenset[str]:
    """Return the sanitised keys of tensors that changed, of a golden that repeats in the run's numerics."""
    comparison, numerics = first.comparison, first.numerics
    if comparison is None or not comparison.repeats or numerics is None or numerics.bounds != SAME:
        return frozenset()
    rows = aligned_keys(comparison.golden, comparison.actual, comparison.alignment)
    differing = comparison.differing - comparison.unsteady
    return frozenset(str(key.sanitised) for at, (key, _) in enumerate(rows) if at in differing)


def _by_call(
    case: Case,
    first: Result,
    suspects: Sequence[TensorKey],
    records: Sequence[TensorRecord],
    *,
    folder: Path,
    healthy: Collection[str],
) -> tuple[tuple[JudgedOperator, ...], list[str]]:
    """Judge the outputs of calls of torch that :func:`keep_suspected` had kept, by these on the CPU."""
    if not isinstance(case.runtime, CallKeepingRuntime) or case.settings.recompute == _OFF:
        return (), []
    hf32 = case.runtime.producer().get("hf32")
    allowed = frozenset(hf32.split("+")) if hf32 is not None else frozenset({"matmul", "conv"})
    archive = CallArchive(calls_folder(folder), case.settings.dump_limit)
    bench = CallBench(case.runtime.kept_calls(), case.settings.recompute, allowed, archive)
    report = case.steps_of("recomputing calls on the CPU")
    found = bench.isolate(_calls_among(first, suspects, healthy), records, report)
    case.runtime.keep_calls((), 0)
    return found, archive.notes
