from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_npudump.compare.judge import judge_tables
from pytest_npudump.compare.stats import alignment
from pytest_npudump.compare.stats.alignment import (
    ABSENT,
    align,
    gaps,
    inverse,
    longest_common,
    number_calls,
    slide,
    under_golden_keys,
)
from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.stats.verdict import Comparison
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.records import TensorKey, TensorRecord
from pytest_npudump.dump.table import StatsTable
from tests.conftest import table_of

Call = tuple[str, float] | tuple[str, float, tuple[int, ...]]


def pairs(golden: Any, actual: Any) -> Any:
    """Names of both sides in execution order."""
    found = align(tuple(f"{name}" for name in golden), tuple(actual))
    return [
        (golden[here] if here >= 0 else None, actual[there] if there >= 0 else None)
        for here, there in zip(found.golden.tolist(), found.actual.tolist(), strict=True)
    ]


def out(*layers: Any) -> Any:
    return tuple(f"{layer}:output.0" for layer in layers)


PAIRED = [
    # layers of the golden and of the dump, the pairs in order by their numbers, and a note
    ("a b", "a b", "00 11", ""),
    ("a b c", "c d a", "20 -1 02 1-", ""),  # in the dump's order, what is lost behind its predecessor
    ("a b", "b", "0- 10", ""),
    ("net/conv.1 net/fc%20x", "net_conv_1 net_fc_x", "00 11", ""),
    ("net_conv_1 net_fc_x", "net/conv.1 net/fc%20x", "00 11", ""),
    (
        "a/b#step=1 a/b#step=1,turn=1 a/b#model=m",
        "a_b#step=1 a_b#step=1,turn=1 a_b#model=n",
        "00 11 2- -2",
        "",
    ),
    ("a/b a.b a_b", "a_b a_b#turn=1 a_b#turn=2", "00 11 22", "several layers share the file name 'a_b'"),
    ("a/b a.b c/d", "a_b c_d", "0- 1- -0 21", "none was compared"),
    ("a/b", "a.b", "0- -0", ""),
    ("a/b", "a_b a_b#turn=1", "00 -1", ""),
]


@pytest.mark.each(("golden", "actual", "expected", "note"), PAIRED)
def test_tensors_are_paired_by_name_raw_or_as_files_have_it(
    golden: str, actual: str, expected: str, note: str
) -> None:
    found = align(out(*golden.split()), out(*actual.split()))
    rows = zip(found.golden.tolist(), found.actual.tolist(), strict=True)
    assert [tuple(-1 if at == "-" else int(at) for at in pair) for pair in expected.split()] == [*rows]
    assert note in "".join(found.notes)
    assert bool(note) is bool(found.notes)


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


def lcs_length(one: Sequence[object], other: Sequence[object]) -> int:
    """Length of the longest common subsequence by the textbook's table."""
    table = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, left in enumerate(one):
        for j, right in enumerate(other):
            table[i + 1][j + 1] = table[i][j] + 1 if left == right else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


words = st.lists(st.sampled_from("abc"), max_size=12)


@given(words, words)
def test_partners_are_equal_in_order_and_as_many_as_can_be(one: list[str], other: list[str]) -> None:
    partners = longest_common(one, other)
    assert partners is not None
    pairs = [(here, there) for here, there in enumerate(partners) if there != ABSENT]
    assert len(partners) == len(one)
    assert all(one[here] == other[there] for here, there in pairs)
    assert [there for _, there in pairs] == sorted({there for _, there in pairs})
    assert len(pairs) == lcs_length(one, other)


@given(words, words)
def test_gaps_hold_just_what_has_no_partner(one: list[str], other: list[str]) -> None:
    partners = longest_common(one, other)
    assert partners is not None
    runs = gaps(partners, len(other))
    assert [at for left, _ in runs for at in left] == [at for at, p in enumerate(partners) if p == ABSENT]
    turned = inverse(partners, len(other))
    assert [at for _, right in runs for at in right] == [at for at, p in enumerate(turned) if p == ABSENT]


def test_a_lost_element_slides_any_way_to_where_its_neighbours_agree() -> None:
    def lost(place: int) -> list[int]:
        return [ABSENT if at == place else at - (at > place) for at in range(5)]

    for found, wanted in itertools.product(range(5), repeat=2):
        partners, right = lost(found), lost(wanted)
        slide(
            "aaaaa", partners, range(found, found + 1), lambda here, there, right=right: right[here] == there
        )
        assert partners == right


def test_sequences_that_have_little_in_common_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "LIMIT", 50)
    assert longest_common(["a"] * 50, ["b"]) is None
    assert longest_common(["a"] * 49, ["b"]) == [ABSENT] * 49


def test_ten_thousand_calls_with_hundreds_of_changes_are_aligned() -> None:
    one = [at * at % 97 for at in range(10_000)]
    other = list(one)
    for at in range(400):
        other.insert(25 * at, -1)
    partners = longest_common(one, other)
    assert partners is not None
    assert [other[at] for at in partners] == one


@pytest.fixture
def runs() -> Any:
    """Compare two sequences of calls ``(layer, value)`` or ``(layer, value, shape)``."""

    def table(calls: Sequence[Call]) -> StatsTable:
        rows = []
        seen: dict[str, int] = {}
        for layer, value, *shape in calls:
            turn = seen[layer] = seen.get(layer, -1) + 1
            key = str(TensorKey(layer, "output", 0, turn=turn))
            rows.append(
                (key, "float32", shape[0] if shape else (2,), dict.fromkeys(("max", "min", "avg"), value))
            )
        return table_of(*rows)

    def run(golden: Sequence[Call], actual: Sequence[Call]) -> Comparison:
        return judge_tables(table(golden), table(actual), Tolerances("exact"))

    return run


def found(comparison: Comparison) -> list[tuple[str, str]]:
    return [(verdict.status, str(verdict.key)) for verdict in comparison.failing]


GOLDEN: list[Call] = [("aclnnAdd", 1), ("aclnnMul", 2), ("aclnnAdd", 3), ("aclnnMul", 4), ("aclnnAdd", 5)]
SAME: list[Call] = [("aclnnAdd", value) for value in range(1, 9)]
SHAPED: list[Call] = [("aclnnAdd", 1, (2, 2)), ("aclnnAdd", 1, (3,)), ("aclnnAdd", 1, (2, 2))]
BLOCKS: list[Call] = [
    (name, 10 * block + at)
    for block in range(1, 7)
    for at, name in enumerate(("aclnnMm", "aclnnAdd", "aclnnMul"))
]


@pytest.mark.each(
    ("golden", "actual", "expected", "note"),
    [
        (
            GOLDEN,
            [*GOLDEN[:2], ("aclnnMul", 9), *GOLDEN[2:]],
            "extra aclnnMul#turn=2",
            "1 only in the dump, of 6: aclnnMul (call 3)",
        ),
        (
            GOLDEN,
            [GOLDEN[0], *GOLDEN[2:]],
            "missing aclnnMul",
            "1 only in the golden, of 5: aclnnMul (call 2)",
        ),
        # values tell which of several alike it was
        (SAME, [*SAME[:3], ("aclnnAdd", 99), *SAME[3:]], "extra aclnnAdd#turn=8", ""),
        *(
            (
                SAME,
                [*SAME[:lost], *SAME[lost + 1 :]],
                f"missing aclnnAdd{f'#turn={lost}' if lost else ''}",
                "",
            )
            for lost in range(8)
        ),
        (
            BLOCKS,
            [*BLOCKS[:6], *BLOCKS[9:]],
            "missing aclnnMm#turn=2 missing aclnnAdd#turn=2 missing aclnnMul#turn=2",
            "",
        ),
        (SHAPED, [SHAPED[0], SHAPED[2]], "missing aclnnAdd#turn=1", ""),
        (
            GOLDEN,
            [*GOLDEN[:1], ("aclnnMul", 2, (3,)), *GOLDEN[2:], ("aclnnExp", 1)],
            "fail aclnnMul extra aclnnExp",
            "",
        ),
        # both sides hold the same calls, which streams may dump in any order: nothing is aligned
        (GOLDEN, [GOLDEN[1], GOLDEN[0], *GOLDEN[2:]], "", ""),
        # layers of a model are none
        (
            [("conv", 1), ("conv", 2)],
            [("conv", 0), ("conv", 1), ("conv", 2)],
            "fail conv fail conv#turn=1 extra conv#turn=2",
            "",
        ),
    ],
)
def test_calls_that_only_one_side_has_shift_no_others(
    runs: Any, golden: list[Call], actual: list[Call], expected: str, note: str
) -> None:
    comparison = runs(golden, actual)
    assert (
        " ".join(f"{status} {key.removesuffix(':output.0')}" for status, key in found(comparison)) == expected
    )
    assert comparison.passed == len(actual) - comparison.count("extra") - comparison.count("fail")
    assert note in "".join(comparison.notes)
    assert bool(comparison.own_keys) <= golden[0][0].startswith("aclnn")


def test_a_changed_value_behind_an_inserted_call_still_fails_under_the_goldens_key(runs: Any) -> None:
    comparison = runs(GOLDEN, [("aclnnAdd", 0), *GOLDEN[:4], ("aclnnAdd", 5.5)])
    assert found(comparison) == [("extra", "aclnnAdd#turn=3:output.0"), ("fail", "aclnnAdd#turn=2:output.0")]
    assert comparison.own_keys[TensorKey("aclnnAdd", "output", 0, turn=2)].turn == 3


def test_runs_that_share_hardly_a_call_are_compared_by_number_and_say_so(
    runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alignment, "LIMIT", 50)
    golden = [("aclnnAdd", 1), *(("aclnnMul", value) for value in range(50))]
    actual = [("aclnnAdd", 1), *(("aclnnExp", value) for value in range(50))]
    comparison = runs(golden, actual)
    assert "paired by their number" in comparison.notes[0]
    assert comparison.passed == 1


def test_each_rank_is_a_sequence_of_its_own() -> None:
    def table(*keys: str) -> StatsTable:
        return table_of(*((f"{key}:output.0", "float32", (1,), {"max": 1.0}) for key in keys))

    golden = table("aclnnAdd#rank=0", "aclnnMul#rank=0", "aclnnAdd#rank=1", "aclnnAdd#rank=1,turn=1")
    actual = table(
        "aclnnAdd#rank=0", "aclnnMul#rank=0", "aclnnMul#rank=1", "aclnnAdd#rank=1", "aclnnAdd#rank=1,turn=1"
    )
    assert number_calls(golden, actual)[1] == {}
    comparison = judge_tables(golden, actual, Tolerances("exact"))
    assert found(comparison) == [("extra", "aclnnMul#rank=1:output.0")]


def test_records_take_the_keys_of_the_comparison(runs: Any, tmp_path: Path) -> None:
    comparison = runs(GOLDEN, [("aclnnAdd", 0), *GOLDEN])
    own = [
        TensorKey.parse(key) for key in ("aclnnAdd:output.0", "aclnnAdd#turn=1:output.0", "aclnnMul:output.0")
    ]
    records = [TensorRecord(key, "", "float32", (2,), tmp_path) for key in own]
    assert [str(record.key) for record in under_golden_keys(records, comparison.own_keys)] == [
        "aclnnAdd#turn=3:output.0",
        "aclnnAdd:output.0",
        "aclnnMul:output.0",
    ]


calls = st.lists(
    st.tuples(
        st.sampled_from(["aclnnAdd", "aclnnMul", "aclnnAdd>Add", "conv"]),
        st.sampled_from([1.0, 2.0]),
        st.sampled_from([(2,), (3,)]),
    ),
    max_size=8,
)


@given(calls, calls)
def test_numbering_never_makes_a_comparison_pass_or_fail(golden: Any, actual: Any) -> None:
    def table(calls: Any) -> StatsTable:
        seen: dict[str, int] = {}
        rows = []
        for layer, value, shape in calls:
            turn = seen[layer] = seen.get(layer, -1) + 1
            rows.append((str(TensorKey(layer, "output", 0, turn=turn)), "float32", shape, {"max": value}))
        return table_of(*rows)

    one, other = table(golden), table(actual)
    plain = compare_tables(one, other, Tolerances("exact"))
    numbered = judge_tables(one, other, Tolerances("exact"))
    assert numbered.ok is plain.ok
    assert numbered.ok is ([*golden] == [*actual] or plain.ok)
    assert numbered.passed + numbered.count("fail") + numbered.count("extra") == len(actual)
    assert numbered.passed + numbered.count("fail") + numbered.count("missing") == len(golden)
    assert len({*numbered.actual.keys}) == len(actual)
    assert len(list(numbered.verdicts())) == len({verdict.key for verdict in numbered.verdicts()})
