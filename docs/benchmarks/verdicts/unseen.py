"""Models that neither bounds nor rules were drawn on, made from fixed seeds, for the main flow's table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from verdicts.held_out import Graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_FLOAT, _INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64

Feeds = dict[str, np.ndarray]


def _save(graph: Graph, path: Path, feeds: Feeds, outputs: list[str], opset: int = 17) -> tuple[Path, Feeds]:
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    made = helper.make_graph(
        graph.nodes, path.stem, given, [onnx.ValueInfoProto(name=name) for name in outputs], graph.weights
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path, feeds


def _linear(graph: Graph, given: str, before: int, after: int) -> str:
    product = graph.add("MatMul", given, graph.normal(before, after, fan=before))
    return graph.add("Add", product, graph.near(after))


def _layer_norm(graph: Graph, given: str, width: int) -> str:
    centred = graph.add("Sub", given, graph.add("ReduceMean", given, axes=[-1]))
    variance = graph.add("ReduceMean", graph.add("Pow", centred, graph.weight(2.0)), axes=[-1])
    even = graph.add("Div", centred, graph.add("Sqrt", graph.add("Add", variance, graph.weight(1e-6))))
    return graph.add("Add", graph.add("Mul", even, graph.near(width, centre=1)), graph.near(width))


def _tokens(seed: int, count: int, most: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, most, (1, count))


def text_encoder(path: Path) -> tuple[Path, Feeds]:
    """Tokens, three blocks that normalise behind their sums, and logits of each token."""
    width, heads, count = 48, 3, 20
    graph = Graph(11)
    at = graph.add("Gather", graph.normal(300, width, fan=1), "tokens")
    at = _layer_norm(graph, graph.add("Add", at, graph.near(count, width)), width)
    split, join = graph.weight([1, -1, heads, width // heads]), graph.weight([1, -1, width])
    for _ in range(3):
        query, key, value = (
            graph.add("Transpose", graph.add("Reshape", _linear(graph, at, width, width), split), perm=order)
            for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        scores = graph.add("Div", graph.add("MatMul", query, key), graph.weight((width // heads) ** 0.5))
        mixed = graph.add("MatMul", graph.add("Softmax", scores, axis=-1), value)
        joined = graph.add("Reshape", graph.add("Transpose", mixed, perm=[0, 2, 1, 3]), join)
        at = _layer_norm(graph, graph.add("Add", at, _linear(graph, joined, width, width)), width)
        inner = graph.add("Relu", _linear(graph, at, width, 2 * width))
        at = _layer_norm(graph, graph.add("Add", at, _linear(graph, inner, 2 * width, width)), width)
    return _save(graph, path, {"tokens": _tokens(12, count, 300)}, [_linear(graph, at, width, 60)])


def depthwise(path: Path) -> tuple[Path, Feeds]:
    """A mobile network: wide, depthwise and narrow convolutions with a residual, and the class."""
    graph = Graph(21)

    def convolved(given: str, before: int, after: int, size: int = 1, group: int = 1, **how: object) -> str:
        weights = graph.normal(after, before // group, size, size, fan=before // group * size**2)
        return graph.add("Conv", given, weights, graph.near(after), group=group, pads=[size // 2] * 4, **how)

    at, before = graph.add("HardSwish", convolved("image", 3, 12, 3, strides=[2, 2])), 12
    for channels in (12, 20, 20, 32):
        inner = graph.add("HardSwish", convolved(at, before, 3 * before))
        inner = graph.add("LeakyRelu", convolved(inner, 3 * before, 3 * before, 3, 3 * before), alpha=0.05)
        inner = convolved(inner, 3 * before, channels)
        at, before = (graph.add("Add", at, inner) if channels == before else inner), channels
        if channels == 20:
            at = graph.add("AveragePool", at, kernel_shape=[2, 2], strides=[2, 2])
    flat = graph.add("Flatten", graph.add("GlobalAveragePool", graph.add("Relu", at)))
    logits = graph.add("Gemm", flat, graph.normal(32, 40, fan=32), graph.near(40))
    feeds = {"image": np.random.default_rng(22).normal(0, 1, (1, 3, 32, 40)).astype(np.float32)}
    return _save(graph, path, feeds, [logits, graph.add("ArgMax", logits, axis=1)])


def embeddings(path: Path) -> tuple[Path, Feeds]:
    """Tokens' mean, as near as a table's rows: the nearest five, their labels, and the nearest one."""
    graph = Graph(31)
    words = graph.add("Gather", graph.normal(500, 32, fan=1), "tokens")
    weighed = graph.add("Mul", words, graph.add("Sigmoid", _linear(graph, words, 32, 1)))
    query = graph.add("Tanh", _linear(graph, graph.add("ReduceMean", weighed, axes=[1]), 32, 24))
    length = graph.add("Sqrt", graph.add("ReduceSum", graph.add("Mul", query, query), graph.weight([-1])))
    scores = graph.add("MatMul", graph.add("Div", query, length), graph.normal(24, 200, fan=24))
    best = graph.add("TopK", scores, graph.weight([5]))
    indices = best.replace(":0", ":1")
    graph.nodes[-1].output.append(indices)
    labels = graph.add("Gather", graph.normal(200, 8, fan=8), indices)
    nearest = graph.add("ArgMax", scores, axis=-1)
    return _save(graph, path, {"tokens": _tokens(32, 16, 500)}, [best, labels, nearest])


def quantised(path: Path) -> tuple[Path, Feeds]:
    """Convolutions and a product between QuantizeLinear and DequantizeLinear, in int8."""
    graph = Graph(41)

    def integers(given: str, scale: float) -> str:
        how = graph.weight(scale), graph.weight(np.array(0, np.int8))
        return graph.add("DequantizeLinear", graph.add("QuantizeLinear", given, *how), *how)

    def weights(*shape: int, fan: int) -> str:
        codes = np.clip(graph.rng.normal(0, 45, shape), -127, 127).astype(np.int8)
        return graph.add("DequantizeLinear", graph.weight(codes), graph.weight(fan**-0.5 / 45))

    at, before = integers("image", 0.03), 3
    for channels, stride in ((16, 2), (24, 1), (32, 2)):
        made = weights(channels, before, 3, 3, fan=9 * before)
        made = graph.add("Conv", at, made, graph.near(channels), pads=[1] * 4, strides=[stride] * 2)
        at, before = integers(graph.add("Relu", made), 0.025), channels
    flat = integers(graph.add("Flatten", graph.add("GlobalAveragePool", at)), 0.01)
    logits = graph.add("Add", graph.add("MatMul", flat, weights(32, 20, fan=32)), graph.near(20))
    feeds = {"image": np.random.default_rng(42).normal(0, 1, (1, 3, 24, 24)).astype(np.float32)}
    return _save(graph, path, feeds, [graph.add("Softmax", logits, axis=-1)])


def control_flow(path: Path) -> tuple[Path, Feeds]:
    """A Scan over time, a Loop and an If, with weights in their bodies, between convolutions."""
    graph = Graph(51)
    at = graph.add("Conv", "sound", graph.normal(16, 1, 9, fan=9), graph.near(16), strides=[4])
    at = graph.add(
        "Squeeze", graph.add("Transpose", graph.add("Relu", at), perm=[2, 0, 1]), graph.weight([1])
    )

    def body(name: str, nodes: list[Any], given: list[Any], made: list[str], *arrays: np.ndarray) -> Any:
        outputs = [onnx.ValueInfoProto(name=output) for output in made]
        held = [numpy_helper.from_array(array, f"{name}_{place}") for place, array in enumerate(arrays)]
        return helper.make_graph(nodes, name, given, outputs, held)

    def normal(*shape: int) -> np.ndarray:
        return graph.rng.normal(0, shape[0] ** -0.5, shape).astype(np.float32)

    node, info = helper.make_node, helper.make_tensor_value_info
    step = body(
        "step",
        [
            node("MatMul", ["state", "step_0"], ["turned"], "turn"),
            node("Add", ["turned", "now"], ["both"], "join"),
            node("Tanh", ["both"], ["next"], "squash"),
            node("MatMul", ["next", "step_1"], ["seen"], "look"),
        ],
        [info("state", _FLOAT, [16]), info("now", _FLOAT, [16])],
        ["next", "seen"],
        normal(16, 16),
        normal(16, 12),
    )
    zero = graph.weight(np.zeros(16, np.float32))
    last = graph.add("Scan", zero, at, body=step, num_scan_inputs=1)
    graph.nodes[-1].output.append(last.replace(":0", ":1"))
    seen = graph.add("ReduceMax", last.replace(":0", ":1"), axes=[0], keepdims=0)
    again = body(
        "again",
        [
            node("Identity", ["going"], ["on"], "on"),
            node("MatMul", ["value", "again_0"], ["product"], "mix"),
            node("Add", ["product", "again_1"], ["moved"], "move"),
            node("Sigmoid", ["moved"], ["value_on"], "gate"),
        ],
        [info("at", _INT64, []), info("going", onnx.TensorProto.BOOL, []), info("value", _FLOAT, [12])],
        ["on", "value_on"],
        normal(12, 12),
        normal(12),
    )
    looped = graph.add("Loop", graph.weight(np.array(4)), graph.weight(np.array([True])[0]), seen, body=again)
    large = graph.add("Greater", graph.add("ReduceSum", looped, keepdims=0), graph.weight(0.0))
    branches = [
        body(
            name, [node(kind, [looped, f"{name}_0"], [f"{name}_out"], name)], [], [f"{name}_out"], normal(12)
        )
        for name, kind in (("then", "Mul"), ("else", "Add"))
    ]
    either = graph.add("If", large, then_branch=branches[0], else_branch=branches[1])
    joined = graph.add("Reshape", graph.add("Concat", either, last, axis=0), graph.weight([1, 28]))
    logits = _linear(graph, joined, 28, 10)
    feeds = {"sound": np.random.default_rng(52).normal(0, 1, (1, 1, 160)).astype(np.float32)}
    return _save(graph, path, feeds, [graph.add("Softmax", logits, axis=-1)])


def decoder(path: Path) -> tuple[Path, Feeds]:
    """Sizes that grow again, by Resize and a transposed convolution, and a recurrence over the rows."""
    graph = Graph(71)
    at = graph.add(
        "Conv", "image", graph.normal(12, 2, 3, 3, fan=18), graph.near(12), strides=[2, 2], pads=[1] * 4
    )
    at = graph.add("InstanceNormalization", at, graph.near(12, centre=1), graph.near(12))
    at = graph.add("PRelu", at, graph.weight(np.abs(graph.rng.normal(0, 0.2, (12, 1, 1)))))
    wide = graph.add("Resize", at, "", graph.weight([1.0, 1.0, 2.0, 2.0]), mode="linear")
    wide = graph.add("Clip", wide, graph.weight(-2.0), graph.weight(2.5))
    grown = graph.add("ConvTranspose", at, graph.normal(12, 12, 2, 2, fan=12), graph.near(12), strides=[2, 2])
    at = graph.add("Elu", graph.add("Mean", wide, grown))
    rows = graph.add("Transpose", graph.add("ReduceMean", at, axes=[3], keepdims=0), perm=[2, 0, 1])
    state = graph.normal(1, 30, 12, fan=12), graph.normal(1, 30, 10, fan=10), graph.near(1, 60)
    seen = graph.add("Squeeze", graph.add("GRU", rows, *state, hidden_size=10), graph.weight([1]))
    scores = graph.add("Einsum", seen, graph.normal(10, 16, fan=10), equation="tbi,io->bto")
    return _save(
        graph,
        path,
        {"image": np.random.default_rng(72).normal(0, 1, (1, 2, 24, 20)).astype(np.float32)},
        [graph.add("LogSoftmax", scores, axis=-1), graph.add("CumSum", scores, graph.weight([1]))],
    )


def half(source: Callable[[Path], tuple[Path, Feeds]]) -> Callable[[Path], tuple[Path, Feeds]]:
    """The same model in float16."""

    def make(path: Path) -> tuple[Path, Feeds]:
        _, feeds = source(path)
        model = onnx.load(str(path))
        for tensor in model.graph.initializer:
            if tensor.data_type == _FLOAT:
                wide = numpy_helper.to_array(tensor)
                tensor.CopyFrom(numpy_helper.from_array(wide.astype(np.float16), tensor.name))
        for value in (*model.graph.input, *model.graph.output):
            if value.type.tensor_type.elem_type == _FLOAT:
                value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
        del model.graph.value_info[:]
        onnx.save(model, path)
        return path, {k: v.astype(np.float16) if v.dtype == np.float32 else v for k, v in feeds.items()}

    return make


MODELS = {
    "text_encoder": text_encoder,
    "depthwise": depthwise,
    "embeddings": embeddings,
    "quantised": quantised,
    "control_flow": control_flow,
    "decoder": decoder,
    "text_half": half(text_encoder),
    "depthwise_half": half(depthwise),
}


def outside(folder: Path) -> Iterator[tuple[str, Path, Feeds]]:
    """The models of wheels that were unpacked below a folder, and others that lie beside their inputs.

    Of silero-vad, magika, basic-pitch, nudenet and ddddocr; and each ``NAME.onnx`` with a ``NAME.npz``.
    """
    rng = np.random.default_rng(61)
    sound = np.cumsum(rng.normal(0, 0.02, (6, 576)), axis=1).astype(np.float32)
    state = np.zeros((1, 1, 128), np.float32)
    text = np.frombuffer(Path(__file__).read_bytes()[:2048], np.uint8)[None].astype(np.int32)
    times = np.arange(43_844)[None, :, None] / 22_050
    tones = 0.3 * np.sin(880 * np.pi * times) + 0.2 * np.sin(1320 * np.pi * times)
    tones += rng.normal(0, 0.01, tones.shape)
    image, line = (rng.random((1, *shape), np.float32) for shape in ((3, 64, 64), (1, 64, 96)))
    wheels: dict[str, tuple[str, Feeds]] = {
        "silero": ("silero_vad_16k_sequence.onnx", {"input": sound, "h": state, "c": state}),
        "magika": ("standard_v3_3/model.onnx", {"bytes": text}),
        "pitch": ("icassp_2022/nmp.onnx", {"serving_default_input_2:0": tones.astype(np.float32)}),
        "nude": ("nudenet/320n.onnx", {"images": image}),
        "ocr": ("ddddocr/common.onnx", {"input1": line}),
        "ocr_int8": ("ddddocr/common_old.onnx", {"input1": line}),
    }
    for name, (file, feeds) in wheels.items():
        yield from ((name, path, feeds) for path in sorted(folder.rglob(file)))
    for inputs in sorted(folder.rglob("*.npz")):
        if (path := inputs.with_suffix(".onnx")).is_file():
            yield inputs.stem, path, dict(np.load(inputs))
