"""Projections and hashes: what they see, what they may differ by, and what is said of others."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

from pytest_npudump.compare.stats.allowances import allowances
from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.stats.verdict import Comparison
from pytest_npudump.compare.tolerances.rules import parse_rules
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.dump.stats.compact_projections import as_printed
from pytest_npudump.dump.stats.tensor import projected_stats, tensor_stats
from pytest_npudump.dump.table import StatsTable, layer_of
from pytest_npudump.errors import RequestError
from pytest_npudump.record.noise import Calibrated
from pytest_npudump.record.record import Record
from pytest_npudump.record.text import parse, render

PATH = Path("golden/t.yaml")


def record(array: np.ndarray, layer: str = "fc", *, projections: bool = True) -> TensorRecord:
    stats = (projected_stats if projections else tensor_stats)(array)
    return TensorRecord(
        TensorKey(layer, "output", 0), "", array.dtype.name, array.shape, Path("f"), stats=stats
    )


def approved(*records: TensorRecord) -> StatsTable:
    """A golden's table, as it is read from its file."""
    return parse(render(Record("t", {}, StatsTable.from_records(records), PATH)), PATH).table


def judged(golden: np.ndarray, actual: np.ndarray, tolerances: Tolerances | None = None) -> Comparison:
    return compare_tables(
        approved(record(golden)), StatsTable.from_records([record(actual)]), tolerances or Tolerances("same")
    )


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@pytest.mark.each("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.int32])
@pytest.mark.each("size", [3, 5_000, 70_000])
def test_what_repeats_is_identical_to_its_golden(dtype: type, size: int) -> None:
    array = (50 * noise(size)).astype(dtype)
    found = judged(array, array.copy())
    assert (found.ok, found.changed, found.identical, found.notes) == (True, 0, 1, ())


@pytest.mark.each("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.int32, np.bool_])
def test_rows_that_change_places_fail_by_projections_alone(dtype: type) -> None:
    array = (50 * noise(40, 60)).astype(dtype) if dtype != np.bool_ else noise(40, 60) > 0
    found = judged(array, array[[1, 0, *range(2, 40)]])
    [verdict] = found.failing
    told = {reason.statistic for reason in verdict.reasons}
    assert "projections" in told <= {"projections", "avg", "l2norm"}
    assert found.first_change == verdict.key


CHANGES = {
    "one": lambda a, rng: np.add.at(a, rng.integers(a.size), a.dtype.type(1)),
    "apart": lambda a, rng: np.add.at(
        a, rng.choice(a.size, 2, replace=False), np.array([1, -1]).astype(a.dtype)
    ),
    "places": lambda a, rng: a.put(at := rng.choice(a.size, 2, replace=False), a[at[::-1]]),
}


@pytest.mark.each("change", [*CHANGES])
@pytest.mark.each(
    ("dtype", "size", "magnitude"),
    [
        *[("int64", 10, 1 << power) for power in (31, 40, 52, 53, 54, 56, 60, 62)],
        *[("int64", 1 << 20, 1 << power) for power in (15, 40, 60)],
        ("int64", 1000, -(1 << 54)),
        ("uint64", 10, (1 << 63) + 5),
        ("uint32", 1 << 20, 1 << 31),
        ("int32", 1 << 20, 1 << 29),
        ("int16", 1 << 20, 30_000),
        ("int8", 1 << 20, 100),
        ("bool", 1 << 20, 1),
    ],
)
def test_any_element_of_integers_that_changes_fails(
    dtype: str, size: int, magnitude: int, change: str
) -> None:
    rng = np.random.default_rng(size)
    array = (rng.integers(0, 2, size) if dtype == "bool" else np.arange(size) % 27).astype(dtype)
    array = array if dtype == "bool" else array + np.array(magnitude).astype(dtype)
    now = array.copy()
    while np.array_equal(now, array):
        CHANGES[change](now.view("u1") if dtype == "bool" else now, rng)
    for first in (record(array), *as_printed([record(array)])):
        golden = approved(first)
        assert compare_tables(golden, StatsTable.from_records([record(array)]), Tolerances("same")).ok
        [run] = as_printed([record(now)]) if golden.summed else [record(now)]
        found = compare_tables(golden, StatsTable.from_records([run]), Tolerances("same"))
        assert not found.ok
        assert (found.changed, found.first_change) == (0, found.failing[0].key)


def test_a_checksum_fails_what_has_to_be_equal_alone() -> None:
    array = np.arange(10) + (1 << 54)
    now = array + (np.arange(10) == 5)
    key, told = "fc:output.0", {"layer": "fc", "dtype": "int64"}
    spread = Calibrated.of([key], ["~-,-,-,-"], source="two runs", repeats=True, widens=False)

    def found(golden: TensorRecord, run: TensorRecord, tolerances: Tolerances | None = None) -> Comparison:
        return compare_tables(
            approved(golden), StatsTable.from_records([run]), tolerances or Tolerances("same")
        )

    without, other = (replace(record(array), stats=replace(record(array).stats, checksum="")), record(now))
    [reason] = found(record(array), other).failing[0].reasons
    assert (reason.statistic, reason.allowed) == ("checksum", None)
    assert (reason.golden, reason.actual) == (record(array).stats.checksum, other.stats.checksum)
    for name in ("max", "avg"):  # statistics of their own, as of projections that see the change
        assert not found(record(array), other, rules(statistic=name, **told)).ok
    for tolerances in (
        rules(statistic="projections", **told),
        rules(rtol=0, atol=1, **told),
        rules(rtol=0, one_sided="above", **told),
        replace(Tolerances("same"), measured=spread),
    ):
        looser = found(record(array), other, tolerances)
        assert (looser.ok, len(looser.differing) + len(looser.within_noise), looser.notes) == (True, 1, ())
    for sides in ((without, other), (other, without)):  # a golden of an earlier version; a device's run
        older = found(*sides)
        assert (older.ok, older.changed, older.notes) == (True, 0, ())
    retyped = replace(other, dtype="int32")
    assert [one.statistic for one in found(record(array), retyped).failing[0].reasons] == ["dtype"]


@pytest.mark.each("dtype", [np.complex64, np.float64, ml_dtypes.float8_e4m3fn, np.uint8])
def test_any_numeric_type_and_empty_tensors_and_scalars_are_judged(dtype: type) -> None:
    array = np.abs(50 * noise(20, 30)).astype(dtype)
    for one in (array, np.zeros((0, 3), np.float32), np.array(2.5, np.float32)):
        assert judged(one, one).ok
    found = judged(array, array[::-1].copy())
    assert "projections" in {reason.statistic for reason in found.failing[0].reasons}


def test_the_reason_tells_how_far_the_elements_are_off_where_there_are_as_many() -> None:
    array = noise(40, 60)
    changed = array[[1, 0, *range(2, 40)]]
    [reason] = [r for r in judged(array, changed).failing[0].reasons if r.statistic == "projections"]
    assert isinstance(reason.actual, float)
    assert reason.actual == pytest.approx(float(np.linalg.norm(changed - array)), rel=0.6)
    expected = 1.5e-5 * float(np.linalg.norm(array)) + 2.0**-30 * math.sqrt(array.size)
    assert reason.allowed == pytest.approx(expected, rel=1e-3)
    assert str(reason).startswith("projections: the elements differ by an l2norm of about ")
    assert "preset same" in str(reason)
    told = {reason.statistic for reason in judged(array, noise(40, 61)).failing[0].reasons}
    assert "projections" not in told >= {"shape", "count"}


@pytest.mark.each(
    ("dtype", "presets", "bound"),
    [
        ("float32", "same other", 1.5e-5),
        ("float32", "hf32", 1.5e-2),
        ("float16", "same", 1e-3),
        ("float16", "other", 1.5e-2),
        ("bfloat16", "other", 0.15),
        ("float32", "torch", 1.3e-6),
        ("int8", "other", 0.0),
    ],
)
def test_bounds_are_those_of_the_preset(dtype: str, presets: str, bound: float) -> None:
    for preset in presets.split():
        assert Tolerances(preset).decide("fc", dtype, "projections").rtol == bound


@given(st.floats(0.1, 0.7), st.integers(0, 50))
def test_noise_well_within_the_bound_passes_and_is_counted_as_change(share: float, seed: int) -> None:
    array, error = noise(100, 30), noise(100, 30, seed=seed + 1)
    scale = float(np.linalg.norm(array)) * 1.5e-5 / float(np.linalg.norm(error))
    loose: dict[str, object] = {"rtol": 1, "atol": 1, "reason": "not looked at"}
    others = [{"statistic": name, **loose} for name in ("max", "min", "avg", "l2norm")]
    only_projections = Tolerances("same").extended(parse_rules(others, preset="same", source="test"))
    found = judged(array, array + 0.5 * share * scale * error, only_projections)
    assert (found.ok, found.changed) == (True, 1)
    found = judged(array, array + np.float32(10 * scale) * error, only_projections)
    assert [reason.statistic for reason in found.failing[0].reasons] == ["projections"]


def test_the_digits_of_a_golden_are_no_change() -> None:
    for seed in range(20):
        array = noise(33, 70, seed=seed)
        assert judged(array, array, Tolerances("exact")).ok
        sides = approved(*as_printed([record(array)])), StatsTable.from_records([record(array)])
        for tables in (sides, sides[::-1]):
            found = compare_tables(*tables, Tolerances("exact"))
            assert (found.ok, found.changed) == (True, 0)
        near = StatsTable.from_records([record(array * np.float32(1 + 3e-6))])
        found = compare_tables(sides[0], near, Tolerances("same"))
        assert (found.ok, found.changed) == (True, 1)
        found = judged(array, array[::-1].copy(), Tolerances("exact"))
        assert "projections" in {reason.statistic for reason in found.failing[0].reasons}


def test_elements_beside_nan_and_infinities_are_judged() -> None:
    mask = noise(64, 64)
    mask[np.triu_indices(64, 1)] = -math.inf
    changed = mask.copy()
    changed[40, :20] = mask[40, 19::-1]
    same = judged(mask, mask)
    assert same.ok
    assert same.notes == ()
    assert {r.statistic for r in judged(mask, changed).failing[0].reasons} == {"projections"}
    moved = mask.copy()
    moved[5, 3], moved[5, 6] = -math.inf, mask[5, 3]
    assert not judged(mask, moved).ok
    nan = np.full((4, 4), math.nan, np.float32)
    assert judged(nan, nan).ok


def test_projections_that_one_side_lacks_are_noted_and_those_that_a_dump_lost_fail() -> None:
    one, other = noise(40, 60), noise(30, seed=1)
    full = [record(one), record(other, "fc2")]
    bare = [record(one, projections=False), record(other, "fc2", projections=False)]
    for golden, dump, note in (
        (bare[:1], full[:1], "the golden does not have it: projections (tensors: 1"),
        (full, bare, "no tensor of this dump has it but the golden does: projections (tensors: 2"),
    ):
        found = compare_tables(approved(*golden), StatsTable.from_records(dump), Tolerances("same"))
        assert (found.ok, found.notes) == (True, (f"not compared, as {note}, first: fc:output.0)",))
    lost = StatsTable.from_records([bare[0], full[1]])
    (verdict,) = compare_tables(approved(*full), lost, Tolerances("same")).failing
    assert str(verdict.key) == "fc:output.0"
    assert "the dump has none" in str(verdict.reasons[0])


def rules(**rule: object) -> Tolerances:
    parsed = parse_rules([{"rtol": 0.9, "atol": 0, "reason": "x", **rule}], preset="same", source="test")
    return Tolerances("same").extended(parsed)


def test_rules_by_statistic_and_for_all_of_them_hold() -> None:
    array = noise(40, 60)
    changed = array[[1, 0, *range(2, 40)]]
    for rule, ok in (
        ({"statistic": "projections"}, True),
        ({"layer": "f*"}, True),
        ({"statistic": "projections", "rtol": 0, "atol": 1}, True),  # of each element
        ({"statistic": "projections", "rtol": 0, "atol": 0.1}, False),
        ({"statistic": "max"}, False),
    ):
        assert judged(array, changed, rules(**rule)).ok is ok, rule
    assert rules(statistic="projections").unmatched(approved(record(array))) == ()
    with pytest.raises(RequestError, match="allows more than the preset"):
        rules(statistic="projections", reason="")
    found = judged(array, changed, rules(one_sided="above", rtol=1e-5))
    assert found.ok
    assert any("as a one-sided rule is about them: projections" in note for note in found.notes)
    with pytest.raises(RequestError, match="projections have no side"):
        rules(statistic="projections", one_sided="above")


def test_an_allowance_tells_its_width_by_element() -> None:
    array = noise(40, 60)
    golden = approved(record(array))
    found = list(allowances(golden, Tolerances("same"), {*map(layer_of, golden.keys)}))
    assert [one.statistic for one in found] == ["max", "min", "avg", "l2norm", "projections"]
    last = found[-1]
    assert last.value == pytest.approx(float(np.linalg.norm(array)))
    assert last.allowed == pytest.approx(1.5e-5 * last.value + 2.0**-30 * math.sqrt(array.size))
    assert last.share is not None
    assert last.share < 1.5e-5
    assert not last.blind


def test_huge_values_are_no_false_alarm_and_infinite_sums_no_pass() -> None:
    array = np.full((4, 6), 1e300)
    assert judged(array, array * (1 + 1e-9)).ok
    assert not judged(array, array * (1 + 1e-3)).ok
    sums = record(array)
    assert sums.stats is not None
    odd = replace(sums, stats=replace(sums.stats, projections=(math.inf, *sums.stats.projections[1:])))  # type: ignore[index]
    assert not compare_tables(approved(sums), StatsTable.from_records([odd]), Tolerances("same")).ok
    assert compare_tables(approved(odd), StatsTable.from_records([odd]), Tolerances("same")).ok


@pytest.mark.each("odd", [-np.inf, np.inf, np.nan])
def test_rows_of_a_mask_of_zeros_and_infinities_that_change_places_fail(odd: float) -> None:
    mask = np.where(noise(64, 64) > 0, np.float32(0), np.float32(odd))
    assert not judged(mask, mask[::-1]).ok
    assert (judged(mask, mask).ok, judged(mask, mask).notes) == (True, ())
    mask[0, 0] = 1
    assert not judged(mask, mask[::-1]).ok


def test_a_mask_of_a_golden_that_knows_no_places_is_not_compared_and_a_note_says_so() -> None:
    mask = np.where(noise(64, 64) > 0, np.float32(0), np.float32(-np.inf))
    now = record(mask)
    old = replace(now, stats=replace(now.stats, projections=(0.0,) * 8))
    found = compare_tables(approved(old), StatsTable.from_records([now]), Tolerances("same"))
    assert (found.ok, found.changed) == (True, 0)
    assert any("an earlier version knows no places of NaN" in note for note in found.notes)


STATS = Stats(max=2.0, min=1.0, avg=1.5)


def _table(*digests: str, stats: Stats | None = None, dtype: str = "int32") -> StatsTable:
    return StatsTable.from_records(
        TensorRecord(TensorKey(f"conv{at}", "output", 0), "", dtype, (3,), PATH, stats=stats, digest=digest)
        for at, digest in enumerate(digests)
    )


def _compare(
    golden: str, actual: str, stats: Stats | None = None, dtypes: str = "float16", *rules: Rule
) -> Comparison:
    first, _, second = dtypes.partition(" ")
    sides = (_table(golden, stats=stats, dtype=first), _table(actual, stats=stats, dtype=second or first))
    return compare_tables(*sides, Tolerances(rules=rules))


NANS = [Stats(max=math.nan, min=math.nan, avg=math.nan, nan=number) for number in (1, 3)]


@pytest.mark.each(
    ("given", "failing", "unjudged"),
    [
        (("md5:aa", "md5:bb"), ["md5"], 0),
        (("sha1:aa", "sha1:aa"), [], 0),
        (("md5:aa", "sha1:bb"), ["md5"], 0),  # of different kinds: lost, and nothing else is known
        (("md5:aa", "", STATS, "int32"), ["md5"], 0),  # which an order of other elements passes
        (("md5:aa", "", STATS), [], 0),
        (("md5:aa sha1:cc", "md5:aa sha1:dd"), ["sha1"], 0),
        (("md5:aa sha1:cc", "sha1:cc"), [], 0),
        (("md5:aa", "md5:bb", STATS, "int32"), ["md5"], 0),
        (("md5:aa", "md5:bb", STATS, "float16", Rule(0, 0, layer="conv0")), ["md5"], 0),
        (("md5:aa", "md5:bb", STATS, "- float16"), [], 0),  # the type is the dump's
        (("md5:aa", "md5:bb", NANS[0]), ["md5"], 0),
        (("md5:aa", "md5:aa", NANS[0]), [], 0),
        (("", "", NANS[0]), [], 1),
        (("md5:aa", "md5:aa", NANS[1]), [], 0),
        (("", "", NANS[1]), [], 0),  # all are NaN
    ],
)
def test_what_hashes_say_beside_statistics_and_alone(given: Any, failing: list[str], unjudged: int) -> None:
    found = _compare(*given)
    assert [reason.statistic for verdict in found.failing for reason in verdict.reasons] == failing
    assert found.unjudged == unjudged


def test_the_reason_has_both_hashes_and_bits_may_differ_where_the_statistics_agree_with_a_note() -> None:
    (reason,) = _compare("md5:aa", "md5:bb").failing[0].reasons
    assert (reason.statistic, reason.golden, reason.actual) == ("md5", "aa", "bb")
    found = _compare("md5:aa", "md5:bb", STATS)
    assert found.failing == ()
    assert "hashes differ, statistics are within tolerance" in found.notes[0]
    assert "1 of 1 tensors (first: conv0:output.0)" in found.notes[0]


def test_a_hash_that_only_one_side_has_is_lost_or_noted() -> None:
    def compared(golden: tuple[str, str], actual: tuple[str, str]) -> Comparison:
        return compare_tables(
            *(_table(*side, stats=STATS, dtype="float16") for side in (golden, actual)), Tolerances()
        )

    both = ("md5:aa", "md5:bb")
    (verdict,) = compared(both, ("md5:aa", "")).failing
    reason = verdict.reasons[0]
    assert (verdict.key.layer, reason.statistic, reason.actual) == ("conv1", "md5", None)
    lost = "not compared, as no tensor of this dump has it but the golden does: md5"
    for golden, actual, notes in (
        (both, ("", ""), (lost,)),
        (both, ("sha1:aa", "sha1:bb"), (lost, "not compared, as no tensor of the golden has it: sha1")),
        (
            ("md5:aa", ""),
            both,
            ("hash not compared, as the golden does not have it (tensors: 1, first: conv1:output.0)",),
        ),
    ):
        found = compared(golden, actual)
        assert (found.failing, found.notes[: len(notes)]) == ((), notes)
