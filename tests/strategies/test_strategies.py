"""What operator tests are fed: the types, shapes and values that are asked for, and small where they fail."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings, strategies as st

from pytest_npudump import strategies
from pytest_npudump.strategies import edge_values, edges

DTYPES = ["float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64", "uint64", "bool"]
ONCE = settings(
    derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow], max_examples=10_000
)
"""With so many examples that no search ends by chance before it has found, and always the same ones.

From 4 of 100 beginnings a search for a large value does not shrink out of a tensor of all edge values.
"""
FEW = settings(max_examples=30)


def held(dtype: str) -> set[float]:
    return set(edge_values(np.dtype(getattr(ml_dtypes, dtype, dtype))))


@FEW
@given(st.sampled_from(DTYPES), st.data())
def test_tensors_are_of_the_type_and_alike_in_shape(dtype: str, data: Any) -> None:
    one, other = data.draw(strategies.alike(2, dtype))
    assert one.dtype.name == other.dtype.name == dtype
    assert one.shape == other.shape
    assert 1 <= one.ndim <= 4
    assert 1 <= one.size <= 1 << 14


def test_half_precision_meets_the_values_that_break_devices() -> None:
    known = held("float16")
    assert {65504.0, -65504.0, 2.0**-24, -(2.0**-24), 2.0**-14, 1023 * 2.0**-24} <= known
    assert {2.0**15, 2.0**14, 2048.0, 1 + 2.0**-10, 1 - 2.0**-11} <= known
    texts = list(map(str, edge_values(np.dtype("float16"))))
    assert {"inf", "-inf", "nan", "-0.0", "0.0"} <= set(texts)
    assert len(texts) == len(set(texts))


def test_wider_types_meet_the_limit_of_float16_and_integers_their_extremes() -> None:
    for dtype in ("float32", "float64"):
        limit = np.dtype(dtype).type(65504)
        above = float(np.nextafter(limit, np.dtype(dtype).type(np.inf)))
        assert {65504.0, -65504.0, above, -above, 65520.0, 65536.0, 2.0**-25} <= held(dtype)
    for dtype, low, high in (("int8", -128, 127), ("int64", -(2**63), 2**63 - 1)):
        assert {low, low + 1, -1, 0, 1, high - 1, high} <= held(dtype)
    assert {2**24 - 1, 2**24, 2**24 + 1} <= held("int32")


def test_sides_are_around_blocks_fractals_and_repetitions() -> None:
    for dtype, block in (("float16", 16), ("float32", 8), ("int8", 32)):
        sides = set(edges(dtype))
        for size in (16, 32, block, 2 * block, 8 * block):
            assert {size - 1, size, size + 1} <= sides
        assert min(sides) == 1


@FEW
@given(strategies.shapes("float16", min_dims=0, max_dims=3, max_elements=500))
def test_shapes_are_as_large_as_they_may_be(shape: tuple[int, ...]) -> None:
    assert len(shape) <= 3
    assert np.prod(shape, dtype=int) <= 500
    assert set(shape) <= set(edges("float16"))


def test_every_shape_whose_axes_are_edges_is_drawn_and_no_other() -> None:
    seen = set()

    @settings(ONCE, phases=[Phase.generate])  # which ends where no other example is left
    @given(strategies.shapes("float16", max_dims=2, max_elements=600))
    def draw_all(shape: tuple[int, ...]) -> None:
        seen.add(shape)

    draw_all()
    sizes = edges("float16")
    pairs = {pair for pair in product(sizes, sizes) if np.prod(pair) <= 600}
    assert seen == {(size,) for size in sizes} | pairs


@pytest.mark.each("size", [15, 16, 17, 31, 32, 33])
def test_a_shape_that_ends_in_an_edge_shrinks_to_that_axis(size: int) -> None:
    assert find(strategies.shapes("float16"), lambda shape: shape[-1] == size, settings=ONCE) == (size,)


def test_a_tail_is_found_in_the_smallest_tensor_that_has_one_and_a_value_nearest_to_one() -> None:
    tail = lambda x: bool(x.shape[-1] % 16 and x.shape[-1] > 16)  # noqa: E731
    assert find(strategies.tensors("float16"), tail, settings=ONCE).tolist() == [1.0] * 17
    found = find(strategies.tensors("float32"), lambda x: bool((np.abs(x) > 65504).any()), settings=ONCE)
    assert found.tolist() == [65504.00390625]


@pytest.mark.parametrize(
    ("dtype", "limits"), [("bfloat16", {}), ("float32", {"finite": True}), ("uint64", {})]
)
def test_one_tensor_may_hold_every_edge_value(dtype: str, limits: dict[str, Any]) -> None:
    values = [value for value in held(dtype) if np.isfinite(value) or not limits]

    def holds_all(x: np.ndarray) -> bool:
        return set(map(repr, values)) <= set(map(repr, x.ravel().tolist()))

    unshrunk = settings(ONCE, phases=[Phase.generate])
    assert holds_all(
        find(strategies.tensors(dtype, (4, len(values)), **limits), holds_all, settings=unshrunk)
    )


@FEW
@given(strategies.tensors("float16", finite=True, subnormal=False))
def test_what_is_left_out_is_not_there(x: np.ndarray) -> None:
    assert np.isfinite(x).all()
    assert ((x == 0) | (np.abs(x) >= np.finfo(np.float16).smallest_normal)).all()


@FEW
@given(st.sampled_from(["float16", "bfloat16", "int8", "uint8"]), st.data())
def test_limits_hold_for_every_element(dtype: str, data: Any) -> None:
    x = data.draw(strategies.tensors(dtype, minimum=0, maximum=3))
    assert ((x >= 0) & (x <= 3)).all()


@FEW
@given(strategies.tensors("int32", shape=(2, 17)), strategies.tensors("bool", shape=st.just((3,))))
def test_a_shape_may_be_said(x: np.ndarray, y: np.ndarray) -> None:
    assert (x.shape, y.shape) == ((2, 17), (3,))


@FEW
@given(strategies.matrices("float16", max_elements=300, minimum=-1, maximum=1))
def test_matrices_can_be_multiplied(found: tuple[np.ndarray, np.ndarray]) -> None:
    left, right = found
    assert (left.astype(float) @ right.astype(float)).shape == (left.shape[0], right.shape[1])
    assert max(left.size, right.size) <= 300


def test_what_nothing_can_be_and_types_without_edges_are_refused() -> None:
    with pytest.raises(ValueError, match="no edge value"):
        strategies.values("float16", minimum=5, maximum=4)
    with pytest.raises(ValueError, match="no shape is so"):
        strategies.shapes(min_dims=2, max_dims=1)
    with pytest.raises(TypeError, match="complex64"):
        strategies.values(np.complex64)


def test_a_test_has_no_deadline_and_may_take_the_fixture() -> None:
    ours = strategies.settings(max_examples=7)
    assert (ours.deadline, ours.max_examples) == (None, 7)
    assert HealthCheck.function_scoped_fixture in ours.suppress_health_check
    assert strategies.settings(deadline=500).deadline is not None


@pytest.mark.e2e
def test_without_hypothesis_one_line_names_the_extra() -> None:
    program = (
        "import sys; sys.modules['hypothesis'] = None\n"
        "from pytest_npudump import strategies\n"
        "from pytest_npudump.errors import MissingExtraError\n"
        "for call in (strategies.tensors, strategies.shapes, strategies.values, strategies.settings):\n"
        "    try:\n        call()\n"
        "    except MissingExtraError as error:\n        print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    words = "pytest_npudump.strategies needs the package 'hypothesis', which is not installed: "
    assert run.stdout.splitlines() == [f"{words}pip install 'pytest-npudump[testing]'"] * 4
