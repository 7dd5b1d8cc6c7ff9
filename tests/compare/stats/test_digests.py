from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.dump.table import StatsTable

if TYPE_CHECKING:
    from pytest_npudump.compare.stats.verdict import Comparison

STATS = Stats(max=2.0, min=1.0, avg=1.5)


def _table(digest: str, stats: Stats | None, dtype: str = "float16") -> StatsTable:
    key = TensorKey("conv", "output", 0)
    record = TensorRecord(key, "Conv2D", dtype, (3,), Path("statistic.csv"), stats=stats, digest=digest)
    return StatsTable.from_records([record])


def _compare(
    golden: str,
    actual: str,
    stats: Stats | None = None,
    dtype: str = "float16",
    tolerances: Tolerances | None = None,
) -> Comparison:
    sides = _table(golden, stats, dtype), _table(actual, stats, dtype)
    return compare_tables(*sides, tolerances or Tolerances())


def test_a_hash_that_differs_fails_a_tensor_of_which_nothing_else_is_known() -> None:
    found = _compare("md5:aa", "md5:bb")
    (verdict,) = found.failing
    (reason,) = verdict.reasons
    assert (reason.statistic, reason.golden, reason.actual) == ("md5", "aa", "bb")


def test_equal_hashes_judge_a_tensor() -> None:
    found = _compare("sha1:aa", "sha1:aa")
    assert (found.failing, found.unjudged, found.notes) == ((), 0, ())


def test_equal_hashes_leave_no_doubt_about_a_tensor_with_nan() -> None:
    stats = Stats(max=float("nan"), min=float("nan"), avg=float("nan"), nan=3)
    assert _compare("md5:aa", "md5:aa", stats).unjudged == 0
    assert _compare("", "", stats).unjudged == 0
    stats = Stats(max=float("nan"), min=float("nan"), avg=float("nan"), nan=1)
    assert _compare("md5:aa", "md5:aa", stats).unjudged == 0
    assert _compare("", "", stats).unjudged == 1


def test_bits_may_differ_where_the_statistics_agree_within_tolerance_and_a_note_says_so() -> None:
    found = _compare("md5:aa", "md5:bb", STATS)
    assert found.failing == ()
    assert "hashes differ, so that not all bits are equal" in found.notes[0]
    assert "1 of 1 tensors (first: conv:output.0)" in found.notes[0]


@pytest.mark.each(
    ("dtype", "tolerances"),
    [
        ("int32", Tolerances()),
        ("float16", Tolerances("exact")),
        ("float16", Tolerances(rules=(Rule(0, 0, layer="conv"),))),
    ],
)
def test_bits_may_not_differ_where_the_rule_asks_for_equality(dtype: str, tolerances: Tolerances) -> None:
    (verdict,) = _compare("md5:aa", "md5:bb", STATS, dtype, tolerances).failing
    assert verdict.reasons[0].statistic == "md5"


def test_hashes_of_different_kinds_say_nothing() -> None:
    found = _compare("md5:aa", "sha1:bb")
    assert (found.failing, found.unjudged) == ((), 1)


def test_one_of_two_hashes_that_differs_is_a_difference() -> None:
    assert len(_compare("md5:aa sha1:cc", "md5:aa sha1:dd").failing) == 1
    assert not _compare("md5:aa sha1:cc", "sha1:cc").failing


def test_a_hash_that_only_the_golden_has_is_lost_where_other_tensors_of_the_dump_have_one() -> None:
    def table(*digests: str) -> StatsTable:
        return StatsTable.from_records(
            TensorRecord(
                TensorKey(f"conv{number}", "output", 0),
                "Conv2D",
                "int32",
                (3,),
                Path("statistic.csv"),
                stats=Stats(max=3, min=1, avg=2.0),
                digest=digest,
            )
            for number, digest in enumerate(digests)
        )

    (verdict,) = compare_tables(table("md5:aa", "md5:bb"), table("md5:aa", ""), Tolerances()).failing
    assert (verdict.key.layer, verdict.reasons[0].statistic, verdict.reasons[0].actual) == (
        "conv1",
        "md5",
        None,
    )
    none = compare_tables(table("md5:aa", "md5:bb"), table("", ""), Tolerances())
    assert none.failing == ()
    assert none.notes == ("not compared, as no tensor of this dump has it but the golden does: md5",)
    other = compare_tables(table("md5:aa", "md5:bb"), table("sha1:aa", "sha1:bb"), Tolerances())
    assert other.notes[1] == "not compared, as no tensor of the golden has it: sha1"


def test_statistics_that_are_all_nan_are_nothing_beside_a_hash() -> None:
    stats = Stats(max=float("nan"), min=float("nan"), avg=float("nan"), nan=1)
    (verdict,) = _compare("md5:aa", "md5:bb", stats).failing
    assert verdict.reasons[0].statistic == "md5"


def test_a_type_that_the_golden_does_not_know_is_the_dumps() -> None:
    sides = _table("md5:aa", STATS, "-"), _table("md5:bb", STATS)
    assert compare_tables(*sides, Tolerances()).failing == ()


def test_a_hash_that_one_row_of_the_golden_lacks_is_noted() -> None:
    def table(*digests: str) -> StatsTable:
        return StatsTable.from_records(
            TensorRecord(
                TensorKey(name, "output", 0), "", "int8", (3,), Path("x"), stats=STATS, digest=digest
            )
            for name, digest in zip("ab", digests, strict=True)
        )

    found = compare_tables(table("md5:aa", ""), table("md5:aa", "md5:bb"), Tolerances())
    assert found.failing == ()
    assert found.notes == (
        "hash not compared, as the golden does not have it (1 tensors, first: b:output.0)",
    )
