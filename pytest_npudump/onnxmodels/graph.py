"""Conversion of an ONNX graph to a dump's operators, and random operators of any framework."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_npudump.language.text import first_of

_CONSTANT = "Constant"
_TENSOR, _GRAPH, _TENSORS, _GRAPHS = 4, 5, 9, 10
"""Kinds of attributes that hold tensors or graphs, numbered as ``AttributeProto.AttributeType``."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One node of the graph.

    Attributes:
        name: the node's name, made unique; a node without one is called ``{OpType}_{k}``, where k counts
            all unnamed nodes of the file from 0, constants included: as GE's ONNX parser names them
            (``UpdateAllNodeName``).
        op_type: the node's type.
        inputs: names of the tensors it reads, without weights and constants (those never are in a dump).
        outputs: names of the tensors it writes.
        task: task id: operators counted from 1 in execution order.
        captured: names of further tensors that graphs inside it read (branches of ``If``, body of ``Loop``
            or ``Scan``), which no dump has among its inputs.
    """

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    task: int
    captured: tuple[str, ...] = ()


def operators(graph: Any) -> tuple[Operator, ...]:
    """Return the operators of an ONNX ``GraphProto`` in execution order; constants are none."""
    nodes = [node for node in graph.node if node.op_type != _CONSTANT]
    constants = _constants(graph)
    around = {*inputs(graph), *(name for node in nodes for name in node.output)} - {""}
    return tuple(
        Operator(
            name=name,
            op_type=node.op_type,
            inputs=tuple(tensor for tensor in node.input if tensor and tensor not in constants),
            outputs=tuple(tensor for tensor in node.output if tensor),
            task=task,
            captured=tuple(
                dict.fromkeys(
                    name for name in read_inside(node) if name in around and name not in node.output
                )
            ),
        )
        for task, (name, node) in enumerate(zip(names_of(graph.node), nodes, strict=True), 1)
    )


def read_inside(node: Any) -> Iterator[str]:
    """Yield the names that graphs inside a node read, their own and those of their outputs among them."""
    for graph in branches(node):
        yield from (value.name for value in graph.output)
        for inner in graph.node:
            yield from inner.input
            yield from read_inside(inner)


def inside(model: Any) -> tuple[tuple[str, str], ...]:
    """Return the operators that are inside those of a ``ModelProto``'s graph, so that no dump has them.

    Returns:
        Their names, "" for one without, each with the name of the operator that holds it: an ``If``, a
        ``Loop``, a ``Scan``, or a function of the model.
    """
    bodies, outside = bodies_of(model), [node for node in model.graph.node if node.op_type != _CONSTANT]
    named = zip(outside, names_of(model.graph.node), strict=True)
    return tuple((node.name, name) for outer, name in named for node in within(outer, bodies))


def bodies_of(model: Any) -> dict[tuple[str, str], Any]:
    """Return the nodes of each function of a ``ModelProto`` by domain and name."""
    return {(function.domain, function.name): function.node for function in model.functions}


def within(outer: Any, bodies: Mapping[tuple[str, str], Any]) -> Iterator[Any]:
    """Yield the nodes of the graphs inside another one, or of the function it calls; constants are none."""
    nodes, entered = [outer], set()
    while nodes:
        node = nodes.pop()
        for branch in branches(node):
            nodes += branch.node
        if (key := (node.domain, node.op_type)) in bodies and key not in entered:
            entered.add(key)
            nodes += bodies[key]
        if node is not outer and node.op_type != _CONSTANT:
            yield node


def inputs(graph: Any) -> tuple[str, ...]:
    """Return the names of the graph's inputs, weights that are declared as inputs left out."""
    weights = {tensor.name for tensor in graph.initializer}
    return tuple(value.name for value in graph.input if value.name not in weights)


def _constants(graph: Any) -> set[str]:
    names = {tensor.name for tensor in graph.initializer}
    names.update(tensor.values.name for tensor in graph.sparse_initializer)
    for node in graph.node:
        if node.op_type == _CONSTANT:
            names.update(node.output)
    return names


def names_of(nodes: Iterable[Any]) -> Iterator[str]:
    """Yield the name of each node that is no constant."""
    nodes = list(nodes)
    taken = {node.name for node in nodes if node.op_type != _CONSTANT}
    unnamed = itertools.count()
    seen: set[str] = set()
    for node in nodes:
        name = node.name or f"{node.op_type}_{next(unnamed)}"
        if node.op_type == _CONSTANT:
            continue
        if name in seen or (not node.name and name in taken):
            name = next(n for k in itertools.count(1) if (n := f"{name}_{k}") not in seen | taken)
        seen.add(name)
        yield name


def every_node(model: Any) -> Iterator[Any]:
    """Yield the nodes of an ONNX ``ModelProto``, each before those of its branches and bodies.

    Nodes of the functions that the model defines come last.
    """
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        yield from _with_branches(nodes)


def every_graph(model: Any) -> Iterator[Any]:
    """Yield the graph of a ``ModelProto``, and every branch and body (``If``, ``Loop``, ``Scan``) in it."""
    yield model.graph
    for node in every_node(model):
        yield from branches(node)


def every_tensor(model: Any) -> Iterator[Any]:
    """Yield every ``TensorProto`` of a ``ModelProto``: weights, sparse ones by their parts, and constants."""
    for graph in every_graph(model):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
    for node in every_node(model):
        for attribute in node.attribute:
            if attribute.type == _TENSOR:
                yield attribute.t
            elif attribute.type == _TENSORS:
                yield from attribute.tensors


def every_name(model: Any) -> Iterator[str | bytes]:
    """Yield the names in a ``ModelProto``: of graphs, nodes, types, tensors, attributes and functions."""
    scopes = [function.node for function in model.functions]
    for function in model.functions:
        yield from (function.name, function.domain, *function.input, *function.output)
    for graph in every_graph(model):
        scopes.append(graph.node)
        yield graph.name
        tensors = (*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer))
        values = (*graph.input, *graph.output, *graph.value_info)
        yield from (one.name for one in (*values, *tensors))
        yield from (axis.dim_param for one in values for axis in one.type.tensor_type.shape.dim)
    for node in itertools.chain(*scopes):
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)


def _with_branches(nodes: Iterable[Any]) -> Iterator[Any]:
    for node in nodes:
        yield node
        for graph in branches(node):
            yield from _with_branches(graph.node)


def branches(node: Any) -> Iterator[Any]:
    """Yield the graphs inside a node: branches of ``If``, the body of ``Loop`` or ``Scan``."""
    for attribute in node.attribute:
        if attribute.type == _GRAPH:
            yield attribute.g
        elif attribute.type == _GRAPHS:
            yield from attribute.graphs


EAGER = "aclnn"
"""Begins the types of calls of torch_npu, whose generator goes on from run to run in one process."""
_DRAWS = (
    r"(?i)(?:aclnn)?(?:inplace)?(?:dsa)?(?!\w*(?:grad|backward|domask))"
    r"(?:rand\w*|dropout\w*|bernoulli\w*|multinomial\w*|uniform\w*|loguniform\w*|exponential\w*"
    r"|(?:parameterized)?truncatednormal\w*|standardnormal\w*|standardlaplace|normal(?:(?:float|tensor)\w*)?"
    r"|geometric|cauchy|gamma|poisson|nondeterministicints|genbitmask)"
)
"""Compiled when it is first asked, which a comparison without failures does not."""
"""Position of the input that has ONNX's Dropout drop something."""
_SHOWN = 3


def draws_random(op_type: str) -> bool:
    """Return whether operators of a type draw random numbers; those with a seed as an input do not."""
    return re.fullmatch(_DRAWS, op_type) is not None


def drawing_words(layers: tuple[str, ...]) -> str:
    """Name the layers that draw random numbers."""
    return f"{first_of(layers, _SHOWN)} draw{'' if len(layers) > 1 else 's'} random numbers"
