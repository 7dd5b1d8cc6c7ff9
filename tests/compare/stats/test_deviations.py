"""How far a run strays, measured by numpy on tensors and by this package on their statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pytest_npudump.compare.stats.deviations import deviations, structural_difference
from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tolerances.tolerance import Tolerances

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.dump.table import StatsTable

    Make = Callable[..., StatsTable]


def stats(array: np.ndarray) -> dict[str, Any]:
    wide = array.astype(np.float64)
    return {
        "count": array.size,
        "max": float(wide.max()),
        "min": float(wide.min()),
        "avg": float(wide.mean()),
        "l2norm": float(np.sqrt((wide**2).sum())),
        "nan": 0,
        "neg_inf": 0,
        "pos_inf": 0,
        "digits": None,
    }


def table(make_table: Make, **arrays: np.ndarray) -> StatsTable:
    return make_table(*[(f"{n}:output.0", a.dtype.name, a.shape, stats(a)) for n, a in arrays.items()])


def test_each_statistic_strays_in_its_own_scale(make_table: Make) -> None:
    rng = np.random.default_rng(1)
    before = rng.normal(size=(3, 5)).astype(np.float32)
    after = (before + rng.normal(scale=1e-4, size=(3, 5))).astype(np.float32)
    one, other = table(make_table, a=before, b=before), table(make_table, a=after, b=before)
    found = deviations(compare_tables(one, other, Tolerances()), Tolerances())
    a, b = before.astype(np.float64), after.astype(np.float64)
    magnitude, norm = np.abs(a).max(), np.linalg.norm(a)
    rms = norm / np.sqrt(a.size)
    expected = [
        abs(b.max() - a.max()) / magnitude,
        abs(b.min() - a.min()) / magnitude,
        abs(b.mean() - a.mean()) / rms,
        abs(np.linalg.norm(b) - norm) / norm,
    ]
    np.testing.assert_allclose(found.largest[0], expected, rtol=1e-9)
    assert not found.largest[1].any()
    assert found.differs.tolist() == [True, False]
    assert found.outside.tolist() == [True, False]
    assert found.floor[0, 0] == pytest.approx(2e-5 + 2**-30 / magnitude)


def test_tensors_of_zeros_stray_by_what_their_absolute_tolerance_does_not_forgive(make_table: Make) -> None:
    zeros = np.zeros(4, np.float32)
    one = table(make_table, a=zeros, b=zeros)
    other = table(make_table, a=zeros + np.float32(1e-12), b=zeros + 1)
    found = deviations(compare_tables(one, other, Tolerances()), Tolerances())
    assert not found.largest[0].any()
    assert np.isinf(found.largest[1]).any()


def test_runs_of_other_tensors_are_told_by_what_differs(make_table: Make) -> None:
    a, b = np.ones(4, np.float32), np.ones(5, np.float32)
    assert (
        structural_difference(compare_tables(table(make_table, x=a), table(make_table, x=a), Tolerances()))
        == ""
    )
    for other, words in [
        (table(make_table, x=a, y=a), "y:output.0 is in the later run only"),
        (table(make_table, y=a), "is in the"),
        (table(make_table, x=b), "x:output.0 has another shape: 4 and 5"),
        (table(make_table, x=a.astype(np.float16)), "x:output.0 has another dtype: float32 and float16"),
    ]:
        found = structural_difference(compare_tables(table(make_table, x=a), other, Tolerances()))
        assert words in found
