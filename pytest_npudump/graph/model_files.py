"""Edges from the files of a model: those of GE, MindSpore and ONNX, and their places.

GE: the JSON that ``atc --mode=1`` makes of an om, the om itself, and text dumps all hold the message
``ModelDef`` of ``ge_ir.proto``. Text dumps (``ge_proto_*.txt``, written where ``DUMP_GE_GRAPH`` is set) come
one a pass of the compiler: the last, ``..._Build.txt``, has the operators that run and are dumped. TorchAir
writes the graph that it hands to GE, before GE fuses operators: as text of the message ``GraphDef``, with the
operators outermost, or (``.pbtxt``) as TensorFlow has nodes.

MindSpore: ``rank_{r}/graphs/ms_output_trace_code_graph_{g}.ir`` beside a dump. A node is a line
``%n(variable) = Operator(%a, %para1_name, I64(0)) ...``, and a comment behind it has the name that dump files
carry: ``# Fullname with scope: (Default/conv1-Conv2d/Conv2D-op0)``. Operand i is the dumped input i, literals
included. ``Load`` and ``Depend`` hand on their first operand and are not dumped. Behind the name stands what
called the operator, the outermost first, the last of a file of MindSpore's own for its layers::

    # Fullname with scope: (Default/conv1-Conv2d/Conv2D-op0)
    # In file /app/lenet.py:30~36, 4~30/    def construct(self, x):/
    # In file /app/lenet.py:31, 32~42/        x = self.pool(self.relu(self.conv1(x)))/
"""

from __future__ import annotations

import json
import mmap
import os
import re
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TypeVar

from pytest_npudump.config.torchair import GRAPHS, OPTIMISED
from pytest_npudump.dump.names import MODULE_EDGES, PARAMETER
from pytest_npudump.dump.records import TensorKey, sanitise
from pytest_npudump.dump.table import StatsTable, layer_of
from pytest_npudump.errors import FormatError, NpudumpError, RequestError
from pytest_npudump.onnxmodels.sessions import prepare
from pytest_npudump.record.edges import UNKNOWN, Edges, GraphNode, Port, edges_of_lines, same_values
from pytest_npudump.storage.regular_file import open_regular, read_regular, read_small

T = TypeVar("T")

GeOperator = tuple[str, str, tuple[str, ...]]
"""Name, type and ``input``: ``producer:index``, where -1 is an edge of control and "" one left out."""

_IR = "rank_[0-9]*/graphs/ms_output_trace_code_graph_*.ir"
_PLACES = re.compile(
    rf"(?P<mindspore>{_IR})|(?P<torchair>{GRAPHS}/{OPTIMISED})".replace(".", "[.]").replace("*", "[^/]*")
    + rf"|(?P<modules>(?:[^/]+/)*{re.escape(MODULE_EDGES)})|(?P<calls>(?:[^/]+/){{0,3}}construct\.json)"
)
"""Places in a dump path of files with edges, or with the calls inside of others."""
_CONSTANTS = frozenset({"Const", "Constant", "Variable", "FileConstant"})
"""Types of operators that hold values and compute none."""
_CALLING = re.compile(r"(?:Stateful)?PartitionedCall|(?:Stateless)?(?:If|Case|While)|For|Scope")
"""Types of operators that run graphs of their own, whose operators feed what reads them."""
_FIELD = re.compile(rb'\s*(name|type|op|input): "((?:[^"\\]|\\.)*)"')
_OPERATORS = ([b"graph", b"op"], [b"op"], [b"node"])
"""Paths of operators: in a graph of GE's, in TorchAir's, and in TorchAir's for TensorBoard."""


def _ge_edges(graphs: Sequence[Sequence[GeOperator]], told_by: str) -> Edges:
    """Return the edges of operators as GE has them, a list of them for each graph.

    The first graph is the one that is run, the others belong to operators of it: what their ``Data``
    operators are fed by is not known, nor what those put out.
    """
    nodes: list[GraphNode] = []
    for number, operators in enumerate(graphs):
        constants = {name for name, op_type, _ in operators if op_type in _CONSTANTS}
        for name, op_type, inputs in operators:
            ports: list[Port | None] = []
            for text in inputs:
                producer, colon, index = text.rpartition(":")
                if text.endswith(":-1") or text.startswith("^"):
                    continue
                told = Port(producer, int(index)) if colon and index.isdecimal() else UNKNOWN
                ports.append(None if not text or producer in constants else told)
            if _CALLING.fullmatch(op_type) or (number and op_type == "Data"):
                ports.append(UNKNOWN)
            nodes.append(GraphNode(name, op_type, tuple(ports)))
    return Edges.of(nodes, told_by)


def read_atc_json(path: Path) -> Edges:
    """Return the edges of a model that ATC has put into JSON.

    Raises:
        FormatError: it is no such file.
    """
    found: list[list[GeOperator]] = []
    try:
        graphs = json.loads(read_regular(path))["graph"]
        for graph in graphs if isinstance(graphs, list) else [graphs]:
            operators = graph.get("op") or []
            found.append([])
            for one in operators if isinstance(operators, list) else [operators]:
                name, inputs = str.__str__(one["name"]), list.copy(one.get("input") or [])
                found[-1].append((name, str(one.get("type", "")), (*map(str.__str__, inputs),)))
    except (OSError, ValueError, RecursionError) as error:
        raise FormatError(path, f"cannot be read as the JSON of an om: {error}") from error
    except (AttributeError, KeyError, TypeError) as error:
        raise FormatError(
            path,
            "holds no 'graph', or an operator without a name, or whose input is no text; expected what "
            "atc --mode=1 --om=... --json=... writes",
        ) from error
    return _ge_edges(found, path.name)


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
    return _ge_edges(graphs, path.name)


def _text_graphs(lines: Iterable[bytes], path: Path) -> list[list[GeOperator]]:
    graphs: list[list[GeOperator]] = []
    within: list[bytes] = []
    found: defaultdict[bytes, list[str]] = defaultdict(list)
    for line in lines:
        word = line.strip()
        if word.endswith(b"{") and not word.startswith(b'"') and b": " not in word:
            within.append(word[:-1].strip())
            if within == [b"graph"] or (within in _OPERATORS[1:] and not graphs):
                graphs.append([])
            if within in _OPERATORS:
                found.clear()
        elif word == b"}":
            if not within:
                raise FormatError(path, "closes a brace that it did not open")
            if within in _OPERATORS:
                name, op_type = (
                    next(iter(one), "") for one in (found[b"name"], found[b"type"] or found[b"op"])
                )
                graphs[-1].append((name, op_type, tuple(found[b"input"])))
            within.pop()
        elif within in _OPERATORS and (match := _FIELD.match(line)):
            text = match[2]
            try:  # protobuf text writes other bytes than ASCII as \\343
                text = text.decode("unicode_escape").encode("latin-1") if b"\\" in text else text
            except UnicodeError as error:
                raise FormatError(path, f"{text!r} is no string of protobuf text: {error}") from error
            found[match[1]].append(text.decode("utf-8", "surrogateescape"))
    if within:
        raise FormatError(path, f"ends within {b' '.join(within).decode('utf-8', 'replace')}: it is cut off")
    return graphs


_NODE = re.compile(r"  %(?P<number>\d+)\([^()]*\) = (?P<type>\w+)\((?P<operands>.*)")
_FULL_NAME = re.compile(r"\s+# Fullname with scope: \((?P<name>.*)\)\s*\Z")
_PARAMETER = re.compile(r"%para\d+_(?P<name>\S+)")
_DECLARED = re.compile(r"(?m)^%para\d+_([^\s:]+):? ?:")
_NUMBERED = re.compile(r"(.*)-op\d+", re.ASCII)
_ITEM = re.compile(r"I64\((\d+)\)")
_HANDED_ON = frozenset({"Load", "Depend"})


def _graph_files(root: Path) -> Mapping[str, Sequence[Path]]:
    """Return the files of :data:`_PLACES` below a dump path, by kind: one look, as a dump has many files."""
    found: defaultdict[str, list[Path]] = defaultdict(list)
    above = len(os.path.join(root, ""))  # noqa: PTH118 - of a text
    for folder, folders, names in os.walk(root):
        for path in (f"{folder}/{name}" for name in (*folders, *names)):
            if (match := _PLACES.fullmatch(path, above)) and match.lastgroup:
                found[match.lastgroup].append(Path(path))
    return defaultdict(list, {kind: sorted(paths) for kind, paths in found.items()})


def read_mindspore(paths: Iterable[Path]) -> Edges:
    """Return the edges of all graphs that MindSpore left in a dump path; none where there are none.

    Raises:
        FormatError: a graph cannot be read.
    """
    edges = Edges()
    for path in paths:
        edges = edges.joined(read_ir(path))
    return edges


def read_module_edges(path: Path) -> Edges:
    """Return the edges that hooks on modules have seen.

    Raises:
        FormatError: the file cannot be read, or a line of it is none.
    """
    try:
        return edges_of_lines(read_small(path).decode("utf-8"), "calls of modules")
    except (ValueError, RequestError) as error:
        raise FormatError(path, f"holds a line that is no edge: {error}") from error


def with_calls_inside(edges: Edges, paths: Sequence[Path], table: StatsTable) -> tuple[Edges, list[str]]:
    """Add the edges of calls in calls from msprobe's dumps; with them why some are unknown.

    ``construct.json`` has the call that a call was made in. A parameter's name begins with its layer's.

    Args:
        edges: what else is known.
        paths: those of the dump.
        table: the run's tensors.
    """
    around: dict[str, str] = {}
    notes: list[str] = []
    if not paths and PARAMETER not in table.op_types:
        return edges, notes
    from pytest_npudump.dump.files.msprobe import call_of  # noqa: PLC0415 - only its dumps need it

    for path in paths:
        try:
            said = json.loads(read_small(path))
            around.update({call_of(inner)[0]: call_of(outer)[0] for inner, outer in said.items() if outer})
        except (NpudumpError, ValueError, TypeError, AttributeError, RecursionError) as error:  # noqa: PERF203 - a step each
            notes.append(f"which call was made in which is not known from a file: {path}: {error}")
    inner: defaultdict[str, dict[Port, None]] = defaultdict(dict)
    inputs: Counter[str] = Counter()
    for text, op_type in zip(table.keys, table.op_types, strict=True):
        key = TensorKey.parse(text)
        outer = key.layer.rpartition(".")[0] if op_type == PARAMETER else around.get(key.layer)
        if key.io == "input":
            inputs[sanitise(key.layer)] = max(inputs[sanitise(key.layer)], key.slot + 1)
        elif outer:
            inner[sanitise(outer)][Port(key.layer, key.slot)] = None
    return edges.containing({name: [*ports] for name, ports in inner.items()}, inputs), notes


def read_ir(path: Path) -> Edges:
    """Return the edges of one file; a subgraph's operators are fed by its caller, which is not followed.

    Raises:
        FormatError: it cannot be read, or holds no node.
    """
    text = read_small(path).decode("utf-8", "replace")
    head, *subgraphs = re.split(r"(?m)^subgraph @", text)
    nodes = [node for subgraph in subgraphs for node in _nodes(subgraph)]
    if len(subgraphs) == 1:  # parameters of others are what their callers hand over
        nodes += [GraphNode(name, "Parameter", ()) for name in _DECLARED.findall(head)]
    if not nodes:
        raise FormatError(path, "holds no node of a graph, expected lines such as  %1(x) = ReLU(%0)")
    return Edges.of(nodes, path.name)


def _nodes(subgraph: str) -> Iterator[GraphNode]:
    made: dict[str, Port | None] = {}
    waiting: tuple[str, str, list[str]] | None = None
    for line in subgraph.splitlines():
        if match := _NODE.match(line):
            waiting = match["number"], match["type"].removeprefix("PrimFunc_"), _operands(match["operands"])
        elif waiting is not None and (named := _FULL_NAME.match(line)):
            number, op_type, operands = waiting
            waiting = None
            ports: list[Port | None] = []
            for operand in operands:
                if operand.startswith("%para"):
                    parameter = _PARAMETER.match(operand)
                    ports.append(Port(parameter["name"]) if parameter else UNKNOWN)
                elif operand.startswith("%"):
                    ports.append(made.get(operand[1:], UNKNOWN))
                else:
                    ports.append(UNKNOWN if operand.startswith("@") else None)
            if op_type in _HANDED_ON:
                made[number] = ports[0] if ports else UNKNOWN
            elif op_type == "TupleGetItem":  # of an operator with several outputs
                index, of = _ITEM.fullmatch(operands[-1]), ports[0]
                made[number] = Port(of.layer, int(index[1])) if index and of and of != UNKNOWN else UNKNOWN
            else:
                made[number] = Port(named["name"])
                yield GraphNode(named["name"], op_type, tuple(ports))


def _operands(text: str) -> list[str]:
    """Split the operands at commas, up to the bracket that closes the list."""
    depth, start, found = 0, 0, []
    for at, character in enumerate(text):
        if depth == 0 and character in ",)":
            found.append(text[start:at].strip())
            start = at + 1
            if character == ")":
                break
        elif character in "([{<":
            depth += 1
        elif character in ")]}>":
            depth -= 1
    return [operand for operand in found if operand]


_MAGIC = b"IMOD"
_HEADER = 256
_WORD = 8
MODEL_DEF = 0
"""Type of the partition that has the graph."""
_PARTITIONS = 64
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def read_om(path: Path) -> Edges:
    """Return the edges of an om file, which holds its graphs as protobuf messages ``ModelDef``.

    A file header of 256 bytes (magic ``IMOD``), then of each model a table of partitions, and these: behind a
    graph of dynamic shapes come those of its static parts. A table: the number of partitions, then for each
    its type, its offset behind the table and its size, all of 64 bits. The partition of type 0 is the
    ``ModelDef``. Fields that are read: ``ModelDef.graph`` 7, ``GraphDef.op`` 6, and of ``OpDef`` name 1, type
    2, input 5. Nothing else is decoded: an om has gigabytes of weights.

    Raises:
        FormatError: it is no om, or of a layout that is not known.
    """
    try:
        with open_regular(path) as file:
            if not file.seek(0, 2):
                raise FormatError(path, "is empty, expected an om")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                graphs: list[list[GeOperator]] = []
                models = (model[MODEL_DEF] for model in partitions(data, path) if MODEL_DEF in model)
                for graph in chain.from_iterable(fields(data, *model, path, (7,)) for model in models):
                    graphs.append([])
                    for operator in fields(data, *graph[1:], path, (6,)):
                        texts: defaultdict[int, list[str]] = defaultdict(list)
                        for number, first, last in fields(data, *operator[1:], path, (1, 2, 5)):
                            texts[number].append(data[first:last].decode("utf-8", "surrogateescape"))
                        name, op_type = (next(iter(texts[number]), "") for number in (1, 2))
                        graphs[-1].append((name, op_type, tuple(texts[5])))
                return _ge_edges(graphs, path.name)
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror}") from error


def partitions(data: mmap.mmap, path: Path) -> Iterator[Mapping[int, tuple[int, int]]]:
    """Yield the beginnings and ends of the partitions of each model of an om, by type; none without a model.

    Raises:
        FormatError: it is no om, or begins with no model.
    """
    if len(data) < _HEADER + _WORD:
        raise FormatError(path, f"too short for an om, expected {_HEADER} bytes of header and more")
    if data[:4] != _MAGIC:
        raise FormatError(path, f"begins with {data[:4]!r}, expected {_MAGIC!r}", offset=0)
    at = _HEADER
    while at < len(data):
        count = int.from_bytes(data[at : at + _WORD], "little")
        behind, found = at + _WORD * (1 + 3 * count), {}
        if 0 < count <= _PARTITIONS and behind <= len(data):
            numbers = struct.unpack_from(f"<{3 * count}Q", data, at + _WORD)
            places = zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
            found = {kind: (behind + offset, behind + offset + size) for kind, offset, size in places}
        ends = [end for _, end in found.values()]
        if at == _HEADER and (MODEL_DEF not in found or found[MODEL_DEF][1] > len(data)):
            raise FormatError(
                path, "its table of partitions names no graph, or lies outside of it", offset=at
            )
        if not ends or max(ends) > len(data):
            found = {kind: place for kind, place in found.items() if at == _HEADER and place[1] <= len(data)}
            ends = [len(data)]
        yield found
        at = max(ends)


def fields(
    data: mmap.mmap, at: int, end: int, path: Path, wanted: tuple[int, ...]
) -> Iterator[tuple[int, int, int]]:
    """Yield number, start and end of the wanted fields of a message: numbers, and what has a length."""
    while at < end:
        tag, at = varint(data, at, end, path)
        if (kind := tag & 7) == _VARINT:
            start = at
            _, at = varint(data, at, end, path)
            if tag >> 3 in wanted:
                yield tag >> 3, start, at
        elif kind == _BYTES:
            size, at = varint(data, at, end, path)
            if size > end - at:
                raise FormatError(path, f"a field of {size} bytes reaches beyond its message", offset=at)
            if tag >> 3 in wanted:
                yield tag >> 3, at, at + size
            at += size
        elif kind in {_FIXED32, _FIXED64} and (at := at + (4 if kind == _FIXED32 else 8)) <= end:
            continue
        else:
            raise FormatError(path, f"no protobuf message: wire type {kind}", offset=at)


def varint(data: mmap.mmap, at: int, end: int, path: Path) -> tuple[int, int]:
    """Return a number of a message, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the last of a varint
            return value, at
    raise FormatError(path, "a number that does not end", offset=at)


def read_onnx(path: Path) -> Edges:
    """Return the edges of a model's file.

    Slots are those of the emulator's dumps, which leave weights and constants out; behind them is what graphs
    inside an operator read.

    Raises:
        ModelError: it is no ONNX model.
        MissingExtraError: onnx is not installed.
    """
    model = prepare(path)
    makers = {name: Port(name) for name in model.inputs}
    makers |= {name: Port(one.name, slot) for one in model.operators for slot, name in enumerate(one.outputs)}
    nodes = [GraphNode(name, "Data", ()) for name in model.inputs]
    for operator in model.operators:
        ports = tuple(makers.get(name) for name in (*operator.inputs, *operator.captured))
        nodes.append(GraphNode(operator.name, operator.op_type, ports))
    return Edges.of(nodes, path.name)


_READERS: tuple[tuple[str, Callable[[Path], Edges]], ...] = (
    (".om", read_om),
    (".json", read_atc_json),
    (".txt", read_ge_text),
    (".pbtxt", read_ge_text),
    (".onnx", read_onnx),
)


def edges_at_hand(
    models: Iterable[Path], root: Path, table: StatsTable, named: Path | None = None
) -> tuple[Edges, tuple[str, ...]]:
    """Return the known edges between tensors of a run, and why files could not be read.

    Args:
        models: files of models that ran. Of each, the file with its name that knows most of the layers
            counts: the om itself, ATC's JSON of it (``.json``), GE's graph (``.txt``) or the ONNX model.
            What feeds a layer that more models have than such files know is unknown.
        root: the dump path, where MindSpore leaves its graphs, and beside which TorchAir does.
        table: the run's tensors.
        named: a file that a person says to be the graph of what ran, which goes before all others.
    """
    layers = {sanitise(layer_of(key)) for key in table.keys}
    files = _graph_files(root)
    edges, notes = _read(read_mindspore, files["mindspore"])
    # Casts that MindSpore puts in for its CPU kernels are dumped under other numbers than its graphs have.
    missing = {match[1] for layer in layers - edges.feeds.keys() if (match := _NUMBERED.fullmatch(layer))}
    numbered = ((name, _NUMBERED.fullmatch(name)) for name in edges.feeds)
    edges = edges.without({name for name, match in numbered if match and match[1] in missing})
    told: Counter[str] = Counter(edges.feeds.keys())
    torchair = (*files["torchair"], *sorted(root.parent.glob(f"{GRAPHS}/{OPTIMISED}")))
    for found, failed in chain(
        (_of_model(path, layers) for path in dict.fromkeys(models)),
        (_read(read_ge_text, path) for path in torchair),
        (_read(read_module_edges, path) for path in files["modules"]),
    ):
        edges = edges.joined(found)
        told.update(found.feeds.keys())
        notes += failed
    if named is not None:
        found, failed = _read(dict(_READERS)[named.suffix], named)
        if not failed and not any(layer in found.feeds for layer in layers):
            failed = [f"{named.name}, named by graph=, holds no layer of this dump: which graph ran?"]
            found = Edges()
        edges = found.completed(edges)
        told |= Counter(found.feeds.keys())
        notes += failed
    owners: defaultdict[str, set[str]] = defaultdict(set)
    for text in table.keys:
        if "model=" in text:
            key = TensorKey.parse(text).sanitised
            owners[key.layer].add(key.model)
    edges = edges.unknown({layer for layer, names in owners.items() if len(names) > told[layer]})
    edges, failed = with_calls_inside(edges.completed(same_values(table)), files["calls"], table)
    return edges, (*notes, *failed)


def _of_model(path: Path, layers: Collection[str]) -> tuple[Edges, list[str]]:
    best, known, notes = Edges(), 0, []
    for suffix, read in _READERS:
        file = path.with_suffix(suffix)
        if not file.is_file():
            continue
        edges, failed = _read(read, file)
        notes += failed
        if (here := len(layers & edges.feeds.keys())) > known:
            best, known = edges, here
    return best, [] if known else notes


def _read(read: Callable[[T], Edges], given: T) -> tuple[Edges, list[str]]:
    """Return the edges that a reader finds, or none and why."""
    try:
        return read(given), []
    except NpudumpError as error:
        return Edges(), [f"which tensor feeds which is not known from a file: {error}"]


_COMMENT = re.compile(
    r"(?m)^\s+# (?:Fullname with scope: \((?P<name>.*)\)"
    r"|In file (?P<file>.+?):(?P<line>\d+)(?:~\d+)?, \d+~\d+/(?P<text>.*)/)\s*$"
)
_ITS_OWN = re.compile(r"[\\/](?:site|dist)-packages[\\/]mindspore[\\/]")


def code_of(root: Path, layers: Collection[str]) -> dict[str, str]:
    """Return the line of source of each layer that is known, as ``file:line: text``, by name in file names.

    It is the innermost line of a file that is not MindSpore's own, or else the innermost of all. A file
    below the current folder is named from there.
    Of layers that several graphs have, the first graph's counts.

    Args:
        root: a dump path.
        layers: names, raw or as file names spell them.

    Raises:
        FormatError: a graph cannot be read.
    """
    wanted = {sanitise(layer) for layer in layers}
    calls: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for path in sorted(root.glob(_IR)) if wanted else ():
        known, name = {*calls}, ""
        for comment in _COMMENT.finditer(read_small(path).decode("utf-8", "replace")):
            if comment["name"] is not None:
                name = sanitise(comment["name"])
            elif name in wanted and name not in known and not comment["text"].lstrip().startswith("def "):
                file = comment["file"].removeprefix(f"{Path.cwd()}{os.sep}")
                place = f"{file}:{comment['line']}: {comment['text'].strip()}"
                calls[name].append((comment["file"], place))
    return {
        name: next((line for file, line in reversed(lines) if not _ITS_OWN.search(file)), lines[-1][1])
        for name, lines in calls.items()
    }
