"""The reference of one test: read once, compared with every run of the test."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.stats.alignment import ABSENT
from pytest_npudump.compare.stats.allowances import deviations, told_by_both
from pytest_npudump.compare.stats.verdict import GRAPH_INPUT, Comparison
from pytest_npudump.compare.tensors.element_verdict import ELEMENTS
from pytest_npudump.compare.tolerances.presets import AUTO
from pytest_npudump.compare.tolerances.rules import MARKER_RULES, ReferenceTolerances, reference_tolerances
from pytest_npudump.compare.tolerances.tolerance import REFERENCE, Rule, Tolerances
from pytest_npudump.dump.records import TensorKey, TensorRecord, sanitise
from pytest_npudump.errors import NpudumpError, said
from pytest_npudump.explain.comparison import (
    LAYOUT,
    OVERFLOW,
    PADDED,
    Compared,
    RunInputs,
    compare,
    problem_of,
    unseen_nodes,
)
from pytest_npudump.explain.dumped_operators import ModelBench
from pytest_npudump.explain.matches import NameMap
from pytest_npudump.explain.reference_model import ReferenceModel
from pytest_npudump.explain.rounding import Blame, coarsest, only_wide, three_ways
from pytest_npudump.language.text import first_of, number_of
from pytest_npudump.onnxmodels.loaded_files import FileState
from pytest_npudump.onnxmodels.sessions import ModelError
from pytest_npudump.request import DumpRequest, KnownNames, is_glob

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_npudump.compare.patterns.pattern_search import Limits
    from pytest_npudump.record.edges import Edges

_ROOM = 1.1
"""The factor by which a tolerance that is proposed allows more than was measured."""


@dataclass(frozen=True, slots=True)
class ReferenceResult:
    """A dump judged against the ONNX model it was converted from.

    Attributes:
        model: the ONNX model.
        comparison: verdicts of the tensors that have a counterpart, the reference on the golden's side; None
            where it never came to one.
        layers: layers of the dump.
        compared: those of them of which a tensor was compared.
        problems: what went wrong besides verdicts, in words; any of them fails the test.
        notes: what is to be known of a test that passes, too.
        remarks: how layers were matched and judged, for who looks into a failure.
        blames: whose error each difference is, the device's or its number format's, where that is known.
        tolerances: what decided, beside what rounding explains; None where it never came to a comparison.
    """

    model: Path
    comparison: Comparison | None = None
    layers: int = 0
    compared: int = 0
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    blames: tuple[Blame, ...] = ()
    tolerances: Tolerances | None = None

    @property
    def good(self) -> bool:
        """Return whether something was compared, and all of it matches."""
        return self.comparison is not None and not self.comparison.failing and not self.problems

    @property
    def failing(self) -> bool:
        """Return whether a tensor differs from its counterpart."""
        return self.comparison is not None and bool(self.comparison.failing)

    @property
    def accepting(self) -> tuple[dict[str, float], list[TensorKey]]:
        """The relative tolerance that each mismatching layer passes with, and tensors that none is for."""
        found = self.comparison
        if found is None:
            return {}, []
        failing = {verdict.key: verdict for verdict in found.failing}
        needed = dict.fromkeys((key.layer for key in failing), 0.0)
        measured = deviations(found, found.tolerances)
        largest = np.where(measured.uncountable, np.inf, measured.largest.max(axis=1)).tolist()
        beyond = []
        for at, (key, _op_type) in enumerate(found.aligned_keys()):
            if key.layer not in needed:
                continue
            elements = found.elements[at].difference if at in found.elements else None
            here = int(found.alignment.golden[at])
            share = max(
                largest[here] if here != ABSENT else np.inf, elements.relative_l2 if elements else 0.0
            )
            if elements and elements.max_abs:
                share = max(share, elements.max_abs / elements.magnitude if elements.magnitude else np.inf)
            verdict = failing.get(key)
            other = verdict is not None and any(
                reason.difference is None and reason.statistic != ELEMENTS for reason in verdict.reasons
            )
            if other or not math.isfinite(share):
                beyond.append(key)
            needed[key.layer] = max(needed[key.layer], share)
        return {layer: _ROOM * most for layer, most in needed.items()}, beyond

    def summary(self) -> dict[str, Any]:
        """Return a summary for JUnit: small, whatever the number of layers."""
        found = self.comparison
        first = found.first if found else None
        return {
            "model": str(self.model),
            "good": self.good,
            "layers": self.layers,
            "compared": self.compared,
            "failed": len(found.mismatches) if found else 0,
            "unjudged": found.unjudged if found else 0,
            "first": str(first.key) if first else None,
        }

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON data."""
        return {
            **self.summary(),
            "problems": list(self.problems),
            "notes": list(self.notes),
            "remarks": list(self.remarks),
            "blames": [blame.to_json() for blame in self.blames],
            "comparison": self.comparison.to_json() if self.comparison else None,
        }


@dataclass(slots=True)
class Reference:
    """Reference of a test's layers, besides or instead of a golden.

    Attributes:
        path: the ONNX model.
        map_path: the mapping file; None without one.
        tolerances: what the device may differ by.
        inputs: what the run under way fed its models.
    """

    path: Path
    map_path: Path | None
    tolerances: ReferenceTolerances
    inputs: RunInputs = field(default_factory=RunInputs)
    _model: ReferenceModel | None = None
    _state: FileState | None = None
    _mapping: NameMap | None = None

    @classmethod
    def of(
        cls, request: DumpRequest, folder: Path, tolerance_file: Path | None, numerics: str = AUTO
    ) -> Reference | None:
        """Return the reference that a marker names; None where it names none.

        Args:
            request: what the marker asks for.
            folder: of the test file, which paths are relative to.
            tolerance_file: the run's; None without one.
            numerics: the run's, where the marker has none.

        Raises:
            RequestError: a tolerance is refused.
        """
        if request.reference is None:
            return None
        mapping = folder / request.reference_map if request.reference_map else None
        return cls(
            folder / request.reference, mapping, reference_tolerances(request, tolerance_file, numerics)
        )

    def start_run(self) -> None:
        """Forget the inputs of the run before."""
        self.inputs = RunInputs()

    def settle(self, producer: Mapping[str, str]) -> None:
        """Leave out, from now on, tolerance rules for runs of other producers than that of these facts."""
        self.tolerances = self.tolerances.for_run(producer)

    def judge(self, records: Sequence[TensorRecord], request: DumpRequest) -> ReferenceResult:
        """Compare a dump with the reference; whatever prevents it is a problem that fails the test."""
        try:
            compared, tolerances, blames, notes = self._judged(records)
        except NpudumpError as error:
            layers = {record.key.layer for record in records if record.op_type != GRAPH_INPUT}
            return ReferenceResult(self.path, layers=len(layers), problems=(str(error),))
        assert self._model is not None  # noqa: S101 - comparing has read it
        own = tolerances.rules[: len(tolerances.rules) - len(self.tolerances.rules)]
        return ReferenceResult(
            model=self.path,
            comparison=compared.comparison,
            layers=compared.matching.layers,
            compared=len(compared.matching.compared),
            problems=self._problems(compared, records, request, tolerances),
            notes=(*notes_of(compared, self._model, whole=not request.layers), *notes),
            remarks=remarks_of(compared, self._model, own, fusions=not request.layers),
            blames=blames,
            tolerances=tolerances,
        )

    def _judged(
        self, records: Sequence[TensorRecord]
    ) -> tuple[Compared, Tolerances, tuple[Blame, ...], tuple[str, ...]]:
        """Compare in three ways where that is possible, else by the preset.

        Returns:
            The comparison, the tolerances that decided, whose error what differs is, and notes.
        """
        dtypes = [record.dtype for record in records]
        flat, same = self.tolerances.among(dtypes), self.tolerances.same()
        default = coarsest(dtypes)
        if not self.tolerances.three_way or not (default or only_wide(dtypes)):
            return self._compared(records, flat), flat, (), ()
        compared = self._compared(records, same)
        if not default:
            if self.tolerances.hf32 or not compared.comparison.failing:
                return compared, same, (), ()
            words = said(
                'the reference is in float32; if the device may compute in HF32, set preset="hf32" in the '
                "marker (npudump compare: --preset hf32)"
            )
            return compared, same, (), (words,)
        assert self._model is not None  # noqa: S101 - comparing has read it
        try:
            compared, blames, notes = three_ways(compared, self._model, default, same)
        except ModelError as error:
            note = said(
                "the reference was compared by the preset {preset}: it cannot run in {dtype}: {error}",
                preset=flat.preset,
                dtype=str(default),
                error=str(error),
            )
            return self._compared(records, flat), flat, (), (note,)
        return compared, same, blames, notes

    def compare(
        self,
        records: Sequence[TensorRecord],
        *,
        dumped: Sequence[TensorRecord] = (),
        limits: Limits | None = None,
    ) -> Compared:
        """Compare ``records`` with the reference; ``dumped`` may hold the inputs.

        Elements are counted by the preset, and by bounds for the same numerics in a dump of float32. With
        ``limits``, patterns are looked for, and what is left out is counted.

        Raises:
            NpudumpError: the model, the mapping file, the inputs or the dump do not allow it.
        """
        dtypes = [record.dtype for record in (*records, *dumped)]
        flat = not self.tolerances.three_way or coarsest(dtypes)
        tolerances = self.tolerances.among(dtypes) if flat else self.tolerances.same()
        return self._compared(records, tolerances, dumped=dumped, limits=limits)

    def bench(self, *, plain: bool, edges: Edges) -> ModelBench:
        """Return the recomputation of operators; ``plain`` and ``edges`` as in :class:`ModelBench`.

        Raises:
            NpudumpError: the model or the mapping file cannot be read.
        """
        model, mapping = self._read()
        return ModelBench(model, mapping, plain=plain, edges=edges)

    def _read(self) -> tuple[ReferenceModel, NameMap]:
        written = self._state is not None and self.path.is_file() and not self._state.holds(self.path)
        if self._model is None or written:
            self._state = FileState.of(self.path)
            self._model = ReferenceModel.read(self.path)
        if self._mapping is None:
            known = self._model.names
            self._mapping = NameMap.read(self.map_path, known) if self.map_path else NameMap()
        return self._model, self._mapping

    def _compared(
        self,
        records: Sequence[TensorRecord],
        tolerances: Tolerances,
        *,
        dumped: Sequence[TensorRecord] = (),
        limits: Limits | None = None,
    ) -> Compared:
        model, mapping = self._read()
        self._mapping = mapping = mapping.for_layers(record.key.layer for record in records)
        return compare(records, model, mapping, self.inputs, tolerances, dumped=dumped, limits=limits)

    def _problems(
        self,
        compared: Compared,
        records: Sequence[TensorRecord],
        request: DumpRequest,
        tolerances: Tolerances,
    ) -> tuple[str, ...]:
        assert self._mapping is not None  # noqa: S101 - comparing has read it
        assert self._model is not None  # noqa: S101 - the same
        comparison, matching = compared.comparison, compared.matching
        problems = [*self._mapping.unused(record.key.layer for record in records)]
        present = KnownNames((record.key.layer for record in records), sanitise)
        compared_ones = KnownNames(matching.compared | matching.given, sanitise)
        problems += [
            (
                f"layer {name!r}, named in the marker, has no counterpart in {self.path.name}: map it to the "
                "node whose output it has, in a YAML file with map="
            )
            for name in request.layers
            if (present.called(name) or not is_glob(name)) and not compared_ones.called(name)
        ]
        own = replace(tolerances, rules=self.tolerances.rules)
        problems += [
            (
                f"tolerance rule {rule.describe()} of the marker matches nothing that was compared with "
                f"{self.path.name}; correct its layer, op_type, dtype or statistic, or remove it"
            )
            for rule in own.unmatched(told_by_both(comparison)[1])
            if rule.source == MARKER_RULES and rule.against == REFERENCE
        ]
        nothing = problem_of(compared, records, self._model, tolerances)
        return (*problems, nothing) if nothing else tuple(problems)


_MARKS: Mapping[str, str] = MappingProxyType(
    {
        OVERFLOW: "have values beyond the type's range: infinities, or its largest value, were expected",
        PADDED: (
            "have padding in their statistics: the extremes were compared from one side, mean and norm not "
            "at all; acl_json={'dump_data': 'tensor'} compares them in full"
        ),
        LAYOUT: "are in a layout that cannot be converted: their statistics were compared",
    }
)


def notes_of(compared: Compared, model: ReferenceModel, *, whole: bool) -> tuple[str, ...]:
    """Return the notes of a passed comparison: tensors not compared, or not in full.

    Args:
        compared: the comparison.
        model: the reference.
        whole: whether all layers were asked for, so that one that nothing was compared of is news.
    """
    matching, name = compared.matching, f"reference {model.path.name}"
    unseen = unseen_nodes(model, (match.counterpart.tensor for match in matching.matches))
    counts = Counter(op_type or "of unknown type" for op_type in matching.lonely.values())
    odd = [e.actual for e in compared.expected if e.actual.note]
    unjudged = compared.comparison.unjudged
    doubts = [doubt for doubt in compared.comparison.doubts if not doubt.unjudged]
    notes = (
        f"{name} holds 16-bit floats and was computed in them: in float32 it would exceed the 2 GiB of "
        f"an ONNX message"
        if model.halved
        else "",
        # Where it is all of them, the comparison fails.
        f"reference {model.path.name}: nothing compared depends on {len(unseen)} of "
        f"{len(model.nodes)} operators (first: {unseen[0].name}), so that a difference in them goes "
        f"unseen; the layers that hold their outputs belong into the file of map="
        if whole and 0 < len(unseen) < len(model.nodes)
        else "",
        f"{name}: {len(matching.compared)} of {matching.layers} layers compared; no counterpart for "
        f"{first_of(f'{kind} {number}' for kind, number in counts.most_common())}"
        if counts
        else "",
        *(
            f"{name}: tensors ({len(keys)}, first: {keys[0]}) {words}"
            for mark, words in _MARKS.items()
            if (keys := [str(e.actual.key) for e in compared.expected if mark in e.marks])
        ),
        f"{name}: compared in part: {number_of(len(odd), 'tensor')}, such as {odd[0].key}: {odd[0].note}"
        if odd
        else "",
        f"{name}: no finite statistics on one side for {number_of(unjudged, 'tensor')}: only type, shape "
        f"and counts were compared"
        if unjudged
        else "",
        *(f"{name}: {doubt.describe(compared.comparison.compared)}" for doubt in doubts),
    )
    return (*filter(None, notes), *compared.notes)


def remarks_of(
    compared: Compared, model: ReferenceModel, own: Sequence[Rule], *, fusions: bool
) -> tuple[str, ...]:
    """Describe how layers were matched and judged, help with a failure first.

    Args:
        compared: the comparison.
        model: the reference.
        own: rules for types that take the tolerance of a coarser one.
        fusions: whether a layer that the dump lacks may have been fused into another, as all were dumped.
    """
    matching, first = compared.matching, compared.comparison.first
    absorbed = {sanitise(layer): name for layer, name in matching.absorbed.items()}
    layer = first.key.layer if fusions and first is not None else ""
    follower = absorbed.get(sanitise(layer))
    remarks = (
        f"{follower} of the reference, which alone consumes {layer}, is not in the dump: if the device "
        f"fused it into {layer}, say so in the file of map=: {layer}: {follower}"
        if follower
        else "",
        f"{model.path.name} holds 16-bit floats, which the reference computed in float32"
        if model.raised
        else "",
        f"{', '.join(rule.dtype for rule in own)} was compared by {own[0].source}" if own else "",
        *(f"{layer} was taken for the output of {node}" for layer, node in matching.fused.items()),
        f"layers without a counterpart: {', '.join(matching.lonely)}" if matching.lonely else "",
    )
    return tuple(filter(None, remarks))
