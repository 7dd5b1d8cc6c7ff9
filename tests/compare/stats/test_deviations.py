"""How far a run strays, measured by numpy on tensors and by this package on their statistics."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pytest_npudump.compare.stats.allowances import deviations, structural_difference
from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tolerances.calibrated import Calibrated
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.dump.table import StatsTable

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[..., StatsTable]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


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
    np.testing.assert_allclose(found.largest[0], [*expected, 0.0], rtol=1e-9)
    assert not found.largest[1].any()
    assert found.differs.tolist() == [True, False]
    assert found.outside.tolist() == [True, False]
    assert found.floor[0, 0] == pytest.approx(2e-5 + 2**-30 / magnitude)


def projected(array: np.ndarray) -> StatsTable:
    """A table with projections by signs of numpy's own, which estimate norms as any random ones do."""
    signs = np.random.default_rng(7).choice([-1.0, 1.0], size=(8, array.size))
    one = StatsTable.from_records(
        [
            TensorRecord(
                TensorKey("a", "output", 0),
                "Conv",
                array.dtype.name,
                array.shape,
                None,  # type: ignore[arg-type]
                stats=Stats(**{k: v for k, v in stats(array).items() if k != "digits"}),
            )
        ]
    )
    sums = (signs @ array.astype(np.float64).ravel())[np.newaxis]
    return replace(one, projections=sums, projected=np.array([True]))


def test_projections_stray_by_the_norm_of_the_difference(rng: np.random.Generator) -> None:
    before = rng.normal(size=64).astype(np.float32)
    after = before + rng.normal(scale=1e-3, size=64).astype(np.float32)
    found = deviations(compare_tables(projected(before), projected(after), Tolerances()), Tolerances())
    wide = before.astype(np.float64)
    apart = np.linalg.norm(after.astype(np.float64) - wide) / np.linalg.norm(wide)
    assert found.largest[0, 4] == pytest.approx(apart, rel=1.0)
    assert found.largest[0, 4] > apart / 2
    assert found.floor[0, 4] == pytest.approx(1.5e-5, rel=0.01)
    assert found.outside.tolist() == [True]


@pytest.mark.each(
    ("cell", "ok", "wavering"),
    [
        ("~1e-2,1e-2,1e-2,1e-2", False, 0),  # nobody measured the projections: the preset judges them
        ("~1e-2,1e-2,1e-2,1e-2,1e-2", True, 1),
        ("1e-2,1e-2,1e-2,1e-2,1e-2", True, 0),
        ("~1e-2,1e-2,1e-2,1e-2,1e-5", False, 0),
    ],
)
def test_the_projections_of_noise_pass_where_they_were_measured(
    rng: np.random.Generator, cell: str, wavering: int, *, ok: bool
) -> None:
    before = rng.normal(size=64).astype(np.float32)
    after = before + rng.normal(scale=1e-3, size=64).astype(np.float32)
    one, other = projected(before), projected(after)
    found = compare_tables(one, other, Tolerances("same").with_measured(Calibrated.of(one.keys, (cell,))))
    assert (found.ok, found.wavering) == (ok, wavering)


@pytest.mark.each(("cell", "changed"), [("~1e-2,1e-2,1e-2,1e-2", 0), ("~-,-,-,-,1e-7", 1)])
def test_unmeasured_projections_make_no_change_of_what_does_not_repeat(
    rng: np.random.Generator, cell: str, changed: int
) -> None:
    before = rng.normal(size=64).astype(np.float32)
    one, other = projected(before), projected((before * np.float32(1 + 2e-6)).astype(np.float32))
    found = compare_tables(one, other, Tolerances("same").with_measured(Calibrated.of(one.keys, (cell,))))
    assert (found.ok, found.changed, found.wavering) == (True, changed, 1 - changed)


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
