"""One decision a test: whatever the ranks' speed, wishes and failures, all of them act alike."""

from __future__ import annotations

import random
import threading
import time
from itertools import product

import pytest

from pytest_npudump.ranks import exchange as exchanges
from pytest_npudump.ranks.agreement import NO_REPETITION, agree, stand_aside
from pytest_npudump.ranks.exchange import Exchange
from pytest_npudump.ranks.rank import Rank

TEST = "t.py::test"
REFUSED = "not run: all 2 ranks would have to run again together, and "


def ranks(size: int) -> list[Exchange]:
    """Join ``size`` ranks, all of them in this process."""
    return [Exchange(Rank(number, size, number, size)) for number in range(size)]


def together(*functions: object) -> list[tuple[bool, str]]:
    results: list[tuple[bool, str] | None] = [None] * len(functions)

    def run(number: int) -> None:
        results[number] = functions[number]()  # type: ignore[operator]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [result for result in results if result is not None]


@pytest.mark.parametrize("wishes", [*product((False, True), repeat=2)])
def test_ranks_run_again_together_or_not_at_all(wishes: tuple[bool, bool]) -> None:
    first, second = ranks(2)
    answers = together(
        lambda: agree(first, TEST, wants=wishes[0]), lambda: agree(second, TEST, wants=wishes[1])
    )
    assert answers == [(any(wishes), "")] * 2


def test_rank_that_comes_after_the_other_gave_up_acts_as_that_one_did(
    monkeypatch: pytest.MonkeyPatch,
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


def test_no_rank_runs_again_where_one_has_told_its_results() -> None:
    first, second = ranks(2)
    second.post(exchanges.LAST, {})
    assert agree(first, TEST, wants=True) == (False, f"{REFUSED}rank 1 has ended")


def test_wish_of_a_rank_that_has_ended_since_does_not_count() -> None:
    first, second = ranks(2)
    second.post(f"again {TEST}", content=True)
    second.folder.joinpath("here.1").write_text("{}")
    assert agree(first, TEST, wants=True) == (False, f"{REFUSED}rank 1 has ended")


def test_no_rank_runs_again_where_they_are_on_several_machines() -> None:
    again, problem = agree(Exchange(Rank(0, 4, 0, 2)), TEST, wants=True)
    assert not again
    assert "on several machines" in problem


@pytest.mark.parametrize("why", ["its run came to no comparison", NO_REPETITION])
def test_rank_that_cannot_run_again_keeps_nobody_waiting_and_nobody_runs_without_it(why: str) -> None:
    first, second = ranks(2)
    stand_aside(second, TEST, why)
    assert agree(first, TEST, wants=True) == (False, f"{REFUSED}rank 1 will not: {why}")


def test_decision_is_not_undone_by_a_rank_whose_second_run_came_to_nothing() -> None:
    first, second = ranks(2)
    together(lambda: agree(first, TEST, wants=True), lambda: agree(second, TEST, wants=False))
    stand_aside(first, TEST)
    assert agree(second, TEST, wants=False) == (True, "")


def test_all_ranks_act_alike_in_every_interleaving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that come early, late, after the others gave up, stand aside, or come never."""
    monkeypatch.setattr(exchanges, "PATIENCE", 0.06)
    rng = random.Random(7)  # noqa: S311 - nothing secret about it
    members = ranks(3)
    for number in range(40):
        test = f"t.py::test[{number}]"
        wishes = [rng.random() < 0.5 for _ in members]
        delays = [rng.choice((0.0, 0.0, 0.01, 0.055, 0.06, 0.065, 0.1)) for _ in members]
        aside = rng.choice((None, None, None, 0, 1, 2))

        def act(
            member: Exchange, test: str = test, wishes: list[bool] = wishes, delays: list[float] = delays
        ) -> tuple[bool, str]:
            time.sleep(delays[member.rank.number])
            return agree(member, test, wants=wishes[member.rank.number])

        def leave(member: Exchange, test: str = test, delays: list[float] = delays) -> None:
            time.sleep(delays[member.rank.number])
            stand_aside(member, test)

        answers = together(
            *(
                (lambda member=member: leave(member))
                if member.rank.number == aside
                else (lambda member=member: act(member))
                for member in members
            )
        )
        assert len(answers) == len(members) - (aside is not None)
        assert len(set(answers)) == 1, (wishes, delays, aside, answers)
        again, problem = answers[0]
        assert not (again and (problem or aside is not None))
        assert again <= any(wishes)
