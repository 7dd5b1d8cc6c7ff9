"""Operators of an ONNX graph have the names that GE gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from onnx import GraphProto, TensorProto, helper, numpy_helper

from pytest_npudump.dump.dtypes import BY_NAME
from pytest_npudump.dump.records import Dump, TensorKey, TensorRecord
from pytest_npudump.onnxmodels.graph import drawing_words, draws_random, operators
from pytest_npudump.onnxmodels.sessions import random_layers
from pytest_npudump.onnxmodels.tensor_types import Tensor
from pytest_npudump.onnxmodels.variation import PLAIN, Variation, Varying, perturbed


def graph(*names: tuple[str, str]) -> GraphProto:
    """A chain of ``(type, name)`` nodes."""
    nodes = []
    for index, (op_type, name) in enumerate(names):
        value = {"value": numpy_helper.from_array(np.zeros(1, np.float32))} if op_type == "Constant" else {}
        inputs = [] if op_type == "Constant" else [f"t{index}"]
        nodes.append(helper.make_node(op_type, inputs, [f"t{index + 1}"], name=name, **value))
    return helper.make_graph(nodes, "graph", [], [])


def test_unnamed_nodes_are_counted_over_the_whole_file() -> None:
    files = {
        "unnamed": ([("Relu", ""), ("Neg", ""), ("Relu", "")], ["Relu_0", "Neg_1", "Relu_2"]),
        "constants count": (
            [("Constant", ""), ("Relu", ""), ("Constant", ""), ("Neg", "")],
            ["Relu_1", "Neg_3"],
        ),
        "named do not": ([("Relu", "a"), ("Constant", "c"), ("Neg", ""), ("Relu", "b")], ["a", "Neg_0", "b"]),
        "twice": ([("Relu", "a"), ("Neg", "a")], ["a", "a_1"]),
        "taken": ([("Relu", ""), ("Neg", "Relu_0")], ["Relu_0_1", "Relu_0"]),
        "constant of the name": ([("Constant", "a"), ("Relu", "a")], ["a"]),
    }
    for name, (nodes, expected) in files.items():
        found = operators(graph(*nodes))
        assert [operator.name for operator in found] == expected, name
        assert [operator.task for operator in found] == list(range(1, len(expected) + 1)), name


DRAW = """
    RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial Bernoulli Dropout
    DropOutGenMask DropOutGenMaskV3 RandomStandardNormal TruncatedNormal Randperm
    ParameterizedTruncatedNormal DSARandomUniform DSAGenBitMask RandomShuffle StandardNormal
    UniformReal UniformInt StandardLaplace Gamma Poisson DropoutExt NormalFloatTensor
    aclnnInplaceNormal aclnnInplaceUniform aclnnDropoutGenMaskV2 aclnnInplaceExponential
    aclnnInplaceRandom aclnnMultinomial aclnnNormalTensorFloat aclnnInplaceBernoulliTensor
"""
DRAW_NOT = """
    Conv BatchNormalization LayerNormalization LpNormalization aclnnNorm Normalize DropOutDoMask
    DropoutGrad RandomGammaGrad aclnnDropoutBackward aclnnDropoutDoMask Range Dropout[still]
    StatelessRandomNormalV2 Exp PoissonNllLoss Data Transpose GammaIncomplete
"""


def test_types_tell_what_draws() -> None:
    assert [name for name in DRAW.split() if not draws_random(name)] == []
    assert [name for name in ("", *DRAW_NOT.split()) if draws_random(name)] == []


def dump_of(*layers: tuple[str, str]) -> Dump:
    records = tuple(
        TensorRecord(TensorKey(layer, "output", 0), op_type, "float32", (4,), Path("f"))
        for layer, op_type in layers
    )
    return Dump(Path(), records)


def model_file(folder: Path, *nodes: tuple[str, str, dict[str, float], list[str]]) -> Path:
    """Write an ONNX file with nodes of (name, type, attributes, further inputs)."""
    made = [
        helper.make_node(op_type, ["x", *inputs], [f"y{number}"], name=name, **attributes)
        for number, (name, op_type, attributes, inputs) in enumerate(nodes)
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    path = folder / "net.onnx"
    path.write_bytes(helper.make_model(helper.make_graph(made, "g", [x], [])).SerializeToString())
    return path


def test_dump_alone_tells_by_type() -> None:
    dump = dump_of(("net/conv", "Conv"), ("net/noise", "RandomNormalLike"), ("drop", "DropOutGenMask"))
    assert random_layers(dump, ()) == ("net/noise (RandomNormalLike)", "drop (DropOutGenMask)")


@pytest.mark.each(
    ("node", "drawing"),
    [
        (("net/noise", "RandomNormalLike", {}, []), True),
        (("net/noise", "RandomNormalLike", {"seed": 3.0}, []), False),
        (("net/drop", "Dropout", {}, []), False),
        (("net/drop", "Dropout", {}, ["ratio", ""]), False),
        (("net/drop", "Dropout", {}, ["ratio", "training"]), True),
        (("net/drop", "Dropout", {"seed": 1}, ["ratio", "training"]), True),
    ],
)
def test_onnx_file_tells_what_has_a_seed_or_drops_nothing(
    tmp_path: Path, node: tuple[str, str, dict[str, float], list[str]], *, drawing: bool
) -> None:
    path = model_file(tmp_path, node)
    expected = (f"{node[0]} ({node[1]})",) if drawing else ()
    assert random_layers(dump_of((node[0], node[1])), [path]) == expected
    assert random_layers(dump_of(("other", "Add")), [path.with_suffix(".om")]) == expected


def test_unreadable_model_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"\x08no model")
    assert random_layers(dump_of(("a", "Add")), [tmp_path / "net.om"]) == ()


def test_words_name_a_few() -> None:
    assert drawing_words(("a (T)",)) == "a (T) draws random numbers"
    assert drawing_words(tuple("abcde")) == "a, b, c and 2 more draw random numbers"


def noisy(name: str) -> Any:
    return helper.make_node("RandomNormalLike", ["x"], [f"{name}_out"], name=name)


def test_operators_in_branches_bodies_and_functions_are_seen(tmp_path: Path) -> None:
    inner = helper.make_graph([noisy("deep")], "inner", [], [])
    nested = helper.make_node("If", ["c"], ["n"], name="nested", then_branch=inner, else_branch=inner)
    branch = helper.make_graph([nested], "branch", [], [])
    outer = helper.make_node("Loop", ["", "c"], ["l"], name="loop", body=branch)
    graph = helper.make_graph([outer], "g", [], [])
    path = tmp_path / "net.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    assert random_layers(dump_of(("loop", "Loop")), [path]) == ("deep (RandomNormalLike)",)
    opsets = [helper.make_opsetid("", 17)]
    function = helper.make_function("own", "Noise", ["x"], ["f_out"], [noisy("f")], opsets)
    call = helper.make_node("Noise", ["x"], ["y"], name="call", domain="own")
    made = helper.make_model(helper.make_graph([call], "g", [], []), functions=[function])
    path.write_bytes(made.SerializeToString())
    assert random_layers(dump_of(("call", "Noise")), [path]) == ("f (RandomNormalLike)",)


FLOATS = (np.float16, np.float32, np.float64, ml_dtypes.bfloat16)


def tensor(array: np.ndarray) -> Tensor:
    return Tensor(BY_NAME[array.dtype.name], array.shape, array)


def moved(array: np.ndarray, seed: int = 1, execution: int = 0) -> np.ndarray:
    found = perturbed(array, (seed, execution, 0))
    assert found is not None
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    return found


@given(arrays(np.float32, 16, elements=st.floats(-(2.0**100), 2.0**100, width=32)), st.integers(0, 9))
def test_each_element_goes_to_a_neighbour_at_most(array: np.ndarray, seed: int) -> None:
    after = moved(array, seed)
    reached = np.abs(after.view(np.int32).astype(np.int64) - array.view(np.int32))
    assert reached.max() <= 2  # numbers just below a power of two have a step of half the size
    assert (after[array == 0] == 0).all()


def test_about_half_of_the_elements_of_each_type_move_and_the_lowest_value_stays_finite() -> None:
    for dtype in FLOATS:
        array = np.random.default_rng(0).uniform(1, 2, 10_000).astype(dtype)
        assert 0.3 < (moved(array) != array).mean() < 0.7
        lowest = np.full(100, ml_dtypes.finfo(dtype).min, dtype)
        after = moved(lowest)
        assert np.isfinite(after).all()
        assert (after <= lowest[0] / 2).all()


def test_zeros_nan_and_infinities_stay() -> None:
    array = np.array([0.0, -0.0, np.nan, np.inf, -np.inf], np.float32)
    np.testing.assert_array_equal(moved(array), array)


def test_both_parts_of_complex_numbers_move() -> None:
    array = np.full(1000, 1.5 + 2.5j, np.complex64)
    after = moved(array)
    assert (after.real != 1.5).any()
    assert (after.imag != 2.5).any()
    assert np.abs(after - array).max() < 1e-6


def test_a_seed_an_execution_and_an_input_decide() -> None:
    array = np.random.default_rng(0).normal(size=100)
    np.testing.assert_array_equal(moved(array, 3), moved(array, 3))
    assert (moved(array, 3) != moved(array, 4)).any()
    assert (moved(array, 3, 0) != moved(array, 3, 1)).any()
    both = Varying(Variation(seed=3)).feeds({"x": tensor(array), "y": tensor(array)}, 0)
    assert (both["x"].data != both["y"].data).any()


def test_what_is_no_float_is_left_and_named() -> None:
    for dtype in (np.int64, np.uint8, np.bool_, ml_dtypes.int4):
        array, varying = np.ones(4, dtype), Varying(Variation(seed=1))
        assert varying.feeds({"ids": tensor(array)}, 0)["ids"].data is array
        assert (varying.unperturbed, varying.perturbed) == ({"ids"}, set())


def test_a_plain_run_has_the_inputs_it_was_given_and_what_a_variation_reached_stays_until_the_next() -> None:
    feeds = {"x": tensor(np.ones(4)), "ids": tensor(np.ones(4, np.int32))}
    varying = Varying()
    assert varying.variation is PLAIN
    assert varying.variation.plain
    assert varying.feeds(feeds, 0) is feeds
    varying.begin(Variation(seed=1))
    assert not varying.variation.plain
    varying.feeds(feeds, 0)
    for _ in range(2):
        assert (varying.unperturbed, varying.perturbed) == ({"ids"}, {"x"})
        varying.begin(PLAIN)
    varying.begin(Variation(seed=3))
    assert not varying.unperturbed | varying.perturbed
