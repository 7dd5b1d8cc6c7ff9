"""Matches of the device's tensors with those of the ONNX model.

GE keeps most names of nodes. Where it fuses operators it keeps one name, joins all of them, or notes the
original operator in the headers of tensor dumps. The first of these that tells decides: the mapping file,
the header, the name itself, the names it is joined of. A name that may mean two operators means none.

The mapping file is YAML, ``layer name or glob: ONNX node name or tensor name``, in any number::

    Conv_0Relu_1: Relu_1
    "fused_attention_*": /attention/MatMul_output_0
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from pytest_npudump.compare.stats.verdict import GRAPH_INPUT
from pytest_npudump.dump.files.container import read_container
from pytest_npudump.dump.records import TensorRecord, sanitise
from pytest_npudump.errors import RequestError
from pytest_npudump.request import KnownNames
from pytest_npudump.storage import safeyaml

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_npudump.explain.reference_model import Node, ReferenceModel


@dataclass(frozen=True, slots=True)
class MapEntry:
    """One line of the file.

    Attributes:
        layer: name or glob of layers of the dump.
        target: name of a node or tensor of the reference.
        line: where it stands.
    """

    layer: str
    target: str
    line: int


@dataclass(frozen=True, slots=True)
class NameMap:
    """A mapping file.

    Attributes:
        path: the file; None for no file.
        entries: in the order of the file; the first one that names a layer counts.
        layers: of the dumps that :meth:`for_layers` was given.
        deciding: the one that counts, by layer.
    """

    path: Path | None = None
    entries: tuple[MapEntry, ...] = ()
    layers: frozenset[str] = frozenset()
    deciding: Mapping[str, MapEntry] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, known: Collection[str]) -> NameMap:
        """Read a mapping file.

        Args:
            path: the file.
            known: names of the reference's nodes and tensors.

        Raises:
            RequestError: it cannot be read, is no such mapping, or names what the reference does not have.
        """
        document = safeyaml.read_mapping(path, f"map: {path}")
        entries = []
        for layer, target in document.data.items():
            line = document.lines[layer]
            if not isinstance(target, str) or not target or not layer:
                raise RequestError(
                    f"{path}, line {line}: {layer!r} is mapped to {target!r}, expected a layer's name or "
                    f"glob and the name of a node or tensor of the ONNX model (in quotes, if it is a number)"
                )
            if target not in known:
                close = get_close_matches(target, known, n=3)
                hint = (
                    f"did you mean {', '.join(map(repr, close))}?"
                    if close
                    else "look the names up with Netron"
                )
                raise RequestError(
                    f"{path}, line {line}: the reference has no node or tensor {target!r}; {hint}"
                )
            entries.append(MapEntry(layer, target, line))
        return cls(path, tuple(entries))

    def for_layers(self, layers: Iterable[str]) -> NameMap:
        """Return the same for these layers, too: an exact name before any glob, and then the first one."""
        layers = self.layers.union(layers)
        names = KnownNames(layers, sanitise)
        deciding: dict[str, MapEntry] = {}
        for entry in sorted(self.entries, key=lambda one: not names.called(one.layer)):
            for layer in names.meant([entry.layer]):
                deciding.setdefault(layer, entry)
        return replace(self, layers=layers, deciding=deciding)

    def unused(self, layers: Iterable[str]) -> tuple[str, ...]:
        """Name entries that decide about none of ``layers``, and why."""
        there = set(layers)
        deciding = self.for_layers(there).deciding
        used = {deciding[layer].line for layer in there & deciding.keys()}
        return tuple(
            f"{self.path}, line {entry.line}: {entry.layer!r} decides about no layer of the dump (an exact "
            f"name counts before a glob, an earlier entry before a later one); correct or remove the entry"
            for entry in self.entries
            if entry.line not in used
        )


MAPPED = "mapping file"
HEADER = "original operator in the dump's header"
NAME = "name"
JOINED = "joined names"

_JOINTS = ("", "_", "/")
"""Joints between the names of operators that GE fused."""

_READ = 64
"""Readings of the rest of a name that are looked at for two different ones."""


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

    def find(self, record: TensorRecord, original: tuple[str, int] | None) -> Counterpart | None:
        """Return the counterpart of a tensor of the dump; None where there is none, or it is not certain.

        ``original`` is the operator before fusion and which of its outputs, by the dump's header.
        """
        if (entry := self.mapping.deciding.get(record.key.layer)) is not None:
            return self._mapped(entry.target, record)
        if record.op_type == GRAPH_INPUT:
            names = [n for n in self.model.inputs if sanitise(n) == sanitise(record.key.layer)]
            if record.key.io != "output" or record.key.slot or len(names) != 1:
                return None
            return Counterpart(names[0], None, NAME, of_input=True)
        if record.key.io == "output" and original and (origin := self.node(original[0])) is not None:
            return _output(origin, original[1], HEADER)
        if (node := self.node(record.key.layer)) is not None:
            if record.key.io == "input":
                return self._input(node, record)
            return _output(node, record.key.slot, NAME) if record.key.io == "output" else None
        if record.key.io != "output":
            return None
        last = self.joined(record.key.layer)
        return _output(last, record.key.slot, JOINED) if last is not None else None

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
        if nodes := [node for node in self._by_name.get(target, []) if node.name == target]:
            return _output(nodes[0], record.key.slot, MAPPED)
        if record.key.slot:
            return None
        return Counterpart(target, self._by_tensor.get(target), MAPPED, target in self.model.inputs)

    def _input(self, node: Node, record: TensorRecord) -> Counterpart | None:
        """Return the tensor in an input slot; None for weights, which the device packs in its own way."""
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
    """Yield possible beginnings of the next name behind one that ends at ``end``."""
    if end >= len(text):
        yield len(text)
        return
    starts = (end + len(joint) for joint in _JOINTS if text.startswith(joint, end))
    yield from (start for start in starts if start < len(text))


def _output(node: Node, slot: int, how: str) -> Counterpart | None:
    outputs = node.operator.outputs
    return Counterpart(outputs[slot], node, how) if slot < len(outputs) else None


@dataclass(frozen=True, slots=True)
class Match:
    """A tensor of the dump and its counterpart."""

    record: TensorRecord
    counterpart: Counterpart

    @property
    def of_input(self) -> bool:
        """Return whether this is an input of the graph, which no operator computed."""
        return self.record.op_type == GRAPH_INPUT or self.counterpart.of_input


@dataclass(frozen=True, slots=True)
class Matching:
    """Matched tensors, and unmatched ones.

    Attributes:
        matches: in the dump's order.
        alone: tensors without a counterpart.
        fused: layers whose names are those of several operators, and the operator whose output they have.
        absorbed: layers by an operator that the dump lacks and that alone consumes their output.
    """

    matches: tuple[Match, ...]
    alone: tuple[TensorRecord, ...]
    fused: Mapping[str, str] = field(default_factory=dict)
    absorbed: Mapping[str, str] = field(default_factory=dict)

    @property
    def compared(self) -> frozenset[str]:
        """Names of layers with a counterpart: of an output, or of an input where no output was dumped.

        The inputs of the graph are not among them, nor does a layer count for being fed one.
        """
        records = (*(match.record for match in self.matches), *self.alone)
        with_output = {record.key.layer for record in records if record.key.io == "output"}
        return frozenset(
            match.record.key.layer
            for match in self.matches
            if not match.of_input
            and (match.record.key.io == "output" or match.record.key.layer not in with_output)
        )

    @property
    def given(self) -> frozenset[str]:
        """Names of layers of which the dump has inputs of the graph, and nothing that was computed."""
        held = {match.record.key.layer for match in self.matches if match.of_input}
        left = {record.key.layer for record in self.alone if record.key.io == "output"}
        return frozenset(held - self.compared - left)

    @property
    def lonely(self) -> dict[str, str]:
        """Layers without any counterpart, with their operator types."""
        known = self.compared | self.given
        return {r.key.layer: r.op_type for r in self.alone if r.key.layer not in known}

    @property
    def layers(self) -> int:
        """Number of layers of the dump, those of :attr:`given` left out."""
        records = (*(match.record for match in self.matches), *self.alone)
        return len({record.key.layer for record in records} - self.given)


def match(records: Sequence[TensorRecord], model: ReferenceModel, mapping: NameMap) -> Matching:
    """Find the counterpart of every tensor of ``records``.

    A layer that ran several times in one execution of its model is part of a loop, or several operators
    share its name: it has no counterpart.

    Raises:
        FormatError: the header of a tensor file cannot be read.
    """
    payloads = (record.payload for record in records)
    paths = dict.fromkeys(p.path for p in payloads if p is not None and p.kind == "raw")
    originals = {
        (path, tensor.payload.offset, tensor.slot): (tensor.original_name, tensor.original_index)
        for path in paths
        for container in read_container(path)
        for tensor in container.tensors
        if tensor.original_name and tensor.payload is not None
    }
    repeated = {(r.key.layer, r.key.step) for r in records if r.key.turn}
    slots: dict[str, int] = {}
    for record in records:
        if record.key.io == "input":
            slots[record.key.layer] = max(slots.get(record.key.layer, 0), record.key.slot + 1)
    names = Names(model, mapping.for_layers(record.key.layer for record in records), slots)
    present = {sanitise(record.key.layer) for record in records}
    matches, alone = [], []
    fused, absorbed = {}, {}
    for record in records:
        key, payload = record.key, record.payload
        place = (payload.path, payload.offset, key.slot) if payload is not None else None
        original = originals.get(place) if place is not None and key.io == "output" else None
        found = names.find(record, original) if (key.layer, key.step) not in repeated else None
        if found is None:
            alone.append(record)
            continue
        matches.append(Match(record, found))
        if found.node is None:
            continue
        if found.how == JOINED:
            fused[key.layer] = found.node.name
        elif found.how == NAME and key.io == "output" and (after := names.absorbed(found.node, present)):
            absorbed[key.layer] = after.name
    return Matching(tuple(matches), tuple(alone), fused, absorbed)
