"""Operators of the reference with what a run dumped of them: inputs and outputs, as the model has them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.stats.first_divergence import GRAPH_INPUT
from pytest_npudump.dump.arrays.decode import load, why_opaque
from pytest_npudump.dump.arrays.host import host_array
from pytest_npudump.dump.arrays.layouts import LayoutError
from pytest_npudump.dump.records import sanitise
from pytest_npudump.dump.table import squeezed
from pytest_npudump.errors import NpudumpError
from pytest_npudump.onnxmodels.random_operators import draws_random
from pytest_npudump.reference.counterparts import MAPPED, NAME
from pytest_npudump.reference.feeds import Execution
from pytest_npudump.reference.matches import match
from pytest_npudump.reference.upstream import nearest_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_npudump.dump.records import TensorKey, TensorRecord
    from pytest_npudump.reference.matches import Match
    from pytest_npudump.reference.name_map import NameMap
    from pytest_npudump.reference.reference_model import Node, ReferenceModel

    Array = np.ndarray[Any, np.dtype[Any]]
    Port = tuple[str, tuple[int, ...]]

_LAYOUTS = {4: "NCHW", 5: "NCDHW"}


class NotAtHandError(NpudumpError):
    """Why an operator cannot be judged by its inputs, or run on them."""


@dataclass(frozen=True, slots=True)
class DumpedOperator:
    """An operator, and what one execution of a run dumped of it.

    Attributes:
        node: the operator.
        tensor: name of one of its outputs.
        feeds: an array for each input that is no constant, in type and shape of the model.
        output: the values of :attr:`tensor`, in the host's layout.
        dtype: their type on the device.
        how: by what the layer was matched, as in :mod:`pytest_npudump.reference.counterparts`.
    """

    node: Node
    tensor: str
    feeds: Mapping[str, Array]
    output: Array
    dtype: str
    how: str


@dataclass(frozen=True, slots=True)
class DumpedOperators:
    """What a run dumped of some operators, by the outputs that are asked for."""

    model: ReferenceModel
    _outputs: Mapping[str, Match]
    _at_hand: Mapping[tuple[Execution, str], TensorRecord]
    _ports: Mapping[str, Port] = field(default_factory=dict)

    @classmethod
    def read(
        cls,
        model: ReferenceModel,
        mapping: NameMap,
        records: Sequence[TensorRecord],
        wanted: Sequence[TensorKey],
        upstream: int = 0,
    ) -> DumpedOperators:
        """Find the operators of outputs.

        Args:
            model: the reference.
            mapping: names that it does not know.
            records: tensors of one run: the outputs, and what feeds them.
            wanted: the outputs.
            upstream: how many operators are asked for upstream of each of these, at most.

        Raises:
            DumpError: the header of a tensor file cannot be read.
            ModelError: onnxruntime refuses the model.
        """
        matching = match([*_inputs_once(records)], model, mapping)
        at_hand: dict[tuple[Execution, str], TensorRecord] = {}
        for found in matching.matches:
            at_hand.setdefault((Execution.of(found.record), found.counterpart.tensor), found.record)
        outputs = {str(found.record.key.sanitised): found for found in matching.matches}
        found_here = cls(model, outputs, at_hand)
        further = (key for one in wanted for key in islice(nearest_first(one, found_here.feeders), upstream))
        names = dict.fromkeys(str(key.sanitised) for key in (*wanted, *further))
        ports = _ports(model, [outputs[name] for name in names if name in outputs])
        return replace(found_here, _ports=ports)

    def feeders(self, key: TensorKey) -> tuple[TensorKey, ...]:
        """Return the outputs that the operator of one reads, and that have all they need to be judged."""
        found = self._outputs.get(str(key.sanitised))
        node = found.counterpart.node if found is not None else None
        if found is None or node is None:
            return ()
        execution = Execution.of(found.record)
        fed = (self._at_hand.get((execution, name)) for name in node.fed_by)
        return tuple(record.key for record in fed if record is not None and self._is_complete(record.key))

    def _is_complete(self, key: TensorKey) -> bool:
        found = self._outputs.get(str(key.sanitised))
        node = found.counterpart.node if found is not None else None
        if found is None or node is None or _why_not(found, self.model):
            return False
        execution = Execution.of(found.record)
        return all((execution, name) in self._at_hand for name in node.fed_by)

    def op_type(self, key: TensorKey) -> str:
        """Return ONNX's type of the operator that computes an output; "" where it has no counterpart."""
        found = self._outputs.get(str(key.sanitised))
        node = found.counterpart.node if found is not None else None
        return node.operator.op_type if node is not None else ""

    def operator(self, key: TensorKey) -> DumpedOperator:
        """Return the operator that computes an output, with its arrays.

        Raises:
            NotAtHandError: it has no counterpart, is not one operator alone, or its inputs were not dumped.
            DumpError: a tensor cannot be read.
        """
        found = self._outputs.get(str(key.sanitised))
        if found is None:
            raise NotAtHandError("the second run has no such tensor, or it has no counterpart in the model")
        node, record = found.counterpart.node, found.record
        if why := _why_not(found, self.model):
            raise NotAtHandError(why)
        assert node is not None  # noqa: S101 - the reason above
        execution, tensor = Execution.of(record), found.counterpart.tensor
        wanted = node.fed_by
        missing = [name for name in wanted if (execution, name) not in self._at_hand]
        if missing:
            names = ", ".join(map(repr, missing[:3]))
            raise NotAtHandError(f"of its inputs the second run has not dumped {names}")
        feeds = {name: _fed(self._at_hand[execution, name], *self._ports[name]) for name in wanted}
        output = host_of(record, len(self._ports[tensor][1]))
        return DumpedOperator(node, tensor, feeds, output, record.dtype, found.counterpart.how)


def _ports(model: ReferenceModel, wanted: Sequence[Match]) -> dict[str, Port]:
    nodes = [found.counterpart.node for found in wanted if not _why_not(found, model)]
    names = {name for node in nodes if node for name in (*node.fed_by, *node.operator.outputs)}
    return model.ports(names) if names else {}


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
        whole = host_of(first, 0) if others and first.payload is not None else None
        if whole is None or all(np.array_equal(host_of(o, 0), whole, equal_nan=True) for o in others):
            yield replace(first, key=replace(first.key, turn=0))


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


def host_of(record: TensorRecord, axes: int) -> Array:
    """Return a dumped tensor in the host's layout, of so many axes."""
    if record.payload is None or record.shape is None or why_opaque(record.dtype):
        raise NotAtHandError(f"{record.key} has no values in the dump")
    try:
        return host_array(load(record.payload, record.dtype, record.shape), record, _LAYOUTS.get(axes, "ND"))
    except LayoutError as error:
        raise NotAtHandError(
            f"the layout {record.format} of {record.key} cannot be undone: {error}"
        ) from error


def _fed(record: TensorRecord, dtype: str, shape: tuple[int, ...]) -> Array:
    """Return a dumped tensor as the model takes it.

    Args:
        record: the tensor.
        dtype: its type in the model.
        shape: its dimensions there, -1 for one that varies; () where they are not known.
    """
    array = host_of(record, len(shape))
    if shape and -1 not in shape:
        if squeezed(array.shape) != squeezed(shape):
            raise NotAtHandError(f"{record.key} is {list(array.shape)}, the model has {list(shape)} there")
        array = array.reshape(shape)
    if shape and array.ndim != len(shape):
        raise NotAtHandError(f"{record.key} has {array.ndim} axes, the model has {len(shape)} there")
    kinds = ("f", "iub")
    wanted = np.dtype(dtype).kind
    numeric = array.dtype.kind if array.dtype.kind in "iub" else "f"
    if not any(wanted in kind and numeric in kind for kind in kinds):
        raise NotAtHandError(f"{record.key} is {record.dtype}, the model has {dtype} there")
    return array.astype(dtype)
