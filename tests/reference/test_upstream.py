"""From operators that pass on what came in to the one that did it."""

from __future__ import annotations

from pytest_npudump.reference.operator_alone import ACQUITTED, CONVICTED, judged_upstream, nearest_first

FED = {"f": ("d", "e"), "e": ("c",), "d": ("b",), "c": ("a",), "b": ("a",), "a": (), "other": ("a",)}


def judged(suspects: str, guilty: str = "", most: int = 9) -> list[str]:
    return [
        *judged_upstream(
            suspects.split(),
            FED.__getitem__,
            lambda place: CONVICTED if place in guilty.split() else ACQUITTED,
            most,
        )
    ]


def test_what_is_nearest_comes_first_and_once() -> None:
    assert [*nearest_first("f", FED.__getitem__)] == ["d", "e", "b", "c", "a"]


def test_the_search_ends_with_the_first_that_is_convicted() -> None:
    assert judged("f", "b") == ["f", "d", "e", "b"]
    assert judged("f", "f") == ["f"]


def test_a_suspect_that_is_fed_by_a_convicted_one_is_not_searched_again() -> None:
    assert judged("f a", "a") == ["f", "a"]
    assert judged("other f", "b") == ["other", "f", "a", "d", "e", "b"]


def test_where_nobody_is_convicted_so_many_are_judged() -> None:
    assert judged("f", most=3) == ["f", "d", "e", "b"]
    assert judged("f") == ["f", "d", "e", "b", "c", "a"]


def test_a_circle_ends() -> None:
    assert judged_upstream(["x"], lambda _: ("x", "y"), lambda _: ACQUITTED, 9) == ("x", "y")
