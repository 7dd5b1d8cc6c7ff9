"""Digests of models' parameters by operator, from their files: for the golden's block.

They are of content. Where a file keeps a tensor (among the initialisers, in a ``Constant``, in another file),
in which order operators and attributes stand, how tensors between operators are called, and what only people
read has no part in them; nor have attributes that are the defaults of their operators. Of an operator with
attributes that a schema has no default for, and that change nothing, as strides of 1, a second digest is
without them. A weight of -0 is another one than 0: 1/x tells them apart. Scalars and vectors of integers that
an operator reads, such as shapes and axes, count as attributes. What is in the branches of
``If``, the body of ``Loop`` and ``Scan`` and the functions of a model belongs to the operator outside.

Of an om they are read from its ``ModelDef``, as :mod:`pytest_npudump.graph.model_files` says. An operator
``Const`` has weights in its attribute ``value``, or their place in the partition of type 1. Attributes are
those that ``_ir_attr_names`` names: older compilers do not write it, nor for operators that they put in.
"""

from __future__ import annotations

import mmap
from base64 import urlsafe_b64encode
from collections import ChainMap, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from graphlib import TopologicalSorter
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pytest_npudump.dump.records import key_name
from pytest_npudump.errors import FormatError, NpudumpError
from pytest_npudump.onnxmodels.graph import names_of
from pytest_npudump.onnxmodels.loaded_files import model_digest
from pytest_npudump.onnxmodels.sessions import onnx, read_model
from pytest_npudump.record.model_lines import FILE, NONE, PARAMETERS, TYPED, UNSAID, implied_type
from pytest_npudump.record.rows import by_name
from pytest_npudump.storage.regular_file import open_regular

Buffer = bytes | memoryview

_OF_FILE, _OF_GRAPH, _OF_WEIGHTS, _OF_OTHERS = 16, 6, 6, 4
"""Characters of digests, of six bits each."""
_AXES = 2
_FORMATS = frozenset({".onnx", ".om"})


def model_lines(paths: Sequence[Path], known: str = "") -> str:
    """Return the lines of a golden for models; "" where one of them cannot be known by its file.

    Args:
        paths: of the models, no two alike.
        known: lines that are taken as they are where they are of the same files.
    """
    digests: dict[Path, str] = {}
    for path in paths:
        with suppress(NpudumpError):
            digests[path] = model_digest(path) if path.suffix in _FORMATS else ""
    names = {path: f"{FILE}{key_name(path.name)}" for path in paths}
    if not all(map(digests.get, paths)) or len(set(names.values())) < len(names):
        return ""
    digests = {path: _short(_OF_FILE, digest.encode()) for path, digest in digests.items()}
    told = {name: line.split(" ")[1] for name, line in by_name(known).items() if name[0] == FILE}
    if told == {names[path]: digest for path, digest in digests.items()}:
        return known
    files, operators = [], []
    for path, digest in digests.items():
        graph = NONE
        found: tuple[tuple[str, str], ...] = ()
        with suppress(NpudumpError, RecursionError):
            graph, found = _of_model(path, digest)
        model = f"{FILE}model={key_name(path.stem)}" if len(digests) > 1 else ""
        files.append(f"{names[path]} {digest} {graph}{TYPED * (graph != NONE)}\n")
        operators += [f"{key_name(name)}{model} {words}\n" for name, words in found]
    return "".join(line for line in (*files, *operators) if line[:-1].isprintable())


def parameter_block(
    name: str, arrays: Iterable[tuple[str, str, tuple[int, ...], bytes]], model: str = ""
) -> str:
    """Return the lines of a golden for the parameters of a model that is in no file.

    Args:
        name: what the model is called.
        model: what keys of tensors call it, where there are several.
        arrays: of each parameter its layer, "" for the model; what else tells it apart; its shape; its bytes.
    """
    layers: defaultdict[str, list[_Weight]] = defaultdict(list)
    for layer, form, shape, data in arrays:
        layers[layer or name].append(_weight(form.encode(), shape, data))
    every = _short(_OF_FILE, *(one.exact for found in layers.values() for one in found))
    lines = [f"{FILE}{key_name(name)}{PARAMETERS} {every} {_short(_OF_GRAPH, b'')}\n"]
    contents = {layer: _Content(weights=tuple(found)) for layer, found in layers.items()}
    of = model and f"{FILE}model={key_name(model)}"
    lines += [f"{key_name(layer)}{of} {_operator_words(content)}\n" for layer, content in contents.items()]
    return "".join(line for line in lines if line[:-1].isprintable())


def _short(size: int, *parts: Buffer) -> str:
    return urlsafe_b64encode(_long(*parts)).decode()[:size]


def _long(*parts: Buffer) -> bytes:
    digest = sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


@lru_cache(maxsize=16)
def _of_model(path: Path, _digest: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the digest of a model's graph, and each operator's name and the rest of its line."""
    if path.suffix == ".om":
        try:
            with open_regular(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                graph, found = _OmContent(data, path).digests()
        except (OSError, ValueError, IndexError) as error:
            raise FormatError(path, f"cannot be read: {error}") from error
    else:
        graph, found = _OnnxContent(read_model(path), path.parent).digests()
    lines = [(name, _words(name, one)) for name, one in found]
    return graph, tuple((name, words) for name, words in lines if words)


class _Weight(NamedTuple):
    """Digests of a tensor: as it is, and of its parts along each of the first axes in any order."""

    exact: bytes
    by_axis: tuple[bytes, ...]


class _Content(NamedTuple):
    """Content of an operator: all but weights as bytes, weights, a second form of the first, its type.

    Of an om that form is how a compiler put the weights, of ONNX what is left of the attributes without those
    that change nothing.
    """

    others: tuple[bytes, ...] = ()
    weights: tuple[_Weight, ...] = ()
    forms: tuple[bytes, ...] = ()
    kind: str = ""


def _words(name: str, content: _Content) -> str:
    """Return the words of an operator's line behind its name."""
    digests, kind = _operator_words(content), key_name(content.kind)
    kind = f"{TYPED}{kind}" if kind and kind != implied_type(key_name(name)) else ""
    return " ".join(filter(None, (kind, digests if digests != NONE else "")))


def _operator_words(content: _Content) -> str:
    words = [_short(_OF_OTHERS, *content.others) if content.others or content.forms else NONE]
    if content.forms:
        words[0] += UNSAID if content.forms == _NOTHING else _short(_OF_OTHERS, *content.forms)
    if content.weights:
        words.append(_short(_OF_WEIGHTS, *(one.exact for one in content.weights)))
        axes = max(len(one.by_axis) for one in content.weights)
        for axis in range(axes):  # a vector, as a bias, goes with either; of a scalar the order counts
            told = (
                one.by_axis[min(axis, len(one.by_axis) - 1)] if one.by_axis else one.exact
                for one in content.weights
            )
            words.append(_short(_OF_OTHERS, *told))
    return " ".join(words)


def _weight(form: bytes, shape: Sequence[int], data: Buffer) -> _Weight:
    """Return the digests of a tensor in C order; of elements that share a byte the order counts."""
    count = int(np.prod(shape, dtype=np.int64))
    exact = _long(form, repr([*shape]).encode(), data)
    if not shape or not count or len(data) % count:
        return _Weight(exact, ())
    array = np.frombuffer(data, np.uint8).reshape(*shape, -1)
    found = []
    for axis in range(min(_AXES, len(shape))):
        rows = np.ascontiguousarray(np.moveaxis(array, axis, 0)).reshape(shape[axis], -1)
        if rows.shape[1] in {1, 2, 4, 8}:
            parts: Buffer = np.sort(rows.view(f"u{rows.shape[1]}"), axis=0).tobytes()
        else:
            parts = b"".join(sorted(sha256(row.data).digest() for row in rows))
        found.append(_long(form, repr([*shape]).encode(), parts))
    return _Weight(exact, tuple(found))


_INT32, _INT64, _STRING = 6, 7, 8
_QUANTISED = frozenset({"DequantizeLinear", "QLinearConv"})
"""Operators that read vectors of int32 as weights."""
_GRAPH_KINDS = frozenset({5, 10})
"""Kinds of attributes that hold graphs, of ``AttributeProto.AttributeType``; tensors are 4 and 9."""
_TENSOR_KINDS = frozenset({4, 9})
_CONSTANT = "Constant"
_OUTER = b"outside"
_Digests = tuple[bytes, bytes]
"""Of the place of an operator, or of a tensor, in a graph: without and with what it computes with."""
_UNKNOWN: _Digests = b"", b""
_NOTHING = (b"",)
_NEUTRAL = {"strides": 1, "dilations": 1, "pads": 0, "output_padding": 0} | {
    f"scan_{side}_{what}": 0 for side in ("input", "output") for what in ("axes", "directions")
}
"""Values of attributes that a schema describes as their defaults, but does not have as such."""
_ACTIVATIONS = {"LSTM": [b"Sigmoid", b"Tanh", b"Tanh"], "GRU": [b"Sigmoid", b"Tanh"], "RNN": [b"Tanh"]}
"""The same of each direction."""
_KERNEL = "kernel_shape"
"""The attribute of convolutions that their weights' shape tells."""


class _OnnxContent:
    """Content of the operators of a ``ModelProto``."""

    def __init__(self, model: Any, folder: Path) -> None:
        self._graph, self._folder = model.graph, folder
        self._functions = {(_domain(one), one.name): one for one in model.functions}
        self._versions = {_domain(one): one.version for one in model.opset_import}
        self._weights: dict[int, tuple[Any, _Weight]] = {}
        self._schemas: dict[tuple[str, str], tuple[Mapping[str, bytes], frozenset[str]]] = {}

    def digests(self) -> tuple[str, list[tuple[str, _Content]]]:
        """Return the digests of the graph, without and with content, and each operator's name and content."""
        graph = self._graph
        constants = self._constants(graph)
        inputs = [one.name for one in graph.input if one.name not in constants]
        made: dict[str, _Digests] = {}
        walked = [*self._walk(graph.node, inputs, constants, made, around=ChainMap(), outside=set())]
        used = {_domain(node) for node in graph.node}
        versions = sorted(f"{domain} {self._versions.get(domain)}".encode() for domain in used)
        ends = [made.get(one.name, _UNKNOWN) for one in graph.output]
        given = {
            one.name: self._weight(constants[one.name]).exact for one in graph.output if one.name in constants
        }
        content_ends = [given.get(one.name, end[1]) for one, end in zip(graph.output, ends, strict=True)]
        shape = _short(
            _OF_GRAPH, *versions, *(end[0] for end in ends), *sorted(digests[0] for digests, _ in walked)
        )
        whole = _short(_OF_GRAPH, *content_ends, *sorted(digests[1] for digests, _ in walked))
        return shape + whole, [*zip(names_of(graph.node), (content for _, content in walked), strict=True)]

    def _walk(
        self,
        nodes: Iterable[Any],
        inputs: Iterable[str],
        constants: Mapping[str, Any],
        made: dict[str, _Digests],
        *,
        around: ChainMap[str, _Digests],
        outside: set[str],
    ) -> Iterator[tuple[_Digests, _Content]]:
        """Yield of each operator the digests of its place in the graph, and its content.

        Args:
            nodes: in an order in which they can run.
            inputs: names of tensors that they are given.
            constants: tensors that they may read, by name.
            made: gets digests for each tensor that is given or computed.
            around: what ``made`` is of the graphs around this one.
            outside: gets names of tensors that are read and neither.
        """
        ends = ((name, f"input {number}".encode()) for number, name in enumerate(inputs))
        made |= {name: (text, text) for name, text in ends}
        for node in nodes:
            if node.op_type == _CONSTANT:
                continue
            ports, values, weights = [], [], []
            told = [*self._attributes(node)]
            others = [text for text, _ in told]
            rest = [text for text, neutral in told if not neutral]
            given = [*node.input]
            while given and not given[-1]:
                given.pop()
            for slot, name in enumerate(given):
                if name in constants:
                    found = self._weight(constants[name])
                    ports.append(b"constant")
                    values.append(b"constant" + found.exact)
                    one, settings = constants[name], {_INT64, _STRING}
                    settings |= set() if node.op_type in _QUANTISED else {_INT32}
                    vector = len(one.dims) == 1 and getattr(one, "data_type", 0) in settings
                    if not one.dims or vector:  # an attribute among the inputs: a scalar, a shape, axes
                        others.append(f"input {slot}".encode() + found.exact)
                        rest.append(others[-1])
                    else:
                        weights.append(found)
                elif name and name not in made:
                    outside.add(name)
                    ports.append(_OUTER)
                    values.append(around.get(name, _UNKNOWN)[1])
                else:
                    port, value = made.get(name, _UNKNOWN)
                    ports.append(port)
                    values.append(value)
            values += [text for text, neutral in told if not neutral]
            reached = set[str]()
            for (body, value), content in self._bodies(node, constants, around.new_child(made), reached):
                others.append(body)
                rest.append(body)
                values.append(value)
                weights += content
            outside.update(name for name in reached if name not in made)
            ports += sorted(made[name][0] for name in reached if name in made)
            kind = _domain(node).encode(), node.op_type.encode()
            digests = _long(*kind, *ports), _long(*kind, *values)
            made |= {
                name: (digests[0] + str(slot).encode(), digests[1] + str(slot).encode())
                for slot, name in enumerate(node.output)
                if name
            }
            forms = (tuple(rest) or _NOTHING) if rest != others else ()
            yield digests, _Content(tuple(others), tuple(weights), forms, node.op_type)

    def _bodies(
        self, node: Any, constants: Mapping[str, Any], around: ChainMap[str, _Digests], outside: set[str]
    ) -> Iterator[tuple[_Digests, list[_Weight]]]:
        """Yield the digests of each graph or function inside an operator, and the weights in it."""
        bodies = [
            (
                one.name,
                graph.node,
                [end.name for end in graph.input],
                [end.name for end in graph.output],
                {**constants, **self._constants(graph)},
            )
            for one in sorted(node.attribute, key=lambda one: str(one.name), reverse=True)  # then, else
            for graph in ([one.g] if one.HasField("g") else one.graphs)
        ]
        if (function := self._functions.get((_domain(node), node.op_type))) is not None:
            held = self._constants(function)
            bodies.append(("", function.node, [*function.input], [*function.output], held))
        for attribute, nodes, ins, outs, known in bodies:
            made: dict[str, _Digests] = {}
            inner = around.new_child(made)
            running = [node for node in nodes if node.op_type != _CONSTANT]
            walk = self._walk(running, ins, known, made, around=around, outside=outside)
            ranked = sorted(
                zip(walk, _from_ends(running, outs), strict=True),
                key=lambda one: (one[0][0][0], one[1], one[0][0][1]),
            )
            walked = [one for one, _ in ranked]
            ends = [made[name][0] if name in made else _OUTER for name in outs]
            told = (_long(digests[0], *content.others) for digests, content in walked)
            given = {name: self._weight(known[name]).exact for name in outs if name in known}
            values = [given.get(name) or inner.get(name, _UNKNOWN)[1] for name in outs]
            values += sorted(digests[1] for digests, _ in walked)
            digests = (
                _long(*ends, *(given[name] for name in outs if name in given), *told),
                _long(attribute.encode(), *values),
            )
            yield digests, [one for _, content in walked for one in content.weights]

    def _attributes(self, node: Any) -> Iterator[tuple[bytes, bool]]:
        """Yield a node's attributes as bytes, without graphs and defaults, and whether they do nothing."""
        defaults, optional = self._schema(node)
        for one in sorted(node.attribute, key=lambda one: str(one.name)):
            if one.type in _TENSOR_KINDS:
                tensors = [one.t] if one.HasField("t") else one.tensors
                yield one.name.encode() + b"".join(self._weight(tensor).exact for tensor in tensors), False
            elif one.type not in _GRAPH_KINDS:
                text = _plain(one)
                if defaults.get(one.name) != text:
                    plain = one.name == _KERNEL or {*one.ints} <= {_NEUTRAL.get(one.name)}
                    if one.strings:
                        own = _ACTIVATIONS.get(node.op_type, [])
                        plain = [*one.strings] in (own, 2 * own)
                    yield text, one.name in optional and plain

    def _schema(self, node: Any) -> tuple[Mapping[str, bytes], frozenset[str]]:
        """Return the defaults of a node's attributes, and which others it may lack and do the same."""
        domain = _domain(node)
        if (known := self._schemas.get((domain, node.op_type))) is not None:
            return known
        found: dict[str, bytes] = {}
        optional = set[str]()
        with suppress(onnx().defs.SchemaError):
            schema = onnx().defs.get_schema(node.op_type, self._versions.get(domain, 1), domain)
            for name, attribute in schema.attributes.items():
                default = attribute.default_value
                if default.type:
                    found[name] = _plain(default, name)
                elif not attribute.required and (
                    name in _NEUTRAL or (name == _KERNEL and "Conv" in node.op_type)
                ):
                    optional.add(name)
            if node.op_type in _ACTIVATIONS:
                optional.add("activations")
        self._schemas[domain, node.op_type] = found, frozenset(optional)
        return found, frozenset(optional)

    def _constants(self, graph: Any) -> dict[str, Any]:
        """Return the tensors that a graph or function holds, by name."""
        found = {one.name: one for one in getattr(graph, "initializer", ())}
        found |= {one.values.name: one for one in getattr(graph, "sparse_initializer", ())}
        for node in graph.node:
            if node.op_type == _CONSTANT and node.output and node.attribute:
                found[node.output[0]] = _constant(node.attribute[0])
        return found

    def _weight(self, tensor: Any) -> _Weight:
        if id(tensor) not in self._weights:
            shape = [*tensor.dims]
            if hasattr(tensor, "indices"):  # a sparse one
                parts = (self._weight(part).exact for part in (tensor.values, tensor.indices))
                found = _Weight(_long(repr(shape).encode(), *parts), ())
            else:
                found = _weight(str(tensor.data_type).encode(), shape, _elements(tensor, self._folder))
            self._weights[id(tensor)] = tensor, found  # which keeps the id from being another's
        return self._weights[id(tensor)][1]


def _from_ends(nodes: Sequence[Any], ends: Sequence[str]) -> list[int]:
    """Return the place of each node as it is found from the ends, whatever the order of nodes in a file."""
    makers = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    found: dict[int, int] = {}
    waiting = [*reversed(ends)]
    while waiting:
        at = makers.get(waiting.pop())
        if at is not None and at not in found:
            found[at] = len(found)
            waiting += reversed(nodes[at].input)
    return [found.get(at, len(nodes)) for at in range(len(nodes))]


def _domain(node: Any) -> str:
    domain: str = node.domain
    return "" if domain == "ai.onnx" else domain


def _plain(attribute: Any, name: str = "") -> bytes:
    """Return an attribute's content without its text for people."""
    copy = type(attribute)()
    copy.CopyFrom(attribute)
    copy.ClearField("doc_string")
    copy.name = name or attribute.name
    return bytes(copy.SerializeToString(deterministic=True))


def _constant(value: Any) -> Any:
    """Return the tensor in the attribute of a ``Constant``."""
    if value.name in {"value", "sparse_value"}:
        return value.t if value.name == "value" else value.sparse_tensor
    kind, text = value.name.removeprefix("value_"), onnx().TensorProto
    number = {"f": text.FLOAT, "i": text.INT64}.get(kind[:1], text.STRING)
    one = {"float": value.f, "int": value.i, "string": value.s}
    many = {"floats": value.floats, "ints": value.ints, "strings": value.strings}
    values = [one[kind]] if kind in one else [*many.get(kind, ())]
    return onnx().helper.make_tensor("", number, () if kind in one else (len(values),), values)


_EXTERNAL = 1
_UINT32 = 12
_WIDTHS = {6: "<i4", 4: "<u2", 5: "<u2", 10: "<u2", 16: "<u2"}
"""Of types of ``TensorProto.DataType`` whose elements lie in ``int32_data``, which others have as bytes."""
_FIELDS = {"float_data": "<f4", "double_data": "<f8", "int64_data": "<i8"}


def _elements(tensor: Any, folder: Path) -> Buffer:
    """Return the elements of a tensor as a file has them that holds them raw."""
    if tensor.data_location == _EXTERNAL:
        place = {entry.key: entry.value for entry in tensor.external_data}
        path = folder / place.get("location", "")
        try:
            with open_regular(path) as file:
                file.seek(int(place.get("offset", 0)))
                return file.read(int(place["length"]) if "length" in place else -1)
        except (OSError, ValueError) as error:
            raise FormatError(path, f"weights cannot be read: {error}") from error
    if tensor.HasField("raw_data"):
        return bytes(tensor.raw_data)
    if tensor.string_data:
        return b"".join(len(text).to_bytes(8, "little") + text for text in tensor.string_data)
    fields = {
        **_FIELDS,
        "uint64_data": "<u4" if tensor.data_type == _UINT32 else "<u8",
        "int32_data": _WIDTHS.get(tensor.data_type, "u1"),
    }
    told = (
        np.array(values).astype(width) for name, width in fields.items() if (values := getattr(tensor, name))
    )
    return b"".join(values.tobytes() for values in told)


_WEIGHTS, _FLOWS = 1, {6, 7}
"""Types of partitions of an om: weights, and models of a flow, which are not read."""
_HOLDING = frozenset({b"Const", b"Constant"})
_DATA = b"Data"
_TOLD = b"_ir_attr_names"
"""The attribute that names those of an operator that its definition has: the compiler adds many more."""

_NUMBERED = b"attr_name_enum", b"attr_value_enum", b"attrs_use_string_value"
"""Attributes of a model: names that keys stand for, texts that numbers do, and of which names these are."""
_DIGIT = 127
"""A key that stands for a name is a zero byte and its number's digits, the lowest first, each plus one."""

Place = tuple[int, int]


class _OmContent:
    """Contents of an om's operators, and which feeds which.

    Fields: ``ModelDef`` graph 7, attr 11; ``GraphDef`` op 6; ``OpDef`` name 1, type 2, input 5, attr 10,
    output_desc 34; of an entry of a map key 1, value 2; ``AttrDef`` list 1, i 3, t 12, and 10 to 13 what is
    no plain value; ``ListValue`` s 2, i 3, b 5, and 8 to 11 the same; ``TensorDef`` desc 1, data 2;
    ``TensorDescriptor`` dtype 2, shape 3, layout 4, attr 5, weight_size 11, data_offset 18; ``ShapeDef`` dim
    1.
    """

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        from pytest_npudump.graph import model_files  # noqa: PLC0415 - of an om

        self._data, self._path, self._files = data, path, model_files
        self._words: tuple[tuple[list[bytes], list[bytes], bytes], ...] = ()

    def digests(self) -> tuple[str, list[tuple[str, _Content]]]:
        """Return the digest of the graphs, and the name and content of each operator that has any.

        Raises:
            FormatError: it is no om, or holds models or constants that are not read.
            ValueError: operators feed each other in a circle.
            IndexError: a name is none of those that the model has.
        """
        models = [*self._files.partitions(self._data, self._path)]
        if any(self._files.MODEL_DEF not in model or _FLOWS & model.keys() for model in models):
            raise FormatError(self._path, "holds models that are not read")
        shapes: list[bytes] = []
        found: dict[str, _Content] = {}
        for model in models:
            parts = self._read(model[self._files.MODEL_DEF], 7, 11)
            told = dict(self._entries(parts[11]))
            names, texts, masks = (
                [*map(self._bytes, self._list(told[key], number)[number])] if key in told else []
                for key, number in zip(_NUMBERED, (2, 2, 5), strict=True)
            )
            self._words = ((names, texts, b"".join(masks)), *self._words[-1:])
            held = model.get(_WEIGHTS, (0, 0))
            shapes += [self._graph(graph, held, found) for graph in parts[7]]
        return _short(_OF_GRAPH, *shapes), [*found.items()]

    def _graph(self, graph: Place, held: Place, found: dict[str, _Content]) -> bytes:
        """Return a digest of a graph, and add what its operators compute with, some of it held elsewhere."""
        every = (self._read(place, 1, 2, 5, 10, 34) for place in self._read(graph, 6)[6])
        operators = {self._first(one[1]): one for one in every}
        made: dict[bytes, bytes] = {}
        constants: dict[bytes, tuple[bytes, _Weight]] = {}
        feeds = {name: [*map(self._bytes, one[5])] for name, one in operators.items()}
        producers = {name: {feed.rpartition(b":")[0] for feed in fed} for name, fed in feeds.items()}
        for name in filter(operators.__contains__, TopologicalSorter(producers).static_order()):
            parts, weights, ports = operators[name], [], []
            kind, attributes = self._first(parts[2]), dict(self._entries(parts[10]))
            if kind in _HOLDING:
                if (constant := self._constant(attributes.get(b"value"), held)) is not None:
                    constants[name] = constant
                continue
            for feed in feeds[name]:
                producer, _, slot = feed.rpartition(b":")
                if producer in constants:
                    weights.append(constants[producer])
                    ports.append(b"constant" + weights[-1][0])
                elif slot != b"-1":  # which is an edge of control
                    ports.append(made[producer] + slot if producer in made else b"")
            others = [*self._plain(attributes)]
            outputs = (repr(self._form(place)).encode() for place in parts[34])
            made[name] = _long(kind, *outputs, *ports, *(others if kind == _DATA else ()))
            if kind != _DATA or weights:
                text = name.decode("utf-8", "replace")
                forms, tensors = zip(*weights, strict=True) if weights else ((), ())
                # A static part stands in the whole graph, too.
                before = found.get(text, _Content())
                found[text] = _Content(
                    tuple(dict.fromkeys(before.others + tuple(others))),
                    tuple(dict.fromkeys(before.weights + tensors)),
                    tuple(dict.fromkeys(before.forms + forms)),
                    kind.decode("utf-8", "replace"),
                )
        return _long(*sorted(made.values()))

    def _read(self, place: Place, *wanted: int) -> Mapping[int, list[Place]]:
        """Return where the wanted fields of a message lie, by their numbers."""
        found: dict[int, list[Place]] = {number: [] for number in wanted}
        for number, *at in self._files.fields(self._data, *place, self._path, wanted):
            found[number].append((at[0], at[1]))
        return found

    def _bytes(self, place: Place) -> bytes:
        return self._data[slice(*place)]

    def _first(self, places: Sequence[Place]) -> bytes:
        return self._bytes(places[0]) if places else b""

    def _numbers(self, place: Place) -> Iterator[int]:
        at, end = place
        while at < end:
            number, at = self._files.varint(self._data, at, end, self._path)
            yield number

    def _number(self, places: Sequence[Place]) -> int:
        return next(self._numbers(places[0])) if places else 0

    def _entries(self, places: Iterable[Place]) -> Iterator[tuple[bytes, tuple[Place, list[bytes] | None]]]:
        """Yield the name of each attribute, where its value lies, and the texts that its numbers are."""
        for place in places:
            entry = self._read(place, 1, 2)
            name, texts = self._first(entry[1]), None
            for names, values, masks in self._words:  # those of one behind the first may be numbered in turn
                if name[:1] == b"\0":
                    number = sum((digit - 1) * _DIGIT**at for at, digit in enumerate(name[1:]))
                    name, texts = names[number], values if masks[number] else None
            if entry[2]:
                yield name, (entry[2][0], texts)

    def _plain(self, attributes: Mapping[bytes, tuple[Place, list[bytes] | None]]) -> Iterator[bytes]:
        """Yield name and value of the attributes of an operator's definition, but for tensors and graphs."""
        told = attributes.get(_TOLD)
        names = [*map(self._bytes, self._list(told, 2)[2])] if told is not None else []
        for name in sorted(name for name in names if name in attributes):
            place, texts = attributes[name]
            parts = self._read(place, 1, 2, 3, *range(10, 14))
            many = bool(parts[1])
            parts = self._list(attributes[name], *range(2, 13)) if many else parts
            if any(parts[number] for number in (range(8, 12) if many else range(10, 14))):
                continue
            values = [self._bytes(one) for one in parts[2]]
            if texts is not None:
                values = [texts[number] for one in parts[3] for number in self._numbers(one)]
            elif many:
                values += [bytes([at]) + self._bytes(one) for at in range(3, 13) for one in parts[at]]
            elif not values:
                values = [self._bytes(place)]
            yield _long(name, *values)

    def _list(self, attribute: tuple[Place, object], *wanted: int) -> Mapping[int, list[Place]]:
        return self._read(next(iter(self._read(attribute[0], 1)[1]), (0, 0)), *wanted)

    def _form(self, desc: Place) -> tuple[int, list[int], bytes]:
        """Return type, shape and layout of a tensor."""
        parts = self._read(desc, 2, 3, 4)
        dims = (place for shape in parts[3] for place in self._read(shape, 1)[1])
        return self._number(parts[2]), [*chain.from_iterable(map(self._numbers, dims))], self._first(parts[4])

    def _constant(self, value: tuple[Place, object] | None, held: Place) -> tuple[bytes, _Weight] | None:
        """Return the form and the digests of a constant; None without a value."""
        for tensor in self._read(value[0], 12)[12] if value is not None else ():
            parts = self._read(tensor, 1, 2)
            desc = next(iter(parts[1]), (0, 0))
            told, form = self._read(desc, 5, 11, 18), self._form(desc)
            offset, size = self._number(told[18]), self._number(told[11])
            if merged := dict(self._entries(told[5])).get(b"merged_offset"):
                offset = self._number(self._read(merged[0], 3)[3])
            content = self._first(parts[2])
            if not content and 0 not in form[1]:
                start = held[0] + offset
                if not 0 < size <= held[1] - start:
                    raise FormatError(self._path, "a constant lies outside of the weights", offset=start)
                content = self._data[start : start + size]
            text = repr(form).encode()
            return text, _weight(text, form[1], content)
        return None
