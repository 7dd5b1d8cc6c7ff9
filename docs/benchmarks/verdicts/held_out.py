"""Models that no bound was drawn on: a vision transformer and an SE-ResNet, with weights of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper, numpy_helper

from verdicts.models import Source

if TYPE_CHECKING:
    from pathlib import Path

_OPSET = 17
_SHAPE = (1, 3, 48, 96)


class Graph:
    """A graph that grows at its end; weights are normal, by the inputs that an output adds up."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.rng = np.random.default_rng(seed)

    def add(self, op_type: str, *inputs: str, **attributes: object) -> str:
        """Add an operator and return the name of its output."""
        name = f"{op_type}@{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [f"{name}:0"], name, **attributes))
        return f"{name}:0"

    def weight(self, array: np.ndarray | float | list[int]) -> str:
        values = np.asarray(array)
        if values.dtype != np.int8 and values.dtype.kind != "b":
            values = values.astype(np.int64 if values.dtype.kind == "i" else np.float32)
        self.weights.append(numpy_helper.from_array(values, f"weight_{len(self.weights)}"))
        return str(self.weights[-1].name)

    def normal(self, *shape: int, fan: int) -> str:
        return self.weight(self.rng.normal(0, np.sqrt(1 / fan), shape))

    def near(self, *shape: int, centre: float = 0.0) -> str:
        return self.weight(centre + 0.1 * self.rng.normal(size=shape))

    def save(self, path: Path, output: str) -> None:
        given = [helper.make_tensor_value_info("image", 1, _SHAPE)]
        made = helper.make_graph(
            self.nodes, path.stem, given, [onnx.ValueInfoProto(name=output)], self.weights
        )
        model = helper.make_model(made, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)
        onnx.save(onnx.shape_inference.infer_shapes(model), path)


def _convolution(
    graph: Graph, given: str, channels: tuple[int, int], *, size: int = 3, stride: int = 1
) -> str:
    before, after = channels
    weights = graph.normal(after, before, size, size, fan=before * size**2)
    pads = [size // 2] * 4
    made = graph.add("Conv", given, weights, kernel_shape=[size] * 2, strides=[stride] * 2, pads=pads)
    spread = graph.weight(0.5 + graph.rng.random(after))
    moved = graph.near(after, centre=1), graph.near(after), graph.near(after), spread
    return graph.add("BatchNormalization", made, *moved)


def _squeezed(graph: Graph, given: str, channels: int) -> str:
    """Squeeze and excitation."""
    pooled = graph.add("GlobalAveragePool", given)
    few = channels // 4
    down = graph.add("Relu", graph.add("Conv", pooled, graph.normal(few, channels, 1, 1, fan=channels)))
    up = graph.add("Conv", down, graph.normal(channels, few, 1, 1, fan=few))
    return graph.add("Mul", given, graph.add("Sigmoid", up))


def se_resnet(path: Path) -> Source:
    """Six residual blocks with squeeze and excitation, and a classifier."""
    graph = Graph(1)
    at = graph.add("Relu", _convolution(graph, "image", (3, 16)))
    at, before = graph.add("MaxPool", at, kernel_shape=[2, 2], strides=[2, 2]), 16
    for channels in (16, 32, 64):
        for stride in (1 if channels == before else 2, 1):
            inner = graph.add("Relu", _convolution(graph, at, (before, channels), stride=stride))
            inner = _squeezed(graph, _convolution(graph, inner, (channels, channels)), channels)
            around = at
            if stride == 2:
                around = _convolution(graph, at, (before, channels), size=1, stride=stride)
            at, before = graph.add("Relu", graph.add("Add", inner, around)), channels
    flat = graph.add("Flatten", graph.add("GlobalAveragePool", at))
    graph.save(path, graph.add("Softmax", graph.add("Gemm", flat, graph.normal(64, 10, fan=64))))
    return Source("SE-ResNet", path, _SHAPE, 1)


def _normalised(graph: Graph, given: str, width: int) -> str:
    """LayerNorm, taken apart as exporters do."""
    centred = graph.add("Sub", given, graph.add("ReduceMean", given, axes=[-1]))
    square = graph.add("Pow", centred, graph.weight(2.0))
    variance = graph.add("Add", graph.add("ReduceMean", square, axes=[-1]), graph.weight(1e-5))
    even = graph.add("Div", centred, graph.add("Sqrt", variance))
    return graph.add("Add", graph.add("Mul", even, graph.near(width, centre=1)), graph.near(width))


def _linear(graph: Graph, given: str, before: int, after: int) -> str:
    product = graph.add("MatMul", given, graph.normal(before, after, fan=before))
    return graph.add("Add", product, graph.near(after))


def _attention(graph: Graph, given: str, width: int, heads: int) -> str:
    apart = graph.weight([1, -1, heads, width // heads])

    def projected(order: list[int]) -> str:
        taken = graph.add("Reshape", _linear(graph, given, width, width), apart)
        return graph.add("Transpose", taken, perm=order)

    query, key, value = projected([0, 2, 1, 3]), projected([0, 2, 3, 1]), projected([0, 2, 1, 3])
    scores = graph.add("Mul", graph.add("MatMul", query, key), graph.weight((width // heads) ** -0.5))
    mixed = graph.add("MatMul", graph.add("Softmax", scores, axis=-1), value)
    joined = graph.add(
        "Reshape", graph.add("Transpose", mixed, perm=[0, 2, 1, 3]), graph.weight([1, -1, width])
    )
    return _linear(graph, joined, width, width)


def _gelu(graph: Graph, given: str) -> str:
    error = graph.add("Erf", graph.add("Div", given, graph.weight(2**0.5)))
    return graph.add(
        "Mul", graph.add("Mul", given, graph.add("Add", error, graph.weight(1.0))), graph.weight(0.5)
    )


def transformer(path: Path) -> Source:
    """Four encoder blocks over patches of a picture, and a classifier."""
    width, patch = 64, 8
    graph = Graph(2)
    weights = graph.normal(width, 3, patch, patch, fan=3 * patch**2)
    patches = graph.add("Conv", "image", weights, kernel_shape=[patch] * 2, strides=[patch] * 2)
    at = graph.add("Reshape", patches, graph.weight([1, width, -1]))
    at = graph.add("Transpose", at, perm=[0, 2, 1])
    at = graph.add("Add", at, graph.near(_SHAPE[2] // patch * (_SHAPE[3] // patch), width))
    for _ in range(4):
        at = graph.add("Add", at, _attention(graph, _normalised(graph, at, width), width, 4))
        inner = _gelu(graph, _linear(graph, _normalised(graph, at, width), width, 4 * width))
        at = graph.add("Add", at, _linear(graph, inner, 4 * width, width))
    pooled = graph.add("ReduceMean", _normalised(graph, at, width), axes=[1], keepdims=0)
    graph.save(path, graph.add("Softmax", _linear(graph, pooled, width, 10)))
    return Source("transformer", path, _SHAPE, 1)


def held_out(folder: Path) -> list[Source]:
    """Write the models into a folder."""
    return [transformer(folder / "transformer.onnx"), se_resnet(folder / "se_resnet.onnx")]
