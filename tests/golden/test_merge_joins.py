from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npudump.golden.approval_merge import Conflict, joined, joined_order

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.each(
    ("base", "ours", "theirs", "expected"),
    [
        ("a", "a", "a", "a"),
        ("a", "b", "a", "b"),
        ("a", "a", "b", "b"),
        ("a", "b", "b", "b"),
        ("a", None, "a", None),
        ("a", "a", None, None),
        (None, "b", None, "b"),
        ("a", "b", "c", Conflict("b", "c")),
        ("a", None, "c", Conflict(None, "c")),
        (None, "b", "c", Conflict("b", "c")),
    ],
)
def test_a_value_is_that_of_the_side_that_changed_it(
    base: str | None, ours: str | None, theirs: str | None, expected: object
) -> None:
    assert joined(base, ours, theirs) == expected


def flat(found: list[list[str] | Conflict[list[str]]]) -> list[str] | None:
    """The names in order; None where there is a conflict."""
    if any(isinstance(chunk, Conflict) for chunk in found):
        return None
    return [name for chunk in found if isinstance(chunk, list) for name in chunk]


@pytest.mark.each(
    ("ours", "theirs", "expected"),
    [
        ("abcd", "abcd", "abcd"),
        ("aXbcd", "abcYd", "aXbcYd"),
        ("abdc", "Xabcd", "Xabdc"),
        ("Xabcd", "Xabcd", "Xabcd"),
        ("bcda", "abcd", "bcda"),
        ("aXbcd", "aYbcd", None),
        ("bcda", "bacd", None),
    ],
)
def test_order_is_that_of_the_side_that_changed_it(ours: str, theirs: str, expected: str | None) -> None:
    found = flat(joined_order("abcd", ours, theirs))
    assert (found and "".join(found)) == expected


def test_names_that_both_sides_put_at_one_place_are_in_conflict_alone() -> None:
    found = joined_order("ab", "aXb", "aYb")
    assert [chunk for chunk in found if chunk] == [["a"], Conflict(["X"], ["Y"]), ["b"]]


names = st.lists(st.sampled_from("abcdefgh"), unique=True)


@given(names, names, names)
def test_no_name_is_lost_and_none_stands_twice(base: list[str], ours: list[str], theirs: list[str]) -> None:
    found = joined_order(base, ours, theirs)
    expected = {*ours, *theirs} - ({*base} - ({*ours} & {*theirs}))
    placed: list[str] = []
    for chunk in found:
        placed += {*chunk.ours, *chunk.theirs} if isinstance(chunk, Conflict) else chunk
    assert len(placed) == len(set(placed))
    assert expected <= set(placed)


@given(names, names)
def test_one_changed_side_counts_as_it_is(base: list[str], side: list[str]) -> None:
    assert flat(joined_order(base, side, base)) == side
    assert flat(joined_order(base, base, side)) == side


@pytest.mark.e2e
@given(
    st.lists(st.sampled_from("abcdefghijklmnop"), unique=True, min_size=10),
    st.integers(0, 3),
    st.integers(6, 9),
)
def test_what_git_can_join_is_joined_alike(
    tmp_path_factory: pytest.TempPathFactory, base: list[str], early: int, late: int
) -> None:
    ours = [*base[:early], "X", *base[early:]]
    theirs = [*base[:late], "Y", *base[late:]]
    folder: Path = tmp_path_factory.mktemp("git")
    for name, lines in (("ours", ours), ("base", base), ("theirs", theirs)):
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    done = subprocess.run(
        ["git", "merge-file", "-p", "ours", "base", "theirs"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert flat(joined_order(base, ours, theirs)) == done.stdout.split()
