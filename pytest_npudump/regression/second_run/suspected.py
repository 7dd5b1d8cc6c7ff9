"""The operators under suspicion: the sources of a failure, what feeds them, and each of them alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.compare.stats.first_divergence import GRAPH_INPUT
from pytest_npudump.compare.stats.verdict import aligned_keys
from pytest_npudump.compare.tolerances.numerics import SAME
from pytest_npudump.dump.records import sanitise
from pytest_npudump.errors import NpudumpError
from pytest_npudump.reference.name_map import NameMap
from pytest_npudump.reference.reference_model import ReferenceModel
from pytest_npudump.reference.suspects import Bench
from pytest_npudump.regression.second_run.by_reference import failing_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_npudump.dump.records import Dump, TensorKey, TensorRecord
    from pytest_npudump.reference.suspects import Isolated
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
    """Judge the suspects by the inputs that the second run dumped.

    The ONNX model is the test's reference, or else the one that ran, or that lies beside what ran.

    Args:
        case: the test.
        first: its first run.
        suspects: the outputs under suspicion.
        records: the second run's tensors.

    Returns:
        The verdicts, and a note where there can be none.
    """
    plain = case.runtime.name == "emulator"
    present = {record.key.layer for record in first.dump.records} if first.dump is not None else set[str]()
    files = onnx_files(case)
    if not suspects or (case.reference is None and not files):
        return (), ()
    if case.reference is None and len(files) > 1:
        names = ", ".join(file.name for file in files)
        return (), (f"no operator was judged alone: several models ran ({names}); {_ADVICE}",)
    try:
        if case.reference is not None:
            bench = case.reference.bench(plain=plain)
        else:
            converted = not plain and files[0] not in case.runtime.activity.models
            model = ReferenceModel.read(files[0])
            bench = Bench(model, NameMap(), own=True, converted=converted, plain=plain)
        return bench.isolate(suspects, records, present, _changed(first)), ()
    except NpudumpError as error:
        return (), (f"no operator was judged alone: {error}",)


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


def onnx_files(case: Case) -> list[Path]:
    """Return the ONNX models that ran, or lie beside what ran."""
    files = (path.with_suffix(".onnx") for path in case.runtime.activity.models)
    return [file for file in dict.fromkeys(files) if file.is_file()]
