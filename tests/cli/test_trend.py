"""``npudump trend``: statistics of layers over several folders of kept results."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npudump.cli.trend import STATISTICS
from pytest_npudump.cli.trend.sparkline import BLOCKS, DIGITS, sparkline
from pytest_npudump.dump import table

if TYPE_CHECKING:
    from collections.abc import Callable


def test_bars_grow_with_the_numbers() -> None:
    assert sparkline([*range(8)]) == BLOCKS
    assert sparkline([7, 0, None, math.nan, math.inf]) == "█▁.!!"
    assert sparkline([3.0, 3.0]) == "▁▁"
    assert sparkline([1.0, 2.0], DIGITS) == "18"
    assert sparkline([]) == ""


@given(st.lists(st.none() | st.floats() | st.integers(), max_size=20))
def test_every_number_has_one_bar_and_a_larger_one_no_lower(values: list[float | None]) -> None:
    bars = sparkline(values, DIGITS)
    assert len(bars) == len(values)
    finite = sorted(
        (value, bar)
        for value, bar in zip(values, bars, strict=True)
        if value is not None and math.isfinite(value)
    )
    assert [bar for _, bar in finite] == sorted(bar for _, bar in finite)


def test_the_choices_are_the_statistics_of_tables() -> None:
    assert STATISTICS == table.STATISTICS


def test_what_moves_is_shown_the_widest_first(kept: Any, run: Callable[..., Any]) -> None:
    runs = [kept(f"r{at}", {"still": 1.0, "slow": 1 + at / 100, "fast": 1.0 + at}) for at in range(3)]
    done = run("trend", *runs, "--statistic=max")
    assert done.code == 0
    shown = [line.split() for line in done.out.splitlines() if ":output.0" in line]
    assert shown == [
        ["fast:output.0", "max", "▁▅█", "1", "3", "66.7%"],
        ["slow:output.0", "max", "▁▅█", "1", "1.02", "1.96%"],
    ]
    assert "2 of 3 statistics are not the same in all runs" in done.out
    assert "still:output.0" in run("trend", *runs, "-v").out


def test_a_layer_is_chosen_by_glob_and_a_run_that_lacks_it_leaves_a_gap(
    kept: Any, run: Callable[..., Any]
) -> None:
    runs = [kept("a", {"conv": 1.0, "relu": 1.0}), kept("b", {"relu": 2.0}), kept("c", {"conv": 3.0})]
    done = run("trend", *runs, "--layer=c*", "--statistic=max", "--json", "-")
    assert done.json["tests"][0]["series"] == [
        {"key": "conv:output.0", "statistic": "max", "values": [1.0, None, 3.0]}
    ]
    assert "▁.█" in run("trend", *runs, "--layer=conv").out


def test_a_test_or_layer_that_is_there_is_meant_alone_though_its_name_is_a_glob_of_another(
    kept: Any, run: Callable[..., Any]
) -> None:
    for folder, value in (("a", 1.0), ("b", 2.0)):
        for test in ("test_n[1]", "test_n1"):
            path = kept(folder, {"blk[1]": value, "blk1": value}, test=test)
        assert path.name == folder
    words = ("--statistic=max", "--json", "-", "--test=test_a.py::test_n[1]", "--layer=blk[1]")
    [told] = run("trend", path.with_name("a"), path, *words).json["tests"]
    assert told["test"] == "test_a.py::test_n[1]"
    assert [one["key"] for one in told["series"]] == ["blk[1]:output.0"]


def test_a_value_that_becomes_nan_is_the_widest(kept: Any, run: Callable[..., Any]) -> None:
    runs = [kept("a", {"conv": 1.0, "relu": 1.0}), kept("b", {"conv": math.nan, "relu": 9.0})]
    done = run("trend", *runs, "--statistic=max")
    first = next(line for line in done.out.splitlines() if ":output.0" in line)
    assert first.split()[:3] == ["conv:output.0", "max", "▁!"]


def test_a_folder_without_a_result_of_the_test_is_named(kept: Any, run: Callable[..., Any]) -> None:
    one, other = kept("a", {"conv": 1.0}), kept("b", {"conv": 1.0}, test="test_y")
    done = run("trend", one, other)
    assert f"  2: {other}: has no result of it" in done.out


@pytest.mark.parametrize("words", [["--test=nothing"], ["--layer=nothing"]])
def test_what_names_nothing_is_refused(kept: Any, run: Callable[..., Any], words: list[str]) -> None:
    done = run("trend", kept("a", {"conv": 1.0}), *words)
    assert done.code == 2
    assert "nothing" in done.err


def test_a_folder_that_holds_no_results_is_an_error(run: Callable[..., Any], tmp_path: Any) -> None:
    assert run("trend", tmp_path).code == 2


def test_a_damaged_record_is_named_behind_the_rest(kept: Any, run: Callable[..., Any]) -> None:
    one, other = kept("a", {"conv": 1.0}), kept("b", {"conv": 2.0})
    for path in other.joinpath("records").rglob("*.yaml"):
        path.write_text("", "utf-8")
    done = run("trend", one, other)
    assert done.code == 2
    assert "not the record that was kept" in done.err
    assert "(no statistics)" in done.out
