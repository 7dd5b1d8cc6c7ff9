"""Edges of MindSpore's graphs: ``rank_{r}/graphs/ms_output_trace_code_graph_{g}.ir`` beside a dump.

A node is a line ``%n(variable) = Operator(%a, %para1_name, I64(0)) ...``, and a comment behind it has the
name that dump files carry: ``# Fullname with scope: (Default/conv1-Conv2d/Conv2D-op0)``. Operand i is the
dumped input i, literals included. ``Load`` and ``Depend`` hand on their first operand and are not dumped.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_npudump.dump.bytes.textfile import read_small
from pytest_npudump.errors import FormatError
from pytest_npudump.graph.edges import UNKNOWN, Edges, Node, Port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_GRAPHS = "rank_[0-9]*/graphs/ms_output_trace_code_graph_*.ir"
_NODE = re.compile(r"  %(?P<number>\d+)\([^()]*\) = (?P<type>\w+)\((?P<operands>.*)")
_NAME = re.compile(r"\s+# Fullname with scope: \((?P<name>.*)\)\s*\Z")
_PARAMETER = re.compile(r"%para\d+_(?P<name>\S+)")
_DECLARED = re.compile(r"(?m)^%para\d+_([^\s:]+):? ?:")
_ITEM = re.compile(r"I64\((\d+)\)")
_PREFIX = "PrimFunc_"
_HANDED_ON = frozenset({"Load", "Depend"})
_OPENING, _CLOSING = "([{<", ")]}>"


def read_mindspore(root: Path) -> Edges:
    """Return the edges of all graphs that MindSpore left in a dump path; none where there are none.

    Raises:
        FormatError: a graph cannot be read.
    """
    edges = Edges()
    for path in sorted(root.glob(_GRAPHS)):
        edges = edges.joined(read_ir(path))
    return edges


def read_ir(path: Path) -> Edges:
    """Return the edges of one file; a subgraph's operators are fed by its caller, which is not followed.

    Raises:
        FormatError: it cannot be read, or holds no node.
    """
    text = read_small(path).decode("utf-8", "replace")
    head, *subgraphs = re.split(r"(?m)^subgraph @", text)
    nodes = [node for subgraph in subgraphs for node in _nodes(subgraph)]
    if len(subgraphs) == 1:  # parameters of others are what their callers hand over
        nodes += [Node(name, "Parameter", ()) for name in _DECLARED.findall(head)]
    if not nodes:
        raise FormatError(path, "holds no node of a graph, expected lines such as  %1(x) = ReLU(%0)")
    return Edges.of(nodes, path.name)


def _nodes(subgraph: str) -> Iterator[Node]:
    made: dict[str, Port | None] = {}
    waiting: tuple[str, str, list[str]] | None = None
    for line in subgraph.splitlines():
        if match := _NODE.match(line):
            waiting = match["number"], match["type"].removeprefix(_PREFIX), _operands(match["operands"])
        elif waiting is not None and (named := _NAME.match(line)):
            number, op_type, operands = waiting
            waiting = None
            ports = tuple(_port(operand, made) for operand in operands)
            if op_type in _HANDED_ON:
                made[number] = ports[0] if ports else UNKNOWN
                continue
            if op_type == "TupleGetItem":
                made[number] = _item(operands, ports)
                continue
            made[number] = Port(named["name"])
            yield Node(named["name"], op_type, ports)


def _port(operand: str, made: Mapping[str, Port | None]) -> Port | None:
    if operand.startswith("%para"):
        match = _PARAMETER.match(operand)
        return Port(match["name"]) if match else UNKNOWN
    if operand.startswith("%"):
        return made.get(operand[1:], UNKNOWN)
    return UNKNOWN if operand.startswith("@") else None


def _item(operands: Sequence[str], ports: Sequence[Port | None]) -> Port:
    """Return the output of an operator with several that is taken out of their tuple."""
    index = _ITEM.fullmatch(operands[-1])
    made = ports[0]
    return UNKNOWN if index is None or made is None or made == UNKNOWN else Port(made.layer, int(index[1]))


def _operands(text: str) -> list[str]:
    """Return what stands between commas up to the bracket that closes the list."""
    depth, start, found = 0, 0, []
    for at, character in enumerate(text):
        if depth == 0 and character in ",)":
            found.append(text[start:at].strip())
            start = at + 1
            if character == ")":
                break
        elif character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
    return [operand for operand in found if operand]
