"""A golden that all ranks share: recorded where it holds for each, refused in the same words on all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.ranks import rank as exchanges
from pytest_npudump.ranks.agreement import agree, nothing_recorded, stand_aside, why_not_shared
from pytest_npudump.ranks.rank import Exchange

Ranks = Callable[[int], list[Exchange]]
Together = Callable[..., list[Any]]
TEST = "t.py::test"
EXACT = Tolerances("exact")
OWN = "give each rank a golden of its own with ranks='each'"


@pytest.fixture
def table(make_table: Callable[..., StatsTable]) -> Callable[..., StatsTable]:
    """Table of one row a maximum."""

    def make(*highest: float) -> StatsTable:
        return make_table(
            *(
                (f"conv{number}:output.0", "float32", (2, 2), {"max": one})
                for number, one in enumerate(highest)
            )
        )

    return make


@pytest.fixture
def compared(together: Together) -> Callable[..., list[str]]:
    """Compares the tables of ranks, each in its place."""

    def compare(
        members: list[Exchange], tables: list[StatsTable], tolerances: Tolerances = EXACT
    ) -> list[str]:
        return together(
            *(
                partial(why_not_shared, member, TEST, table, tolerances)
                for member, table in zip(members, tables, strict=True)
            )
        )

    return compare


def test_golden_that_holds_for_every_rank_is_recorded(
    compared: Callable[..., list[str]], ranks: Ranks, table: Callable[..., StatsTable]
) -> None:
    assert compared(ranks(3), [table(0.5, 2.0)] * 3) == ["", "", ""]


def test_ranks_may_differ_within_the_test_s_tolerances(
    compared: Callable[..., list[str]], ranks: Ranks, table: Callable[..., StatsTable]
) -> None:
    tables = [table(0.5, 2.0), table(0.5, 2.0 + 1e-7)]
    assert compared(ranks(2), tables, Tolerances()) == ["", ""]
    assert "differs" in compared(ranks(2), tables)[0]


def test_rank_that_differs_is_named_on_every_rank(
    compared: Callable[..., list[str]], ranks: Ranks, table: Callable[..., StatsTable]
) -> None:
    words = f"rank 2 differs from rank 0 in conv1:output.0 (mismatches: 1); {OWN}"
    assert compared(ranks(3), [table(0.5, 2.0), table(0.5, 2.0), table(0.5, 3.0)]) == [words] * 3
    assert nothing_recorded(words) == f"nothing was recorded: ranks='same', and {words}"


@pytest.mark.parametrize("highest", [(0.5,), (0.5, 2.0, 3.0), (0.5, float("nan"))])
def test_layer_too_many_or_too_few_is_a_difference(
    compared: Callable[..., list[str]],
    ranks: Ranks,
    table: Callable[..., StatsTable],
    highest: tuple[float, ...],
) -> None:
    first, second = compared(ranks(2), [table(0.5, 2.0), table(*highest)])
    assert first == second
    assert first.startswith("rank 1 differs from rank 0 in conv")


@pytest.mark.parametrize("broken", [0, 1])
@pytest.mark.parametrize("leave", [stand_aside, lambda member, test: agree(member, test, wants=False)])
def test_rank_that_has_nothing_to_compare_keeps_nobody_waiting(
    ranks: Ranks,
    together: Together,
    table: Callable[..., StatsTable],
    broken: int,
    leave: Callable[[Exchange, str], object],
) -> None:
    members = ranks(2)
    words = f"rank {broken} has nothing to compare: its run came to no comparison"

    def compare() -> str:
        return why_not_shared(members[1 - broken], TEST, table(0.5), EXACT)

    def go() -> str:
        leave(members[broken], TEST)
        return ""

    def compare_and_agree() -> str:
        why = compare()
        agree(members[1 - broken], TEST, wants=False)
        return why

    assert sorted(together(compare_and_agree, go)) == ["", words]
    assert compare() == words


def test_rank_that_is_silent_leaves_nothing_recorded(
    ranks: Ranks, table: Callable[..., StatsTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchanges, "PATIENCE", 0.1)
    members = ranks(2)
    for silent in (0, 1):
        words = f"nothing came from rank {silent} within 0.1 seconds"
        for member in (members[1 - silent], members[silent]):
            assert why_not_shared(member, f"{TEST}[{silent}]", table(0.5), EXACT) == words
