"""Which rank a process is, by the variables of its launcher."""

from __future__ import annotations

import socket

import pytest

from pytest_npudump.errors import RequestError
from pytest_npudump.ranks.rank import Rank, current_rank

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
def test_rank_is_read_from_the_launcher_s_variables(
    environment: dict[str, str], expected: Rank | None
) -> None:
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
