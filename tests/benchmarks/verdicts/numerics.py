"""Ways to compute the same: number formats, orders of addition, fused operators.

Sixteen-bit formats are float32 operators whose results are rounded, and so are weights: what an NPU with
float32 accumulators does, without its own approximations of functions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper
from verdicts.network import SCALED, Node, options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from verdicts.network import Network

_STORED: dict[str, Any] = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
_FUSED = {"BatchNormalization", "Relu", "Clip", "HardSigmoid", "Sigmoid", "Add", "Mul", "Div", "Sub", "Erf"}
"""Operators that compilers fuse into the one before, which then leaves no tensor of its own."""
_REDUCED = {"GlobalAveragePool", "ReduceMean", "Softmax"}


@dataclass(frozen=True)
class Numerics:
    """One way to compute.

    Attributes:
        dtype: what tensors are stored as: float32, float16 or bfloat16.
        operands: bits of mantissa that operands of products keep: 11 for HF32, 10 for TF32; None for all.
        order: seed of the order in which products are added; None for onnxruntime's.
        wide: whether operators that onnxruntime has for float64 are computed in it.
        fused: whether a chain of operators is rounded once, at its end.
        folded: whether batch normalisation is part of the weights before it.
    """

    dtype: str = "float32"
    operands: int | None = None
    order: int | None = None
    wide: bool = False
    fused: bool = False
    folded: bool = False

    def stored(self, array: np.ndarray) -> np.ndarray:
        """A tensor as it is stored, in its own type."""
        if array.dtype != np.float32 or self.dtype == "float32":
            return array
        with np.errstate(over="ignore"):
            return array.astype(_STORED[self.dtype])

    def rounded(self, array: np.ndarray) -> np.ndarray:
        """The same, back in float32."""
        return self.stored(array).astype(array.dtype, copy=False)


Tensors = dict[str, np.ndarray]
Change = "Callable[[list[np.ndarray]], list[np.ndarray]]"


def run(
    network: Network,
    numerics: Numerics,
    *,
    base: Mapping[str, np.ndarray] | None = None,
    changed: Node | None = None,
    after: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Tensors:
    """All tensors that a run leaves, by name; float32 holds the values of narrower types.

    Args:
        network: what is run.
        numerics: how.
        base: the tensors of a run without fault, from which what does not depend on ``changed`` is taken.
        changed: a node in place of the one with its index.
        after: changes the first output of that node.
    """
    nodes = network.nodes if base is None or changed is None else network.following(changed)
    tensors: Tensors = dict(network.feed if base is None else base)
    tensors.update({name: numerics.rounded(array) for name, array in network.feed.items()})
    inner = inner_tensors(network) if numerics.fused else set()
    folded = _foldings(network) if numerics.folded else {}
    for node in nodes:
        chosen = changed if changed is not None and changed.index == node.index else node
        found = _computed(_prepared(chosen, numerics, folded), tensors, numerics, network.opset)
        if chosen is changed and after is not None:
            found[0] = after(found[0])
        for name, array in zip(node.outputs, found, strict=True):
            tensors[name] = array if name in inner else numerics.rounded(array)
    unseen = inner | {name for name, role in folded.items() if role[0] == "scale"}
    return {name: array for name, array in tensors.items() if name not in unseen}


_PREPARED: dict[tuple[int, str, bool], Node] = {}


def _prepared(node: Node, numerics: Numerics, folded: Mapping[str, Any]) -> Node:
    """The node with its weights rounded and folded; kept, as sessions are dear."""
    if numerics.dtype == "float32" and not folded:
        return node
    key = (id(node), numerics.dtype, bool(folded))
    if key not in _PREPARED:
        role = folded.get(node.outputs[0])
        found = node
        if role is not None:
            found = role[1](node)
        constants = {name: numerics.rounded(array) for name, array in found.constants.items()}
        _PREPARED[key] = Node(found.index, found.proto, constants)
        _KEEP.append(node)
    return _PREPARED[key]


_KEEP: list[Node] = []
"""Nodes whose id is a key."""


def _computed(node: Node, tensors: Tensors, numerics: Numerics, opset: int) -> list[np.ndarray]:
    feeds = {name: tensors[name] for name in node.inputs}
    if numerics.operands is not None and node.op_type in SCALED:
        feeds = {name: mantissa(array, numerics.operands) for name, array in feeds.items()}
        node = node.changed(
            **{name: mantissa(array, numerics.operands) for name, array in node.constants.items()}
        )
    if numerics.order is not None and (shuffled := _shuffled(node, feeds, numerics.order)) is not None:
        return shuffled[0].run(shuffled[1], opset)
    if (numerics.wide or numerics.order is not None) and node.op_type in {*_REDUCED, "MatMul"}:
        return _in_float64(node, feeds, opset)
    return node.run(feeds, opset)


def mantissa(array: np.ndarray, bits: int) -> np.ndarray:
    """float32 rounded to nearest even with ``bits`` bits of mantissa, the hidden one counted."""
    if array.dtype != np.float32:
        return array
    spare = 24 - bits
    codes = array.view(np.uint32)
    half = np.uint32((1 << (spare - 1)) - 1) + (codes >> np.uint32(spare) & np.uint32(1))
    return ((codes + half) & ~np.uint32((1 << spare) - 1)).view(np.float32)


def _shuffled(node: Node, feeds: Tensors, seed: int) -> tuple[Node, Tensors] | None:
    """A product of matrices or a convolution whose input channels come in another order, with its weights."""
    group = next((a.i for a in node.proto.attribute if a.name == "group"), 1)
    left, right = node.proto.input[0], node.proto.input[1] if len(node.proto.input) > 1 else ""
    if node.op_type == "MatMul":
        axes = (-1, -2)
    elif node.op_type == "Conv" and group == 1:
        axes = (1, 1)
    else:
        return None
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


def _foldings(network: Network) -> dict[str, tuple[str, Callable[[Node], Node]]]:
    """What becomes of convolutions and the batch normalisations behind them, by their output tensor."""
    readers = network.consumers()
    found: dict[str, tuple[str, Callable[[Node], Node]]] = {}
    for node in network.nodes:
        following = readers[node.outputs[0]]
        if node.op_type != "Conv" or node.weight is None or len(following) != 1:
            continue
        (normalisation,) = following
        if normalisation.op_type == "BatchNormalization":
            scale, shift = _affine(normalisation)
            found[node.outputs[0]] = ("scale", lambda n, s=scale, t=shift: _folded(n, s, t))
            found[normalisation.outputs[0]] = ("copy", _copy)
    return found


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


def _copy(node: Node) -> Node:
    return Node(node.index, helper.make_node("Identity", node.inputs, node.outputs, node.name), {})


def whole(network: Network, *, threads: int = 1, optimised: bool = False, seed: int = 0) -> Tensors:
    """A run of the whole graph; one tensor of three is asked for where it is optimised, so that others fuse."""
    rng = np.random.default_rng(seed)
    names: Iterable[str] = [name for node in network.nodes for name in node.outputs]
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


def noises(dtype: str, members: int) -> dict[str, list[Numerics]]:
    """Legitimate other numerics of a format, by their names in the tables."""
    plain = Numerics(dtype)
    found = {
        "sums in another order": [replace(plain, order=seed) for seed in range(members)],
        "operators in float64": [replace(plain, wide=True)],
        "batch normalisation folded": [replace(plain, folded=True)],
    }
    if dtype == "float32":
        return found | {
            "HF32 operands": [replace(plain, operands=11)],
            "TF32 operands": [replace(plain, operands=10)],
        }
    return found | {"fused": [replace(plain, fused=True), replace(plain, fused=True, folded=True)]}
