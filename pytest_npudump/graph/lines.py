"""Edges as lines of a golden file, see :mod:`pytest_npudump.record.text`."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_npudump.dump.records import TensorKey, sanitise
from pytest_npudump.graph.edges import SEVERAL, UNKNOWN, Edges, Node, Port
from pytest_npudump.record.text import SIGN

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_MARKS: Mapping[Port | None, str] = MappingProxyType({None: "-", UNKNOWN: "?", SEVERAL: "*"})
_MEANT: Mapping[str, Port | None] = MappingProxyType({word: port for port, word in _MARKS.items()})


def render(edges: Edges, layers: Collection[str]) -> str:
    """Return the lines for some layers, in their order; "" where nothing is known of any of them."""
    found = edges.restricted(layers).feeds
    lines = (
        " ".join([TensorKey(layer, "", 0).name_text, SIGN, *map(_word, found[name])])
        for layer, name in ((layer, sanitise(layer)) for layer in layers)
        if name in found
    )
    return "".join(f"{line}\n" for line in lines if line.isprintable())


def _word(port: Port | None) -> str:
    if port is None or port in _MARKS:
        return _MARKS[port]
    return str(TensorKey(port.layer, "output", port.slot))


def parse(text: str, told_by: str) -> Edges:
    """Return the edges of lines that the reader of the golden has checked.

    Args:
        text: the block.
        told_by: the golden file, for people.
    """
    nodes = []
    for line in text.splitlines():
        name, _, *words = line.split(" ")
        nodes.append(Node(TensorKey.parse(f"{name}:output.0").layer, "", tuple(map(_port, words))))
    return Edges.of(nodes, told_by)


def _port(word: str) -> Port | None:
    if word in _MEANT:
        return _MEANT[word]
    key = TensorKey.parse(word)
    return Port(key.layer, key.slot)
