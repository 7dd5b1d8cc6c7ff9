"""Bounds that are made of some members, held against another one."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pytest_npudump.compare.stats.allowances import Deviations
from pytest_npudump.regression.calibration import FACTORS, hold_out

KEYS = ("a:output.0", "b:output.0")


def member(*largest: float, floor: float = 0.0, uncountable: bool = False) -> Deviations:
    rows = np.zeros((2, 4))
    rows.flat[: len(largest)] = largest
    marks = np.array([uncountable, False])
    return Deviations(
        KEYS,
        rows,
        np.full((2, 4), floor),
        rows.any(axis=1),
        marks,
        np.ones(2, np.bool_),
        np.zeros(2, np.bool_),
    )


def test_members_alike_need_the_smallest_factor() -> None:
    assert hold_out([member(1e-6)] * 3).factor == FACTORS[0] == 5


def test_the_factor_is_raised_as_far_as_the_member_that_strays_furthest_needs() -> None:
    assert hold_out([member(1e-6), member(2e-6), member(1.3e-5)]).factor == 7
    assert hold_out([member(1e-6), member(2e-6), member(3.9e-5)]).factor == 20


def test_beyond_the_limit_there_is_no_factor_and_the_layer_is_named() -> None:
    held = hold_out([member(1e-6, 0, 0, 0, 1e-7), member(2e-6), member(5e-5, 0, 0, 0, 1e-5)])
    assert held.factor is None
    assert [(one.key, one.statistic) for one in held.sensitive] == [(KEYS[1], "max"), (KEYS[0], "max")]
    assert str(held.sensitive[0]) == "b:output.0 max strays by 1e-05 of its scale, the others 1e-07 at most"


def test_what_the_presets_allow_needs_no_other_member() -> None:
    assert hold_out([member(), member(), member(1e-5, floor=2e-5)]).factor == 5
    assert hold_out([member(), member(), member(3e-5, floor=2e-5)]).factor is None


def test_what_has_no_scale_or_another_count_of_nan_cannot_be_bounded() -> None:
    assert hold_out([member(math.inf)] * 3).factor is None
    assert hold_out([member(uncountable=True)] * 3).factor is None


@given(arrays(np.float64, (5, 8), elements=st.floats(0, 1)), st.floats(0, 1))
def test_a_factor_that_is_found_holds_for_each_member_by_the_bounds_of_the_others(
    strayed: np.ndarray, floor: float
) -> None:
    members = [member(*row, floor=floor) for row in strayed.tolist()]
    held = hold_out(members)

    def fits(factor: float) -> bool:
        return all(
            (
                strayed[at] <= np.maximum(floor, factor * np.delete(strayed, at, 0).max(axis=0) * (1 + 1e-12))
            ).all()
            for at in range(len(strayed))
        )

    if held.factor is None:
        assert held.sensitive
        assert not fits(FACTORS[-1] * (1 - 1e-9))
    else:
        assert fits(held.factor)
