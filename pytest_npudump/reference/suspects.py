"""The operators under suspicion in a dump, each recomputed from the very inputs that the dump has of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.stats.first_divergence import GRAPH_INPUT
from pytest_npudump.dump.arrays.decode import load, why_opaque
from pytest_npudump.dump.arrays.host import host_array
from pytest_npudump.dump.arrays.layouts import LayoutError
from pytest_npudump.dump.records import sanitise
from pytest_npudump.errors import NpudumpError
from pytest_npudump.onnxmodels.random_operators import draws_random
from pytest_npudump.reference.counterparts import MAPPED, NAME, Names
from pytest_npudump.reference.feeds import Execution
from pytest_npudump.reference.isolation import CONVICTED, UNKNOWN, Alone, judge_alone, noise_of
from pytest_npudump.reference.matches import match
from pytest_npudump.reference.single_operator import SingleOperator, constants_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pytest_npudump.dump.records import TensorKey, TensorRecord
    from pytest_npudump.reference.matches import Match
    from pytest_npudump.reference.name_map import NameMap
    from pytest_npudump.reference.reference_model import Node, ReferenceModel

    Array = np.ndarray[Any, np.dtype[Any]]

_LAYOUTS = {4: "NCHW", 5: "NCDHW"}
_SEED = 0


@dataclass(frozen=True, slots=True)
class Isolated:
    """An operator under suspicion, alone.

    Attributes:
        key: its output.
        op_type: ONNX's type; "" where it has no counterpart.
        model: name of the ONNX file it was recomputed with.
        own: whether that is the model that ran, or lies beside it, and not a reference: its weights are
            those of the run.
        converted: whether it lies beside what ran, which was made of it as far as is known.
        alone: the verdict.
    """

    key: TensorKey
    op_type: str
    model: str
    own: bool
    alone: Alone
    converted: bool = False

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
            "model": self.model,
            "own_model": self.own,
            "converted": self.converted,
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
    """

    model: ReferenceModel
    mapping: NameMap
    own: bool = False
    converted: bool = False
    plain: bool = False

    def isolate(
        self, suspects: Sequence[TensorKey], records: Sequence[TensorRecord], present: Collection[str]
    ) -> tuple[Isolated, ...]:
        """Judge outputs by what the inputs of their operators give.

        Args:
            suspects: the outputs.
            records: tensors of one run: these, and what feeds them, as outputs of others or as inputs.
            present: names of all layers of that run, by which fused operators are known.

        Raises:
            DumpError: the header of a tensor file cannot be read.
            ModelError: onnxruntime refuses the model.
        """
        matching = match([*_inputs_once(records)], self.model, self.mapping)
        at_hand: dict[tuple[Execution, str], TensorRecord] = {}
        for found in matching.matches:
            at_hand.setdefault((Execution.of(found.record), found.counterpart.tensor), found.record)
        outputs = {str(found.record.key.sanitised): found for found in matching.matches}
        layers = {sanitise(layer) for layer in present}
        ports = self._ports([outputs[name] for key in suspects if (name := str(key.sanitised)) in outputs])
        judged = []
        for key in suspects:
            name = str(key.sanitised)
            node = outputs[name].counterpart.node if name in outputs else None
            try:
                alone = self._judged(outputs.get(name), at_hand, layers, ports)
            except NpudumpError as error:
                alone = Alone(UNKNOWN, why=str(error))
            op_type = node.operator.op_type if node is not None else ""
            name = self.model.path.name
            judged.append(Isolated(key, op_type, name, self.own, alone, self.converted))
        return tuple(judged)

    def _fed_by(self, node: Node) -> tuple[str, ...]:
        constants = constants_of(self.model)
        return tuple(dict.fromkeys(name for name in node.all_inputs if name and name not in constants))

    def _ports(self, suspects: Sequence[Match]) -> dict[str, tuple[str, tuple[int, ...]]]:
        nodes = [found.counterpart.node for found in suspects if not _why_not(found, self.model)]
        names = {name for node in nodes if node for name in (*self._fed_by(node), *node.operator.outputs)}
        return self.model.ports(names) if names else {}

    def _judged(
        self,
        found: Match | None,
        at_hand: Mapping[tuple[Execution, str], TensorRecord],
        layers: set[str],
        ports: Mapping[str, tuple[str, tuple[int, ...]]],
    ) -> Alone:
        if found is None:
            raise _NotAtHandError("the second run has no such tensor, or it has no counterpart in the model")
        node, record = found.counterpart.node, found.record
        if why := _why_not(found, self.model):
            raise _NotAtHandError(why)
        assert node is not None  # noqa: S101 - the reason above
        execution = Execution.of(record)
        wanted, tensor = self._fed_by(node), found.counterpart.tensor
        missing = [name for name in wanted if (execution, name) not in at_hand]
        if missing:
            names = ", ".join(map(repr, missing[:3]))
            raise _NotAtHandError(f"of its inputs the second run has not dumped {names}")
        feeds = {name: _fed(at_hand[execution, name], *ports[name]) for name in wanted}
        output = _host(record, len(ports[tensor][1]))
        alone = self._held_against(node, tensor, record.dtype, feeds, output)
        follower = Names(self.model, self.mapping, {}).absorbed(node, layers)
        if alone.verdict == CONVICTED and follower is not None and found.counterpart.how != MAPPED:
            why = f"{follower.name}, which alone follows it, was not dumped and may be fused into it"
            return Alone(UNKNOWN, alone.apart, alone.allowed, why)
        return alone

    def _held_against(
        self, node: Node, tensor: str, dtype: str, feeds: Mapping[str, Array], output: Array
    ) -> Alone:
        operator = SingleOperator(self.model, node, feeds)
        plain = operator.outputs()
        if tensor not in plain:
            raise _NotAtHandError("its output is no tensor of numbers")
        readings = [plain[tensor]]
        if dtype != plain[tensor].dtype.name and plain[tensor].dtype.kind == "f":
            readings.append(SingleOperator(self.model, node, feeds, dtype).outputs()[tensor])
        return judge_alone(
            node.operator.op_type,
            dtype,
            output,
            readings,
            noise=noise_of(plain, operator.outputs(_SEED), tensor),
            plain=self.plain,
            finite=all(bool(np.isfinite(array).all()) for array in feeds.values() if array.dtype.kind == "f"),
        )


def _inputs_once(records: Sequence[TensorRecord]) -> Iterator[TensorRecord]:
    """Yield the records, an input of the graph once however many operators it was dumped with.

    One that was not the same each time is left out: something has written to it.
    """
    inputs: dict[tuple[Execution, str], list[TensorRecord]] = {}
    for record in records:
        if record.op_type == GRAPH_INPUT:
            inputs.setdefault((Execution.of(record), sanitise(record.key.layer)), []).append(record)
        else:
            yield record
    for first, *others in inputs.values():
        whole = _host(first, 0) if others and first.payload is not None else None
        if whole is None or all(np.array_equal(_host(o, 0), whole, equal_nan=True) for o in others):
            yield replace(first, key=replace(first.key, turn=0))


class _NotAtHandError(NpudumpError):
    """Why an operator cannot be judged."""


def _why_not(found: Match, model: ReferenceModel) -> str:
    node = found.counterpart.node
    if found.record.key.io != "output" or found.of_input or node is None:
        return "no operator computes it"
    if found.counterpart.how not in (NAME, MAPPED):
        return f"it is fused of several operators, of which {node.name} is the last"
    if node.captured:
        return f"{node.operator.op_type} computes with graphs inside of it"
    if draws_random(node.operator.op_type):
        return f"{node.operator.op_type} draws random numbers"
    return "the model is too large to be computed in float32" if model.halved else ""


def _host(record: TensorRecord, axes: int) -> Array:
    """Return a dumped tensor in the host's layout, of so many axes."""
    if record.payload is None or record.shape is None or why_opaque(record.dtype):
        raise _NotAtHandError(f"{record.key} has no values in the dump")
    try:
        return host_array(load(record.payload, record.dtype, record.shape), record, _LAYOUTS.get(axes, "ND"))
    except LayoutError as error:
        raise _NotAtHandError(
            f"the layout {record.format} of {record.key} cannot be undone: {error}"
        ) from error


def _fed(record: TensorRecord, dtype: str, shape: tuple[int, ...]) -> Array:
    """Return a dumped tensor as the model takes it.

    Args:
        record: the tensor.
        dtype: its type in the model.
        shape: its dimensions there, -1 for one that varies; () where they are not known.
    """
    array = _host(record, len(shape))
    if shape and -1 not in shape:
        if [size for size in array.shape if size != 1] != [size for size in shape if size != 1]:
            raise _NotAtHandError(f"{record.key} is {list(array.shape)}, the model has {list(shape)} there")
        array = array.reshape(shape)
    if shape and array.ndim != len(shape):
        raise _NotAtHandError(f"{record.key} has {array.ndim} axes, the model has {len(shape)} there")
    kinds = ("f", "iub")
    wanted = np.dtype(dtype).kind
    numeric = array.dtype.kind if array.dtype.kind in "iub" else "f"
    if not any(wanted in kind and numeric in kind for kind in kinds):
        raise _NotAtHandError(f"{record.key} is {record.dtype}, the model has {dtype} there")
    return array.astype(dtype)
