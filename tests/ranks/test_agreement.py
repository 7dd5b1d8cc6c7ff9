"""One decision a test: whatever the ranks' speed, wishes and failures, all of them act alike."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.ranks import rank as exchanges
from pytest_npudump.ranks.agreement import NO_REPETITION, agree, nothing_recorded, stand_aside, why_not_shared
from pytest_npudump.ranks.rank import Exchange, Rank
from tests.conftest import table_of

Ranks = Callable[[int], list[Exchange]]
Together = Callable[..., list[Any]]
TEST = "t.py::test"
REFUSED = "not run: all 2 ranks would have to run again together, and "


def test_ranks_run_again_together_or_not_at_all(ranks: Ranks, together: Together) -> None:
    first, second = ranks(2)
    for one, other in product((False, True), repeat=2):
        test = f"{TEST}[{one}-{other}]"
        answers = together(
            lambda test=test, one=one: agree(first, test, wants=one),
            lambda test=test, other=other: agree(second, test, wants=other),
        )
        assert answers == [(one or other, "")] * 2


def test_rank_that_comes_after_the_other_gave_up_acts_as_that_one_did(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchanges, "PATIENCE", 0.2)
    first, second = ranks(2)
    refused = (False, f"{REFUSED}nothing came from rank 0 within 0.2 seconds")
    assert agree(second, TEST, wants=True) == refused
    assert agree(first, TEST, wants=True) == refused


def test_no_rank_runs_again_where_one_has_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "PATIENCE", 0.2)
    first = Exchange(Rank(0, 2, 0, 2))
    again, problem = agree(first, TEST, wants=True)
    assert not again
    assert problem.startswith(
        f"{REFUSED}rank 1 did not come: start all ranks by one launcher, or set MASTER_ADDR"
    )
    monkeypatch.setattr(exchanges, "PATIENCE", 1000.0)
    assert agree(first, "t.py::another", wants=True) == (False, problem)


def test_no_rank_runs_again_where_one_has_told_its_results(ranks: Ranks) -> None:
    first, second = ranks(2)
    second.post(exchanges.LAST, {})
    assert agree(first, TEST, wants=True) == (False, f"{REFUSED}rank 1 has ended")


def test_wish_of_a_rank_that_has_ended_since_does_not_count(ranks: Ranks) -> None:
    first, second = ranks(2)
    second.post(f"again {TEST}", content=True)
    second.folder.joinpath("here.1").write_text("{}")
    assert agree(first, TEST, wants=True) == (False, f"{REFUSED}rank 1 has ended")


def test_no_rank_runs_again_where_they_are_on_several_machines() -> None:
    again, problem = agree(Exchange(Rank(0, 4, 0, 2)), TEST, wants=True)
    assert not again
    assert "on several machines" in problem


def test_rank_that_cannot_run_again_keeps_nobody_waiting_and_nobody_runs_without_it(ranks: Ranks) -> None:
    first, second = ranks(2)
    for why in ("its run came to no comparison", NO_REPETITION):
        stand_aside(second, why, why)
        assert agree(first, why, wants=True) == (False, f"{REFUSED}rank 1 will not: {why}")


def test_decision_is_not_undone_by_a_rank_whose_second_run_came_to_nothing(
    ranks: Ranks, together: Together
) -> None:
    first, second = ranks(2)
    together(lambda: agree(first, TEST, wants=True), lambda: agree(second, TEST, wants=False))
    stand_aside(first, TEST)
    assert agree(second, TEST, wants=False) == (True, "")


def test_all_ranks_act_alike_in_every_interleaving(
    ranks: Ranks, together: Together, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ranks that come early, late, after the others gave up, stand aside, or come never."""
    monkeypatch.setattr(exchanges, "PATIENCE", 0.06)
    rng = random.Random(7)  # noqa: S311 - nothing secret about it

    def act(member: Exchange, *, wants: bool, delay: float, aside: bool) -> tuple[bool, str] | None:
        time.sleep(delay)
        if aside:
            stand_aside(member, TEST)
            return None
        return agree(member, TEST, wants=wants)

    for batch in range(4):
        rounds, calls = [], []
        for number in range(10):  # runs of their own, at once
            folder = tmp_path / f"{batch}-{number}"
            folder.mkdir()
            monkeypatch.setattr(exchanges, "_COMMON", str(folder))
            members = ranks(3)
            wishes = [rng.random() < 0.5 for _ in members]
            delays = [rng.choice((0.0, 0.0, 0.01, 0.055, 0.06, 0.065, 0.1)) for _ in members]
            aside = rng.choice((None, None, None, 0, 1, 2))
            rounds.append((wishes, delays, aside))
            calls += [
                partial(act, member, wants=wishes[rank], delay=delays[rank], aside=rank == aside)
                for rank, member in enumerate(members)
            ]
        told = together(*calls)
        for number, (wishes, delays, aside) in enumerate(rounds):
            answers = [answer for answer in told[3 * number : 3 * number + 3] if answer is not None]
            assert len(answers) == 3 - (aside is not None)
            assert len(set(answers)) == 1, (wishes, delays, aside, answers)
            again, problem = answers[0]
            assert not (again and (problem or aside is not None))
            assert again <= any(wishes)


EXACT = Tolerances("exact")
OWN = "give each rank a golden of its own with ranks='each'"


def table(*highest: float) -> StatsTable:
    """Table of one row a maximum."""
    return table_of(
        *((f"conv{at}:output.0", "float32", (2, 2), {"max": one}) for at, one in enumerate(highest))
    )


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


def test_golden_that_holds_for_every_rank_is_recorded(compared: Any, ranks: Ranks) -> None:
    assert compared(ranks(3), [table(0.5, 2.0)] * 3) == ["", "", ""]


def test_ranks_may_differ_within_the_test_s_tolerances(compared: Any, ranks: Ranks) -> None:
    tables = [table(0.5, 2.0), table(0.5, 2.0 + 1e-7)]
    assert compared(ranks(2), tables, Tolerances()) == ["", ""]
    assert "differs" in compared(ranks(2), tables)[0]


def test_rank_that_differs_is_named_on_every_rank(compared: Any, ranks: Ranks) -> None:
    words = f"rank 2 differs from rank 0 in conv1:output.0 (mismatches: 1); {OWN}"
    assert compared(ranks(3), [table(0.5, 2.0), table(0.5, 2.0), table(0.5, 3.0)]) == [words] * 3
    assert nothing_recorded(words) == f"nothing was recorded: ranks='same', and {words}"


@pytest.mark.parametrize("highest", [(0.5,), (0.5, 2.0, 3.0), (0.5, float("nan"))])
def test_layer_too_many_or_too_few_is_a_difference(
    compared: Callable[..., list[str]],
    ranks: Ranks,
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


def test_rank_that_is_silent_leaves_nothing_recorded(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "PATIENCE", 0.1)
    members = ranks(2)
    for silent in (0, 1):
        words = f"nothing came from rank {silent} within 0.1 seconds"
        for member in (members[1 - silent], members[silent]):
            assert why_not_shared(member, f"{TEST}[{silent}]", table(0.5), EXACT) == words
