"""The operators under suspicion: the sources of a failure, what feeds them, and each of them alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.compare.stats.first_divergence import GRAPH_INPUT
from pytest_npudump.compare.stats.verdict import aligned_keys
from pytest_npudump.compare.tolerances.numerics import SAME
from pytest_npudump.dump.records import sanitise
from pytest_npudump.errors import NpudumpError
from pytest_npudump.language.excerpt import first_of
from pytest_npudump.reference.name_map import NameMap
from pytest_npudump.reference.operator_alone import ACQUITTED, CONVICTED, UNKNOWN, Alone
from pytest_npudump.reference.reference_model import ReferenceModel
from pytest_npudump.reference.suspects import Bench, Isolated
from pytest_npudump.reference.upstream import UPSTREAM
from pytest_npudump.regression.case import onnx_files
from pytest_npudump.regression.second_run.by_reference import failing_keys
from pytest_npudump.regression.second_run.inputs_wanted import edges_of_device

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pytest_npudump.dump.records import Dump, TensorKey, TensorRecord
    from pytest_npudump.graph.edges import Edges
    from pytest_npudump.regression.case import Case
    from pytest_npudump.regression.outcome import FirstRun, Outcome

_ADVICE = "reference= names the ONNX model by which an operator can be judged alone"


def suspects_of(outcome: Outcome) -> tuple[TensorKey, ...]:
    """Return the outputs to be judged by their inputs, in order of execution.

    They are each independent source and where its change begins; the first failure where no source is known.
    """
    found: list[TensorKey] = []
    for source in outcome.sources.independent if outcome.sources is not None else ():
        found += [source.key] if source.begins is None else [source.key, source.begins]
    outputs = [key for key in dict.fromkeys(found or failing_keys(outcome)) if key.io == "output"]
    return tuple(outputs if found else outputs[:1])


def isolate_suspects(
    case: Case, first: FirstRun, suspects: tuple[TensorKey, ...], records: Sequence[TensorRecord]
) -> tuple[tuple[Isolated, ...], tuple[str, ...]]:
    """Judge the suspects by the inputs that the second run dumped; where none can be, others that fail.

    The ONNX model is the test's reference, or else the one that ran, or that lies beside what ran; of several
    the one that the tensor's key names.

    Args:
        case: the test.
        first: its first run.
        suspects: the outputs under suspicion.
        records: the second run's tensors.

    Returns:
        The verdicts, and a note where there can be none.
    """
    if not suspects or first.dump is None:
        return (), ()
    present, edges = first.dump.records, edges_of_device(case, first, first.dump)
    if case.reference is not None:
        try:
            if not case.runtime.activity.evidence.files.keeps_weights(case.reference.path):
                return _unknown(suspects, case.reference.path, own=False), ()
            bench = case.reference.bench(plain=case.runtime.name == "emulator", edges=edges)
            layers = {record.key.layer for record in present}
            judged = bench.isolate(suspects, records, layers, _changed(first))
            if {one.alone.verdict for one in judged} & {CONVICTED, ACQUITTED}:
                return judged, ()
            known = {one.key for one in judged}
            others = [key for key in failing_keys(first.outcome) if key.io == "output" and key not in known]
            further = bench.isolate(others[:UPSTREAM], records, layers, _changed(first))
            return (*judged, *(one for one in further if one.alone.verdict == CONVICTED)), ()
        except NpudumpError as error:
            return (), (f"no operator was judged alone: {error}",)
    files = onnx_files(case)
    found: list[Isolated] = []
    notes = [*_untold(suspects, files)]
    for file in files:
        own = tuple(key for key in suspects if _file_of(key, files) == file)
        here = [record for record in records if _file_of(record.key, files) == file]
        layers = {record.key.layer for record in present if _file_of(record.key, files) == file}
        try:
            if not own:
                continue
            if not case.runtime.activity.evidence.files.keeps_weights(file):
                found += _unknown(own, file, own=True)
                continue
            found += _bench_of(case, file, edges).isolate(own, here, layers, _changed(first))
        except NpudumpError as error:
            notes.append(f"no operator was judged alone: {error}")
    return tuple(found), tuple(notes)


def _unknown(suspects: Iterable[TensorKey], file: Path, *, own: bool) -> tuple[Isolated, ...]:
    """Return that operators are not judged, as nobody has the model any more that they ran in."""
    why = f"{file.name} was written again after it was loaded, and may be another model"
    alone = Alone(UNKNOWN, why=why)
    return tuple(Isolated(key, "", file.name, own, alone) for key in suspects)


def _bench_of(case: Case, file: Path, edges: Edges) -> Bench:
    """Return what operators of a model that ran, or that lies beside one, are recomputed with."""
    plain = case.runtime.name == "emulator"
    converted = not plain and file not in case.runtime.activity.models
    graph = edges if converted else None
    return Bench(
        ReferenceModel.read(file), NameMap(), own=True, converted=converted, plain=plain, edges=graph
    )


def _file_of(key: TensorKey, files: Sequence[Path]) -> Path | None:
    """Return the ONNX model that a tensor is of; None where several ran and its key does not tell."""
    named = [file for file in files if len(files) == 1 or sanitise(file.stem) == sanitise(key.model)]
    return named[0] if len(named) == 1 else None


def _untold(suspects: Iterable[TensorKey], files: Sequence[Path]) -> Iterator[str]:
    """Say which suspects cannot be judged, as nothing tells which of several models they are of."""
    untold = [key for key in suspects if len(files) > 1 and _file_of(key, files) is None]
    if untold:
        models, keys = ", ".join(file.name for file in files), first_of(untold)
        yield f"not judged alone: {keys}, as several models ran ({models}); {_ADVICE}"


def _changed(first: FirstRun) -> frozenset[str]:
    """Return the sanitised keys of tensors that changed, of a golden that repeats in the run's numerics."""
    comparison, numerics = first.outcome.comparison, first.outcome.numerics
    if comparison is None or not comparison.repeats or numerics is None or numerics.bounds != SAME:
        return frozenset()
    rows = aligned_keys(comparison.golden, comparison.actual, comparison.alignment)
    differing = comparison.differing - comparison.unsteady
    return frozenset(str(key.sanitised) for at, (key, _) in enumerate(rows) if at in differing)


def with_graph_inputs(
    records: Iterable[TensorRecord], layers: Iterable[str], dump: Dump
) -> tuple[TensorRecord, ...]:
    """Return ``records`` and all inputs of graphs among ``layers``.

    CANN dumps one with each operator that reads it, under one name.
    """
    wanted = {sanitise(layer) for layer in layers}
    inputs = (r for r in dump.records if r.op_type == GRAPH_INPUT and sanitise(r.key.layer) in wanted)
    return (*(record for record in records if record.op_type != GRAPH_INPUT), *inputs)
