"""Waiting runs one by one: what is asked, and what each answer does."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Repository

GOLDEN = {"conv": 1.0, "fc": 3.0}
AFTER = {"conv": 1.5, "fc": 4.0}
NAMES = ("test_a", "test_b", "test_c")


@pytest.fixture
def waiting(repository: Repository) -> Repository:
    for name in NAMES:
        repository.approve(name, GOLDEN)
        repository.keep(name, AFTER)
    return repository


@pytest.fixture
def review(golden_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Review with these lines as answers."""

    def call(*answers: str, words: tuple[str, ...] = ()) -> Any:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in answers)))
        return golden_command("review", *words)

    return call


ANSWERS = [
    (("a", "r", "s"), 1, ["accepted", "rejected", None]),
    (("a", "A"), 0, ["accepted"] * 3),
    (("r", "R"), 0, ["rejected"] * 3),
    (("a", "S"), 1, ["accepted", None, None]),
    ((), 1, [None] * 3),
    (("what", "", "d", "a", "R"), 0, ["accepted", "rejected", "rejected"]),
]


@pytest.mark.parametrize(("answers", "code", "decisions"), ANSWERS)
def test_answers_decide(
    waiting: Repository,
    review: Callable[..., Any],
    answers: tuple[str, ...],
    code: int,
    decisions: list[str | None],
) -> None:
    done = review(*answers)
    assert (done.code, done.err) == (code, "")
    assert [waiting.decisions()[name] for name in NAMES] == decisions
    for name, decision in zip(NAMES, decisions, strict=True):
        assert waiting.values(name) == (AFTER if decision == "accepted" else GOLDEN)


def test_layers_are_accepted_by_pattern_and_the_rest_waits(
    waiting: Repository, review: Callable[..., Any]
) -> None:
    done = review("l conv", "S", words=("--reason", "conv only"))
    assert done.code == 1
    assert waiting.values("test_a") == {"conv": 1.5, "fc": 3.0}
    assert "reason: conv only" in waiting.golden("test_a").read_text("utf-8")
    assert "1 of 3: " in review("S").out


def test_what_is_asked_about_is_shown_before_it(waiting: Repository, review: Callable[..., Any]) -> None:
    done = review("S", words=("test_a.py::test_b",))
    lines = done.out.splitlines()
    assert lines[1] == "1 of 1: "
    assert lines[2].startswith("test_a.py::test_b (")
    assert "2 of 2 tensors differ" in lines[3]
    assert waiting.decisions()["test_b"] is None


def test_layers_that_are_misspelt_are_asked_for_again(
    waiting: Repository, review: Callable[..., Any]
) -> None:
    done = review("l cnov", "l conv fx", "l conv", "S")
    assert done.out.count("of 3: ") == 2
    assert [line for line in done.err.splitlines() if "names" in line] == [
        "npudump: cnov names no layer that differs; these do: conv, fc",
        "npudump: fx names no layer that differs; these do: conv, fc",
    ]
    assert done.out.endswith(": 1 accepted, 0 rejected, 2 skipped\n")
    assert done.code == 1
    assert waiting.values("test_a") == {"conv": 1.5, "fc": 3.0}
    assert [waiting.values(name) for name in NAMES[1:]] == [GOLDEN] * 2
    assert review("l cnov").out.endswith(": 0 accepted, 0 rejected, 3 skipped\n")


def test_a_refusal_is_told_and_ends_with_two(waiting: Repository, review: Callable[..., Any]) -> None:
    waiting.approve("test_a", {"conv": 7.0, "fc": 3.0})
    done = review("A")
    assert done.code == 2
    assert "is not the one that the run was judged with" in done.err
    assert done.out.splitlines()[-1] == "2 accepted, 0 rejected, 0 skipped, 1 refused"
    assert waiting.values("test_a") == {"conv": 7.0, "fc": 3.0}
    assert waiting.values("test_b") == AFTER
