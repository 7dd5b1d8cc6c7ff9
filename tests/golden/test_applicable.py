"""Which variant counts for a run: exactly one, or an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.dump.table import StatsTable
from pytest_npudump.errors import GoldenError
from pytest_npudump.golden.variants import choose, names_variants, variants_of
from pytest_npudump.record.record import Record
from pytest_npudump.record.text import render


def common(**variants: Any) -> Record:
    table = StatsTable.from_records([])
    producer = {"runtime": "acl", "soc": "A", "cann": "8.0"}
    return Record("t.py::t", producer, table, Path("golden/t.yaml"), {"variants": variants})


def facts(soc: str = "A", cann: str = "8.0", runtime: str = "acl") -> dict[str, str]:
    return {"soc": soc, "cann": cann, "runtime": runtime, "driver": "25"}


def test_the_one_whose_facts_the_run_has_counts_and_it_is_said_why() -> None:
    found = choose(common(b={"soc": "B"}, e={"runtime": "emulator", "soc": "E"}), facts("B"))
    assert found.name == "b"
    assert found.why == "compared with the variant 'b', which t.yaml names for soc B"


def test_none_counts_for_another_run_and_that_is_said() -> None:
    found = choose(common(b={"soc": "B"}), facts("C"))
    assert (found.name, found.foreign) == ("", "of soc A, and this run of soc C")
    assert "none of its variants (b: soc B) is for soc C, cann 8.0, runtime acl" in found.why
    assert choose(common(b={"soc": "B"}), facts("A")).foreign == ""


def test_a_run_that_does_not_tell_a_fact_has_no_variant_by_it() -> None:
    assert choose(common(b={"soc": "B"}), {"runtime": "acl"}).name == ""


def test_the_more_special_one_counts_where_both_fit() -> None:
    given = common(b={"soc": "B"}, b81={"soc": "B", "cann": "8.1"})
    assert choose(given, facts("B", "8.1")).name == "b81"
    assert choose(given, facts("B", "8.0")).name == "b"


@pytest.mark.each(
    ("one", "other"),
    [
        ({"soc": "B"}, {"cann": "8.1"}),
        ({"soc": "B"}, {"soc": "B"}),
        ({"soc": "B", "runtime": "acl"}, {"soc": "B", "cann": "8.1"}),
    ],
)
def test_two_that_fit_one_run_are_an_error_for_every_run(one: dict[str, str], other: dict[str, str]) -> None:
    for run in (facts("B", "8.1"), facts("A")):
        with pytest.raises(GoldenError, match=r"the variants 'x' .* and 'y' .* fit one run"):
            choose(common(x=one, y=other), run)


@pytest.mark.each(
    "bad",
    [
        {"a": {}},
        {"a": {"driver": "25"}},
        {"a": {"soc": 3}},
        {"../a": {"soc": "B"}},
        {"a": "B"},
        {"a@b": {"soc": "B"}},
    ],
)
def test_a_key_that_is_not_as_written_is_an_error(bad: dict[str, Any]) -> None:
    with pytest.raises(GoldenError, match=r"variants is .* expected a mapping such as"):
        variants_of(common(**bad))


def test_the_head_of_a_file_tells_whether_it_names_variants(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    assert not names_variants(path)
    path.write_text(render(common(b={"soc": "B"})), encoding="utf-8")
    assert names_variants(path)
    text = path.read_text(encoding="utf-8").replace("variants:", "others:")
    path.write_text(f"{text}  variants:output.0\n", encoding="utf-8")
    assert not names_variants(path)
    path.write_text("a: " + "x" * 70_000 + "\nvariants: {b: {soc: B}}\ntensors: |\n", encoding="utf-8")
    assert names_variants(path)
