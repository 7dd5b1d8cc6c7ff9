"""What reports for CI services say of a test's sources and counts."""

from __future__ import annotations

from pytest_npudump.report.ci import Judged, counts_of, sources_of


def test_sources_name_what_each_explains_and_how_many_more_there_are() -> None:
    first = [{"key": f"Conv@{n}:output.0", "explains": 9 - n} for n in range(3)]
    told = sources_of({"status": "failed", "first": "x", "sources": {"in_all": 5, "first": first}})
    assert told == (
        "Conv@0:output.0 (8 downstream), Conv@1:output.0 (7 downstream), Conv@2:output.0 (6 downstream) "
        "and 2 more"
    )
    sources = {"in_all": 1, "first": first[:1]}
    assert sources_of({"first": "x", "fail": 9, "sources": sources}) == "Conv@0:output.0 (8 downstream)"
    assert (
        sources_of({"first": "x", "fail": 10, "sources": sources})
        == "Conv@0:output.0 (at least 8 downstream)"
    )


def test_without_sources_the_first_difference_or_operator_is_named() -> None:
    assert sources_of({"first": "a:output.0"}) == "a:output.0"
    assert sources_of({"first": None, "operator": "MatMul"}) == "MatMul"
    assert sources_of({"first": "a", "sources": {"in_all": 0, "first": []}}) == "a"
    assert sources_of({}) == ""


def test_counts_name_only_what_there_is() -> None:
    result = {"expected": 9, "compared": 8, "fail": 2, "missing": 1, "extra": 0, "changed": 3}
    assert counts_of(result) == "8 of 9 compared, 2 outside, 1 missing, 3 changed within tolerance"
    assert counts_of({"status": "error"}) == ""


def test_a_good_comparison_in_a_test_that_failed_otherwise_is_not_good() -> None:
    assert Judged({"status": "passed"}, failed=False, file="t.py", line=1).good
    assert not Judged({"status": "passed"}, failed=True, file="t.py", line=1).good
    assert not Judged({"status": "golden missing"}, failed=False, file="t.py", line=1).good
