"""An output against a reference: NaN, infinities and units in the last place, each by its own name."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from pytest_npudump.compare.ulps import INFINITY, NAN, ULP_BOUNDS, ULPS, output_fault, same_bits, ulps_allowed
from pytest_npudump.errors import RequestError

FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


def steps(value: Any, count: int) -> Any:
    """Return the number that many values of its type farther from 0."""
    for _ in range(count):
        value = np.nextafter(value, type(value)(math.copysign(math.inf, float(value))))
    return value


@pytest.mark.each("kind", FLOATS)
@pytest.mark.each("value", [1.0, -3.0, 0.0, 6e-5, -1e4])
def test_distances_are_counted_in_values_of_the_type(kind: type, value: float) -> None:
    start = kind(value)
    for count in (0, 1, 2, 3):
        fault = output_fault(np.array([steps(start, count)]), np.array([start]), ulps=2)
        assert (fault is None) == (count <= 2)
    assert fault is not None
    assert (fault.kind, fault.ulps, fault.allowed) == (ULPS, 3, 2)


@given(hnp.arrays(np.float32, 5, elements=st.floats(width=32, allow_nan=False)), st.integers(0, 9))
def test_what_numpy_counts_is_what_is_counted(values: np.ndarray, ulps: int) -> None:
    finite = values[np.isfinite(values) & (np.abs(values) < 1e38)]
    moved = np.array([steps(value, ulps) for value in finite], np.float32)
    apart = int(np.abs(moved.view(np.int32).astype(np.int64) - finite.view(np.int32)).max(initial=0))
    assert apart <= ulps
    assert output_fault(moved, finite, ulps=ulps) is None
    if apart:
        fault = output_fault(moved, finite, ulps=apart - 1)
        assert fault is not None
        assert fault.ulps == apart


def test_zeros_are_one_value_subnormal_numbers_are_none_and_scalars_and_empty_outputs_are_judged() -> None:
    assert output_fault(np.array([-0.0, 0.0], np.float16), np.array([0.0, -0.0]), ulps=0) is None
    fault = output_fault(np.array([0.0], np.float16), np.array([6.0e-5]), ulps=2)
    assert fault is not None
    assert fault.ulps == 1007
    got, want = np.array([1e-4], np.float16), np.array([0.0])
    assert output_fault(got, want, ulps=2, atol=2e-4) is None  # an absolute difference may suffice
    assert output_fault(got, want, ulps=2, atol=1e-5) is not None
    fault = output_fault(np.array(1, np.float32), np.array(2.0), ulps=1)
    assert fault is not None
    assert fault.index == ()
    assert output_fault(np.empty((0, 3), np.float16), np.empty((0, 3)), ulps=0) is None


@pytest.mark.each("kind", FLOATS)
@pytest.mark.each(
    ("got", "expected", "word"),
    [
        (math.nan, 1.0, NAN),
        (1.0, math.nan, NAN),
        (math.nan, math.inf, NAN),
        (math.inf, math.nan, NAN),
        (math.inf, 1.0, INFINITY),
        (1.0, -math.inf, INFINITY),
        (math.inf, -math.inf, INFINITY),
    ],
)
def test_nan_and_infinities_are_no_distance_and_match_themselves(
    kind: type, got: float, expected: float, word: str
) -> None:
    fault = output_fault(np.array([1, got], kind), np.array([1, expected], kind), ulps=9, atol=1e300)
    assert fault is not None
    assert (fault.kind, fault.wrong, fault.count, fault.index, fault.ulps) == (word, 1, 2, (1,), None)
    assert (str(fault.got), str(fault.expected)) == (str(got), str(expected))
    for value in (got, expected):
        assert output_fault(np.array([value], kind), np.array([value]), ulps=0) is None


@pytest.mark.each(
    ("got", "expected", "fails"),
    [
        (math.inf, 65519.9, False),  # a unit above 65504, which is what 65519.9 is rounded to
        (65504.0, 65530.0, False),
        (65504.0, 65700.0, True),  # saturated, where the result is infinite
        (math.inf, 65000.0, True),
        (-65504.0, 65530.0, True),
        (65504.0, math.inf, True),
        (math.inf, -65519.9, True),
    ],
)
def test_next_to_the_largest_number_either_side_may_round_to_infinity(
    got: float, expected: float, *, fails: bool
) -> None:
    fault = output_fault(np.array([got], np.float16), np.array([expected]), ulps=2)
    assert (fault is not None) == fails


def test_the_worst_of_the_gravest_kind_is_told_and_all_are_counted() -> None:
    got = np.array([[1.0, 2.0, np.inf], [4.0, np.nan, 8.0]], np.float32)
    want = np.array([[1.5, 2.0, 3.0], [4.0, 5.0, 9.0]])
    fault = output_fault(got, want, ulps=4)
    assert fault is not None
    assert (fault.kind, fault.wrong, fault.index) == (NAN, 4, (1, 1))
    got[1, 1] = 5
    fault = output_fault(got, want, ulps=4)
    assert fault is not None
    assert (fault.kind, fault.wrong, fault.index, fault.expected) == (INFINITY, 3, (0, 2), 3.0)
    got[0, 2] = 3
    fault = output_fault(got, want, ulps=4)
    assert fault is not None
    assert (fault.kind, fault.wrong, fault.index, fault.got) == (ULPS, 2, (0, 0), 1.0)


@pytest.mark.each(
    ("kind", "got", "expected", "apart"),
    [
        ("int8", -128, 127, 255),
        ("int64", -(2**63), 2**63 - 1, 2**64 - 1),
        ("uint8", 0, 255, 255),
        ("uint64", 2**64 - 1, 2**63, 2**63 - 1),
        ("int32", 7, 8, 1),
        ("bool", True, False, 1),
    ],
)
def test_integers_are_exact_and_their_distance_never_overflows(
    kind: str, got: int, expected: int, apart: int
) -> None:
    one, other = np.array([got], kind), np.array([expected], kind)
    assert output_fault(one, one, ulps=0) is None
    fault = output_fault(one, other, ulps=0)
    assert fault is not None
    assert (fault.ulps, fault.got, fault.expected) == (apart, got, expected)
    assert output_fault(one, other, ulps=apart) is None


def test_defaults_are_for_floats_integers_are_exact_and_a_test_may_say_otherwise() -> None:
    assert [ulps_allowed(dtype, None) for dtype in ULP_BOUNDS] == [2, 2, 4, 4]
    assert [ulps_allowed(dtype, None) for dtype in ("int8", "uint64", "bool")] == [0, 0, 0]
    assert ulps_allowed("int8", 1) == ulps_allowed("float8_e5m2", 1) == 1
    with pytest.raises(RequestError, match="no default for float8_e5m2"):
        ulps_allowed("float8_e5m2", None)
    with pytest.raises(RequestError, match="at least 0"):
        ulps_allowed("float16", -1)


def test_bits_are_the_same_only_in_the_same_type_and_shape() -> None:
    zeros = np.zeros(2, np.float16)
    assert same_bits(zeros, zeros.copy())
    assert same_bits(np.array([math.nan]), np.array([math.nan]))
    assert not same_bits(zeros, -zeros)
    assert not same_bits(zeros, zeros.astype(np.float32))
    assert not same_bits(zeros, zeros.reshape(1, 2))
