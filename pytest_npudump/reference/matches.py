"""All tensors of a dump and their counterparts in the reference."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_npudump.compare.stats.first_divergence import GRAPH_INPUT, execution
from pytest_npudump.dump.files.container import read_container
from pytest_npudump.dump.records import sanitise
from pytest_npudump.language.excerpt import first_of
from pytest_npudump.reference.counterparts import JOINED, NAME, Counterpart, Names, Original

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_npudump.dump.records import TensorRecord
    from pytest_npudump.reference.name_map import NameMap
    from pytest_npudump.reference.reference_model import ReferenceModel


@dataclass(frozen=True, slots=True)
class Match:
    """A tensor of the dump and its counterpart."""

    record: TensorRecord
    counterpart: Counterpart

    @property
    def of_input(self) -> bool:
        """Whether this is an input of the graph, which no operator computed."""
        return self.record.op_type == GRAPH_INPUT or self.counterpart.of_input


@dataclass(frozen=True, slots=True)
class Matching:
    """What was matched, and what was not.

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

    def types_alone(self) -> str:
        """Say how many layers of which types have no counterpart: ``TransData 5, Cast 3``."""
        counts = Counter(op_type or "of unknown type" for op_type in self.lonely.values())
        return first_of((f"{name} {number}" for name, number in counts.most_common()))


def match(records: Sequence[TensorRecord], model: ReferenceModel, mapping: NameMap) -> Matching:
    """Find the counterpart of every tensor of ``records``.

    A layer that ran several times in one execution of its model is part of a loop, or several operators
    share its name: it has no counterpart.

    Raises:
        FormatError: the header of a tensor file cannot be read.
    """
    originals = _originals(records)
    repeated = {(r.key.layer, execution(r.key).step) for r in records if r.key.turn}
    mapping = mapping.for_layers(record.key.layer for record in records)
    names = Names(model, mapping, _input_slots(records))
    matches, alone = [], []
    for record in records:
        key = record.key
        found = None
        if (key.layer, key.step) not in repeated:
            original = _original(record, originals)
            found = names.find(record, original)
        if found is None:
            alone.append(record)
        else:
            matches.append(Match(record, found))
    return Matching(tuple(matches), tuple(alone), _fused(matches), _absorbed(matches, names, records))


def _fused(matches: Iterable[Match]) -> dict[str, str]:
    return {
        m.record.key.layer: m.counterpart.node.name
        for m in matches
        if m.counterpart.how == JOINED and m.counterpart.node is not None
    }


def _absorbed(matches: Iterable[Match], names: Names, records: Iterable[TensorRecord]) -> dict[str, str]:
    present = {sanitise(record.key.layer) for record in records}
    found = {}
    for m in matches:
        node = m.counterpart.node
        if m.counterpart.how != NAME or m.record.key.io != "output" or node is None:
            continue
        follower = names.absorbed(node, present)
        if follower is not None:
            found[m.record.key.layer] = follower.name
    return found


def _input_slots(records: Iterable[TensorRecord]) -> dict[str, int]:
    slots: dict[str, int] = {}
    for record in records:
        if record.key.io == "input":
            slots[record.key.layer] = max(slots.get(record.key.layer, 0), record.key.slot + 1)
    return slots


def _original(record: TensorRecord, originals: Mapping[tuple[Path, int, int], Original]) -> Original | None:
    payload = record.payload
    if payload is None or record.key.io != "output":
        return None
    return originals.get((payload.path, payload.offset, record.key.slot))


def _originals(records: Iterable[TensorRecord]) -> dict[tuple[Path, int, int], Original]:
    """Return the original operators that headers of tensor files name, by file, offset and slot."""
    payloads = (record.payload for record in records)
    paths = dict.fromkeys(p.path for p in payloads if p is not None and p.kind == "raw")
    return {
        (path, tensor.payload.offset, tensor.slot): Original(tensor.original_name, tensor.original_index)
        for path in paths
        for container in read_container(path)
        for tensor in container.tensors
        if tensor.original_name and tensor.payload is not None
    }
