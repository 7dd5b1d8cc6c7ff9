"""Totals of rows, against definitions in float64 and in Python's own integers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from pytest_npudump.dump.stats.sums import row_counts, row_totals

ROWS = array_shapes(min_dims=2, max_dims=2, max_side=20)
ELEMENTS = st.one_of(
    st.floats(width=32),
    st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1.5 * 2.0**127, 2.0**-149]),
)


def _same(found: Any, expected: Any) -> None:
    assert found == pytest.approx(expected, rel=1e-12, abs=0, nan_ok=True)


@given(arrays(np.float32, ROWS, elements=ELEMENTS))
def test_each_row_has_the_statistics_of_its_own_elements(rows: Any) -> None:
    values = rows.astype(np.float64)
    with np.errstate(all="ignore"):
        found = [totals.stats() for totals in row_totals(values, whole=False)]
    for stats, row in zip(found, values, strict=True):
        known, finite = row[~np.isnan(row)], row[np.isfinite(row)]
        assert (stats.count, stats.nan) == (row.size, np.isnan(row).sum())
        assert (stats.neg_inf, stats.pos_inf) == ((row == -math.inf).sum(), (row == math.inf).sum())
        assert stats.zero == (row == 0).sum()
        _same(stats.max, known.max() if known.size else math.nan)
        _same(stats.min, known.min() if known.size else math.nan)
        if finite.size == row.size:
            bound = 1e-14 * math.fsum(np.abs(row).tolist())
            assert abs(stats.avg - math.fsum(row.tolist()) / row.size) <= bound
            _same(stats.l2norm, math.sqrt(math.fsum((row * row).tolist())))
        else:
            assert not math.isfinite(stats.avg)
            assert not math.isfinite(stats.l2norm)


@given(arrays(np.int32, ROWS))
def test_integers_stay_integers(rows: Any) -> None:
    for totals, row in zip(row_totals(rows.astype(np.float64), whole=True), rows.tolist(), strict=True):
        expected = (max(row), min(row), sum(row), max(map(abs, row)), row.count(0))
        assert (totals.max, totals.min, totals.sum.value, totals.magnitude, totals.zero) == expected
        assert all(isinstance(one, int) for one in (totals.max, totals.min, totals.sum.value))
        _same(totals.squares.value, float(sum(one * one for one in row)))


@given(arrays(np.bool_, ROWS))
def test_flags_are_counted_by_row(flags: Any) -> None:
    assert row_counts(flags) == [sum(row) for row in flags.tolist()]
