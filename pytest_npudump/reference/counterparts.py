"""Which tensor of the ONNX model a tensor of the device is.

GE keeps most names of nodes. Where it fuses operators it keeps one name, joins all of them, or notes the
original operator in the headers of tensor dumps. The first of these that tells decides: the mapping file,
the header, the name itself, the names it is joined of. A name that may mean two operators means none.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from pytest_npudump.compare.stats.first_divergence import GRAPH_INPUT
from pytest_npudump.dump.records import sanitise

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_npudump.dump.records import TensorRecord
    from pytest_npudump.reference.name_map import NameMap
    from pytest_npudump.reference.reference_model import Node, ReferenceModel

MAPPED = "mapping file"
HEADER = "original operator in the dump's header"
NAME = "name"
JOINED = "joined names"

_JOINTS = ("", "_", "/")
"""What stands between the names of operators that GE fused."""

_READ = 64
"""Readings of the rest of a name that are looked at for two different ones."""


class Original(NamedTuple):
    """What a dump's header says an output was before fusion: an operator's name, and which of its outputs."""

    name: str
    slot: int


class Counterpart(NamedTuple):
    """A tensor of the reference.

    Attributes:
        tensor: its name.
        node: the node it belongs to; None for an input of the graph.
        how: which rule found it.
        of_input: whether it is an input of the graph, which no operator computes.
    """

    tensor: str
    node: Node | None
    how: str
    of_input: bool = False


@dataclass(frozen=True)
class Names:
    """Finds counterparts.

    Attributes:
        model: the reference.
        mapping: the user's mapping file.
        input_slots: number of inputs that the dump has of a layer, by the layer's name.
    """

    model: ReferenceModel
    mapping: NameMap
    input_slots: Mapping[str, int]

    @cached_property
    def _by_name(self) -> dict[str, list[Node]]:
        found: defaultdict[str, list[Node]] = defaultdict(list)
        for node in self.model.nodes:
            for name in dict.fromkeys((node.name, sanitise(node.name))):
                found[name].append(node)
        return dict(found)

    @cached_property
    def _by_tensor(self) -> dict[str, Node]:
        return {tensor: node for node in self.model.nodes for tensor in node.operator.outputs}

    @cached_property
    def _consumers(self) -> dict[str, list[Node]]:
        found: defaultdict[str, list[Node]] = defaultdict(list)
        for node in self.model.nodes:
            for tensor in (*node.all_inputs, *node.captured):
                found[tensor].append(node)
        return dict(found)

    @cached_property
    def _lengths(self) -> tuple[int, ...]:
        return tuple(sorted({len(name) for name in self._by_name if name}))

    def find(self, record: TensorRecord, original: Original | None) -> Counterpart | None:
        """Return the counterpart of a tensor of the dump; None where there is none, or it is not certain."""
        entry = self.mapping.deciding.get(record.key.layer)
        if entry is not None:
            return self._mapped(entry.target, record)
        if record.op_type == GRAPH_INPUT:
            return self._graph_input(record)
        if record.key.io == "output" and original is not None:
            origin = self.node(original.name)
            if origin is not None:
                return _output(origin, original.slot, HEADER)
        node = self.node(record.key.layer)
        if node is not None:
            if record.key.io == "input":
                return self._input(node, record)
            return _output(node, record.key.slot, NAME) if record.key.io == "output" else None
        last = self._joined_once(record.key.layer) if record.key.io == "output" else None
        return _output(last, record.key.slot, JOINED) if last is not None else None

    @cached_property
    def _joined(self) -> dict[str, Node | None]:
        return {}

    def _joined_once(self, layer: str) -> Node | None:
        if layer not in self._joined:
            self._joined[layer] = self.joined(layer)
        return self._joined[layer]

    def node(self, layer: str) -> Node | None:
        """Return the node of that name, raw or as file names spell it; None without one, or with several."""
        exact = [node for node in self._by_name.get(layer, []) if node.name == layer]
        if exact and (sanitise(layer) != layer or len(self._by_name[layer]) == 1):
            return exact[0]
        nodes = self._by_name.get(sanitise(layer), [])
        return nodes[0] if len(nodes) == 1 and sanitise(layer) == layer else None

    def _mapped(self, target: str, record: TensorRecord) -> Counterpart | None:
        if record.key.io != "output":
            return None
        nodes = [node for node in self._by_name.get(target, []) if node.name == target]
        if nodes:
            return _output(nodes[0], record.key.slot, MAPPED)
        if record.key.slot:
            return None
        return Counterpart(target, self._by_tensor.get(target), MAPPED, target in self.model.inputs)

    def _graph_input(self, record: TensorRecord) -> Counterpart | None:
        names = [n for n in self.model.inputs if sanitise(n) == sanitise(record.key.layer)]
        if record.key.io != "output" or record.key.slot or len(names) != 1:
            return None
        return Counterpart(names[0], None, NAME, of_input=True)

    def _input(self, node: Node, record: TensorRecord) -> Counterpart | None:
        """Return what an input slot holds; weights, which the device packs in its own way, are left out."""
        slots = self.input_slots.get(record.key.layer, 0)
        operator = node.operator
        given = tuple(name for name in node.all_inputs if name)
        names = operator.inputs if slots == len(operator.inputs) else given if slots == len(given) else ()
        slot = record.key.slot
        if slot >= len(names) or names[slot] not in operator.inputs:
            return None
        tensor = names[slot]
        of_input = tensor in self.model.inputs
        return Counterpart(tensor, node, NAME, of_input) if of_input or tensor in self._by_tensor else None

    def joined(self, layer: str) -> Node | None:
        """Return the last of the operators whose joined names are ``layer``.

        None unless there is one way to read the name, and all operators but the last feed only each other:
        else the fused operator has outputs that the name does not tell apart.
        """
        readings = self._readings(layer)
        if len(readings) != 1 or len(readings[0]) < 2:  # noqa: PLR2004 - one operator is not joined
            return None
        members = {node.name: node for node in readings[0]}
        if len(members) != len(readings[0]):
            return None
        last = max(members.values(), key=lambda node: node.operator.task)
        inner = [node for node in members.values() if node is not last]
        return last if all(self._stays_inside(node, members) for node in inner) else None

    def _stays_inside(self, node: Node, members: Mapping[str, Node]) -> bool:
        outputs = node.operator.outputs
        if any(tensor in self.model.outputs for tensor in outputs):
            return False
        consumers = [other.name for tensor in outputs for other in self._consumers.get(tensor, ())]
        return bool(consumers) and all(name in members for name in consumers)

    def _readings(self, text: str) -> list[tuple[Node, ...]]:
        """Return the ways to read ``text`` as names of nodes: none, one, or two of any number."""
        behind: dict[int, list[tuple[Node, ...]]] = {len(text): [()]}
        for start in range(len(text) - 1, -1, -1):
            ways = (
                (node, *rest)
                for length in self._lengths
                for node in self._by_name.get(text[start : start + length], ())
                if start + length <= len(text)
                for at in _next(text, start + length)
                for rest in behind.get(at, ())
            )
            if found := list(islice(dict.fromkeys(islice(ways, _READ)), 2)):
                behind[start] = found
        return behind.get(0, [])

    def absorbed(self, node: Node, present: set[str]) -> Node | None:
        """Return the only consumer of ``node`` if the dump lacks it: it may be fused into ``node``.

        Args:
            node: an operator whose name a layer has.
            present: sanitised names of the dump's layers.
        """
        consumers = [c for tensor in node.operator.outputs for c in self._consumers.get(tensor, ())]
        if len(consumers) != 1 or sanitise(consumers[0].name) in present:
            return None
        return consumers[0]


def _next(text: str, end: int) -> Iterator[int]:
    """Yield where the next name may begin behind one that ends at ``end``."""
    if end >= len(text):
        yield len(text)
        return
    starts = (end + len(joint) for joint in _JOINTS if text.startswith(joint, end))
    yield from (start for start in starts if start < len(text))


def _output(node: Node, slot: int, how: str) -> Counterpart | None:
    outputs = node.operator.outputs
    return Counterpart(outputs[slot], node, how) if slot < len(outputs) else None
