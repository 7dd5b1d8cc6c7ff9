"""Runs of a network: node by node in given numerics and with a fault, or as one graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime as ort

from verdicts.fusion import fold, inner_tensors
from verdicts.network import SCALED, Node, options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from verdicts.network import Network
    from verdicts.numerics import Numerics

Tensors = dict[str, np.ndarray]
_REDUCED = {"GlobalAveragePool", "ReduceMean", "Softmax"}
"""Operators that add up, of which onnxruntime or numpy has one for float64."""


class Runner:
    """Runs one network in one numerics; sessions are kept, as they are dear."""

    def __init__(self, network: Network, numerics: Numerics) -> None:
        self._network, self._numerics = network, numerics
        self._inner = inner_tensors(network) if numerics.fused else set()
        folded = fold(network) if numerics.folded else None
        self._unseen = self._inner | (folded.unseen if folded else set())
        own = folded.nodes if folded else {}
        self._nodes = [self.prepared(own.get(node.index, node)) for node in network.nodes]

    def prepared(self, node: Node) -> Node:
        """The node with its weights as the format stores them."""
        if self._numerics.dtype == "float32":
            return node
        constants = {name: self._numerics.rounded(array) for name, array in node.constants.items()}
        return Node(node.index, node.proto, constants)

    def run(self) -> Tensors:
        """All tensors that a run leaves, by name; float32 holds the values of narrower types."""
        feed = {name: self._numerics.rounded(array) for name, array in self._network.feed.items()}
        found = self._computed(feed, self._nodes)
        return {name: array for name, array in found.items() if name not in self._unseen}

    def faulty(self, base: Tensors, node: Node, after: Callable[[np.ndarray], np.ndarray] | None) -> Tensors:
        """The same with another node in place of the one with its index.

        Args:
            base: what :meth:`run` found; what does not depend on the node is taken from there.
            node: the faulty one.
            after: changes its first output; None for nothing.
        """
        nodes = [self.prepared(node), *(self._nodes[n.index] for n in self._network.following(node)[1:])]
        return self._computed(base, nodes, after)

    def _computed(
        self, base: Tensors, nodes: list[Node], after: Callable[[np.ndarray], np.ndarray] | None = None
    ) -> Tensors:
        tensors = dict(base)
        for number, node in enumerate(nodes):
            found = compute(node, tensors, self._numerics, self._network.opset)
            if not number and after is not None:
                found[0] = after(found[0])
            for name, array in zip(node.outputs, found, strict=True):
                tensors[name] = array if name in self._inner else self._numerics.rounded(array)
        return tensors


def compute(
    node: Node, tensors: Mapping[str, np.ndarray], numerics: Numerics, opset: int
) -> list[np.ndarray]:
    """The outputs of one node, before they are rounded."""
    feeds = {name: tensors[name] for name in node.inputs}
    if numerics.operands is not None and node.op_type in SCALED:
        feeds = {name: numerics.operand(array) for name, array in feeds.items()}
        node = node.changed(**{name: numerics.operand(array) for name, array in node.constants.items()})
    if numerics.order is not None and (shuffled := _shuffled(node, feeds, numerics.order)) is not None:
        return shuffled[0].run(shuffled[1], opset)
    if (numerics.wide or numerics.order is not None) and node.op_type in {*_REDUCED, "MatMul"}:
        return _in_float64(node, feeds, opset)
    return node.run(feeds, opset)


def _shuffled(node: Node, feeds: Tensors, seed: int) -> tuple[Node, Tensors] | None:
    """A product of matrices or a convolution whose input channels come in another order, with its weights."""
    group = next((a.i for a in node.proto.attribute if a.name == "group"), 1)
    if node.op_type == "MatMul":
        axes = (-1, -2)
    elif node.op_type == "Conv" and group == 1:
        axes = (1, 1)
    else:
        return None
    left, right = node.proto.input[:2]
    values = feeds | node.constants
    order = np.random.default_rng((seed, node.index)).permutation(values[left].shape[axes[0]])
    moved = {
        name: np.ascontiguousarray(np.take(values[name], order, axis=axis))
        for name, axis in zip((left, right), axes, strict=True)
    }
    other = node.changed(**{name: moved[name] for name in moved if name in node.constants})
    return other, feeds | {name: moved[name] for name in moved if name in feeds}


def _in_float64(node: Node, feeds: Tensors, opset: int) -> list[np.ndarray]:
    """One operator in float64, its result rounded to float32."""

    def wide(array: np.ndarray) -> np.ndarray:
        return array.astype(np.float64) if array.dtype == np.float32 else array

    if node.op_type == "GlobalAveragePool":  # which onnxruntime has for float32 only
        (array,) = feeds.values()
        return [array.mean(axis=(2, 3), keepdims=True, dtype=np.float64).astype(np.float32)]
    other = node.changed(**{name: wide(array) for name, array in node.constants.items()})
    found = other.run({name: wide(array) for name, array in feeds.items()}, opset)
    return [array.astype(np.float32) if array.dtype == np.float64 else array for array in found]


def whole(network: Network, *, threads: int = 1, optimised: bool = False, seed: int = 0) -> Tensors:
    """A run of the whole graph; where it is optimised, a third of the tensors is kept and others may fuse."""
    rng = np.random.default_rng(seed)
    names = [name for node in network.nodes for name in node.outputs]
    chosen = [name for name in names if not optimised or rng.random() < 1 / 3]
    model = onnx.ModelProto()
    model.CopyFrom(network.model)
    known = {value.name for value in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in chosen if name not in known)
    run_all = ort.InferenceSession(
        model.SerializeToString(),
        options(threads, optimised=optimised),
        providers=["CPUExecutionProvider"],
    )
    return dict(zip(chosen, run_all.run(chosen, network.feed), strict=True))
