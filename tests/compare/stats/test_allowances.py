"""How far statistics are off, how much of their allowance that is, and which bounds were measured."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pytest_npudump.compare.stats.allowances import (
    allowances,
    bounds_by_measurement,
    deviations,
    shares_of_allowed,
    structural_difference,
    told_by_both,
)
from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.dump.table import StatsTable, layer_of
from pytest_npudump.record.noise import Calibrated
from tests.conftest import table_of

LOOSE = Tolerances("exact", (Rule(rtol=0.0, atol=0.5, source="test"),))


def table(**maxima: float | None) -> StatsTable:
    def stats(maximum: float | None) -> Stats:
        shown: dict[str, Any] = {"count": 4, "max": maximum, "min": -1.0, "avg": 0.25, "l2norm": None}
        return Stats(**shown, nan=0, neg_inf=0, pos_inf=0, digits=0)

    return StatsTable.from_records(
        TensorRecord(TensorKey(layer, "output", 0), "Add", "float32", (4,), Path("f"), stats=stats(maximum))
        for layer, maximum in maxima.items()
    )


def shares(golden: StatsTable, actual: StatsTable, tolerances: Tolerances = LOOSE) -> list[float]:
    return shares_of_allowed(compare_tables(golden, actual, tolerances), tolerances).tolist()


def test_a_share_is_the_difference_by_what_it_may_be() -> None:
    found = shares(table(a=1.0, b=1.0, c=1.0), table(a=1.0, b=1.25, c=6.0))
    assert found == [0.0, pytest.approx(0.5), pytest.approx(10.0)]
    # Infinite where nothing may differ or one side is no number, none where only one side has the tensor.
    assert shares(table(a=1.0), table(a=2.0), Tolerances("exact")) == [math.inf]
    assert shares(table(a=1.0), table(a=math.nan)) == [math.inf]
    found = shares(table(a=1.0, b=1.0), table(b=1.0, c=1.0))
    assert sorted(map(math.isnan, found)) == [False, True, True]
    above = Tolerances("exact", (Rule(rtol=0.0, atol=0.5, one_sided="above", source="test"),))
    assert shares(table(a=5.0), table(a=1.0), above) == [0.0]


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), min_size=1, max_size=8))
def test_exceeds_one_exactly_where_the_comparison_fails(pairs: list[tuple[float, float]]) -> None:
    golden = table(**{f"layer{at}": pair[0] for at, pair in enumerate(pairs)})
    actual = table(**{f"layer{at}": pair[1] for at, pair in enumerate(pairs)})
    comparison = compare_tables(golden, actual, LOOSE)
    found = shares_of_allowed(comparison, LOOSE).tolist()
    assert [verdict.status == "fail" for verdict in comparison.verdicts()] == [share > 1 for share in found]


def stats(array: np.ndarray) -> dict[str, Any]:
    wide = array.astype(np.float64)
    values = {"max": wide.max(), "min": wide.min(), "avg": wide.mean(), "l2norm": np.sqrt((wide**2).sum())}
    told = {name: float(value) for name, value in values.items()}
    return {"count": array.size, **told, "nan": 0, "neg_inf": 0, "pos_inf": 0, "digits": None}


def of_arrays(**arrays: np.ndarray) -> StatsTable:
    return table_of(*[(f"{n}:output.0", a.dtype.name, a.shape, stats(a)) for n, a in arrays.items()])


def test_each_statistic_strays_in_its_own_scale() -> None:
    rng = np.random.default_rng(1)
    before = rng.normal(size=(3, 5)).astype(np.float32)
    after = (before + rng.normal(scale=1e-4, size=(3, 5))).astype(np.float32)
    one, other = (of_arrays(a=before, b=before), of_arrays(a=after, b=before))
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
    told = {name: value for name, value in stats(array).items() if name != "digits"}
    one = table_of(("a:output.0", array.dtype.name, array.shape, told))
    sums = (signs @ array.astype(np.float64).ravel())[np.newaxis]
    return replace(one, projections=sums, projected=np.array([True]))


def noisy() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    before = rng.normal(size=64).astype(np.float32)
    return before, before + rng.normal(scale=1e-3, size=64).astype(np.float32)


def test_projections_stray_by_the_norm_of_the_difference() -> None:
    before, after = noisy()
    found = deviations(compare_tables(projected(before), projected(after), Tolerances()), Tolerances())
    wide = before.astype(np.float64)
    apart = np.linalg.norm(after.astype(np.float64) - wide) / np.linalg.norm(wide)
    assert found.largest[0, 4] == pytest.approx(apart, rel=1.0)
    assert found.largest[0, 4] > apart / 2
    assert found.floor[0, 4] == pytest.approx(1.5e-5, rel=0.01)
    assert found.outside.tolist() == [True]


@pytest.mark.each(
    ("cell", "near", "ok", "changed", "wavering"),
    [
        ("~1e-2,1e-2,1e-2,1e-2", False, False, None, 0),  # nobody measured them: the preset judges
        ("~1e-2,1e-2,1e-2,1e-2,1e-2", False, True, None, 1),
        ("1e-2,1e-2,1e-2,1e-2,1e-2", False, True, None, 0),
        ("~1e-2,1e-2,1e-2,1e-2,1e-5", False, False, None, 0),
        ("~1e-2,1e-2,1e-2,1e-2", True, True, 0, 1),
        ("~-,-,-,-,1e-7", True, True, 1, 0),
    ],
)
def test_the_projections_of_noise_pass_where_they_were_measured(
    cell: str, changed: int | None, wavering: int, *, near: bool, ok: bool
) -> None:
    before, after = noisy()
    one = projected(before)
    other = projected((before * np.float32(1 + 2e-6)).astype(np.float32) if near else after)
    found = compare_tables(one, other, Tolerances("same").with_measured(Calibrated.of(one.keys, (cell,))))
    assert (found.ok, found.wavering) == (ok, wavering)
    assert changed in {None, found.changed}


def test_tensors_of_zeros_stray_by_what_their_absolute_tolerance_does_not_forgive() -> None:
    zeros = np.zeros(4, np.float32)
    one = of_arrays(a=zeros, b=zeros)
    other = of_arrays(a=zeros + np.float32(1e-12), b=zeros + 1)
    found = deviations(compare_tables(one, other, Tolerances()), Tolerances())
    assert not found.largest[0].any()
    assert np.isinf(found.largest[1]).any()


def test_runs_of_other_tensors_are_told_by_what_differs() -> None:
    a, b = np.ones(4, np.float32), np.ones(5, np.float32)
    assert structural_difference(compare_tables(of_arrays(x=a), of_arrays(x=a), Tolerances())) == ""
    for other, words in [
        (of_arrays(x=a, y=a), "y:output.0 is in the later run only"),
        (of_arrays(y=a), "is in the"),
        (of_arrays(x=b), "x:output.0 has another shape: 4 and 5"),
        (of_arrays(x=a.astype(np.float16)), "x:output.0 has another dtype: float32 and float16"),
    ]:
        found = structural_difference(compare_tables(of_arrays(x=a), other, Tolerances()))
        assert words in found


BASE: dict[str, Any] = {"count": 4, "max": 2.0, "min": -1.0, "avg": 0.5, "l2norm": 4.0}
DTYPES = ("float32", "float16", "int32")
NUMBERS = ("-", "1e-9", "2e-7", "1e-6", "3e-6", "1e-5", "2e-4", "1e-2", "inf")
RULES = (
    Rule(1e-7, 0.0, layer="block/*", source="marker"),
    Rule(1e-7, 0.0, layer="block_1", statistic="max", source="marker"),
    Rule(1e-7, 0.0, op_type="Conv*", dtype="float32", source="marker"),
    Rule(1e-7, 0.0, dtype="float16", statistic="avg", source="marker"),
)


def measured_by(keys: tuple[str, ...], cells: tuple[str, ...], *, widens: bool = True) -> Calibrated:
    return Calibrated.of(keys, cells, source="calibrated: 9 members, factor 5", widens=widens)


@given(data=st.data())
def test_as_many_are_counted_as_an_explanation_names(data: st.DataObject) -> None:
    averages = st.sampled_from(({}, {"avg": np.nan}, {"avg": None}))
    layers = [f"block/{n}" for n in range(data.draw(st.integers(1, 6)))]
    rows = [
        (f"{layer}:output.0", data.draw(st.sampled_from(DTYPES)), (4,), BASE | data.draw(averages))
        for layer in layers
    ]
    cells = tuple(
        ",".join(data.draw(st.sampled_from(NUMBERS)) for _ in range(data.draw(st.sampled_from((4, 5)))))
        for _ in layers
    )
    types = tuple(data.draw(st.sampled_from(("Conv2D", "Add"))) for _ in layers)
    golden = table_of(*rows)
    actual = replace(golden, op_types=types)
    measured = measured_by(golden.keys, cells, widens=data.draw(st.booleans()))
    rules = tuple(data.draw(st.lists(st.sampled_from(RULES), max_size=2)))
    preset = data.draw(st.sampled_from(("same", "other", "exact")))
    tolerances = Tolerances(preset, rules).with_measured(measured)
    named = {
        one.key
        for one in allowances(actual, tolerances, {*map(layer_of, actual.keys)})
        if tolerances.is_measured(one.rule)
    }
    found = compare_tables(golden, actual, tolerances)
    assert bounds_by_measurement(found, tolerances) == len(named)


@pytest.mark.each(
    ("cells", "count"),
    [
        (("2.6e-7,3e-7,2.6e-7,2.6e-7", "-"), 0),  # 5 times these is within 2e-5, 5e-6 and 1e-5
        (("3.9e-6,3.9e-6,9e-7,1.9e-6", "-"), 0),
        (("4.1e-6,-,-,-", "-"), 1),
        (("-,-,1.1e-6,-", "-"), 1),
        (("-,-,-,2.1e-6", "-"), 1),
        (("-,-,-,-,1e-2", "-"), 0),  # the golden has no projections
        (("inf,-,-,-", "-"), 0),  # a scale of 0 gets no bound
        (("1e-3,-,-,-", "1e-3,-,-,-"), 2),
    ],
)
def test_noise_within_the_preset_s_bound_or_of_a_tensor_that_is_gone_counts_for_none(
    cells: tuple[str, str], count: int
) -> None:
    rows = [(f"{name}:output.0", "float32", (4,), BASE) for name in ("conv", "fc")]
    golden = table_of(*rows)
    tolerances = Tolerances("same").with_measured(measured_by(golden.keys, cells))
    for run, found in ((golden, count), (table_of(rows[0]), min(count, 1))):
        assert bounds_by_measurement(compare_tables(golden, run, tolerances), tolerances) == found


def test_what_was_measured_says_how_many_strayed_and_of_how_many_it_is_the_bound() -> None:
    keys = ("a:output.0", "b:output.0", "c:output.0")
    cells = ("1e-3,-,-,-", "1e-9,-,-,-", "-")
    assert measured_by(keys, cells).describe(1) == (
        "1 of 2 tensors with noise have measured tolerances wider than the preset's "
        "(calibrated: 9 members, factor 5)"
    )
    assert measured_by(keys, cells, widens=False).describe(0) == (
        "tensors with noise that is not a change: 2 (calibrated: 9 members, factor 5)"
    )


SUMS = [1.0] * 8


def told(table: StatsTable, statistic: str) -> dict[str, bool]:
    return dict(zip(table.keys, table.tells(statistic).tolist(), strict=True))


def test_what_one_side_lacks_of_a_shared_tensor_is_left_out() -> None:
    norm, bare = {"max": 1.0, "l2norm": 1.0}, {"max": 1.0}

    def side(**rows: dict[str, float]) -> StatsTable:
        return table_of(*((f"{name}:output.0", "float32", (1,), stats) for name, stats in rows.items()))

    golden = side(gone=norm, a=norm, b=bare).with_projections({0: SUMS, 1: SUMS})
    actual = side(b=norm, a=norm, new=norm).with_projections({0: SUMS, 1: SUMS, 2: SUMS})
    here, there = told_by_both(compare_tables(golden, actual, Tolerances()))
    for statistic in ("l2norm", "projections"):
        assert told(here, statistic) == {"gone:output.0": True, "a:output.0": True, "b:output.0": False}
        assert told(there, statistic) == {"b:output.0": False, "a:output.0": True, "new:output.0": True}
    assert all(told(here, "max").values())
    assert told(golden, "l2norm")["a:output.0"]
    assert told(actual, "projections")["b:output.0"]
    plain = side(a=bare)
    sides = told_by_both(compare_tables(plain.with_projections({0: SUMS}), plain, Tolerances()))
    assert not any(one.tells("projections").any() for one in sides)


def test_a_tensor_of_the_smallest_numbers_has_no_steps() -> None:
    [found] = allowances(table_of(("a:output.0", "float32", (1,), {"max": 5e-324})), Tolerances(), {"a"})
    assert (found.magnitude, found.steps) == (5e-324, None)
