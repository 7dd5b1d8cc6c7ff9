"""Faults in whole models, in their weights, attributes and kernels, which the main flow is to find and name.

A weight or an attribute is changed in the file. A kernel's fault is nodes behind it that only the emulator
runs.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from pytest_npudump.emulator.faults import Distortion
from verdicts.network import options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from verdicts.unseen import Feeds

_TAIL = 16
_TRIES = 12


@dataclass(frozen=True, slots=True)
class Kernel(Distortion):
    """What an operator's first output is taken from, times and plus what, by its flat elements.

    ``order``: instead, the elements of its inputs' summed axis in another order: a healthy kernel's sums.
    """

    take: np.ndarray | None = None
    times: np.ndarray | None = None
    plus: np.ndarray | None = None
    order: int | None = None


@dataclass(frozen=True)
class Fault:
    """A fault: its kind, the operators that are wrong, the model's file, and what kernels do."""

    kind: str
    operators: tuple[str, ...]
    model: Any
    kernels: tuple[Kernel, ...] = ()


def rewritten(model: Any, kernels: Sequence[Kernel]) -> Any:
    """A model with nodes for its kernels' faults; outputs keep their names."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model)
    nodes: list[Any] = []
    for node in proto.graph.node:
        nodes.append(node)
        for kernel in kernels:
            if kernel.operator != node.name:
                continue
            if kernel.order is not None:
                nodes[-1:] = _reordered(proto, node, kernel.order)
                continue
            name, at = node.output[0], node.output[0] + "/healthy"
            node.output[0] = at
            shape = proto.graph.initializer.add()
            shape.CopyFrom(numpy_helper.from_array(np.array([-1]), f"{name}/flat"))
            nodes += [
                helper.make_node("Shape", [at], [f"{name}/shape"], f"{name}/shape"),
                helper.make_node("Reshape", [at, f"{name}/flat"], [f"{name}/0"], f"{name}/0"),
            ]
            steps = (("Gather", kernel.take), ("Mul", kernel.times), ("Add", kernel.plus))
            for place, (op_type, array) in enumerate(steps):
                given = [f"{name}/{place}"]
                if array is not None:
                    proto.graph.initializer.append(numpy_helper.from_array(array, f"{name}/{op_type}"))
                    given.append(f"{name}/{op_type}")
                kind = op_type if array is not None else "Identity"
                made = f"{name}/{place + 1}"
                nodes.append(helper.make_node(kind, given, [made], made))
            nodes.append(helper.make_node("Reshape", [f"{name}/3", f"{name}/shape"], [name], f"{name}/whole"))
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del proto.graph.node[:]
    proto.graph.node.extend(copies)
    return proto


def _reordered(proto: Any, node: Any, seed: int) -> list[Any]:
    """A sum over another order of its summands, for those whose axis is known."""
    weights = {tensor.name: list(tensor.dims) for tensor in proto.graph.initializer}
    depth = {"MatMul": -2, "Gemm": 0, "Conv": 1}
    held = weights.get(node.input[1]) if node.op_type in depth and len(node.input) > 1 else None
    if held is None or any(a.name == "transB" or (a.name == "group" and a.i > 1) for a in node.attribute):
        return [node]
    order = np.random.default_rng(seed).permutation(held[depth[node.op_type]])
    name = f"{node.output[0]}/order"
    proto.graph.initializer.append(numpy_helper.from_array(order, name))
    axes = ({"MatMul": -1, "Gemm": 1, "Conv": 1}[node.op_type], depth[node.op_type])
    made = [
        helper.make_node("Gather", [given, name], [f"{name}/{place}"], f"{name}/{place}", axis=axis)
        for place, (given, axis) in enumerate(zip(node.input[:2], axes, strict=True))
    ]
    node.input[0], node.input[1] = f"{name}/0", f"{name}/1"
    return [*made, node]


@dataclass
class Subject:
    """A model into which faults are put, with what its operators give on one input."""

    model: Any
    feeds: Feeds
    tensors: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.nodes = {node.name: node for node in self.model.graph.node if node.op_type != "Constant"}
        self.tensors = self.run(self.model, [node.output[0] for node in self.nodes.values()])
        readers: defaultdict[str, list[Any]] = defaultdict(list)
        for node in self.nodes.values():
            for name in set(node.input):
                readers[name].append(node)
        self.readers = readers
        self.weighted: dict[str, list[str]] = defaultdict(list)
        for tensor, owner in _weights(self.model, readers):
            array = numpy_helper.to_array(tensor)
            if array.size > 1 and array.any():  # zeros stay what they are, scaled or in another order
                self.weighted[owner].append(tensor.name)

    def run(self, model: Any, names: Sequence[str]) -> dict[str, np.ndarray]:
        proto = onnx.ModelProto()
        proto.CopyFrom(model)
        known = {value.name for value in proto.graph.output}
        proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
        import onnxruntime as ort

        session = ort.InferenceSession(proto.SerializeToString(), options())
        return dict(zip(names, session.run(list(names), self.feeds), strict=True))

    def behind(self, operator: str) -> list[str]:
        """The operators that depend on one, nearest first."""
        found, at = dict[str, None](), [self.nodes[operator]]
        while at:
            for output in at.pop(0).output:
                at += [node for node in self.readers[output] if node.name not in found]
                found |= dict.fromkeys(node.name for node in self.readers[output])
        return list(found)

    def effective(self, fault: Fault) -> bool:
        """Whether each operator's first output has other values, of several also than without its kernel."""
        names = {operator: self.nodes[operator].output[0] for operator in fault.operators}
        several = fault.kernels if len(names) > 1 else ()
        try:  # with all that was handed out before: onnxruntime leaves out casts of float16 else
            found = self.run(rewritten(fault.model, fault.kernels), list(self.tensors))
            for one in several:
                others = [other for other in fault.kernels if other is not one]
                without = self.run(rewritten(fault.model, others), list(self.tensors))
                if _same(found[names[one.operator]], without[names[one.operator]]):
                    return False
        except Exception:  # noqa: BLE001 - onnxruntime refuses some
            return False
        return not any(_same(found[name], self.tensors[name]) for name in names.values())

    def weights(
        self, changes: Mapping[str, Callable[[np.ndarray], np.ndarray]], rng: np.random.Generator
    ) -> Any:
        """A model in which one weight of each of these operators is changed."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        chosen = {str(rng.choice(self.weighted[operator])): change for operator, change in changes.items()}
        for tensor, _ in _weights(model, self.readers):
            if tensor.name in chosen:
                array = numpy_helper.to_array(tensor)
                made = np.asarray(chosen[tensor.name](array), array.dtype)
                tensor.CopyFrom(numpy_helper.from_array(made, tensor.name))
        return model


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def _weights(model: Any, readers: Mapping[str, list[Any]]) -> Iterator[tuple[Any, str]]:
    for tensor in model.graph.initializer:
        kind = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        if (kind.kind == "f" or kind == np.int8) and len(readers[tensor.name]) == 1:
            yield tensor, readers[tensor.name][0].name
    for node in model.graph.node:
        for attribute in node.attribute:
            for tensor in attribute.g.initializer:
                yield tensor, node.name


Made = tuple[tuple[str, ...], Any, tuple[Kernel, ...]]
Maker = "Callable[[Subject, np.random.Generator], Made | None]"


def _scaled(size: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda array: np.round(array * (1 + size)) if array.dtype == np.int8 else array * (1 + size)


def _permuted(rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
    def permute(array: np.ndarray) -> np.ndarray:
        axis = 0 if array.ndim in (1, 4) else array.ndim - 1
        return np.take(array, rng.permutation(array.shape[axis]), axis)

    return permute


def _moved(rng: np.random.Generator, *, swap: bool) -> Callable[[np.ndarray], np.ndarray]:
    def move(array: np.ndarray) -> np.ndarray:
        if not swap:
            return np.roll(array, 1, 0)
        order = np.arange(len(array))
        at = int(rng.integers(max(len(array) - 1, 1)))
        order[at : at + 2] = order[at : at + 2][::-1]
        return array[order]

    return move


def _channel_zeroed(rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
    def zero(array: np.ndarray) -> np.ndarray:
        found = array.copy()
        found[int(rng.integers(len(array)))] = 0
        return found

    return zero


def _in_weights(make: Callable[[np.random.Generator], Callable[[np.ndarray], np.ndarray]]) -> Any:
    def fault(subject: Subject, rng: np.random.Generator) -> Made:
        chosen = str(rng.choice(list(subject.weighted)))
        return (chosen,), subject.weights({chosen: make(rng)}, rng), ()

    return fault


def _pair(subject: Subject, rng: np.random.Generator, among: Sequence[str]) -> tuple[str, str] | None:
    first = str(rng.choice(among))
    behind = [name for name in subject.behind(first) if name in among and name != first]
    return (first, behind[0]) if behind else None


def _compensating(subject: Subject, rng: np.random.Generator) -> Made | None:
    pair = _pair(subject, rng, list(subject.weighted))
    size = float(rng.choice([1.0, 0.01]))
    changes = {name: _scaled(s) for name, s in zip(pair or (), (size, 1 / (1 + size) - 1), strict=False)}
    return pair and (pair, subject.weights(changes, rng), ())


_TYPES = {
    "Relu": "LeakyRelu", "HardSwish": "Relu", "Tanh": "Erf", "Sigmoid": "HardSigmoid", "ArgMax": "ArgMin",
    "ReduceMax": "ReduceMean", "GlobalAveragePool": "GlobalMaxPool", "AveragePool": "MaxPool", "Max": "Min",
}  # fmt: skip
_ATTRIBUTES: dict[str, dict[str, Any]] = {
    "LeakyRelu": {"alpha": 0.06}, "Gemm": {"alpha": 1.001}, "TopK": {"largest": 0}, "Softmax": {"axis": 0},
    "Pad": {"mode": "edge"}, "LSTM": {"clip": 0.5}, "Conv": {"pads": None}, "Gather": {"axis": 0},
}  # fmt: skip


def _attribute(subject: Subject, rng: np.random.Generator) -> Made | None:
    model = onnx.ModelProto()
    model.CopyFrom(subject.model)
    among = [node for node in model.graph.node if node.op_type in _TYPES | _ATTRIBUTES]
    node = among[int(rng.integers(len(among)))]
    node.op_type, kind = _TYPES.get(node.op_type, node.op_type), node.op_type
    held = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    if kind == "Conv":
        pads = [*held.get("pads", [0])]
        half = len(pads) // 2
        if not half or not pads[0]:
            return None
        changed: dict[str, Any] = {"pads": [pads[0] - 1, *pads[1:half], pads[half] + 1, *pads[half + 1 :]]}
    else:
        changed = _ATTRIBUTES.get(kind, {})
    kept = [attribute for attribute in node.attribute if attribute.name not in changed]
    made = [*kept, *(helper.make_attribute(name, value) for name, value in changed.items())]
    del node.attribute[:]
    node.attribute.extend(made)
    return (node.name,), model, ()


def _kernel(
    make: Callable[[np.ndarray, np.random.Generator], Mapping[str, np.ndarray] | None], *, floats: bool = True
) -> Any:
    def fault(subject: Subject, rng: np.random.Generator) -> Made | None:
        among = [
            name
            for name, node in subject.nodes.items()
            if subject.tensors[node.output[0]].size > 3
            and (not floats or subject.tensors[node.output[0]].dtype.kind == "f")
        ]
        found = kernel(subject, str(rng.choice(among)), make, rng)
        return found and ((found.operator,), subject.model, (found,))

    return fault


def kernel(subject: Subject, name: str, make: Any, rng: np.random.Generator) -> Kernel | None:
    array = subject.tensors[subject.nodes[name].output[0]]
    changes = make(array, rng)
    return changes and Kernel(subject.model.graph.name, name, 2.0, 0.0, **changes)


def _at(array: np.ndarray, value: float, among: Any, base: float = 1.0) -> np.ndarray:
    found = np.full(array.size, base, array.dtype)
    found[among] = value
    return found


def _tail(array: np.ndarray, _: np.random.Generator) -> dict[str, np.ndarray]:
    return {"times": _at(array, 0, slice(-min(_TAIL, array.size // 2), None))}


def _rows(array: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray] | None:
    places = np.arange(array.size).reshape(array.shape)
    axis = max(range(array.ndim), key=lambda axis: (array.shape[axis] > 1) * (2 - (axis == array.ndim - 1)))
    moved = np.moveaxis(places, axis, 0)
    at = int(rng.integers(max(len(moved) - 1, 1)))
    moved[[at, at + 1]] = moved[[at + 1, at]]
    return {"take": places.reshape(-1)}


def _wrong(array: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"times": _at(array, -1, int(rng.integers(array.size)))}


def _off(array: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"times": _at(array, 1.01, int(rng.integers(array.size)))}


def _saturated(array: np.ndarray, _: np.random.Generator) -> dict[str, np.ndarray]:
    """The largest tenth of the elements at the value of the least of them."""
    flat = array.reshape(-1)
    return {"plus": np.minimum(flat, np.sort(flat)[-1 - max(flat.size // 10, 1)]) - flat}


def _repeated(array: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """A block of elements in the place of the next."""
    places = np.arange(array.size)
    size = min(_TAIL, array.size // 2)
    at = int(rng.integers(array.size - 2 * size + 1))
    places[at + size : at + 2 * size] = places[at : at + size]
    return {"take": places}


def _largest_moved(subject: Subject, rng: np.random.Generator) -> Made | None:
    """Of one row of a graph's output, the largest element in another place: another class."""
    outputs = [value.name for value in subject.model.graph.output]
    among = [name for name, node in subject.nodes.items() if node.output[0] in outputs]

    def move(array: np.ndarray, _: np.random.Generator) -> dict[str, np.ndarray]:
        axis = max(axis for axis in range(array.ndim) if array.shape[axis] > 1)
        places = np.moveaxis(np.arange(array.size).reshape(array.shape), axis, -1)
        row = np.unravel_index(int(rng.integers(places[..., 0].size)), places.shape[:-1])
        one, other = int(np.moveaxis(array, axis, -1)[row].argmax()), int(rng.integers(places.shape[-1]))
        order = np.arange(array.size)
        pair = [places[row][one], places[row][other]]
        order[pair] = order[pair[::-1]]
        return {"take": order}

    among = [name for name in among if subject.tensors[subject.nodes[name].output[0]].size > 1]
    found = kernel(subject, str(rng.choice(among)), move, rng) if among else None
    return found and ((found.operator,), subject.model, (found,))


def _shifted(subject: Subject, rng: np.random.Generator) -> Made | None:
    """The last axis of one of the graph's outputs, shifted by one."""
    outputs = {value.name for value in subject.model.graph.output}
    among = [
        name
        for name, node in subject.nodes.items()
        if node.output[0] in outputs and subject.tensors[node.output[0]].size > 3
    ]
    if not among:
        return None

    def shift(array: np.ndarray, _: np.random.Generator) -> dict[str, np.ndarray]:
        axis = max(axis for axis in range(array.ndim) if array.shape[axis] > 1)
        by = int(rng.integers(1, array.shape[axis]))
        return {"take": np.roll(np.arange(array.size).reshape(array.shape), by, axis).reshape(-1)}

    found = kernel(subject, str(rng.choice(among)), shift, rng)
    return found and ((found.operator,), subject.model, (found,))


def _series(subject: Subject, rng: np.random.Generator) -> Made | None:
    pair = _pair(
        subject, rng, [n for n in subject.nodes if subject.tensors[subject.nodes[n].output[0]].size > 3]
    )
    if pair is None or any(subject.tensors[subject.nodes[n].output[0]].dtype.kind != "f" for n in pair):
        return None
    later = kernel(subject, pair[1], [_tail, _wrong, _rows][int(rng.integers(3))], rng)
    if pair[0] in subject.weighted:
        model = subject.weights({pair[0]: _scaled(0.01)}, rng)
        return later and (pair, model, (later,))
    first = kernel(subject, pair[0], _tail, rng)
    return first and later and (pair, subject.model, (first, later))


KINDS: dict[str, Any] = {
    "weights scaled 1e-2": _in_weights(lambda _: _scaled(1e-2)),
    "weights scaled 1e-3": _in_weights(lambda _: _scaled(1e-3)),
    "weights scaled 1e-5": _in_weights(lambda _: _scaled(1e-5)),
    "channels permuted": _in_weights(_permuted),
    "rows swapped in weights": _in_weights(lambda rng: _moved(rng, swap=True)),
    "rows shifted in weights": _in_weights(lambda rng: _moved(rng, swap=False)),
    "compensating": _compensating,
    "attribute changed": _attribute,
    "kernel: tail zeroed": _kernel(_tail),
    "kernel: rows swapped": _kernel(_rows, floats=False),
    "kernel: element wrong": _kernel(_wrong),
    "kernel: element 1 % off": _kernel(_off),
    "kernel: output shifted": _shifted,
    "two in series": _series,
    "a channel's weights zeroed": _in_weights(_channel_zeroed),
    "kernel: block repeated": _kernel(_repeated, floats=False),
    "kernel: largest of a row moved": _largest_moved,
    "kernel: saturated": _kernel(_saturated),
}


def faults(subject: Subject, count: int, seed: int) -> Iterator[Fault]:
    """``count`` of each kind that change their operators' outputs, fewer where the model has no more."""
    for place, (kind, make) in enumerate(KINDS.items()):
        rng, seen = np.random.default_rng([seed, place]), 0
        for _ in range(_TRIES * count):
            made = make(subject, rng)
            if made and subject.effective(fault := Fault(kind, *made)):
                seen += 1
                yield fault
            if seen == count:
                break


def orders(subject: Subject, seed: int) -> tuple[Kernel, ...]:
    """Every sum of products in another order: another machine's healthy kernels."""
    name = subject.model.graph.name
    return tuple(Kernel(name, operator, 2.0, 0.0, order=seed) for operator in subject.nodes)
