from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npudump.compare.stats.alignment import align


def pairs(golden: Any, actual: Any) -> Any:
    """Names of both sides in execution order."""
    found = align(tuple(f"{name}" for name in golden), tuple(actual))
    return [
        (golden[here] if here >= 0 else None, actual[there] if there >= 0 else None)
        for here, there in zip(found.golden.tolist(), found.actual.tolist(), strict=True)
    ]


def out(*layers: Any) -> Any:
    return tuple(f"{layer}:output.0" for layer in layers)


def test_equal_keys_pair_one_to_one() -> None:
    keys = out("a", "b")
    assert pairs(keys, keys) == [(key, key) for key in keys]


def test_the_dumps_order_counts_and_missing_tensors_follow_their_predecessor() -> None:
    a, b, c, d = out("a", "b", "c", "d")
    assert pairs((a, b, c), (c, d, a)) == [(c, c), (None, d), (a, a), (b, None)]


def test_a_missing_first_tensor_stands_first() -> None:
    a, b = out("a", "b")
    assert pairs((a, b), (b,)) == [(a, None), (b, b)]


def test_raw_names_pair_with_sanitised_ones() -> None:
    golden, actual = out("net/conv.1", "net/fc%20x"), out("net_conv_1", "net_fc_x")
    assert pairs(golden, actual) == list(zip(golden, actual, strict=True))
    assert pairs(actual, golden) == list(zip(actual, golden, strict=True))
    assert align(golden, actual).notes == ()


def test_turns_and_other_qualifiers_pair_through_sanitising() -> None:
    golden = ("a/b#step=1:output.0", "a/b#step=1,turn=1:output.0", "a/b#model=m:output.0")
    actual = ("a_b#step=1:output.0", "a_b#step=1,turn=1:output.0", "a_b#model=n:output.0")
    assert pairs(golden, actual) == [
        (golden[0], actual[0]),
        (golden[1], actual[1]),
        (golden[2], None),
        (None, actual[2]),
    ]


def test_colliding_names_pair_by_order_of_execution() -> None:
    golden = out("a/b", "a.b", "a_b")
    actual = ("a_b:output.0", "a_b#turn=1:output.0", "a_b#turn=2:output.0")
    assert pairs(golden, actual) == list(zip(golden, actual, strict=True))
    assert "several layers share the file name 'a_b'" in align(golden, actual).notes[0]


def test_colliding_names_are_not_paired_where_one_is_lost() -> None:
    golden, actual = out("a/b", "a.b", "c/d"), out("a_b", "c_d")
    assert pairs(golden, actual) == [
        (golden[0], None),
        (golden[1], None),
        (None, actual[0]),
        (golden[2], actual[1]),
    ]
    assert "none was compared" in align(golden, actual).notes[0]


def test_two_different_raw_names_never_pair() -> None:
    assert pairs(out("a/b"), out("a.b")) == [("a/b:output.0", None), (None, "a.b:output.0")]


def test_an_added_execution_is_extra_and_the_first_still_pairs() -> None:
    actual = ("a_b:output.0", "a_b#turn=1:output.0")
    assert pairs(out("a/b"), actual) == [("a/b:output.0", actual[0]), (None, actual[1])]


layers = st.sampled_from(["a", "b", "a/b", "a.b", "a_b", "c d", "c_d"])
keys = st.builds(
    lambda layer, io, turn: f"{layer.replace(' ', '%20')}{f'#turn={turn}' if turn else ''}:{io}.0",
    layers,
    st.sampled_from(["input", "output"]),
    st.integers(0, 2),
)
sides = st.lists(keys, unique=True, max_size=12).map(tuple)


@given(sides, sides)
def test_every_tensor_of_both_sides_stands_exactly_once(golden: Any, actual: Any) -> None:
    found = align(golden, actual)
    assert sorted(row for row in found.golden.tolist() if row >= 0) == list(range(len(golden)))
    assert [row for row in found.actual.tolist() if row >= 0] == list(range(len(actual)))


@given(sides, sides)
def test_names_agree_in_every_pair(golden: Any, actual: Any) -> None:
    for here, there in pairs(golden, actual):
        if here is not None and there is not None:
            plain = [key.partition("#")[0].partition(":")[0] for key in (here, there)]
            clean = [name.replace("%20", "_").replace("/", "_").replace(".", "_") for name in plain]
            assert clean[0] == clean[1]
            assert plain[0] == plain[1] or clean[0] in plain


@pytest.mark.each("count", [0, 1, 1000])
def test_any_number_of_tensors(count: int) -> None:
    golden = out(*(f"n/{i}" for i in range(count)))
    actual = out(*(f"n_{i}" for i in range(count)))
    assert pairs(golden, actual) == list(zip(golden, actual, strict=True))
