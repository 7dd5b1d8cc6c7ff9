"""What compilers make of a graph: batch normalisation folded into weights, and fused operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper

from verdicts.network import Node

if TYPE_CHECKING:
    from verdicts.network import Network

_FUSED = {"BatchNormalization", "Relu", "Clip", "HardSigmoid", "Sigmoid", "Add", "Mul", "Div", "Sub", "Erf"}
"""Operators that are fused into the one before, which then leaves no tensor of its own."""


@dataclass(frozen=True)
class Folded:
    """A graph without the batch normalisations that follow convolutions.

    Attributes:
        nodes: what takes the place of nodes, by their index: convolutions, and copies of their results.
        unseen: tensors that are none any more.
    """

    nodes: dict[int, Node]
    unseen: frozenset[str]


def inner_tensors(network: Network) -> set[str]:
    """Tensors inside of fused operators: read once, by an operator that is fused into its predecessor."""
    readers = network.consumers()
    outputs = {value.name for value in network.model.graph.output}
    return {
        name
        for node in network.nodes
        for name in node.outputs
        if name not in outputs and [reader.op_type in _FUSED for reader in readers[name]] == [True]
    }


def fold(network: Network) -> Folded:
    """Fold each batch normalisation into the convolution whose only reader it is."""
    readers = network.consumers()
    nodes: dict[int, Node] = {}
    unseen = []
    for node in network.nodes:
        following = readers[node.outputs[0]]
        if node.op_type != "Conv" or node.weight is None or len(following) != 1:
            continue
        (normalisation,) = following
        if normalisation.op_type == "BatchNormalization":
            nodes[node.index] = _folded(node, *_affine(normalisation))
            copy = helper.make_node(
                "Identity", normalisation.inputs, normalisation.outputs, normalisation.name
            )
            nodes[normalisation.index] = Node(normalisation.index, copy, {})
            unseen.append(node.outputs[0])
    return Folded(nodes, frozenset(unseen))


def _affine(node: Node) -> tuple[np.ndarray, np.ndarray]:
    gamma, beta, mean, variance = (node.constants[name].astype(np.float64) for name in node.proto.input[1:5])
    epsilon = next((a.f for a in node.proto.attribute if a.name == "epsilon"), 1e-5)
    scale = gamma / np.sqrt(variance + epsilon)
    return scale, beta - mean * scale


def _folded(node: Node, scale: np.ndarray, shift: np.ndarray) -> Node:
    names = list(node.proto.input)
    weight = node.constants[names[1]]
    bias = node.constants[names[2]] if len(names) > 2 else np.zeros(len(weight))
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    del proto.input[2:]
    proto.input.append("folded_bias")
    return Node(
        node.index,
        proto,
        {
            names[1]: (weight * scale.reshape(-1, *[1] * (weight.ndim - 1))).astype(np.float32),
            "folded_bias": (bias * scale + shift).astype(np.float32),
        },
    )
