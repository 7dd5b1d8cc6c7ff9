"""The short text of projections: what it gives back, and what it hides."""

from __future__ import annotations

import base64

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from pytest_npudump.dump.stats.compact_projections import FINE, doubts, steps, sums_of, texts
from pytest_npudump.dump.stats.projections import project

NUMBER = st.floats(-1e290, 1e290).filter(lambda one: one == 0 or abs(one) > 1e-250)
SUMS = st.lists(NUMBER, min_size=8, max_size=8).filter(any)


@given(SUMS)
@settings(max_examples=100)
def test_a_text_gives_back_what_it_was_made_of_to_a_step(sums: list[float]) -> None:
    told = np.array([sums])
    found = sums_of(texts(told))
    assert texts(found) == texts(told)
    assert (np.abs(found - told) <= doubts(found)).all()
    largest = np.abs(told).max()
    assert (steps(told)[:, :FINE] <= 2.0**-22 * largest).all()
    assert (steps(told)[:, FINE:] <= 2.0**-10 * largest).all()


def test_what_lies_just_below_a_power_is_off_by_up_to_a_step() -> None:
    told = np.array([[0.99999994, 0.1, 0, 0, 0.99999994, -0.99999994, 0.1, 0]])
    found = sums_of(texts(told))
    away = np.abs(found - told)
    assert (away <= doubts(found)).all()
    assert (away > steps(told) / 2).tolist() == [[False] * 4 + [True, True, False, False]]


def test_the_text_is_as_it_is_described() -> None:
    (text,) = texts(np.array([[1.0, -0.5, 0.25, 0, 1, -1, 0.5, 0]]))
    octets = base64.b64decode("AA" + text)
    numbers = [int.from_bytes(octets[at : at + 3], "big") for at in range(0, 21, 3)]
    assert numbers[0] == 2048 + 1  # all are below 2**1
    assert numbers[1:4] == [1 << 22, (1 << 24) - (1 << 21), 1 << 20]
    assert numbers[5:] == [(1 << 10) << 12 | (4096 - (1 << 10)), (1 << 9) << 12]


@pytest.mark.each(
    ("sums", "back"),
    [
        ([0.0] * 8, [0.0] * 8),
        ([float("nan"), *[1.0] * 7], [float("nan")] * 8),
        ([float(2**22 + 1)] * 4 + [0.0] * 4, [float(2**22 + 1)] * 4 + [0.0] * 4),  # integers
        ([1e-310] * 8, [0.0] * 8),
    ],
)
def test_what_has_no_digits_to_lose_comes_back_as_it_is(sums: list[float], back: list[float]) -> None:
    assert np.array_equal(sums_of(texts(np.array([sums])))[0], back, equal_nan=True)


def test_a_peak_that_moves_changes_the_text_as_it_changes_the_projections() -> None:
    peaks = np.eye(214)
    sums = np.array([project(one) for one in peaks])
    assert len({*texts(sums)}) == len({*map(tuple, sums)}) > 120
