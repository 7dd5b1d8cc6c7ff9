"""What ranks tell each other and decide, through processes that live, end and never come."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from pytest_npudump.errors import RequestError
from pytest_npudump.ranks import rank as exchange
from pytest_npudump.ranks.agreement import absence, compare_notes, printed
from pytest_npudump.ranks.rank import LAST, Exchange, Rank, current_rank

Ranks = Callable[[int], list[Exchange]]
Together = Callable[..., list[Any]]


def end(ended: Exchange) -> None:
    """Have the rank's process be one that has ended."""
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    here = ended.folder / f"here.{ended.rank.number}"
    here.write_text(json.dumps({"process": done.pid, "began": 1}))


def test_every_rank_hears_what_all_have_told(ranks: Ranks) -> None:
    first, second, third = ranks(3)
    for member, word in ((second, "b"), (third, "c"), (first, "a")):
        member.post("word", {"it": word})
    heard = {0: {"it": "a"}, 1: {"it": "b"}, 2: {"it": "c"}}
    assert first.gather("word") == second.gather("word") == third.gather("word") == heard


def test_rank_waits_for_one_that_is_late(ranks: Ranks) -> None:
    first, second = ranks(2)
    first.post("word", 1)
    timer = threading.Timer(0.1, lambda: second.post("word", 2))
    timer.start()
    assert first.gather("word") == {0: 1, 1: 2}
    timer.join()


def test_rank_that_says_nothing_more_is_not_waited_for(ranks: Ranks) -> None:
    first, second, third, _ = ranks(4)
    first.post("word", 1)
    end(second)
    third.post(LAST, {})
    began = time.monotonic()
    assert first.gather("word", patience=30, of=(0, 1, 2)) == {0: 1}
    third.decide("question", content=False)
    assert first.gather("another word", patience=30, unless="question") == {}
    assert time.monotonic() - began < 10


def test_rank_that_never_comes_is_waited_for_no_longer_than_patience_lasts() -> None:
    first = Exchange(Rank(0, 2, 0, 2))
    first.post("word", 1)
    assert first.gather("word", patience=0.2) == {0: 1}


def test_word_of_a_rank_that_has_ended_is_heard(ranks: Ranks) -> None:
    first, second = ranks(2)
    second.post("word", 2)
    end(second)
    first.post("word", 1)
    assert first.gather("word", patience=30) == {0: 1, 1: 2}


def test_rank_that_has_not_come_is_waited_for_once_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "PATIENCE", 0.2)
    first, second = (Exchange(Rank(number, 3, number, 3)) for number in range(2))
    second.post("word", 2)
    assert first.gather("word", of=(1, 2)) == {1: 2}
    monkeypatch.setattr(exchange, "PATIENCE", 1000.0)
    assert second.gather("word", of=(1, 2)) == {1: 2}
    assert first.gather("another word", of=(2,)) == {}
    assert first.absent == second.absent == {2}
    late = Exchange(Rank(2, 3, 2, 3))
    assert late.folder == first.folder
    assert not first.lives(2)


def test_first_decision_stands_for_every_rank(ranks: Ranks) -> None:
    first, second, third = ranks(3)
    assert first.decided("question") is None
    assert second.decide("question", {"answer": 2}) == {"answer": 2}
    assert first.decide("question", {"answer": 1}) == third.decided("question") == {"answer": 2}


def test_rank_0_is_told_which_ranks_differ_and_lets_them_go(ranks: Ranks, together: Together) -> None:
    first, second, third = ranks(3)

    def rank_0() -> tuple[str, ...]:
        lines = compare_notes(first, {"a.py::x": "", "a.py::y": ""})
        printed(first)
        return lines

    results = together(
        rank_0,
        lambda: compare_notes(second, {"a.py::x": "conv1:output.0", "a.py::y": ""}),
        lambda: compare_notes(third, {"a.py::x": "fc:output.0", "a.py::y": "golden missing"}),
    )
    assert results == [
        (
            "a.py::x fails on 2 of 3 ranks: 1 (conv1:output.0), 2 (fc:output.0)",
            "a.py::y fails on 1 of 3 ranks: 2 (golden missing)",
        ),
        (),
        (),
    ]


def test_rank_without_a_result_is_named(ranks: Ranks) -> None:
    first, second = ranks(2)
    end(second)
    assert compare_notes(first, {}) == ("no result from rank 1",)


def test_rank_that_did_not_come_is_said_once_and_the_first_that_did_prints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange, "PATIENCE", 0.2)
    second = Exchange(Rank(1, 2, 1, 2))
    lines = compare_notes(second, {"a.py::x": "conv1:output.0"})
    assert lines == ("a.py::x fails on 1 of 2 ranks: 1 (conv1:output.0)", absence([0]))
    printed(second)
    assert second.gather("printed", of=(1,), last=None) == {1: True}


LAUNCHED = [
    ({}, None),
    ({"RANK": "0", "WORLD_SIZE": "1"}, None),
    ({"RANK": "3"}, None),
    ({"WORLD_SIZE": "8"}, None),
    ({"RANK": "1", "WORLD_SIZE": "2"}, Rank(1, 2, 1, 2)),
    ({"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8"}, Rank(9, 16, 1, 8)),
    ({"RANK_ID": "2", "RANK_SIZE": "4"}, Rank(2, 4, 2, 4)),
    ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}, Rank(1, 2, 1, 2)),
    ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}, Rank(1, 2, 1, 2)),
    ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.3"}, Rank(1, 2, 1, 2)),
    ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "::1"}, Rank(1, 2, 1, 2)),
    ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": " "}, Rank(1, 2, 1, 2)),
    ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": socket.gethostname()}, Rank(1, 2, 1, 2)),
    ({"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "MASTER_ADDR": "192.0.2.7"}, Rank(9, 16, 1, 0)),
    ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "192.0.2.7"}, Rank(1, 2, 1, 2)),
    ({"RANK_ID": "7", "RANK_SIZE": "8", "RANK": " 1 ", "WORLD_SIZE": "2"}, Rank(1, 2, 1, 2)),
]


@pytest.mark.each(("environment", "expected"), LAUNCHED)
def test_rank_is_read_from_launcher_s_variables(environment: dict[str, str], expected: Rank | None) -> None:
    assert current_rank(environment) == expected


def test_ranks_on_several_machines_are_told_by_the_number_on_this_one() -> None:
    assert Rank(9, 16, 1, 8).spans_machines
    assert Rank(9, 16, 1, 0).spans_machines
    assert not Rank(1, 2, 1, 2).spans_machines


def test_address_that_nobody_knows_is_another_machine_s(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    variables = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "master.of.another.machine"}
    assert current_rank(variables) == Rank(1, 2, 1, 0)


def test_rank_names_itself_and_the_number_of_ranks() -> None:
    rank = Rank(1, 4, 1, 4)
    assert (str(rank), rank.variant) == ("rank 1 of 4", "rank1of4")


HOSTILE = [
    ({"RANK": "", "WORLD_SIZE": "2"}, "RANK is ''"),
    ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK is '-1'"),
    ({"RANK": "one", "WORLD_SIZE": "2"}, "RANK is 'one'"),
    ({"RANK": "\u0661", "WORLD_SIZE": "2"}, "RANK is"),
    ({"RANK": "0", "WORLD_SIZE": "2.0"}, "WORLD_SIZE is '2.0'"),
    ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK is 2 and WORLD_SIZE 2"),
    ({"RANK": "0", "WORLD_SIZE": "0"}, "RANK is 0 and WORLD_SIZE 0"),
    ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "x"}, "LOCAL_RANK is 'x'"),
]


@pytest.mark.each(("environment", "words"), HOSTILE)
def test_variables_that_make_no_rank_are_refused_by_name(environment: dict[str, str], words: str) -> None:
    with pytest.raises(RequestError, match=words.replace("(", r"\(")):
        current_rank(environment)
