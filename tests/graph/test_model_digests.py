"""Digests of models: equal where weights and attributes are, whatever the file looks like."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pytest_npudump.demo import MODEL
from pytest_npudump.graph.model_digests import model_lines
from pytest_npudump.onnxmodels import loaded_files
from pytest_npudump.record.model_lines import ModelChange, change_of_models, check_model_lines, types_between
from tests.graph.conftest import message

HEAD = '<ir_version: 8, opset_import: ["" : 17]> '


def lines_of(folder: Path, *models: Any) -> list[str]:
    """Lines of models under one file's name, each given as one of onnx or as its text."""
    found, path = [], folder / "m.onnx"
    for model in models:
        made = onnx.parser.parse_model(model) if isinstance(model, str) else model
        path.write_bytes(made.SerializeToString())
        found.append(model_lines([path]))
        check_model_lines(found[-1])
    return found


def replaced(tensor: Any, array: Any) -> None:
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def of_conv(name: str, change: Callable[[Any], Any]) -> Callable[[Any], None]:
    def apply(model: Any) -> None:
        node = next(node for node in model.graph.node if node.name == name)
        maker = next(one for one in model.graph.node if node.input[1] in one.output)
        tensor = maker.attribute[0].t
        replaced(tensor, change(numpy_helper.to_array(tensor).copy()).astype(np.float32))

    return apply


def node_of(model: Any, name: str) -> Any:
    return next(node for node in model.graph.node if node.name == name)


def attribute_changed(model: Any) -> None:
    next(one for one in node_of(model, "Conv@21").attribute if one.name == "group").i += 1


def renamed(model: Any) -> None:
    names = {
        name: f"t{at}" for at, name in enumerate(sorted({n for one in model.graph.node for n in one.output}))
    }
    names |= {one.name: one.name for one in (*model.graph.input, *model.graph.output)}
    for node in model.graph.node:
        node.name = f"other_{node.name}"
        for words in (node.input, node.output):
            words[:] = [names[name] for name in words]


def documented(model: Any) -> None:
    model.producer_name, model.doc_string, model.graph.name = "q", "for people", "g"
    model.metadata_props.add(key="author", value="somebody")
    for node in model.graph.node:
        node.doc_string = "for people"
        node.attribute.sort(key=lambda one: str(one.name), reverse=True)


def with_initialisers(model: Any) -> None:
    constants = [node for node in model.graph.node if node.op_type == "Constant"]
    for node in constants:
        tensor = node.attribute[0].t
        tensor.name = node.output[0]
        model.graph.initializer.append(tensor)
        model.graph.node.remove(node)


def raw(model: Any) -> None:
    for node in model.graph.node:
        for one in node.attribute:
            if one.HasField("t"):
                replaced(one.t, numpy_helper.to_array(one.t))


def another_type(model: Any) -> None:
    next(node for node in model.graph.node if node.op_type == "Relu").op_type = "Neg"


NOTHING: dict[str, Any] = {}
ONE = {"weights": ("Conv@21",)}


@pytest.mark.each(
    ("change", "expected"),
    [
        (of_conv("Conv@21", lambda a: a * (1 + 1e-5)), ONE),
        (of_conv("Conv@21", lambda a: a[::-1]), {**ONE, "permuted": {"Conv@21": 0}}),
        (
            of_conv("Conv@45", lambda a: np.roll(a, 1, 1)),
            {"weights": ("Conv@45",), "permuted": {"Conv@45": 1}},
        ),
        (of_conv("Conv@45", lambda a: a[::-1, ::-1]), {"weights": ("Conv@45",)}),
        (attribute_changed, {"attributes": ("Conv@21",)}),
        (another_type, {"graph": True}),
        *((renamed, NOTHING), (documented, NOTHING), (with_initialisers, NOTHING), (raw, NOTHING)),
    ],
)
def test_what_changed_in_a_real_model_is_named(change: Any, expected: dict[str, Any], tmp_path: Path) -> None:
    model = onnx.load(str(MODEL))
    change(model)
    onnx.save(model, str(tmp_path / MODEL.name))
    golden, run = model_lines([MODEL]), model_lines([tmp_path / MODEL.name])
    check_model_lines(golden)
    found = change_of_models(golden, run)
    assert found is not None
    assert found == ModelChange((MODEL.name,), read="all", weighted=found.weighted, **expected)
    assert found.changed is bool(expected)
    assert change_of_models(golden, golden) == ModelChange(read="all")
    assert model_lines([MODEL], golden) is golden


@pytest.mark.each("name", ["act", "Relu_1", "layer/Relu"])
def test_another_type_is_named_with_both(name: str, tmp_path: Path) -> None:
    graphs = [
        helper.make_graph(
            [helper.make_node(op_type, ["x"], ["y"], name)],
            "g",
            *([helper.make_tensor_value_info(end, TensorProto.FLOAT, [2])] for end in "xy"),
        )
        for op_type in ("Relu", "Neg")
    ]
    lines = lines_of(tmp_path, *map(helper.make_model, graphs))
    assert ("=Relu" in lines[0]) is (name == "act")
    assert types_between(*lines) == {name: ("Relu", "Neg")}
    assert types_between(lines[0], lines[1].replace("=\n", "\n")) == {}


def test_weights_in_another_file_are_the_same_and_their_change_is_seen(tmp_path: Path) -> None:
    model, path = onnx.load(str(MODEL)), tmp_path / MODEL.name
    layout: dict[str, Any] = {"save_as_external_data": True, "size_threshold": 0, "convert_attribute": True}
    raw(model)
    with_initialisers(model)
    onnx.save(model, str(path), location="weights.bin", **layout)
    assert path.stat().st_size < MODEL.stat().st_size / 2
    golden, outside = model_lines([MODEL]), model_lines([path])
    found = change_of_models(golden, outside)
    assert found is not None
    assert found.files
    assert not found.changed
    content = bytearray((tmp_path / "weights.bin").read_bytes())
    content[-3] ^= 1
    (tmp_path / "weights.bin").write_bytes(content)
    again = change_of_models(outside, model_lines([path]))
    assert again is not None
    assert len(again.weights) + len(again.attributes) == 1
    (tmp_path / "weights.bin").unlink()
    assert model_lines([path]) == ""


IF = """
<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
g (float[2,2] x, bool c) => (float[2,2] y)
<float[2,2] w = {1, 2, 3, 4}, float[2,2] d = {7, 8, 9, 10}, float[2] j = {5, 6}>
{
  [dense] e = Gemm (x, d, j)
  [branch] h = If (c) <
    then_branch = a () => (float[2,2] p) { p = MatMul (x, w) },
    else_branch = b () => (float[2,2] q) { k = Constant <value = float[2,2] {5, 6, 7, 8}> ()  q = Add (x, k) }
  >
  [call] y = local.f (h)
}
<domain: "local", opset_import: ["" : 17]>
f (u) => (v) { k = Constant <value = float[2] {2, 3}> ()  s = Mul (u, k)  v = LeakyRelu <alpha = 0.25> (s) }
"""
BIASED = "{7, 8, 9, 10}, float[2] j = {5, 6}"


@pytest.mark.each(
    ("old", "new", "expected"),
    [
        ("{1, 2, 3, 4}", "{3, 4, 1, 2}", {"weights": ("branch",), "permuted": {"branch": 0}}),
        ("{5, 6, 7, 8}", "{5, 6, 7, 9}", {"weights": ("branch",)}),
        ("Add (x, k)", "Sub (x, k)", {"attributes": ("branch",)}),
        ("{2, 3}", "{2, 4}", {"weights": ("call",)}),
        (BIASED, "{8, 7, 10, 9}, float[2] j = {6, 5}", {"weights": ("dense",), "permuted": {"dense": 1}}),
        (BIASED, "{8, 7, 10, 9}, float[2] j = {6, 4}", {"weights": ("dense",)}),
        ("0.25", "0.5", {"attributes": ("call",)}),
        ("MatMul (x, w)", "MatMul (w, x)", {"attributes": ("branch",)}),
        ("(float[2,2] p) { p = MatMul (x, w) }", "(float[2,2] r) { r = MatMul (x, w) }", NOTHING),
        ("alpha = 0.25", "alpha = 0.01", {"attributes": ("call",)}),
    ],
)
def test_what_is_inside_an_operator_is_its_own(old: str, new: str, expected: Any, tmp_path: Path) -> None:
    lines = lines_of(tmp_path, IF, IF.replace(old, new))
    assert lines[0] != lines[1]
    assert change_of_models(*lines) == ModelChange(("m.onnx",), read="all", weighted=3, **expected)


THEN = "a () => (float[2,2] d) { d = Neg (p) }"
ELSE = "o () => (float[2,2] e) { f = Sub (p, q) e = Abs (f) }"
REWIRED = {"graph": True}
TWINS = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2,2] x, bool c) => (float[2,2] s, float[2,2] p, float[2,2] q, float[2,2] b, float[2] k, float[2,2] l)
<float[2,2] v = {1, 2, 3, 4}, float[2,2] w = {5, 6, 7, 8}, float[2] k = {1, 2}, int64 n = {3}, bool t = {1}>
{
  p = MatMul (x, v)
  q = MatMul (x, w)
  s = Sub (p, q)
  b = If (c) <
    then_branch = a () => (float[2,2] d) { d = Neg (p) },
    else_branch = o () => (float[2,2] e) { f = Sub (p, q) e = Abs (f) }
  >
  l, m = Loop (n, t, x, x) <
    body = r (int64 i, bool j, float[2,2] y, float[2,2] z) => (bool j1, float[2,2] y1, float[2,2] z1)
    <float[2,2] v1 = {1, 2, 3, 4}, float[2,2] w1 = {5, 6, 7, 8}>
    { j1 = Identity (j) y1 = MatMul (y, v1) z1 = MatMul (y, w1) }
  >
}
"""


@pytest.mark.each(
    ("old", "new", "expected"),
    [
        ("s, float[2,2] p, float[2,2] q", "s, float[2,2] q, float[2,2] p", REWIRED),
        ("s = Sub (p, q)", "s = Sub (q, p)", REWIRED),
        ("float[2] k = {1, 2}", "float[2] k = {2, 1}", REWIRED),
        ("{ d = Neg (p)", "{ d = Neg (q)", REWIRED),
        ("float[2,2] y1, float[2,2] z1)", "float[2,2] z1, float[2,2] y1)", {"weights": ("n_l",)}),
        (
            "v1 = {1, 2, 3, 4}, float[2,2] w1 = {5, 6, 7, 8}",
            "w1 = {1, 2, 3, 4}, float[2,2] v1 = {5, 6, 7, 8}",
            {"weights": ("n_l",)},
        ),
        (
            f"then_branch = {THEN},\n    else_branch = {ELSE}",
            f"else_branch = {THEN},\n    then_branch = {ELSE}",
            {"attributes": ("n_b",)},
        ),
        (
            f"then_branch = {THEN},\n    else_branch = {ELSE}",
            f"else_branch = {ELSE},\n    then_branch = {THEN}",
            NOTHING,
        ),
        ("y1 = MatMul (y, v1) z1 = MatMul (y, w1)", "z1 = MatMul (y, w1) y1 = MatMul (y, v1)", NOTHING),
        ("f = Sub (p, q)", "f = Sub (p, q, end)", NOTHING),
        ("s = Sub (p, q)", "s = Sub (p, q, end)", NOTHING),
        ("p = MatMul (x, v)\n  q = MatMul (x, w)", "q = MatMul (x, w)\n  p = MatMul (x, v)", NOTHING),
    ],
)
def test_what_changes_places_among_equals_is_a_change_of_the_graph(
    old: str, new: str, expected: dict[str, Any], tmp_path: Path
) -> None:
    models = [onnx.parser.parse_model(text) for text in (TWINS, TWINS.replace(old, new))]
    for model in models:
        branches = [one.g.node for node in model.graph.node for one in node.attribute]
        for nodes in (model.graph.node, *branches):
            for node in nodes:
                node.name = f"n_{node.output[0]}"
                node.input[:] = ["" if name == "end" else name for name in node.input]
    lines = lines_of(tmp_path, *models)
    assert lines[0] != lines[1]
    assert change_of_models(*lines) == ModelChange(("m.onnx",), read="all", weighted=3, **expected)
    earlier = re.sub(r"^(#\S+ \S+ \S{6})\S{6}", r"\1", lines[0])  # recorded without the second digest
    check_model_lines(earlier)
    before = ModelChange(("m.onnx",), read="all", weighted=3, **expected)
    assert change_of_models(earlier, lines[1]) == replace(before, graph=False)


def test_an_attribute_that_is_the_default_says_nothing(tmp_path: Path) -> None:
    text = HEAD + "g (float[2] x) => (float[2] y) {{ y = LeakyRelu{} (x) }}"
    written = (text.format(attribute) for attribute in ("", " <alpha = 0.01>", " <alpha = 0.02>"))
    first, *others = lines_of(tmp_path, *written)
    found = [change_of_models(first, other) for other in others]
    assert [one.changed for one in found if one is not None] == [False, True]


WINDOW = "strides = [1, 1], dilations = [1, 1], pads = [0, 0, 0, 0]"
EARLIER = re.compile(r"^(\S+ \S{4})\S{4}", re.MULTILINE)


@pytest.mark.each(
    ("op", "plain", "written", "changed"),
    [
        ("Conv", "", WINDOW, False),
        ("Conv", "group = 1", f"{WINDOW}, kernel_shape = [2, 2]", False),
        ("Conv", "pads = [1, 1, 1, 1]", "pads = [1, 1, 1, 1], strides = [1, 1]", False),
        ("Conv", "", "strides = [1, 2]", True),
        ("Conv", WINDOW, "dilations = [2, 2]", True),
        ("Conv", "strides = [2, 2]", f"{WINDOW}, group = 1", True),
        ("ConvTranspose", "", "output_padding = [0, 0]", False),
        ("MaxPool", "kernel_shape = [2, 2]", "kernel_shape = [2, 2], strides = [1, 1]", False),
        ("MaxPool", "kernel_shape = [2, 2]", "kernel_shape = [2, 1]", True),
    ],
)
def test_an_attribute_that_changes_nothing_is_no_change(
    op: str, plain: str, written: str, tmp_path: Path, *, changed: bool
) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[1,1,4,4] x) => (float[1,1,3,3] y) '
    text += "<float[1,1,2,2] w = {{1, 2, 3, 4}}> {{ [n] y = {op} <{attributes}> (x{weight}) }}"
    texts = []
    for name, attributes in (("m", plain), ("m", written), ("renamed", written)):
        model = text.format(op=op, attributes=attributes, weight=", w" * op.startswith("Conv"))
        texts.append(model.replace("[n]", f"[{name}]").replace(" <>", ""))
    lines = lines_of(tmp_path, *texts)
    for golden, run in ((0, 1), (1, 0), (0, 2)):
        found = change_of_models(lines[golden], lines[run])
        assert found is not None
        assert found.changed is changed
    earlier = EARLIER.sub(r"\1", lines[1])  # a golden that was recorded without second digests
    for run in (1, 2):
        found = change_of_models(earlier, lines[run].replace("m.onnx ", "m.onnx x", 1))
        assert found is not None
        assert not found.changed


def test_equal_attributes_of_another_type_of_operator_are_no_change_of_it(tmp_path: Path) -> None:
    text = HEAD + (
        "g (float[1,1,8,8] x) => (float[1,1,5,5] y) "
        "<float[1,1,3,3] w = {{1,2,3,4,5,6,7,8,9}}, float[1,1,2,2] v = {{1,2,3,4}}> {{ "
        "[pool] a = MaxPool <kernel_shape = [{0}, {0}]> (x) [one] b = Conv <kernel_shape = [3, 3]> (a, w) "
        "[two] y = Conv <kernel_shape = [2, 2]> (b, v) }}"
    )
    lines = lines_of(tmp_path, *map(text.format, (2, 3)))
    for before, after in (lines, lines[::-1]):
        found = change_of_models(before, after)
        assert found is not None
        assert (found.attributes, found.graph, found.weights) == (("pool",), False, ())


BODY = "body = b (float[2] s, float[2] e) => (float[2] t, float[2] o) { t = Add (s, e) o = Neg (t) }"
LSTM = 'activations = ["Sigmoid", "Tanh", "Tanh"]'


@pytest.mark.each(
    ("node", "written", "changed"),
    [
        ("_, y = GRU <hidden_size = 1{}> (x, w, w)", 'activations = ["Sigmoid", "Tanh"]', False),
        ("_, y = GRU <hidden_size = 1{}> (x, w, w)", 'activations = ["Sigmoid", "Relu"]', True),
        ("_, y = LSTM <hidden_size = 1{}> (x, w, w)", LSTM, False),
        ("_, y = LSTM <hidden_size = 1{}> (x, w, w)", LSTM.replace("Tanh", "Relu", 1), True),
        ('_, y = LSTM <direction = "bidirectional"{}> (x, w, w)', f"{LSTM[:-1]}, {LSTM[15:]}", False),
        ("_, y = RNN <hidden_size = 1{}> (x, w, w)", 'activations = ["Tanh"]', False),
        ("_, y = Scan <num_scan_inputs = 1{}, " + BODY + "> (v, x)", "scan_input_axes = [0]", False),
        ("_, y = Scan <num_scan_inputs = 1{}, " + BODY + "> (v, x)", "scan_output_directions = [0]", False),
        ("_, y = Scan <num_scan_inputs = 1{}, " + BODY + "> (v, x)", "scan_output_directions = [1]", True),
    ],
)
def test_defaults_that_only_the_text_of_a_schema_has_are_no_change(
    node: str, written: str, tmp_path: Path, *, changed: bool
) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2,2] x, float[2] v) => (float y) '
    text += "<float[1,2] w = {{1, 2}}> {{ [n] {} }}"
    texts = (text.format(node.replace("{}", attribute)) for attribute in ("", f", {written}"))
    lines = lines_of(tmp_path, *texts)
    for sides in (lines, lines[::-1]):
        found = change_of_models(*sides)
        assert found is not None
        assert found.changed is changed


def test_a_zero_of_the_other_sign_is_a_change(tmp_path: Path) -> None:
    """As 1/x tells them apart."""
    text = HEAD + "g (float[2] x) => (float[2] y) <float[2] w = {1, ZERO}> { [n] y = Mul (x, w) }"
    found = change_of_models(*lines_of(tmp_path, *(text.replace("ZERO", zero) for zero in ("0.0", "-0.0"))))
    assert found is not None
    assert found.weights == ("n",)


@pytest.mark.each(
    "dtype",
    ["FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE", "INT8", "UINT8", "INT16", "INT32", "INT64", "BOOL", "UINT64"],
)
def test_elements_are_the_same_raw_or_in_fields(dtype: str, tmp_path: Path) -> None:
    number = getattr(TensorProto, dtype)
    models = []
    for bare in (False, True):
        tensor = helper.make_tensor("w", number, (2, 2), [0, 1, 1, 0])
        if bare:
            array = numpy_helper.to_array(tensor)
            data = np.asarray(array, np.float32).view(np.uint32) >> 16 if dtype == "BFLOAT16" else array
            data = data.astype(np.uint16).tobytes() if dtype == "BFLOAT16" else data.tobytes()
            tensor = helper.make_tensor("w", number, (2, 2), data, raw=True)
        node = helper.make_node("Identity", ["w"], ["y"], name="i")
        out = helper.make_tensor_value_info("y", number, [2, 2])
        models.append(helper.make_model(helper.make_graph([node], "g", [], [out], [tensor])))
    lines = lines_of(tmp_path, *models)
    assert lines[0] != lines[1]
    assert lines[0].splitlines()[1] == lines[1].splitlines()[1]


def test_several_models_are_told_apart_and_paired_by_content(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.onnx" for name in "ab"]
    for path, alpha in zip(paths, (0.5, 0.75), strict=True):
        text = HEAD + f"g (float[2] x) => (float[2] y) {{ [l] y = LeakyRelu <alpha = {alpha}> (x) }}"
        path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    golden = model_lines(paths)
    assert [line.split()[0] for line in golden.splitlines()] == [
        *("#a.onnx", "#b.onnx", "l#model=a", "l#model=b")
    ]
    check_model_lines(golden)
    paths[1].write_bytes(paths[0].read_bytes())
    found = change_of_models(golden, model_lines(paths))
    assert found == ModelChange(("b.onnx",), attributes=("l#model=b",), read="all", graph=False)


def test_what_is_no_model_is_not_known(tmp_path: Path) -> None:
    for name, content in (("m.onnx", b"location"), ("m.mindir", b"x"), ("m.om", b"FileConstant")):
        (tmp_path / name).write_bytes(content)
        assert model_lines([tmp_path / name]) == ""
    assert model_lines([tmp_path / "absent.onnx"]) == ""
    assert model_lines([]) == ""
    (tmp_path / "m.onnx").write_bytes(b"no model at all")
    assert model_lines([tmp_path / "m.onnx"]).split()[2] == "-"


def om(
    weights: bytes,
    *,
    inline: bool = False,
    merged: bool = False,
    layout: str = "ND",
    offset: int = 8,
    pads: tuple[int, ...] = (1, 1),
    mode: str = "SAME",
    kernel: str = "k0",
    op_type: str = "Conv2D",
    numbered: tuple[str, ...] = (),
    behind: bytes = b"",
    kind: int = 1,
) -> bytes:
    """Return an om of a convolution, whose weights of shape 2x3 lie in their partition, or in the graph.

    Args:
        weights, inline, merged, layout, offset: of the constant, and where it says that they are.
        pads, mode, op_type: of the convolution.
        kernel: what the compiler adds to it.
        numbered: names of attributes that keys stand for as numbers, the text of ``mode`` with them.
        behind: what follows the first model.
        kind: of the partition with weights.
    """

    def entry(name: str, value: bytes) -> tuple[int, bytes]:
        at = numbered.index(name) if name in numbered else -1
        digits = "".join(chr(one + 1) for one in ([at] if at < 127 else [at % 127, at // 127]))
        return 10, message((1, name if at < 0 else f"\0{digits}"), (2, value))

    def texts(*words: str) -> bytes:
        return message((1, message(*((2, word) for word in words), (20, 1))))

    size = (11, len(weights))
    place = (
        []
        if inline
        else [(5, message((1, "merged_offset"), (2, message((3, offset)))))]
        if merged
        else [(18, offset)]
    )
    desc = message((2, 1), (3, message((1, bytes([2, 3])))), (4, layout), size, *place)
    tensor = message((1, desc), *([(2, weights)] if inline else []))
    constant = message((1, "w"), (2, "Const"), entry("value", message((12, tensor))))
    attributes = [
        entry("_ir_attr_names", texts("pads", "mode", "absent")),
        entry("pads", message((1, message((3, bytes(pads)), (20, 2))))),
        entry("mode", message((3, 1)) if "mode" in numbered else message((2, mode))),
        entry("conv_kernelname", message((2, kernel))),
    ]
    conv = message((1, "conv"), (2, op_type), (5, "x:0"), (5, "w:0"), (5, "x:-1"), (21, 7), *attributes)
    data = message((1, "x"), (2, "Data"))
    # The order of operators in an om is not that of their execution.
    graph = message((1, "root"), (6, conv), (6, data), (6, constant))
    lists = (
        ("attr_name_enum", texts(*numbered)),
        ("attr_value_enum", texts("unused", mode)),
        ("attrs_use_string_value", message((1, message((5, bytes(name == "mode" for name in numbered)))))),
    )
    words = [(11, message((1, name), (2, value))) for name, value in lists if numbered]
    model, partition = message((1, "m"), (2, 3), (7, graph), *words), b"\0" * offset + weights
    table = struct.pack("<7Q", 2, 0, 0, len(model), kind, len(model), len(partition))
    return b"IMOD".ljust(256, b"\0") + table + model + partition + behind


VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)
OM = om(VALUES.tobytes())
NUMBERS = (*(f"unused{number}" for number in range(200)), "value", "pads", "mode", "conv_kernelname")
SAME = ModelChange(("m.om",), read="weights", weighted=1)
SCALED = replace(SAME, weights=("conv",))


@pytest.mark.each(
    ("content", "expected"),
    [
        (om(VALUES.tobytes(), offset=64), SAME),
        (om(VALUES.tobytes(), inline=True), SAME),
        (om(VALUES.tobytes(), merged=True), SAME),
        (om(VALUES.tobytes(), kernel="k1"), SAME),
        (om(VALUES.tobytes(), numbered=NUMBERS), SAME),
        (om(VALUES.tobytes(), numbered=("mode", "value")), SAME),
        (om((VALUES * 2).tobytes()), SCALED),
        (om(VALUES[::-1].tobytes()), replace(SCALED, permuted={"conv": 0})),
        (om(VALUES.tobytes(), pads=(1, 2)), replace(SAME, attributes=("conv",))),
        (om(VALUES.tobytes(), mode="VALID", numbered=NUMBERS), replace(SAME, attributes=("conv",))),
        (om((VALUES * 2).tobytes(), mode="VALID"), replace(SCALED, attributes=("conv",))),
        (om(VALUES.tobytes(), layout="FRACTAL_Z"), replace(SAME, graph=True)),
        (om(VALUES.tobytes(), op_type="Conv2DV2"), replace(SAME, types={"conv": ("Conv2D", "Conv2DV2")})),
        (om(VALUES.tobytes(), behind=OM[256:]), replace(SAME, graph=True)),
        (om(VALUES.tobytes(), behind=om((VALUES * 2).tobytes())[256:]), replace(SCALED, graph=True)),
        (om(VALUES.tobytes(), behind=bytes(64)), ModelChange(("m.om",), weighted=0)),
        (om(VALUES.tobytes(), kind=7), ModelChange(("m.om",), weighted=0)),
    ],
)
def test_what_changed_in_an_om_is_named(content: bytes, expected: ModelChange, tmp_path: Path) -> None:
    path = tmp_path / "m.om"
    path.write_bytes(OM)
    golden = model_lines([path])
    check_model_lines(golden)
    path.write_bytes(content)
    now = model_lines([path])
    check_model_lines(now)
    assert change_of_models(golden, now) == expected


def test_a_cut_om_is_known_by_its_bytes_only(tmp_path: Path) -> None:
    path, content = tmp_path / "m.om", om(VALUES.tobytes())
    for at in (200, 320, 380, len(content) - 20):
        path.write_bytes(content[:at])
        assert model_lines([path]).split()[2:] == ["-"]


def test_a_file_that_is_written_again_within_the_tick_of_a_clock_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, now = tmp_path / "a.om", time.time_ns() + 60 * 10**9  # however slow the machine is
    monkeypatch.setattr(loaded_files, "_marks", lambda path: (1, 1, path.stat().st_size, now, now))
    digests = []
    for content in (b"one", b"two"):
        path.write_bytes(content)
        digests.append(loaded_files.model_digest(path))
    assert digests[0] != digests[1]
