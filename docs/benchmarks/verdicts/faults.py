"""Faults, one at a time: how an operator computes something else than it should."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from verdicts.network import Network, Node

SIZES = (1e-2, 1e-3, 1e-4, 1e-5)
_TAIL = 16
_ATTRIBUTES: dict[str, dict[str, float]] = {
    "HardSigmoid": {"alpha": 1 / 6, "beta": 0.5},
    "BatchNormalization": {"epsilon": 1e-3},
    "LeakyRelu": {"alpha": 0.1},
}
_TYPES = {
    "Relu": "LeakyRelu",
    "Erf": "Tanh",
    "Sigmoid": "HardSigmoid",
    "MaxPool": "AveragePool",
    "Sqrt": "Erf",
}


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        kind: what is changed; ``sized`` faults have a size, all others none.
        column: of the tables: a size, or ``structure``, ``one element``, ``permutation``.
        node: the operator, changed where its weights or attributes are.
        after: what is done to its first output, in float32 before it is rounded; None for nothing.
    """

    kind: str
    column: str
    node: Node
    after: Callable[[np.ndarray], np.ndarray] | None = None


def _weights(node: Node, change: Callable[[np.ndarray], np.ndarray]) -> Node | None:
    name = node.weight
    return None if name is None else node.changed(**{name: change(node.constants[name]).astype(np.float32)})


def _scaled(node: Node, _: np.random.Generator, size: float) -> Fault | None:
    changed = _weights(node, lambda weight: weight * (1 + size))
    return changed and Fault("weights scaled", f"{size:g}", changed)


def _noisy(node: Node, rng: np.random.Generator, size: float) -> Fault | None:
    changed = _weights(node, lambda w: w + size * np.sqrt(np.mean(w**2)) * rng.standard_normal(w.shape))
    return changed and Fault("noise on weights", f"{size:g}", changed)


def _offset(node: Node, _: np.random.Generator, size: float) -> Fault | None:
    def add(array: np.ndarray) -> np.ndarray:
        return (array + size * np.sqrt(np.mean(array.astype(np.float64) ** 2))).astype(np.float32)

    return Fault("bias offset", f"{size:g}", node, add)


def _channel(change: Callable[[np.ndarray], np.ndarray]) -> Callable[..., Callable[[np.ndarray], np.ndarray]]:
    def make(rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
        def apply(array: np.ndarray) -> np.ndarray:
            found = array.copy()
            if array.ndim > 1:
                at = int(rng.integers(array.shape[1]))
                found[:, at] = change(array[:, at])
            return found

        return apply

    return make


def _zeroed(node: Node, rng: np.random.Generator, _: float) -> Fault:
    return Fault("channel zeroed", "structure", node, _channel(np.zeros_like)(rng))


def _flipped(node: Node, rng: np.random.Generator, _: float) -> Fault:
    return Fault("channel flipped", "structure", node, _channel(np.negative)(rng))


def _stuck(node: Node, _rng: np.random.Generator, _: float) -> Fault:
    def stick(array: np.ndarray) -> np.ndarray:
        found = array.reshape(-1).copy()
        found[-_TAIL:] = found[-_TAIL:][:1]
        return found.reshape(array.shape)

    return Fault("tail stuck", "structure", node, stick)


def _attribute(node: Node, _rng: np.random.Generator, _: float) -> Fault | None:
    proto: Any = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    if node.op_type in _TYPES:
        proto.op_type = _TYPES[node.op_type]
    elif node.op_type in _ATTRIBUTES:
        kept = [a for a in proto.attribute if a.name not in _ATTRIBUTES[node.op_type]]
        new = [helper.make_attribute(name, value) for name, value in _ATTRIBUTES[node.op_type].items()]
        del proto.attribute[:]
        proto.attribute.extend([*kept, *new])
    else:
        return None
    return Fault("operator changed", "structure", node.changed(proto))


def _element(node: Node, rng: np.random.Generator, _: float) -> Fault:
    def change(array: np.ndarray) -> np.ndarray:
        found = array.reshape(-1).copy()
        at = int(rng.integers(found.size))
        found[at] = -found[at] if rng.random() < 0.5 else 0.0
        return found.reshape(array.shape)

    return Fault("one element", "one element", node, change)


def _swapped(axis: int) -> Callable[..., Fault]:
    def make(node: Node, rng: np.random.Generator, _: float) -> Fault:
        def swap(array: np.ndarray) -> np.ndarray:
            found = array.copy()
            if array.ndim > 1 and array.shape[axis] > 1:
                at = int(rng.integers(array.shape[axis] - 1))
                moved = np.moveaxis(found, axis, 0)
                moved[[at, at + 1]] = moved[[at + 1, at]]
            return found

        return Fault("channels swapped" if axis == 1 else "rows swapped", "permutation", node, swap)

    return make


def _shifted(node: Node, rng: np.random.Generator, _: float) -> Fault:
    def shift(array: np.ndarray) -> np.ndarray:
        found = array.reshape(-1).copy()
        start = int(rng.integers(found.size // 2, found.size)) if found.size > 1 else 0
        found[start:] = np.roll(found[start:], 1)
        return found.reshape(array.shape)

    return Fault("tail shifted", "permutation", node, shift)


_SIZED = (_scaled, _noisy, _offset)
_OTHERS = (_zeroed, _flipped, _stuck, _attribute, _element, _element, _swapped(1), _swapped(-2), _shifted)


def faults(network: Network, count: int, seed: int) -> Iterator[Fault]:
    """``count`` faults of operators with outputs of floats, each size and each other kind in turn."""
    rng = np.random.default_rng(seed)
    kinds = [(make, size) for size in SIZES for make in _SIZED] + [(make, 0.0) for make in _OTHERS]
    made = 0
    while made < count:
        make, size = kinds[made % len(kinds)]
        chosen = network.nodes[int(rng.integers(len(network.nodes)))]
        if make in _SIZED and chosen.weight is None:
            continue
        fault = make(chosen, np.random.default_rng(rng.integers(2**32)), size)
        if fault is not None:
            made += 1
            yield fault
