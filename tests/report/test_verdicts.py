"""Verdicts in words and columns."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st

from pytest_npudump.compare.stats.verdict import Reason, Verdict
from pytest_npudump.dump.records import TensorKey
from pytest_npudump.dump.selection import layers_meant
from pytest_npudump.language.text import inert
from pytest_npudump.regression.result import Finding
from pytest_npudump.report.explanations import finding_lines
from pytest_npudump.report.layer_names import LayerNames
from pytest_npudump.report.verdicts import COLUMNS, deciding_rule, number, plain, row, sentence, table, worst

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY = TensorKey("net/conv.1", "output", 0)


def reason(
    statistic: str = "max", golden: object = 5.0, actual: object = 5.5, allowed: float | None = 0.25
) -> Reason:
    return Reason(statistic, golden, actual, allowed, "the rule")  # type: ignore[arg-type]


def fail(*reasons: Reason, key: TensorKey = KEY, op_type: str = "Conv2D") -> Verdict:
    return Verdict(key, op_type, "fail", reasons)


@pytest.mark.each(
    ("value", "text"),
    [
        (None, "-"),
        (3, "3"),
        (2**63 + 1, "9223372036854775809"),
        (0.1234567, "0.123457"),
        (-1e-12, "-1e-12"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        ("float16", "float16"),
        (2.0, "2"),
    ],
)
def test_number_reads_as_people_expect_it(value: object, text: str) -> None:
    assert number(value) == text


def test_two_values_that_differ_are_not_shown_alike_and_an_estimate_is_no_value() -> None:
    verdict = fail(reason(golden=-1.92188, actual=-1.921875, allowed=0.0))
    assert "max -1.921875, expected -1.92188" in sentence(verdict)
    assert row(verdict)[4:6] == ("-1.92188", "-1.921875")
    finding = Finding(KEY, reproduced=False, differences={"min": (0.1, 0.1 + 2**-30), "max": (2.0, 3.0)})
    assert finding_lines(finding, brief=True) == [
        f"elements:   {KEY}: first and second run differ: min 0.1, then 0.10000000093132258, max 2, then 3"
    ]
    verdict = fail(reason(statistic="projections", golden=0, actual=3.9337, allowed=1.0))
    estimate = "l2norm of the difference about 3.9, estimated from projections"
    assert f"{estimate} (3.93x tolerance)" in sentence(verdict)
    assert row(verdict)[3:6] == ("difference", "0", "~3.9")
    finding = Finding(KEY, reproduced=False, differences={"projections": (0, 3.9337)})
    (line,) = finding_lines(finding, brief=True)
    assert line.endswith(f"run differ: {estimate}")


@pytest.mark.each(
    ("case", "ratio", "cell"),
    [
        (reason(), 2.0, "2"),
        (reason(golden=5.5, actual=5.0), 2.0, "2"),
        (reason(golden=5.0, actual=1117.5), 4450.0, "4450"),
        (reason(allowed=None), math.inf, ""),
        (reason(allowed=0.0), math.inf, "inf"),
        (reason(golden=math.nan), math.inf, ""),
        (reason(actual=math.inf), math.inf, ""),
        (reason(actual=None), math.inf, ""),
        (reason("dtype", "float16", "float32", None), math.inf, ""),
        (reason("max", 2**63, 2**63 + 1, None), math.inf, ""),
        (reason("nan", 0, 7, None), math.inf, ""),
    ],
)
def test_distance_is_in_tolerances_where_there_are_any(case: Reason, ratio: float, cell: str) -> None:
    assert case.excess == ratio
    assert row(fail(case))[-1] == cell


def test_the_worst_is_structure_then_nan_then_the_largest_excess_and_its_rule_is_shown() -> None:
    shape, value, nan = reason("shape", "4", "8", None), reason(actual=1e9), reason("avg", actual=math.nan)
    assert worst(fail(value, shape)) is shape
    assert worst(fail(reason(), value)) is value
    assert worst(fail(reason(actual=1e30), nan)) is nan
    assert worst(Verdict(KEY, "", "missing")) is None
    wide, far = Reason("max", 2.0, 2.5, 0.25, "rtol of max"), Reason("avg", 0.5, 0.6, 0.01, "rtol of avg")
    verdict = fail(wide, far)
    assert (row(verdict)[3], deciding_rule(verdict)) == ("avg (+1 more)", "rtol of avg")
    assert (deciding_rule(Verdict(KEY, "", "missing")), deciding_rule(None)) == ("", "")


def test_row_has_a_cell_for_each_column() -> None:
    assert dict(zip(COLUMNS, row(fail(reason(), reason("avg", actual=5.1))), strict=True)) == {
        "layer": "net/conv.1",
        "type": "Conv2D",
        "tensor": "output.0",
        "statistic": "max (+1 more)",
        "golden": "5",
        "actual": "5.5",
        "tolerance": "0.25",
        "x tol": "2",
    }
    for verdict in (Verdict(KEY, "", "missing"), Verdict(KEY, "", "extra"), fail()):
        assert len(row(verdict)) == len(COLUMNS)
    key = TensorKey("a b", "input", 1, turn=2, step=3)
    assert row(fail(reason(), key=key))[2] == "input.1 (step=3,turn=2)"


ODD = TensorKey("f( x)", "output", 0)


@pytest.mark.each(
    ("verdict", "text"),
    [
        (fail(reason()), "net/conv.1:output.0 max 5.5, expected 5 (2x tolerance)"),
        (fail(reason("nan", 0, 3, None)), "net/conv.1:output.0 NaN count 3, expected 0"),
        (fail(reason("dtype", "float16", None, None)), "net/conv.1:output.0 dtype -, expected float16"),
        (fail(), "net/conv.1:output.0 is out of tolerance"),
        (Verdict(KEY, "", "missing"), f"{KEY} is missing: the golden has it, the dump does not"),
        (Verdict(KEY, "", "extra"), "net/conv.1:output.0 is new: the dump has it, the golden does not"),
        (Verdict(ODD, "", "extra"), f"{ODD} is new: the dump has it, the golden does not"),
    ],
)
def test_sentence_names_layer_statistic_and_both_values(verdict: Verdict, text: str) -> None:
    assert sentence(verdict) == text


def cells(text: str) -> int:
    """Columns of a terminal, by Unicode's own table."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def test_columns_line_up_in_any_script() -> None:
    rows = [("名/前", "Conv2D", "output.0"), ("conv1", "长", "output.10"), ("x" * 30, "", "input.0")]
    lines = table(rows, ("layer", "type", "tensor"))
    starts = {
        cells(line[: line.index(cell)])
        for line, cell in zip(lines, ("tensor", *(r[2] for r in rows)), strict=True)
    }
    assert starts == {2 + 30 + 2 + len("Conv2D") + 2}
    assert not any(line.endswith(" ") for line in lines)


TRANSFORMER = "/vision_model/encoder/layers.11/"
NAMES = {
    "transformer": [
        f"{TRANSFORMER}self_attn/out_proj/MatMul",
        f"{TRANSFORMER}self_attn/out_proj/Add",
        f"{TRANSFORMER}layer_norm2/ReduceMean_1",
        f"{TRANSFORMER}mlp/activation_fn/Sigmoid",
    ],
    "tf2onnx": [
        "StatefulPartitionedCall/mobilenetv2_1.00_224/block_13_expand_BN/FusedBatchNormV3__convolution",
        "StatefulPartitionedCall/mobilenetv2_1.00_224/block_13_depthwise_BN/FusedBatchNormV3__convolution",
        "StatefulPartitionedCall/mobilenetv2_1.00_224/block_13_depthwise_relu/Relu6",
    ],
    "jax": [
        "jax2tf_rnn_call_/pjit_main_/Transformer/encoderblock_3/MultiHeadDotProductAttention_0/query/dot_general",
        "jax2tf_rnn_call_/pjit_main_/Transformer/encoderblock_3/MultiHeadDotProductAttention_0/key/dot_general",
        "jax2tf_rnn_call_/pjit_main_/Transformer/encoderblock_3/MlpBlock_0/Dense_0/dot_general",
    ],
    "loops": [
        "If_0/then_branch__Inline_0__/encoder/2/reparam_conv/Conv__graph_main_subgraph_0",
        "If_0/then_branch__Inline_0__/encoder/2/activation/Relu__graph_main_subgraph_0",
        "If_0/then_branch__Inline_0__/decoder/rnn/LSTM__graph_main_subgraph_0",
    ],
    "torch": [
        "model.language_model.layers.31.self_attn.q_proj.aten_linear_default_17_MatMul",
        "model.language_model.layers.31.self_attn.k_proj.aten_linear_default_18_MatMul",
        "model.language_model.layers.31.mlp.gate_proj.aten_linear_default_19_MatMulV2",
    ],
    "none in common": ["a" * 70, "b" * 70, "c" * 70],
}
"""Names as exporters write them, of about 70 characters."""


def rows_of(layers: Sequence[str]) -> list[tuple[str, ...]]:
    number = reason("avg", -0.0403114, -0.0407578, 6.46663e-06), reason()
    return [row(fail(*number, key=TensorKey(layer, "output", 0))) for layer in layers]


def meant(shown: str, layers: Sequence[str], prefix: str) -> list[str]:
    """Layers that a name in a report may be: itself, or those with anything in place of three dots."""
    if shown in layers:
        return [shown]
    anything = {"/...": "(?:/[^/]*)+", "_...": "(?:_[^_]*)+", "...": r"(?:\.[^.]*)+\."}
    text = re.escape(shown.removeprefix(".../"))
    for dots, parts in anything.items():
        text = text.replace(re.escape(dots), parts)
    begin = re.escape(prefix) if shown.startswith(".../") else ""
    return [layer for layer in layers if re.fullmatch(begin + text, layer)]


def check(layers: Sequence[str], most: int, shown: Sequence[str]) -> list[str]:
    """Lay a table out; each of its names means one layer, and is that of the lines."""
    names = LayerNames([f"{layer}:output.0" for layer in layers], most)
    lines = table(rows_of(shown), COLUMNS, names)
    said = "".join(map(str.strip, names.legend())).removeprefix("names that start with .../ begin with")
    found = [names.short(layer) for layer in shown]
    whole = {line.strip() for line in lines}
    cells = [line.split()[0] for line in lines if not line.startswith("   ")]
    for layer, text in zip(shown, found, strict=True):
        assert meant(text, layers, names.prefix) == [layer]
        assert (text in cells) or text in whole
        assert not text.startswith(".../") or said.strip() == names.prefix
        (globbed, *_) = filter(None, (layers_meant([glob], layers) for glob in names.globs(text)))
        assert globbed == {layer}
        for words in ("kernel error in {0}:output.0; see", "({0}:input.1, '{0}')", "{0}（轴 1）不同"):
            assert names.text(words.format(layer)) == words.format(text)
    assert max(len(line) for line in lines if line.strip() not in found) <= most
    return found


@pytest.mark.each("exporter", NAMES)
@pytest.mark.each("most", [60, 80, 120])
def test_a_table_of_long_names_fits_and_names_mean_one_layer(exporter: str, most: int) -> None:
    layers = NAMES[exporter]
    others = [name.replace("11", "10").replace("_3", "_4").replace("31", "30") for name in layers]
    check([*{*layers, *others, "head/Gemm"}], most, layers)


PARTS = st.lists(
    st.sampled_from(["block", "layers.1", "layers.2", "attention_of_many_heads", "MatMul", "x"]), max_size=6
)


@given(
    st.lists(PARTS, min_size=2, max_size=12, unique_by=tuple),
    st.sampled_from("/._"),
    st.sampled_from(["", "/", "model_of_letters/", "/vision_model/"]),
    st.integers(60, 120),
)
@settings(max_examples=150)
def test_no_two_layers_of_a_model_are_shown_alike(
    parts: list[list[str]], sign: str, begin: str, most: int
) -> None:
    layers = [begin.replace("/", sign) + sign.join(["in", *one, "Add"]) for one in parts]
    found = check(layers, most, layers)
    assert len({*found}) == len(layers)


def test_a_name_says_what_tells_its_layer_from_those_that_a_table_lacks() -> None:
    path = "/bert/encoder/transformer_stack/layer.{}/attention/self_output/dense_projection/{}"
    layers = [path.format(at, kind) for at in range(4) for kind in ("MatMul", "Add", "Tanh")]
    found = check([*layers, "/bert/embeddings/Gather"], 80, layers[6:9])
    assert all(name.startswith(".../layer.2/.../") for name in found)
    # The dots at the start stand for the prefix only.
    prefix = "jax2tf_get_logits_/pjit_get_logits_/MagikaV2/"
    names = ("Conv_0/strided_slice_2__127", "Conv_0/Conv2D", "Max_Squeeze__213", "Relu", "Dense_0/MatMul")
    found = check([prefix + name for name in names], 80, [prefix + name for name in names[:3]])
    assert found == [f".../{name}" for name in names[:3]]
    # A name that ends as one without the prefix does has its first part.
    path = "/encoder/layers.{}/transformer_block/attention_output/residual/Add"
    begun = [path.format(at) for at in range(2)]
    ends = (name.removeprefix("/encoder/") for name in begun)
    layers = [*begun, *ends, "/encoder/in/Add", "/encoder/out/Add"]
    assert check(layers, 60, layers)[0] == ".../layers.0/.../residual/Add"
    layers = [begun[0], begun[0].replace("_output", "_output/output"), "/encoder/in/Add", "in"]
    assert "transformer_block/attention_output/residual" in check(layers, 120, layers)[0]


def test_a_name_that_cannot_be_short_stands_whole_above_its_row_and_in_files_in_it() -> None:
    layers = [f"/m/decoder/layers.{at}/{'self_attention_of_heads' * at}_{at}/MatMul" for at in (3, 4)]
    names = LayerNames([f"{layer}:output.0" for layer in layers], 60)
    lines = table(rows_of(layers), COLUMNS, names)
    assert [line.strip() for line in lines[1::2]] == [names.short(layer) for layer in layers]
    assert all("-0.0407578" in line for line in lines[2::2])
    _, *rows = table(rows_of(NAMES["tf2onnx"]))
    assert [line.split()[0] for line in rows] == NAMES["tf2onnx"]


@pytest.mark.each(
    ("layers", "prefix"),
    [
        (["block/conv.1", "block/relu.1"], ""),
        (["encoder/conv.1", "encoder/conv.2"], "encoder/"),
        (["encoder.0.conv1", "encoder.0.conv2"], "encoder.0."),
        (["encoder/layers.10/a", "encoder/layers.11/a"], "encoder/"),
        (["encoder/layer/"], ""),
        (["encoder/layer/", "encoder/layer/a"], "encoder/layer/"),
        (["encoder/head/a", "encoder/body/a", "encoder/body/b", "in"], "encoder/"),
        (["encoder/head/a", "in", "out"], ""),
        ([], ""),
    ],
)
def test_a_prefix_ends_with_a_part_and_leaves_each_name_one(layers: list[str], prefix: str) -> None:
    assert LayerNames([f"{layer}:output.0" for layer in layers]).prefix == prefix


def test_a_name_of_the_prefix_and_one_part_is_cut_as_in_the_table_of_a_page() -> None:
    begin = "jax2tf_get_logits_/pjit_get_logits_/MagikaV2/"
    layers = [*(f"{begin}{name}" for name in ("Max", "a/Add", "a/Mul", "b/Add")), begin[:36] + "Max"]
    names = LayerNames([f"{layer}:output.0" for layer in layers], 72)
    names.fit(layers, 20)
    assert names.short(layers[0]) == ".../Max"
    assert names.short(layers[-1]) != ".../Max"


def test_a_line_is_broken_behind_its_label_and_keeps_what_is_to_be_copied() -> None:
    names = LayerNames(["a:output.0"], 80)
    words = "all statistics before it match; 64 mismatches downstream"
    assert names.lines(f"source:     encoder/layers.11/attention/self/MatMul:output.0; {words}") == [
        "source:     encoder/layers.11/attention/self/MatMul:output.0; all statistics",
        "            before it match; 64 mismatches downstream",
    ]
    first, second, *_ = LayerNames((), 60).lines("源头:       " + "统计数据" * 20)
    assert cells(first) == cells(second) == 60
    assert second.startswith(" " * 12 + "统")
    path = f"golden/{'test_' * 12}small.yaml"
    assert path in " ".join(names.lines(f"golden:     {path}; mismatches: 1 of 3 tensors"))
    assert LayerNames().lines("x " * 80) == ["x " * 80]


def test_a_prefix_is_said_where_it_is_used_and_not_broken() -> None:
    begin = f"/{'deep_model_of_letters_' * 4}/encoder/"
    layers = [f"{begin}layers.{at}/mlp/projection/MatMul" for at in range(3)]
    names = LayerNames([f"{layer}:output.0" for layer in layers], 80)
    assert names.legend() == []
    table(rows_of(layers[:2]), COLUMNS, names)
    assert names.legend() == ["  names that start with .../ begin with", f"    {begin}"]


def test_a_table_too_wide_for_numbers_goes_without_tolerances() -> None:
    numbers = reason("avg", 0.0074333, 0.000425994, 4.36e-08)
    rows = [row(fail(numbers, key=TensorKey("If_0", "output", place))) for place in (0, 1)]
    assert max(map(len, table(rows, COLUMNS, LayerNames((), 60)))) <= 60
    assert "tolerance" not in table(rows, COLUMNS, LayerNames((), 60))[0]
    assert "tolerance" in table(rows, COLUMNS, LayerNames((), 80))[0]


def test_markup_emoji_codes_and_control_characters_in_names_are_shown_as_such() -> None:
    assert table([("[red]a[/red] :smile:",)], ("layer",))[1] == "  [red]a[/red] :smile:"
    assert plain("a\x1b[31m\nb\u202e\udc80") == r"a\x1b[31m\nb\u202e\udc80"


@given(st.lists(st.tuples(st.text(), st.text()), max_size=5))
def test_a_row_is_one_line_whatever_its_cells_hold(rows: list[tuple[str, str]]) -> None:
    lines = table(rows, ("a", "b"))
    assert len(lines) == 1 + len(rows)
    assert all(len(line.splitlines()) <= 1 and line.isprintable() for line in lines)


@given(st.text())
def test_plain_text_is_printable_and_printable_text_is_plain(text: str) -> None:
    assert plain(text).isprintable()
    assert (plain(text) == text) is (text.isprintable() and inert(text) == text)
