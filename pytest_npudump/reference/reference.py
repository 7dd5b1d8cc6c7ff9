"""The reference of one test: read once, compared with every run of the test."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_npudump.compare.table import MEASURED
from pytest_npudump.compare.tolerance import REFERENCE
from pytest_npudump.dump.records import sanitise
from pytest_npudump.errors import NpudumpError
from pytest_npudump.layers import both_spellings
from pytest_npudump.reference.comparing import Compared, compare, dtypes_of
from pytest_npudump.reference.expected import LAYOUT, OVERFLOW, PADDED
from pytest_npudump.reference.inputs import RunInputs
from pytest_npudump.reference.mapping import NameMap
from pytest_npudump.reference.model import ReferenceModel
from pytest_npudump.reference.result import ReferenceResult
from pytest_npudump.reference.tolerating import ReferenceTolerances, reference_tolerances
from pytest_npudump.request import is_glob
from pytest_npudump.tolerating import MARKER_RULES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_npudump.compare.tolerance import Tolerances
    from pytest_npudump.dump.records import TensorRecord
    from pytest_npudump.request import DumpRequest

_MARKS = {
    OVERFLOW: "have values beyond the type's range: infinities, or its largest value, were expected",
    PADDED: (
        "have padding in their statistics: the extremes were judged from one side, mean and norm not at all; "
        "dump_data='tensor' compares them in full"
    ),
    LAYOUT: "are in a layout that cannot be converted: their statistics were compared",
}


@dataclass(slots=True)
class Reference:
    """What a test's layers are compared with, besides or instead of a golden.

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
    _mapping: NameMap | None = None

    @classmethod
    def of(cls, request: DumpRequest, folder: Path, tolerance_file: Path | None) -> Reference | None:
        """Return the reference that a marker names; None where it names none.

        Args:
            request: what the marker asks for.
            folder: of the test file, which paths are relative to.
            tolerance_file: the run's; None without one.

        Raises:
            RequestError: a tolerance is refused.
        """
        if request.reference is None:
            return None
        mapping = folder / request.reference_map if request.reference_map else None
        return cls(folder / request.reference, mapping, reference_tolerances(request, tolerance_file))

    def start_run(self) -> None:
        """Forget the inputs of the run before."""
        self.inputs = RunInputs()

    def judge(self, records: Sequence[TensorRecord], request: DumpRequest) -> ReferenceResult:
        """Compare a dump with the reference; whatever prevents it is a problem that fails the test."""
        layers = len({record.key.layer for record in records})
        try:
            compared = self.compare(records)
        except NpudumpError as error:
            return ReferenceResult(self.path, layers=layers, problems=(str(error),))
        tolerances = self.tolerances.among(dtypes_of(records))
        return ReferenceResult(
            model=self.path,
            comparison=compared.comparison,
            layers=layers,
            compared=len(compared.matching.compared),
            problems=self._problems(compared, records, request, tolerances),
            notes=self._notes(compared, layers),
            remarks=self._remarks(compared, request, tolerances),
        )

    def compare(self, records: Sequence[TensorRecord], *, dumped: Sequence[TensorRecord] = ()) -> Compared:
        """Compare ``records`` with the reference; ``dumped`` may hold the inputs.

        Raises:
            NpudumpError: the model, the mapping file, the inputs or the dump do not allow it.
        """
        if self._model is None:
            self._model = ReferenceModel.read(self.path)
        model = self._model
        if self._mapping is None:
            self._mapping = NameMap.read(self.map_path, _known(model)) if self.map_path else NameMap()
        tolerances = self.tolerances.among(dtypes_of([*records, *dumped]))
        return compare(records, model, self._mapping, self.inputs, tolerances, dumped=dumped)

    def _problems(
        self,
        compared: Compared,
        records: Sequence[TensorRecord],
        request: DumpRequest,
        tolerances: Tolerances,
    ) -> tuple[str, ...]:
        assert self._mapping is not None  # noqa: S101 - comparing has read it
        comparison = compared.comparison
        problems = [*self._mapping.unused(record.key.layer for record in records)]
        present = {name for layer in compared.matching.compared for name in (layer, sanitise(layer))}
        problems += [
            f"layer {name!r}, named in the marker, has no counterpart in {self.path.name}: map it to the "
            f"node whose output it has, in a YAML file with reference_map="
            for name in request.layers
            if not is_glob(name) and not present.intersection(both_spellings([name]))
        ]
        problems += [
            f"tolerance rule {rule.describe()} of the marker matches nothing that was compared with "
            f"{self.path.name}; correct its layer, dtype or statistic, or remove it"
            for rule in replace(tolerances, rules=self.tolerances.rules).unmatched(comparison.actual)
            if rule.source == MARKER_RULES and rule.against == REFERENCE
        ]
        name = self.path.name
        valued = comparison.actual.known[:, :MEASURED].any()
        if not comparison.failing and (comparison.unjudged == comparison.compared or not valued):
            problems.append(
                f"no value was compared with {name}: the dump tells neither max, min, avg nor l2norm of the "
                f"{comparison.compared} tensors (ACL has none of bfloat16); use dump_data='tensor'"
            )
        return tuple(problems)

    def _notes(self, compared: Compared, layers: int) -> tuple[str, ...]:
        matching = compared.matching
        notes = []
        if matching.lonely:
            notes.append(
                f"reference {self.path.name}: {len(matching.compared)} of {layers} layers compared; no "
                f"counterpart for {matching.types_alone()}"
            )
        notes += [
            f"reference {self.path.name}: {len(keys)} tensors (first: {keys[0]}) {words}"
            for mark, words in _MARKS.items()
            if (keys := compared.marked(mark))
        ]
        unjudged = compared.comparison.unjudged
        if unjudged:
            notes.append(
                f"reference {self.path.name}: of {unjudged} tensors the dump or the reference has no finite "
                f"statistics: only type, shape and counts were compared"
            )
        return (*notes, *compared.notes)

    def _remarks(self, compared: Compared, request: DumpRequest, tolerances: Tolerances) -> tuple[str, ...]:
        matching = compared.matching
        assert self._model is not None  # noqa: S101 - comparing has read it
        remarks = [] if request.layers else _suspected_fusion(compared)
        if self._model.raised:
            remarks.append(f"{self.path.name} holds 16-bit floats, which the reference computed in float32")
        own = tolerances.rules[: len(tolerances.rules) - len(self.tolerances.rules)]
        if own:
            remarks.append(f"{', '.join(rule.dtype for rule in own)} was judged by {own[0].source}")
        remarks += [f"{layer} was taken for the output of {node}" for layer, node in matching.fused.items()]
        if matching.lonely:
            remarks.append(f"layers without a counterpart: {', '.join(matching.lonely)}")
        shared = _shared(compared)
        if shared:
            remarks.append(
                f"several layers were compared with one tensor of the reference: {', '.join(shared)}"
            )
        return tuple(remarks)


def _known(model: ReferenceModel) -> frozenset[str]:
    nodes = (name for node in model.nodes for name in (node.name, *node.operator.outputs))
    return frozenset((*nodes, *model.inputs))


def _suspected_fusion(compared: Compared) -> list[str]:
    """Say whether the first layer that differs may hold the output of an operator fused into it."""
    first = compared.comparison.first
    absorbed = {sanitise(layer): name for layer, name in compared.matching.absorbed.items()}
    follower = absorbed.get(sanitise(first.key.layer)) if first is not None else None
    if first is None or follower is None:
        return []
    layer = first.key.layer
    words = (
        f"{follower} of the reference, which alone consumes {layer}, is not in the dump: if the device fused "
        f"it into {layer}, say so in the reference_map: {layer}: {follower}"
    )
    return [words]


def _shared(compared: Compared) -> list[str]:
    """Return tensors of the reference that outputs of several layers were compared with."""
    layers: dict[str, set[str]] = {}
    for match in compared.matching.matches:
        if match.record.key.io == "output":
            layers.setdefault(match.counterpart.tensor, set()).add(match.record.key.layer)
    return [f"{tensor} ({', '.join(sorted(names))})" for tensor, names in layers.items() if len(names) > 1]
