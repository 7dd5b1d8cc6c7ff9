"""Walking back from a tensor, worst input first."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npudump.graph.sources import fed_first, nearest, walked_back

PARENTS = [[], [0], [1], [1, 2], [3]]


@pytest.mark.each(
    ("difference", "path"),
    [
        ([0, 0, 0, 0, 1.0], [4]),
        ([0, 0, 0, 0.3, 1.0], [4]),
        ([0, 0, 0, 0.34, 1.0], [4, 3]),
        ([0, 0.2, 0.6, 0.9, 1.0], [4, 3, 2, 1]),
        ([0, 0.6, 0.2, 0.9, 1.0], [4, 3, 1]),
        ([5.0, 0.3, 0.2, 0.9, 1.0], [4, 3, 1, 0]),
        ([0, 0, 0, 9.0, math.inf], [4]),
        ([0, 0, math.inf, 9.0, math.inf], [4]),
        ([0, 0, math.inf, math.inf, math.inf], [4, 3, 2]),
    ],
)
def test_the_worst_input_is_followed_from_a_third_on(difference: list[float], path: list[int]) -> None:
    assert walked_back(4, PARENTS.__getitem__, difference, any_change=lambda _: False) == path


def test_any_change_is_followed_where_asked() -> None:
    difference = [0.0, 1e-9, 1e-6, 1e-6, math.inf]
    assert walked_back(4, PARENTS.__getitem__, difference, any_change=lambda _: True) == [4, 3, 2, 1]
    assert walked_back(4, PARENTS.__getitem__, difference, any_change=lambda at: at == 4) == [4, 3, 2]


def test_a_cycle_ends() -> None:
    assert walked_back(0, [[1], [0]].__getitem__, [1.0, 1.0], any_change=lambda _: True) == [0, 1]


def test_the_nearest_changed_tensors_are_found_through_unchanged_ones() -> None:
    assert nearest(4, PARENTS, {1}) == [1]
    assert nearest(4, PARENTS, {0, 2}) == [2, 0]
    assert nearest(4, PARENTS, {3, 1}) == [3]
    assert nearest(4, PARENTS, set()) == []


def test_nothing_is_looked_for_behind_an_end() -> None:
    path = walked_back(4, PARENTS.__getitem__, [1.0] * 5, any_change=lambda _: True, ends={1, 4})
    assert path == [4, 3, 1]


@given(
    st.lists(st.sets(st.integers(0, 11), max_size=3), min_size=12, max_size=12), st.permutations(range(12))
)
def test_what_is_fed_stands_behind_what_feeds_it(feeds: list[set[int]], names: list[int]) -> None:
    parents: list[list[int]] = [[] for _ in names]
    for at, fed_by in enumerate(feeds):
        parents[names[at]] = [names[parent] for parent in fed_by if parent < at]
    order = fed_first(range(12), parents)
    assert sorted(order) == list(range(12))
    assert all(order.index(parent) < order.index(at) for at in range(12) for parent in parents[at])
