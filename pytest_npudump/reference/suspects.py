"""The operators under suspicion in a dump, each recomputed from the very inputs that the dump has of it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.dump.records import sanitise
from pytest_npudump.errors import NpudumpError
from pytest_npudump.reference.dumped_operators import DumpedOperators, NotAtHandError
from pytest_npudump.reference.matches import MAPPED, Names
from pytest_npudump.reference.operator_alone import CONVICTED, UNKNOWN, Alone, judge_alone, noise_of
from pytest_npudump.reference.single_operator import SingleOperator
from pytest_npudump.reference.upstream import UPSTREAM, judged_upstream

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from pytest_npudump.dump.records import TensorKey, TensorRecord
    from pytest_npudump.graph.edges import Edges
    from pytest_npudump.reference.dumped_operators import DumpedOperator
    from pytest_npudump.reference.matches import NameMap
    from pytest_npudump.reference.reference_model import ReferenceModel

_SEED = 0
_COUNTED = re.compile(r"[A-Z][A-Za-z0-9]*_\d+")
"""Names that parsers of ONNX give to operators without one: the type, and how many of these came before."""
_APPROXIMATED = 1e-2
"""Relative L2 by which no approximation of a function on a device is off, as a permutation of values is."""


@dataclass(frozen=True, slots=True)
class Isolated:
    """An operator under suspicion, alone.

    Attributes:
        key: its output.
        op_type: ONNX's type; "" where it has no counterpart there.
        model: name of the ONNX file it was recomputed with; "" where ATen's operator was run on the CPU.
        own: whether that is the model that ran, or lies beside it, and not a reference: its weights are
            those of the run.
        converted: whether it lies beside what ran, which was made of it as far as is known.
        alone: the verdict.
        call: the call of ATen that gave it, as ``aten.add.Tensor``; "" where that is not known.
        saved: folder of that call's files, where it is convicted; None where there is none.
        upstream: whether it is no suspect itself, but lies upstream of one that was acquitted.
    """

    key: TensorKey
    op_type: str
    model: str
    own: bool
    alone: Alone
    converted: bool = False
    call: str = ""
    saved: Path | None = None
    upstream: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data; what was not measured, or is infinite, is null."""
        apart, allowed = self.alone.apart, self.alone.allowed
        return {
            "key": str(self.key),
            "layer": self.key.layer,
            "op_type": self.op_type or None,
            "verdict": self.alone.verdict,
            "relative_l2": apart if math.isfinite(apart) else None,
            "allowed": allowed if math.isfinite(allowed) else None,
            "why": self.alone.why or None,
            "model": self.model or None,
            "call": self.call or None,
            "saved": str(self.saved) if self.saved is not None else None,
            "own_model": self.own,
            "converted": self.converted,
            "upstream": self.upstream,
        }


@dataclass(frozen=True, slots=True)
class Bench:
    """What operators are recomputed with.

    Attributes:
        model: the ONNX model.
        mapping: names that it does not know.
        own: whether it is the model that ran, or lies beside it.
        converted: whether it lies beside what ran.
        plain: whether the device is known to compute with float32 operands and accumulators.
        edges: which tensor fed which in what ran; None where that is known to be the model's own graph.
    """

    model: ReferenceModel
    mapping: NameMap
    own: bool = False
    converted: bool = False
    plain: bool = False
    edges: Edges | None = None

    def isolate(
        self,
        suspects: Sequence[TensorKey],
        records: Sequence[TensorRecord],
        present: Collection[str],
        changed: Collection[str] = (),
    ) -> tuple[Isolated, ...]:
        """Judge outputs by what the inputs of their operators give, and what lies upstream of the acquitted.

        Args:
            suspects: the outputs.
            records: tensors of one run: these, and what feeds them, as outputs of others or as inputs.
            present: names of all layers of that run, by which fused operators are known.
            changed: sanitised keys of outputs that are known to be others than in the golden: upstream of the
                suspects a device's own way to compute convicts no operator that is none of these.

        Raises:
            DumpError: the header of a tensor file cannot be read.
            ModelError: onnxruntime refuses the model.
        """
        found = DumpedOperators.read(
            self.model, self.mapping, records, suspects, upstream=UPSTREAM, edges=self.edges
        )
        layers = {sanitise(layer) for layer in present}
        judged: dict[TensorKey, Alone] = {}

        def verdict(key: TensorKey) -> str:
            try:
                judged[key] = self._judged(found.operator(key), layers)
            except NpudumpError as error:
                judged[key] = Alone(UNKNOWN, why=str(error))
            if not self.plain and key not in suspects and str(key.sanitised) not in changed:
                judged[key] = _but_for_approximations(judged[key])
            return judged[key].verdict

        keys = judged_upstream(suspects, found.feeders, verdict, UPSTREAM)
        model = self.model.path.name
        return tuple(
            Isolated(
                key,
                found.op_type(key),
                model,
                self.own,
                judged[key],
                self.converted,
                upstream=key not in suspects,
            )
            for key in keys
        )

    def _judged(self, found: DumpedOperator, layers: set[str]) -> Alone:
        alone = held_against(self.model, found, plain=self.plain)
        if alone.verdict != CONVICTED or found.how == MAPPED:
            return alone
        names = Names(self.model, self.mapping, {})
        follower = names.absorbed(found.node, layers)
        if follower is not None:
            why = f"{follower.name}, which alone follows it, was not dumped and may be fused into it"
            return Alone(UNKNOWN, alone.apart, alone.allowed, why)
        if self.edges is not None and not self.converted and not self.model.is_named(found.node):
            inputs = {*map(sanitise, self.model.inputs)}
            others = [x for x in layers - inputs if _COUNTED.fullmatch(x) and names.node(x) is None]
            if others:
                why = (
                    f"it has no name of its own but is counted, and {self.model.path.name} has no "
                    f"{min(others)} that was counted with it: it may be another operator there"
                )
                return Alone(UNKNOWN, alone.apart, alone.allowed, why)
        return alone


def _but_for_approximations(alone: Alone) -> Alone:
    """Return a verdict upstream, where nothing tells that the operator gave something else in the golden."""
    if alone.verdict != CONVICTED or _APPROXIMATED < alone.apart < math.inf:
        return alone
    return Alone(UNKNOWN, alone.apart, alone.allowed, "it is not known to have changed since the golden")


def held_against(model: ReferenceModel, found: DumpedOperator, *, plain: bool) -> Alone:
    """Judge an operator's output by what onnxruntime makes of the inputs that were dumped.

    Args:
        model: the operator's.
        found: the operator, with what was dumped of it.
        plain: as in :class:`Bench`.

    Raises:
        ModelError: onnxruntime cannot run the operator on these inputs.
        NotAtHandError: its output is no tensor of numbers.
    """
    operator = SingleOperator(model, found.node, found.feeds)
    computed = operator.outputs()
    if found.tensor not in computed:
        raise NotAtHandError("its output is no tensor of numbers")
    readings = [computed[found.tensor]]
    if found.dtype != readings[0].dtype.name and readings[0].dtype.kind == "f":
        readings.append(SingleOperator(model, found.node, found.feeds, found.dtype).outputs()[found.tensor])
    floats = (array for array in found.feeds.values() if array.dtype.kind == "f")
    return judge_alone(
        found.node.operator.op_type,
        found.dtype,
        found.output,
        readings,
        noise=noise_of(computed, operator.outputs(_SEED), found.tensor),
        plain=plain,
        finite=all(bool(np.isfinite(array).all()) for array in floats),
    )
