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

from pytest_npudump.ranks import rank as exchanges
from pytest_npudump.ranks.agreement import NO_REPETITION, agree, stand_aside
from pytest_npudump.ranks.rank import Exchange, Rank

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
