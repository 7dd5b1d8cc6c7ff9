"""Edges between tensors: for each operator, the outputs of others that it reads."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from types import MappingProxyType

from pytest_npudump.dump.records import ARGMAX, TensorKey, sanitise
from pytest_npudump.dump.table import NEEDED, StatsTable
from pytest_npudump.record.rows import short, whole

SIGN = "<"


@dataclass(frozen=True, slots=True)
class Port:
    """One output of an operator.

    Attributes:
        layer: the operator's name, raw where it is known.
        slot: which of its outputs.
        turn: which of its executions, of a layer whose executions are fed by others each.
    """

    layer: str
    slot: int = 0
    turn: int = 0


UNKNOWN = Port("", -1)
"""Stands for what feeds an operator and is not known."""
SEVERAL = Port("", -2)
"""Stands for an input that several outputs feed through what is not dumped; they stand behind all slots."""


@dataclass(frozen=True, slots=True)
class GraphNode:
    """An operator as a graph has it.

    Attributes:
        name: its name.
        op_type: its type; "" where unknown.
        inputs: what feeds it, by slot; None for a constant, or an input that is left out.
        turn: which of its executions, where they are fed by others each.
    """

    name: str
    op_type: str
    inputs: tuple[Port | None, ...]
    turn: int = 0


_TURN = "\0"


def _place(layer: str, turn: int) -> str:
    """Return the name of an execution: the layer's in file names, with the turn of a later one."""
    return f"{sanitise(layer)}{_TURN}{turn}" if turn else sanitise(layer)


def layer_at(place: str) -> str:
    """Return the layer's name in file names of an execution in :attr:`Edges.feeds`."""
    return place.partition(_TURN)[0]


@dataclass(frozen=True, slots=True)
class Edges:
    """Inputs of each operator.

    Attributes:
        feeds: by the operator's name as file names spell it, what feeds it by slot: an output of another,
            :data:`UNKNOWN`, :data:`SEVERAL`, or None where nothing does that can be dumped (a constant). Of
            an operator that is missing nothing is known. See :func:`layer_at` for executions that differ.
        told_by: what they were read from, for people.
    """

    feeds: Mapping[str, tuple[Port | None, ...]] = field(default_factory=dict)
    told_by: str = ""

    @classmethod
    def of(cls, nodes: Iterable[GraphNode], told_by: str) -> Edges:
        """Return the edges of a graph.

        Operators that go by one name in file names are fed by unknown ones, and so is what they feed.
        """
        feeds: dict[str, tuple[Port | None, ...]] = {}
        raw: dict[str, str] = {}
        alike: set[str] = set()
        for node in nodes:
            name = _place(node.name, node.turn)
            if raw.setdefault(name, node.name) != node.name or feeds.get(name, node.inputs) != node.inputs:
                alike.add(name)
            feeds[name] = node.inputs
        return cls(_unknown_from(alike, feeds) if alike else feeds, told_by)

    def joined(self, other: Edges) -> Edges:
        """Return the edges of two graphs; where they disagree on an operator, nothing is known of it."""
        own, found = self.feeds, other.feeds.items()
        theirs = {name: ports if own.get(name, ports) == ports else (UNKNOWN,) for name, ports in found}
        return Edges({**own, **theirs}, ", ".join(dict.fromkeys(filter(None, (self.told_by, other.told_by)))))

    def completed(self, other: Edges) -> Edges:
        """Return these edges, and those of operators that only the other graph has, with all their calls."""
        own = {layer_at(name) for name in self.feeds}
        further = {name: ports for name, ports in other.feeds.items() if layer_at(name) not in own}
        if not further:
            return self
        told_by = ", ".join(dict.fromkeys(filter(None, (self.told_by, other.told_by))))
        return Edges({**further, **self.feeds}, told_by)

    def containing(self, inner: Mapping[str, Sequence[Port]], inputs: Mapping[str, int]) -> Edges:
        """Return these edges, and in layers made of others the outputs of those, behind all inputs.

        Args:
            inner: by a layer's name as file names spell it, outputs of its parameters and of calls in it.
            inputs: how many inputs layers have, by such a name.
        """
        feeds = dict(self.feeds)
        for name, ports in inner.items():
            own = feeds.get(name, ())
            feeds[name] = (*own, *(UNKNOWN,) * (inputs.get(name, 0) - len(own)), *ports)
        return replace(self, feeds=feeds)

    def restricted(self, layers: Collection[str]) -> Edges:
        """Return the edges among some layers only: what lies between them is looked through.

        Args:
            layers: names, raw or as file names spell them. Those that the graph does not have stay unknown.
        """
        spelt = {sanitise(layer): layer for layer in layers}
        found = {name: self._nearest(name, spelt) for name in spelt if name in self.feeds}
        later = (name for name in self.feeds if name not in spelt and layer_at(name) in spelt)
        found |= {name: self._nearest(name, spelt) for name in later}
        return Edges(found, self.told_by)

    def unknown(self, layers: Collection[str]) -> Edges:
        """Return these edges without what feeds some layers, by their names in file names."""
        feeds = {
            name: (UNKNOWN,) if layer_at(name) in layers else ports for name, ports in self.feeds.items()
        }
        return replace(self, feeds=feeds)

    def without(self, layers: Collection[str]) -> Edges:
        """Return these edges, unknown to and from some layers, by their names in file names."""
        return replace(self, feeds=_unknown_from(layers, self.feeds)) if layers else self

    def parents_of(self, keys: Sequence[TensorKey]) -> list[tuple[tuple[int, ...], bool]]:
        """Return for each tensor the positions of what feeds it, and whether they are all.

        An output has the dumped inputs of its operator, or else the outputs that these come from; an input
        has the output it comes from.
        """
        within = self.restricted({key.layer for key in keys}).feeds
        places = _Places(keys, Counter(layer_at(name) for name in within if _TURN in name))
        return [
            _fed_by(key, within.get(_place(key.layer, turn)) if turn is not None else None, places)
            for key, turn in zip(keys, map(places.turn, keys), strict=True)
        ]

    def _nearest(self, name: str, kept: Mapping[str, str]) -> tuple[Port | None, ...]:
        own: list[Port | None] = []
        further: list[Port] = []
        for port in self.feeds[name]:
            if port == SEVERAL:  # what it stands for comes behind
                own.append(port)
                continue
            if port is not None and (layer := kept.get(sanitise(port.layer))):  # as nearly all
                own.append(port if layer == port.layer else replace(port, layer=layer))
                continue
            ports = list(dict.fromkeys(self._kept_behind(port, kept)))
            own.append(ports[0] if len(ports) == 1 else SEVERAL if ports else None)
            further += ports if len(ports) > 1 else ()
        return (*own, *(port for port in dict.fromkeys(further) if port not in own))

    def _kept_behind(self, port: Port | None, kept: Mapping[str, str]) -> Iterator[Port]:
        """Yield a port itself where its operator is kept, and else what feeds that, as far as it takes."""
        waiting, seen = [port], {port}
        while waiting:
            at = waiting.pop()
            if at is None or at == SEVERAL:  # the same
                continue
            layer = sanitise(at.layer)
            if at == UNKNOWN or layer in kept:
                yield at if at == UNKNOWN else replace(at, layer=kept[layer])
                continue
            place = _place(at.layer, at.turn)
            fed = [other for other in self.feeds.get(place, (UNKNOWN,)) if other not in seen]
            seen.update(fed)
            waiting += reversed(fed)


class _Places:
    """Positions by layer and direction, turn, and slot.

    Args:
        keys: which tensors.
        later: how many executions behind the first are fed by others, by the layer's name in file names. A
            step in which it has another number of executions tells nothing of it.
    """

    def __init__(self, keys: Iterable[TensorKey], later: Mapping[str, int]) -> None:
        self._later = later
        self._turns: defaultdict[tuple[object, ...], dict[int, dict[int, int]]] = defaultdict(dict)
        for position, key in enumerate(keys):
            turns = self._turns[self._at(key.layer, key.io, key)]
            turns.setdefault(key.turn, {})[key.slot] = position

    @staticmethod
    def _at(layer: str, io: str, key: TensorKey) -> tuple[object, ...]:
        return sanitise(layer), io, key.step, key.model, key.load, key.device, key.rank, key.capture

    def _differ(self, turns: Mapping[int, object], layer: str) -> bool:
        return len(turns) != self._later[layer] + 1

    def turn(self, key: TensorKey) -> int | None:
        """Return the execution whose edges are those of a tensor; None where it cannot be told."""
        if (layer := sanitise(key.layer)) not in self._later:
            return 0
        return None if self._differ(self._turns[self._at(layer, key.io, key)], layer) else key.turn

    def inputs(self, key: TensorKey) -> dict[int, int]:
        """Positions of the inputs of the execution that ``key`` belongs to, by slot."""
        return self._turns.get(self._at(key.layer, "input", key), {}).get(key.turn, {})

    def output(self, port: Port, consumer: TensorKey) -> int | None:
        """Return a port's output for a consumer: in the same turn, or in the only one there was."""
        turns = self._turns.get(self._at(port.layer, "output", consumer), {})
        if (layer := sanitise(port.layer)) in self._later:
            return None if self._differ(turns, layer) else turns.get(port.turn, {}).get(port.slot)
        if consumer.turn not in turns and len(turns) != 1:
            return None
        return turns.get(consumer.turn, next(iter(turns.values()))).get(port.slot)


def _fed_by(
    key: TensorKey, ports: Sequence[Port | None] | None, places: _Places
) -> tuple[tuple[int, ...], bool]:
    """Return the positions of what feeds a tensor, and whether they are all."""
    inside = f"{key.layer.removesuffix('.backward')}."  # names of calls in a module's, and of parameters
    if key.io != "input" and (inputs := places.inputs(key)):
        # Behind all slots stands what a model's own output comes from, but for what SEVERAL stands for.
        last = max(inputs) if SEVERAL not in (ports or ()) else len(ports or ())
        within = [
            places.output(port, key)
            for slot, port in enumerate(ports or ())
            if port is not None
            and port.layer != key.layer
            and (port.layer.startswith(inside) or (port.layer and slot > last))
        ]
        return (*(inputs[slot] for slot in sorted(inputs)), *(at for at in within if at is not None)), True
    if ports is None:
        return (), False
    if key.io == "input" and key.slot < len(ports) and ports[key.slot] not in (UNKNOWN, SEVERAL):
        ports = (ports[key.slot],)
    elif key.io == "input":
        ports = tuple([port for port in ports if port is None or not port.layer.startswith(inside)])
    named = [port for port in ports if port not in (None, UNKNOWN, SEVERAL)]
    found = [places.output(port, key) for port in named if port is not None]
    known = UNKNOWN not in ports and None not in found
    return tuple(dict.fromkeys(position for position in found if position is not None)), known


def _unknown_from(
    alike: Collection[str], feeds: Mapping[str, tuple[Port | None, ...]]
) -> dict[str, tuple[Port | None, ...]]:
    """Return the inputs of operators with the ambiguous ones unknown."""
    return {
        name: (UNKNOWN,)
        if name in alike
        else tuple(
            [
                UNKNOWN if port is not None and _place(port.layer, port.turn) in alike else port
                for port in ports
            ]
        )
        for name, ports in feeds.items()
    }


_MARKS: Mapping[Port | None, str] = MappingProxyType({None: "-", UNKNOWN: "?", SEVERAL: "*"})
_MEANT: Mapping[str, Port | None] = MappingProxyType({word: port for port, word in _MARKS.items()})
DIGESTS = " | "
"""Stands in a golden file between an operator's edges and its digests."""


def lines_of(edges: Edges, layers: Collection[str]) -> str:
    """Return the lines of a golden for some layers, in their order; "" where nothing is known of any of them.

    They are as :mod:`pytest_npudump.record.text` has them.
    """
    found = edges.restricted(layers).feeds
    raw = {sanitise(layer): layer for layer in layers}
    later = ((raw[layer_at(name)], name) for name in found if name not in raw)
    lines = []
    for layer, name in chain(((layer, sanitise(layer)) for layer in layers), later):
        if name in found:
            ports = (
                _MARKS[port]
                if port is None or port in _MARKS
                else _shortened(str(TensorKey(port.layer, "output", port.slot, port.turn)))
                for port in found[name]
            )
            key = TensorKey(layer, "", 0, 0 if name in raw else int(name.partition(_TURN)[2]))
            lines.append(" ".join([key.name_text + key.qualifiers_text, SIGN, *ports]))
    return "".join(f"{line}\n" for line in lines if line.isprintable())


def _shortened(key: str) -> str:
    return key if (name := short(key)) in (*_MEANT, DIGESTS.strip()) else name


def key_of_port(word: str) -> str:
    """Return the key of an output in the line of an operator that reads it; a mark as it is."""
    return word if word in _MEANT or word == SIGN else whole(word)


def edge_lines_under(names: Mapping[str, str], block: str) -> str:
    """Return lines with other names of layers, by the names in them; for :func:`edges_of_lines` only."""

    def renamed(text: str) -> str:
        name, sign, turn = text.partition("#")
        return f"{names.get(name, name)}{sign}{turn}"

    lines = []
    for first, *words in (line.split(" ") for line in block.splitlines()):
        ends = (key_of_port(word).rpartition(":") for word in words)
        ports = (f"{renamed(name)}:{slot}" if colon else slot for name, colon, slot in ends)
        lines.append(f"{' '.join((renamed(first), *ports))}\n")
    return "".join(lines)


@lru_cache(maxsize=1)
def edges_of_lines(text: str, told_by: str) -> Edges:
    """Return the edges of lines that the reader of the golden has checked.

    Args:
        text: the block.
        told_by: the golden file, for people.
    """
    nodes = []
    for line in text.splitlines():
        name, _, *words = line.split(" ")
        keys = [word if word in _MEANT else TensorKey.parse(key_of_port(word)) for word in words]
        ports = [_MEANT[one] if isinstance(one, str) else Port(one.layer, one.slot, one.turn) for one in keys]
        key = TensorKey.parse(f"{name}:output.0")
        nodes.append(GraphNode(key.layer, "", tuple(ports), key.turn))
    return Edges.of(nodes, told_by)


def same_values(table: StatsTable) -> Edges:
    """Return the edges that a table of a run with ``dump_mode="all"`` shows.

    Type, number of elements and all statistics must be equal, and hashes where there are any. It is evidence
    only where one output has these, and the elements are not all alike; any other input is fed by unknown.
    """
    if not any(":input." in text for text in table.keys):
        return Edges()
    outputs: dict[tuple[object, ...], list[TensorKey]] = defaultdict(list)
    feeds: dict[TensorKey, dict[int, Port]] = defaultdict(dict)
    for row, text in enumerate(table.keys):
        key, values = TensorKey.parse(text), table.statistics(row)
        alike = None in values[:NEEDED] or values[0] == values[1]
        told: tuple[object, ...] = ()
        if not alike and all(value == value for value in values):  # noqa: PLR0124 - NaN
            digest = table.digests[row].partition(ARGMAX)[0].rstrip() if table.digests else ""
            told = (key.execution, table.dtypes[row], table.counts[row], *values, digest)
        if key.io == "output" and told:
            outputs[told].append(key)
        elif key.io == "input":
            makers = outputs.get(told, ()) if told else ()
            port = Port(makers[0].layer, makers[0].slot) if len(makers) == 1 else UNKNOWN
            feeds[replace(key, io="", slot=0)][key.slot] = port
    nodes = []
    for key, ports in feeds.items():
        if set(ports.values()) != {UNKNOWN}:
            found = [ports.get(slot, UNKNOWN) for slot in range(max(ports) + 1)]
            # What a layer puts out feeds no other turn of it by a name alone.
            nodes.append(
                GraphNode(key.layer, "", tuple(UNKNOWN if p.layer == key.layer else p for p in found))
            )
    return Edges.of(nodes, "equal values of inputs and outputs")
