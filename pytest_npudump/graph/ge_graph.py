"""Edges of GE's graphs: the JSON that ``atc --mode=1`` makes of an om, and GE's dumps as protobuf text.

Both hold the message ``ModelDef`` of ``ge_ir.proto``. The text dumps (``ge_proto_*.txt``, written where
``DUMP_GE_GRAPH`` is set) come one a pass of the compiler: the last, ``..._Build.txt``, has the operators that
run and are dumped. TorchAir writes the graph that it hands to GE, before GE fuses operators: as text of the
message ``GraphDef``, with the operators outermost, or (``.pbtxt``) as TensorFlow has nodes.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import FormatError
from pytest_npudump.graph.edges import UNKNOWN, Edges, Node, Port
from pytest_npudump.storage.regular_file import open_regular, read_regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

CONSTANTS = frozenset({"Const", "Constant", "Variable", "FileConstant"})
"""Types of operators that hold values and compute none."""
_CALLING = re.compile(r"(?:Stateful)?PartitionedCall|(?:Stateless)?(?:If|Case|While)|For|Scope")
"""Types of operators that run graphs of their own, whose operators feed what reads them."""
_DATA = "Data"
_LARGEST = 1 << 28
_FIELD = re.compile(rb'\s*(name|type|op|input): "((?:[^"\\]|\\.)*)"')
_OPERATORS = ([b"graph", b"op"], [b"op"], [b"node"])
"""Where operators are: in a graph of GE's, in TorchAir's, and in TorchAir's for TensorBoard."""
_CONTROL = "-1"
_CONTROL_NODE = "^"


def ge_edges(graphs: Iterable[Iterable[tuple[str, str, tuple[str, ...]]]], told_by: str) -> Edges:
    """Return the edges of operators as GE has them, a list of them for each graph.

    Args:
        graphs: for each operator name, type and ``input``: ``producer:index``, where -1 is an edge of control
            and "" an input that is left out. The first graph is the one that is run, the others belong to
            operators of it: what their ``Data`` operators are fed by is not known, nor what those put out.
        told_by: the file, for people.
    """
    nodes: list[Node] = []
    for number, operators in enumerate(graphs):
        listed = list(operators)
        constants = {name for name, op_type, _ in listed if op_type in CONSTANTS}
        for name, op_type, inputs in listed:
            ports = [_port(text, constants) for text in inputs if not _is_control(text)]
            outer = [UNKNOWN] if _CALLING.fullmatch(op_type) or (number and op_type == _DATA) else []
            nodes.append(Node(name, op_type, (*ports, *outer)))
    return Edges.of(nodes, told_by)


def _is_control(text: str) -> bool:
    return text.endswith(f":{_CONTROL}") or text.startswith(_CONTROL_NODE)


def _port(text: str, constants: set[str]) -> Port | None:
    name, colon, index = text.rpartition(":")
    if not text or name in constants:
        return None
    return Port(name, int(index)) if colon and index.isdecimal() else UNKNOWN


def read_atc_json(path: Path) -> Edges:
    """Return the edges of a model that ATC has put into JSON.

    Raises:
        FormatError: it is no such file.
    """
    try:
        data = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError) as error:
        raise FormatError(path, f"cannot be read as the JSON of an om: {error}") from error
    graphs = data.get("graph") if isinstance(data, dict) else None
    graphs = [graphs] if isinstance(graphs, dict) else graphs
    if not isinstance(graphs, list) or not all(isinstance(graph, dict) for graph in graphs):
        raise FormatError(path, "holds no 'graph', expected what atc --mode=1 --om=... --json=... writes")
    return ge_edges([list(_json_operators(graph, path)) for graph in graphs], path.name)


def _json_operators(graph: dict[str, Any], path: Path) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    operators = graph.get("op") or []
    for operator in operators if isinstance(operators, list) else [operators]:
        told = operator if isinstance(operator, dict) else {}
        name, inputs = told.get("name"), told.get("input") or []
        named = isinstance(name, str) and isinstance(inputs, list)
        if not named or not all(isinstance(text, str) for text in inputs):
            raise FormatError(path, "holds an operator without a name, or whose input is no text")
        yield str(name), str(told.get("type", "")), tuple(inputs)


def read_ge_text(path: Path) -> Edges:
    """Return the edges of a text dump of GE or TorchAir, line by line: with weights it may have gigabytes.

    Raises:
        FormatError: it is no such file.
    """
    try:
        with open_regular(path) as lines:
            graphs = _text_graphs(lines, path)
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror}") from error
    if not any(graphs):
        raise FormatError(
            path,
            "holds no operator, expected protobuf text: graph { op {, or op { or node { of TorchAir",
        )
    return ge_edges(graphs, path.name)


def _text_graphs(lines: Iterable[bytes], path: Path) -> list[list[tuple[str, str, tuple[str, ...]]]]:
    graphs: list[list[tuple[str, str, tuple[str, ...]]]] = []
    within: list[bytes] = []
    found: dict[str, list[str]] = {}
    for line in lines:
        word = line.strip()
        if word.endswith(b"{") and not word.startswith(b'"') and b": " not in word:
            within.append(word[:-1].strip())
            if within == [b"graph"] or (within in _OPERATORS[1:] and not graphs):
                graphs.append([])
            if within in _OPERATORS:
                found = {"name": [], "type": [], "op": [], "input": []}
        elif word == b"}":
            if not within:
                raise FormatError(path, "closes a brace that it did not open")
            if within in _OPERATORS:
                names, types = found["name"], found["type"] or found["op"]
                graphs[-1].append(
                    (names[0] if names else "", types[0] if types else "", tuple(found["input"]))
                )
            within.pop()
        elif within in _OPERATORS and (match := _FIELD.match(line)):
            found[match[1].decode()].append(_unescaped(match[2], path))
    if within:
        raise FormatError(path, f"ends within {b' '.join(within).decode('utf-8', 'replace')}: it is cut off")
    return graphs


def _unescaped(text: bytes, path: Path) -> str:
    r"""Return a string of protobuf text, which writes other bytes than ASCII as ``\\343``."""
    if b"\\" in text:
        try:
            text = text.decode("unicode_escape").encode("latin-1")
        except UnicodeError as error:
            raise FormatError(path, f"{text!r} is no string of protobuf text: {error}") from error
    return text.decode("utf-8", "surrogateescape")
