"""The rounded reference against numpy, and against the benchmarks' own node-by-node run of a real model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from pytest_npudump.reference.reference_model import ReferenceModel
from pytest_npudump.reference.rounding import rounded_feeds, rounded_model, rounded_to

if TYPE_CHECKING:
    from collections.abc import Callable

X = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
TYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
BENCHMARKS = Path(__file__).parents[2] / "docs/benchmarks"


def ran(model: ReferenceModel, feed: np.ndarray, *names: str) -> dict[str, np.ndarray | None]:
    return dict(model.run({model.inputs[0]: feed}, dict.fromkeys(names, 1)))


def to(dtype: str, array: np.ndarray) -> np.ndarray:
    return np.asarray(array.astype(TYPES[dtype]).astype(np.float32))


@pytest.mark.parametrize("dtype", TYPES)
def test_every_output_and_weight_is_rounded(write_model: Callable[..., Path], dtype: str) -> None:
    path = write_model(
        ("mm", "MatMul", ["x", "w"], ["a"]), ("add", "Add", ["a", "b"], ["y"]), weights={"w": W, "b": W[0]}
    )
    model = rounded_model(ReferenceModel.read(path), {}, dtype)
    found = ran(model, rounded_feeds({"x": X}, dtype)["x"], "a", "y")
    a = to(dtype, to(dtype, X) @ to(dtype, W))
    np.testing.assert_allclose(found["a"], a, rtol=2**-7, atol=0)  # sums of three in another order
    np.testing.assert_array_equal(found["y"], to(dtype, found["a"] + to(dtype, W[0])))


def test_each_tensor_has_the_type_of_its_own(write_model: Callable[..., Path]) -> None:
    path = write_model(
        ("exp", "Exp", ["x"], ["a"]), ("neg", "Neg", ["a"], ["b"]), ("abs", "Abs", ["b"], ["y"])
    )
    model = rounded_model(ReferenceModel.read(path), {"a": "float32", "y": "bfloat16"}, "float16")
    found = ran(model, X, "a", "b", "y")
    np.testing.assert_allclose(found["a"], np.exp(X), rtol=1e-6)
    np.testing.assert_array_equal(found["b"], to("float16", -found["a"]))  # type: ignore[operator]
    np.testing.assert_array_equal(found["y"], to("bfloat16", to("float16", found["a"])))  # type: ignore[arg-type]


def test_the_reference_itself_stays_as_it_was(write_model: Callable[..., Path]) -> None:
    model = ReferenceModel.read(write_model(("exp", "Exp", ["x"], ["y"])))
    before = ran(model, X, "y")["y"]
    rounded_model(model, {}, "float16")
    np.testing.assert_array_equal(ran(model, X, "y")["y"], before)


def test_sizes_are_not_rounded(write_model: Callable[..., Path]) -> None:
    """300 is no bfloat16: a shape computed in floats would be another one."""
    path = write_model(
        ("shape", "Shape", ["x"], ["s"]),
        ("float", "Cast", ["s"], ["f"]),
        ("one", "Mul", ["f", "c"], ["g"]),
        ("int", "Cast", ["g"], ["h"]),
        ("fill", "Expand", ["v", "h"], ["e"]),
        ("y", "Add", ["e", "x"], ["y"]),
        shape=(1, 301),
        weights={"c": np.ones(2, np.float32), "v": np.ones(1, np.float32)},
        float={"to": 1},
        int={"to": 7},
    )
    model = rounded_model(ReferenceModel.read(path), {}, "bfloat16")
    assert ran(model, np.ones((1, 301), np.float32), "y")["y"].shape == (1, 301)  # type: ignore[union-attr]


def test_values_beyond_the_type_are_infinite_and_integers_stay() -> None:
    assert rounded_to(np.array([1e6], np.float32), "float16").tolist() == [np.inf]
    assert rounded_to(np.array([70000]), "float16").tolist() == [70000]
    assert rounded_to(X, "float32") is X


@pytest.mark.parametrize("dtype", TYPES)
def test_a_real_model_rounds_as_its_nodes_do_one_by_one(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from verdicts.execution import Runner
    from verdicts.models import sources
    from verdicts.network import load
    from verdicts.numerics import Numerics

    network = load(sources()[0])
    expected = Runner(network, Numerics(dtype)).run()
    names = [name for node in network.nodes for name in node.outputs]
    model = rounded_model(ReferenceModel.read(sources()[0].path), {}, dtype)
    (feed,) = network.feed.values()
    found: dict[str, Any] = ran(model, rounded_to(feed, dtype), *names)
    for name in names:
        if expected[name].dtype == np.float32:
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    assert len(names) > 200
