"""Drawn values have the statistics of those that they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from hypothesis.extra import numpy as arrays
from onnx import helper, numpy_helper

from pytest_npudump.explain.reference_model import ReferenceModel
from pytest_npudump.explain.reproduction.reproduction import _model_of, draw
from tests.onnxmodels.models import onnx_file

if TYPE_CHECKING:
    from pathlib import Path


@given(
    arrays.arrays(
        st.sampled_from(
            [np.float16, np.float32, np.float64, np.complex64, np.int8, np.int64, np.uint64, np.bool_]
        ),
        arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9),
    )
)
@example(np.array([6.55937760e16, 2122334767716913.0, 2122334767716913.0]))
def test_shape_type_limits_and_counts_stay(array: np.ndarray[Any, Any]) -> None:
    drawn = draw(array)
    assert (drawn.shape, drawn.dtype) == (array.shape, array.dtype)
    if array.dtype.kind == "c":
        assert np.isnan(drawn.imag).sum() == np.isnan(array.imag).sum()
        assert np.isinf(drawn.real).sum() == np.isinf(array.real).sum()
    elif array.dtype.kind == "f":
        for count in (np.isnan, np.isposinf, np.isneginf):
            assert count(drawn).sum() == count(array).sum()
        finite = np.isfinite(array)
        if finite.any():
            assert drawn[np.isfinite(drawn)].max() <= array[finite].max()
            assert drawn[np.isfinite(drawn)].min() >= array[finite].min()
    elif array.size:
        assert array.min() <= drawn.min()
        assert drawn.max() <= array.max()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_mean_and_deviation_are_those_of_the_original(dtype: Any) -> None:
    array = np.random.default_rng(1).normal(3, 2, 40_000).astype(dtype)
    drawn = draw(array).astype(np.float64)
    assert drawn.mean() == pytest.approx(3, abs=0.1)
    assert drawn.std() == pytest.approx(2, abs=0.1)


def test_each_array_has_numbers_of_its_own_and_each_call_the_same() -> None:
    array = np.random.default_rng(1).normal(size=100)
    assert np.array_equal(draw(array, 1), draw(array, 1))
    assert not np.array_equal(draw(array, 1), draw(array, 2))


@pytest.mark.each("drawn", [False, True])
def test_weights_inside_of_an_operator_are_drawn_as_others_are(tmp_path: Path, *, drawn: bool) -> None:
    secrets = [np.random.default_rng(seed).normal(size=64).astype(np.float32) for seed in range(3)]
    constant = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(secrets[1]))
    nodes = [helper.make_node("Add", ["x", "w"], ["a"]), helper.make_node("Mul", ["a", "k"], ["m"])]
    ends = [helper.make_tensor_value_info("m", 1, [64])]
    branch = helper.make_graph([constant, *nodes], "b", [], ends, [numpy_helper.from_array(secrets[0], "w")])
    chosen = helper.make_node("If", ["c"], ["y"], name="if", then_branch=branch, else_branch=branch)
    path = onnx_file(tmp_path / "m.onnx", [chosen], {"c": (9, []), "x": [64]}, {"y": [64]})
    model = ReferenceModel.read(path)
    feeds = {"c": np.ones((), np.bool_), "x": np.zeros(64, np.float32)}
    content, _ = _model_of(model, model.nodes[0], feeds, "y", drawn=drawn)
    held = [secret.tobytes() in content for secret in secrets]
    assert held == [not drawn, not drawn, False]
