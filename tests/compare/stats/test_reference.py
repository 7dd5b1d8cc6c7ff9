"""The vectorised comparison against one written for a single tensor, in exact arithmetic."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, strategies as st

from pytest_npudump.compare.stats import numbers
from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.dump.table import STATISTICS
from tests.conftest import table_of

NAMES = ("max", "min", "avg", "l2norm")
BOUNDS = {
    "float32": (2e-5, 2.0**-30),
    "float16": (1e-3, 2.0**-20),
    "bfloat16": (8e-3, 2.0**-20),
    "int32": (0.0, 0.0),
    "int64": (0.0, 0.0),
    "bool": (0.0, 0.0),
}
FINER = {("float32", "avg"): 5e-6, ("float32", "l2norm"): 1e-5}
base = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.1, 12345.7, 1e-7, 65504.0, 1e300, 5e-324, 0.001, 9.99999e5])
odd = st.sampled_from([math.nan, math.inf, -math.inf])
nudge = st.sampled_from(
    [
        0.0,
        1e-9,
        4.9e-6,
        5.2e-6,
        9e-6,
        1.1e-5,
        1.9e-5,
        2.2e-5,
        1.1e-4,
        9e-4,
        1.1e-3,
        7e-3,
        9e-3,
        -9e-4,
        -1.0,
        -2.0,
    ]
)
wide = st.sampled_from([0, 1, 7, 2**31, 2**53, 2**53 + 1, 2**62 + 1, -(2**63)])


def sig6(value: Any) -> Any:
    return float(f"{value:.6g}")


@st.composite
def values(draw: st.DrawFn, *, integral: bool) -> Any:
    """Golden and actual value of one statistic: equal, near, far, odd or unknown."""
    if integral:
        golden = draw(wide)
        actual = golden + draw(st.sampled_from([0, 0, 1, -1, 100]))
    else:
        golden = draw(st.one_of(base, base, odd))
        actual = golden * (1 + draw(nudge)) if draw(st.booleans()) else golden
        actual = draw(st.one_of(st.just(actual), st.just(actual), odd))
    kind = draw(st.integers(0, 11))
    return (None if kind == 0 else golden), (None if kind in {0, 1} else actual)


@st.composite
def tensors(draw: st.DrawFn) -> Any:
    dtype = draw(st.sampled_from(sorted(BOUNDS)))
    exact = BOUNDS[dtype] == (0.0, 0.0)
    pairs = {name: draw(values(integral=exact and name in {"max", "min"})) for name in NAMES}
    for name in ("nan", "neg_inf", "pos_inf"):
        count = draw(st.integers(0, 2))
        pairs[name] = (count, draw(st.sampled_from([count, count, count + 1, None])))
    digits = draw(st.sampled_from([None, 6])), draw(st.sampled_from([None, 6]))
    for name, pair in pairs.items():
        whole = name not in NAMES or (exact and name in {"max", "min"})
        pairs[name] = tuple(
            sig6(v) if d and v is not None and not whole else v for v, d in zip(pair, digits, strict=True)
        )
    sides = [
        {name: pair[side] for name, pair in pairs.items()} | {"digits": digits[side], "count": 2}
        for side in (0, 1)
    ]
    return dtype, sides[0], sides[1]


def half_unit(value: Any, digits: Any) -> Any:
    if not digits or value == 0:
        return Fraction(0)
    # The decimal number is off in float64 by that much of itself, which counts where numbers are subnormal.
    return Fraction(10) ** (Decimal(repr(value)).adjusted() - digits + 1) / 2 + Fraction(math.ulp(value))


def expected_failures(dtype: str, golden: Any, actual: Any, left_out: Any, bounds: Any) -> Any:
    failures = set()
    for name in STATISTICS:
        g, a = golden[name], actual[name]
        if g is None:
            if a is not None and name in {"max", "min", "avg"}:
                failures.add(name)
            continue
        if a is None:
            if name not in left_out:
                failures.add(name)
        elif not passes(name, dtype, golden, actual, bounds):
            failures.add(name)
    return failures


def extremes_hidden(golden: Any, actual: Any) -> bool:
    """CANN's print of a tensor that begins with NaN against the statistics that were computed of it."""
    for printed, computed in ((golden, actual), (actual, golden)):
        sides = [side[name] for side in (printed, computed) for name in ("max", "min", "nan")]
        if printed["digits"] and not computed["digits"] and None not in sides:
            nan = [math.isnan(printed[n]) and not math.isnan(computed[n]) for n in ("max", "min")]
            if all(nan) and printed["nan"] == computed["nan"] > 0:
                return True
    return False


def passes(name: str, dtype: str, golden: Any, actual: Any, bounds: Any) -> Any:
    g, a = golden[name], actual[name]
    if name in {"max", "min"} and extremes_hidden(golden, actual):
        return True
    if math.isnan(g) or math.isnan(a):
        return math.isnan(g) and math.isnan(a)
    if math.isinf(g) or math.isinf(a) or g == a:
        return g == a
    exact = BOUNDS[dtype] == (0.0, 0.0)
    if name not in NAMES or (exact and name in {"max", "min"}):
        return False
    extremes = [abs(v) for v in (golden["max"], golden["min"]) if v is not None and math.isfinite(v)]
    scale = Fraction(abs(g)) if name == "l2norm" or not extremes else Fraction(max(extremes))
    if name in {"max", "min"} and extremes:
        largest, least = max(extremes), max(abs(g), 1.0)
        of_float16 = largest in {65504.0, 65536.0} and largest / 1e3 > least
        if of_float16 or (largest >= 1e8 and largest / 1e6 > least):  # a mask's
            scale = Fraction(least)
    norm = golden["l2norm"]
    if name == "avg" and norm is not None and math.isfinite(norm) and norm > 0:
        square = Fraction(norm) / Fraction(math.sqrt(golden["count"]))
        # No root mean square is beyond the extremes: a norm that says so must not widen the bound.
        scale = min(square, scale) if extremes else square
    rtol, atol = bounds(dtype, name)
    allowed = Fraction(atol) + Fraction(rtol) * scale
    # A share of the least number is 0 in float64, and allows as little as a share of 0.
    if allowed <= Fraction(math.ulp(0.0)) / 2 and golden["digits"] and actual["digits"]:
        return False
    allowed += half_unit(g, golden["digits"]) + half_unit(a, actual["digits"])
    if exact:
        allowed += Fraction(1e-12) * scale
    difference = abs(Fraction(a) - Fraction(g))
    # Float64 may decide either way within its own rounding of the bound.
    assume(abs(difference - allowed) > Fraction(1, 10**12) * max(allowed, abs(Fraction(g))))
    return difference <= allowed


def left_out_by(actuals: Any) -> Any:
    computed = {name for name in STATISTICS if any(actual[name] is not None for actual in actuals)}
    return set(STATISTICS) - computed if {"max", "min", "avg"} <= computed else set()


def check(rows: Any, tolerances: Any, bounds: Any) -> None:
    keys = [f"layer{index}:output.0" for index in range(len(rows))]
    golden = table_of(*[(key, row[0], (2,), row[1]) for key, row in zip(keys, rows, strict=True)])
    actual = table_of(*[(key, row[0], (2,), row[2]) for key, row in zip(keys, rows, strict=True)])
    left_out = left_out_by([row[2] for row in rows])
    wanted = {
        key: failures
        for key, row in zip(keys, rows, strict=True)
        if (failures := expected_failures(*row, left_out, bounds))
    }
    found = compare_tables(golden, actual, tolerances)
    assert {str(v.key): {r.statistic for r in v.reasons} for v in found.failing} == wanted
    assert found.passed == len(rows) - len(wanted)


COUNTED = {"nan": 0, "neg_inf": 0, "pos_inf": 0, "digits": None, "count": 2}
TOO_LARGE_A_NORM = {"max": 0.0, "min": 0.0, "avg": 0.0, "l2norm": 1.0} | COUNTED
"""Of a tensor of zeros, says one who computed its norm wrongly."""


MASKED = {"max": 1.0, "min": 65504.0, "avg": None, "l2norm": None} | COUNTED


@example(rows=[("float32", TOO_LARGE_A_NORM, TOO_LARGE_A_NORM | {"avg": 1e-6})])
@example(rows=[("float32", MASKED, MASKED | {"max": 1.000022})])
@example(rows=[("float32", MASKED | {"min": -1e300}, MASKED | {"max": 1.000022, "min": -1e300})])
@given(rows=st.lists(tensors(), min_size=1, max_size=6))
def test_verdicts_agree_under_the_default_preset(rows: Any) -> None:
    check(rows, Tolerances(), default_bounds)


def default_bounds(dtype: str, name: str) -> tuple[float, float]:
    rtol, atol = BOUNDS[dtype]
    return FINER.get((dtype, name), rtol), atol


@example(rows=[("float32", *({**TOO_LARGE_A_NORM, "l2norm": n, "digits": 6} for n in (5e-324, 0.0)))])
@given(rows=st.lists(tensors(), min_size=1, max_size=6))
def test_verdicts_agree_without_any_tolerance(rows: Any) -> None:
    check(rows, Tolerances("exact"), lambda *_: (0.0, 0.0))


@example(
    rows=[
        ("bfloat16", *(dict.fromkeys(NAMES) | COUNTED | {"l2norm": n, "digits": 6} for n in (5e-324, 0.0)))
    ],
    rtol=0.1,
    atol=0.0,
)
@given(rows=st.lists(tensors(), min_size=1, max_size=4), rtol=base.map(abs), atol=base.map(abs))
def test_verdicts_agree_under_a_rule(rows: Any, rtol: float, atol: float) -> None:
    def bounds(dtype: str, _: str) -> Any:
        return BOUNDS[dtype] if BOUNDS[dtype] == (0.0, 0.0) else (rtol, atol)

    check(rows, Tolerances(rules=(Rule(rtol, atol),)), bounds)


@pytest.mark.each(
    ("value", "digits", "half"),
    [
        (3, 1, 0.5),
        (-25, 1, 5),
        (10, 2, 0.5),
        (9.99, 3, 0.005),
        (1e-3, 2, 5e-5),
        (7, 0, 0),
        (0, 6, 0),
        (np.inf, 6, 0),
    ],
)
def test_half_a_unit_of_the_last_digit(value: float, digits: int, half: float) -> None:
    (found,) = numbers.half_unit(np.array([float(value)]), np.array([digits]))
    assert found == pytest.approx(half, rel=1e-9)
