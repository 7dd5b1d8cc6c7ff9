"""Sides that call layers otherwise, or hold tensors on several ranks, against numpy's own split and sum."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st
from safetensors.numpy import save_file

from pytest_npudump.cli import main
from pytest_npudump.compare.correspondence import Correspondence
from pytest_npudump.compare.judge import AS_GIVEN, EVERY, RUN, Terms, judge
from pytest_npudump.compare.name_suggestions import suggested_names
from pytest_npudump.compare.stats.verdict import Comparison
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import SUMMED, TensorKey, TensorRecord
from pytest_npudump.dump.stats.projections import project
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.errors import RequestError
from pytest_npudump.golden.tensors import StoredTensor
from pytest_npudump.record.edges import Edges, GraphNode as Node, Port, lines_of
from pytest_npudump.record.record import EDGES, SHARDS, Record
from pytest_npudump.regression.dataflow import sources_of

Arrays = Mapping[str, np.ndarray]
RANDOM = np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def side(*ranks: Arrays, kind: str = "") -> Record:
    """Return a record of statistics: of one process, or of ranks, of layers of a type."""
    records = [
        TensorRecord(
            TensorKey(layer, "output", 0, rank=number if len(ranks) > 1 else -1),
            kind,
            array.dtype.name,
            array.shape,
            Path("x"),
            stats=tensor_stats(array),
        )
        for number, arrays in enumerate(ranks)
        for layer, array in arrays.items()
    ]
    return Record.of(StatsTable.from_records(records))


@pytest.fixture
def compared(tmp_path: Path) -> Callable[..., Comparison]:
    """Judge two sides by the text of a file."""

    def compare(golden: Record, run: Record, text: str = "{}") -> Comparison:
        path = tmp_path / "names.yaml"
        path.write_text(text)
        return judge(golden, run, Terms(option=AS_GIVEN, against=RUN, names=Correspondence.read(path)))

    return compare


def failing(comparison: Comparison) -> list[tuple[str, str]]:
    return [(str(verdict.key), verdict.status) for verdict in comparison.failing]


NAMES = """
model.layers.*.attn.*: h.*.self.{2}
h.*.self.{1}: nobody
lm_head: output
layouts:
  lm_head: h
  "h.*.out": t h[tp]
"""


def test_layers_of_other_names_are_compared_under_those_of_the_run(compared: Any) -> None:
    layers = {f"h.{at}.self.{name}": normal(2, 3) for at in (0, 10) for name in ("q", "out")}
    golden = side({**layers, "output": normal(4), "same": normal(3)})
    values = dict(zip(golden.table.keys, golden.table.values, strict=True))
    run_layers = {f"model.layers.{n.split('.')[1]}.attn.{n.split('.')[3]}": a for n, a in layers.items()}
    run = side({**run_layers, "lm_head": normal(4), "same": normal(3)})
    comparison = compared(golden, run, NAMES)
    assert comparison.compared == 6
    assert failing(comparison) == [("lm_head:output.0", "fail"), ("same:output.0", "fail")]
    path = comparison.remarks[0].partition(",")[0]
    assert [str(note) for note in comparison.remarks] == [
        f"{path}, line 3: it pairs no layers",
        f"{path}: layouts of no layer: h.*.out (joined layers have the name of the other side)",
    ]
    assert len(values) == 6
    swapped = side({"b.0": layers["h.0.self.q"], "b.1": layers["h.10.self.q"], "b.2": normal(4)})
    run = side({"a.0": layers["h.10.self.q"], "a.1": layers["h.0.self.q"], "a.2": normal(4)})
    text = "a.*: b.*\na.0: b.1\na.1: b.0\nlayouts: {a.0: 't h[xx]'}"
    comparison = compared(swapped, run, text)  # exact names count first
    assert failing(comparison) == [("a.2:output.0", "fail")]
    assert [*map(str, comparison.remarks)] == [
        f"{path}: its layouts split nothing, as no side has several ranks"
    ]
    assert comparison.compared == 3


def test_what_one_side_has_joined_is_compared_with_the_parts_of_the_other(compared: Any) -> None:
    q, k, v = normal(5, 8), normal(5, 4), normal(5, 4)
    parts, names = side({"a.q": q, "a.k": k, "a.v": v}), ("a.q", "a.k", "a.v")
    whole = side({"b.qkv": np.concatenate([q, k, v], axis=-1)})
    assert compared(parts, whole, "b.*: a.q + a.k + a.v").failing == ()
    assert compared(whole, parts, "'*.q + *.k + *.v': b.qkv").failing == ()
    for golden, run, text, lacking in (
        (parts, whole, "b.qkv: a.q + a.k + a.u", "the golden has no a.u"),
        (whole, parts, "a.q + a.u: b.qkv", "the run has no a.u"),
    ):
        comparison = compared(golden, run, text)
        assert {key.partition(":")[0] for key, _ in failing(comparison)} == {"b.qkv", *names}
        assert comparison.remarks[0].endswith(f"line 1: it pairs no layers, as {lacking}")
    rounded = normal(7, 301), normal(7, 299)
    rounded[1][3, 3] = 1
    two, one = side({"x.l": rounded[0], "x.r": rounded[1]}), side({"y": np.concatenate(rounded, axis=-1)})
    assert two.table.values.tolist() != one.table.values.tolist()
    assert compared(two, one, "y: x.l + x.r").differing == frozenset()  # but for the last bits of the sums
    rounded[1][3, 3] = np.nextafter(rounded[1][3, 3], 9, dtype=np.float32)
    changed = side({"y": np.concatenate(rounded, axis=-1)})
    assert compared(two, changed, "y: x.l + x.r").differing == {0}
    wrong = side({"b.qkv": np.concatenate([q, k, 2 * v], axis=-1)})
    assert failing(compared(parts, wrong, "b.*: a.q + a.k + a.v")) == [("b.qkv:output.0", "fail")]


QUARTERS = [np.split(one, 4, -1) for one in (normal(8, 8), normal(8, 4), normal(8, 4))]
"""Of queries, keys and values, along their last axis."""


def apart(ranks: int) -> list[Arrays]:
    """What ranks have as layers q, k and v, a part of each."""
    parts = [np.split(np.concatenate(cut, -1), ranks, -1) for cut in QUARTERS]
    return [dict(zip("qkv", own, strict=True)) for own in zip(*parts, strict=True)]


def in_one(ranks: int) -> list[Arrays]:
    """What ranks have in one layer b, as vLLM's QKVParallelLinear gives it."""
    return [{"b": np.concatenate([*own.values()], -1)} for own in apart(ranks)]


def off(ranks: Sequence[Arrays]) -> Iterator[list[Arrays]]:
    """Yield the same values with ranks, rows, columns or elements elsewhere."""
    *first, last = (one["b"] for one in ranks)
    for other in (last[::-1], last[:, [1, 0, *range(2, last.shape[1])]]):
        yield [{"b": one} for one in (*first, other)]
    if first:
        yield [*ranks[1:], *ranks[:1]]
        whole = np.concatenate([*apart(1)[0].values()], -1)
        yield [{"b": part} for part in np.split(whole, len(ranks), -1)]


LAYOUT = 'layouts: {"*": "t h[tp]"}'
JOINS: list[tuple[str, list[Arrays], list[Arrays], str]] = [
    ("", apart(1), in_one(1), LAYOUT),
    ("", apart(1), in_one(2), 'layouts: {"*": "t h[tp:2+1+1]"}'),
    ("", apart(1), in_one(2), LAYOUT),
    ("", apart(2), in_one(2), LAYOUT),
    ("", apart(4), in_one(2), LAYOUT),
    ("", apart(2), in_one(1), LAYOUT),
    ("", apart(1), in_one(2), 'layouts: {"*": "t h[cp,tp]"}\nranks: cp=1 tp=2'),
    ("", apart(1), in_one(4), 'layouts: {"*": "t h[cp,tp]"}\nranks: cp=2 tp=2'),
    ("", apart(1), in_one(2), ""),  # shapes tell
    ("", apart(2), in_one(1), ""),
    ("ColumnParallelLinear[tp=2:unordered]", apart(1), in_one(2), ""),
    ("ColumnParallelLinear[tp=2]", apart(2), in_one(1), ""),
    ("QKVParallelLinear[tp=2:4+2+2]", apart(1), in_one(2), ""),
]


@pytest.mark.each(("kind", "several", "one", "text"), JOINS)
def test_elements_of_joined_layers_are_those_of_the_parts_that_ranks_have_in_one(
    kind: str, several: list[Arrays], one: list[Arrays], text: str, tmp_path: Path
) -> None:
    """On either side, where a golden of one rank keeps tensors, too. Statistics alone tell no order."""
    records = [record(write(tmp_path / "several", several), kind)]
    if len(several) == 1:
        save_file({f"{name}:output.0": own for name, own in several[0].items()}, tmp_path / "tensors")
        stored = [StoredTensor(tmp_path / "tensors", f"{name}:output.0") for name in several[0]]
        records.append(replace(side(several[0]), tensors=stored))
    for number, fused in enumerate((one, *off(one))):
        run, untold = record(write(tmp_path / str(number), fused), kind), side(*fused, kind=kind)
        for golden, rule in product(records, ("b: q + k + v", "q + k + v: b")):
            turned = rule[0] == "q"
            if turned and golden is not records[0]:
                continue
            (tmp_path / "names.yaml").write_text(f"{rule}\n{text}")
            names = Correspondence.read(tmp_path / "names.yaml")  # of tensors by the golden's names
            terms = Terms(option=AS_GIVEN, against=RUN, names=names, tensors=("q", "k", "v"))
            comparison = judge(*((run, golden) if turned else (golden, run)), terms)
            assert [key for key, _ in failing(comparison)] == ["b:output.0"] * bool(number)
            assert (comparison.compared, len(comparison.elements)) == (1, 1)
            assert not [one for one in comparison.remarks if "order" in one]
            if number != 1:
                continue
            comparison = judge(*((untold, golden) if turned else (golden, untold)), terms)
            assert failing(comparison) == []
            (told,) = (one for one in comparison.remarks if "order" in one)
            assert told.startswith("the order of elements is not compared in tensors joined from statistics")
    if len(several) < len(one):
        wrong = record(write(tmp_path / "wrong", [*one[:-1], {"b": one[-1]["b"] + 1}]), kind)
        for golden in records:  # terms are of the last rule that was tried: b: q + k + v
            told = f"out of tolerance only in the parts of rank {len(one) - 1}: b"
            assert told in map(str, judge(golden, wrong, terms).remarks)


def test_shares_in_a_layout_tell_how_ranks_have_tensors_in_one(compared: Any, tmp_path: Path) -> None:
    """Of one rank, two and four against each other."""
    held = {ranks: record(write(tmp_path / str(ranks), in_one(ranks))) for ranks in (1, 2, 4)}
    for golden, run in product(held.values(), repeat=2):
        comparison = compared(golden, run, 'layouts: {b: "t h[tp:2+1+1]"}')
        assert (failing(comparison), len(comparison.elements)) == ([], 1)
    assert failing(compared(held[1], held[2], LAYOUT)) == [("b:output.0", "fail")]  # in parts in order
    assert failing(compared(held[1], held[2], 'layouts: {b: "t h[tp:1+1+2]"}')) == [("b:output.0", "fail")]


def test_parts_of_joined_layers_that_do_not_add_up_are_told_as_not_compared_in_order(tmp_path: Path) -> None:
    """Three ranks have four columns each: eight and four make no parts of these."""
    q, k = normal(5, 8), normal(5, 4)
    parts = [{"b": part[::-1]} for part in np.split(np.concatenate([q, k], -1), 3, -1)]
    (tmp_path / "names.yaml").write_text(f"b: q + k\n{LAYOUT}")
    sides = record(write(tmp_path / "one", [{"q": q, "k": k}])), record(write(tmp_path / "three", parts))
    terms = Terms(option=AS_GIVEN, against=RUN, names=Correspondence.read(tmp_path / "names.yaml"))
    comparison = judge(*sides, terms)
    assert failing(comparison) == []
    assert [str(one) for one in comparison.remarks if "order" in one] == [
        "the order of elements is not compared, as the order of parts on ranks is not known (1): b"
    ]
    uneven = record(write(tmp_path / "uneven", [{"q": q, "k": k[:3]}]))
    with pytest.raises(
        RequestError, match=r"^b:output.0 of .*: parts of \[5, 8\], \[3, 4\] make no whole along"
    ):
        judge(uneven, sides[1], terms)


@given(st.data())
def test_statistics_of_parts_are_those_of_the_whole(data: st.DataObject) -> None:
    special = st.sampled_from([np.nan, np.inf, -np.inf, 0.0, -3.5])
    numbers = st.lists(st.one_of(st.floats(-1e3, 1e3, width=32), special), min_size=1, max_size=12)
    rows = data.draw(st.lists(numbers, min_size=2, max_size=4))
    ranks = [{"x": np.array([row[0]] * (at + 1) + row[1:], np.float32)} for at, row in enumerate(rows)]
    whole = np.concatenate([one["x"] for one in ranks])
    golden, run = side({"x": whole}), side(*ranks)
    found = Correspondence().matched(golden, run)[1].table
    assert found.keys == ("x:output.0",)
    assert found.shapes == golden.table.shapes
    np.testing.assert_allclose(found.values, golden.table.values, rtol=1e-12, atol=1e-9)
    assert (found.digits.tolist(), golden.table.digits.tolist()) == (
        [SUMMED],
        [0],
    )  # in another order


def sharded(x: np.ndarray, ranks: int, axis: int) -> list[np.ndarray]:
    return np.split(x, ranks, axis)


def halves(x: np.ndarray, axis: int) -> list[np.ndarray]:
    return sharded(x, 2, axis)


def test_by_their_shapes_ranks_hold_parts_or_copies_and_a_wrong_part_or_copy_is_named(compared: Any) -> None:
    up, down, norm = normal(6, 8), normal(6, 4), normal(6, 4)
    one = side({"up": up, "down": down, "norm": norm})
    two = [{"up": part, "down": down, "norm": norm.copy()} for part in sharded(up, 2, 1)]
    for golden, run in ((one, side(*two)), (side(*two), one)):
        comparison = compared(golden, run)
        assert failing(comparison) == []
        assert comparison.compared == 5  # both copies of down and of norm
        assert "ranks hold parts of up; state the layout in names.yaml" in comparison.remarks[0]
    two[1]["norm"][2, 1] += 40
    assert failing(compared(one, side(*two))) == [("norm#rank=1:output.0", "fail")]
    text = 'layouts: {norm: "t h"}'  # no group is named: copies
    assert failing(compared(side({"norm": norm}), side(*({"norm": some["norm"]} for some in two)), text)) == [
        ("norm#rank=1:output.0", "fail")
    ]
    two[1]["up"] = two[1]["up"] * 3
    assert ("up:output.0", "fail") in failing(compared(one, side(*two)))


def test_copies_of_one_run_are_the_same_where_the_golden_is_of_other_numerics() -> None:
    """What both copies have in common may be farther off: other sums made it."""
    norm = normal(6, 4).astype(ml_dtypes.bfloat16)
    one = side({"norm": norm, "other": norm})
    for factor, found in ((1.0, []), (1.02, [("norm#rank=1:output.0", "fail")])):
        copies = [{"norm": norm * np.float32(1.05)}, {"norm": norm * np.float32(1.05 * factor)}]
        both = side(*({"norm": one["norm"].astype(norm.dtype), "other": norm} for one in copies))
        terms = Terms(Tolerances("other"), option=AS_GIVEN, against=RUN, names=Correspondence())
        assert failing(judge(one, both, terms)) == found


def test_copies_that_the_golden_has_are_compared_with_its_own_and_none_beyond_the_preset(
    tmp_path: Path,
) -> None:
    (names := tmp_path / "names.yaml").write_text('ranks: tp=2\nlayouts: {"up": "t h[tp]"}')
    norm, up = normal(6, 4), normal(6, 4)

    def both(*factors: float) -> Record:
        return side(*({"norm": norm * np.float32(factor), "up": up} for factor in factors))

    one, two = side({"norm": norm, "up": np.concatenate([up, up], axis=1)}), both(1, 1)
    for golden, preset, factors, found in (
        (two, "same", (1 + 8e-6, 1 + 16e-6), ["norm#rank=1:output.0"]),
        (one, "same", (1 + 8e-6, 1 + 16e-6), []),
        (one, "exact", (1, 1 + 1e-6), ["norm#rank=1:output.0"]),
    ):
        terms = Terms(Tolerances(preset), option=AS_GIVEN, against=RUN, names=Correspondence.read(names))
        assert [key for key, _ in failing(judge(golden, both(*factors), terms))] == found


@pytest.mark.each(("whole", "parts"), [((6, 5), ((6, 2), (6, 2))), ((6, 2), ((3, 2), (3, 3)))])
def test_what_no_shape_tells_never_passes(whole: Any, parts: Any, compared: Any) -> None:
    comparison = compared(side({"x": np.ones(whole)}), side(*({"x": np.ones(part)} for part in parts)))
    assert [key for key, _ in failing(comparison)] == ["x:output.0", "x#rank=1:output.0"]


def test_groups_of_ranks_split_what_a_layout_says_and_copy_the_rest(compared: Any) -> None:
    x, y = normal(8, 3, 6), normal(8, 6)
    cp = sharded(x, 4, 0)
    ranks = []
    for context in range(2):  # the last group varies fastest
        halves = sharded(np.concatenate([cp[context], cp[3 - context]]), 2, 2)
        ranks += [{"x": halves[tensor], "y": sharded(y, 2, 1)[tensor]} for tensor in range(2)]
    text = 'layouts: {x: "s[cp:zigzag] b h[tp]", y: "t h[tp]"}\nranks: cp=2 tp=2'
    assert failing(compared(side({"x": x, "y": y}), side(*ranks), text)) == []
    ranks[2]["y"] = ranks[2]["y"] + 1  # a copy of context 1
    assert failing(compared(side({"x": x, "y": y}), side(*ranks), text)) == [("y#rank=2:output.0", "fail")]


W = normal(8, 4, 6)
ROWS, ZIGZAG = np.split(W, 4), [np.concatenate([W[at : at + 2], W[6 - at : 8 - at]]) for at in (0, 2)]
GROUPS: list[tuple[str, str, list[np.ndarray]]] = [
    ("t a h[tp]", "tp=2", halves(W, 2)),
    ("s[cp] b h", "cp=4", ROWS),
    ("s[cp:zigzag] b h", "cp=2", ZIGZAG),
    ("s[sp] b h", "sp=2 tp=2", [W[:4], W[:4], W[4:], W[4:]]),
    ("s[cp:zigzag] b h[tp]", "cp=2 tp=2", [half for one in ZIGZAG for half in halves(one, 2)]),
    ("s[sp] b h[tp]", "tp=2 sp=2", [part[at : at + 4] for part in halves(W, 2) for at in (0, 4)]),
    ("b[dp] s h", "dp=4", ROWS),
    ("b[dp] s h[tp]", "dp=2 tp=2", [half for one in halves(W, 0) for half in halves(one, 2)]),
    ("e[ep] t h", "ep=4", ROWS),
    ("e[ep] t h[tp]", "ep=2 tp=2", [half for one in halves(W, 0) for half in halves(one, 2)]),
    ("t[ep] a h", "ep=2", [W[:3], W[3:]]),  # tokens of experts, as many as each has
    ("t a h", "dp=2 tp=2", [W.copy() for _ in range(4)]),
]


@pytest.mark.each(("layout", "ranks", "parts"), GROUPS)
def test_each_group_of_ranks_joins_its_parts_and_a_change_in_any_is_found(
    layout: str, ranks: str, parts: list[np.ndarray], tmp_path: Path
) -> None:
    """By statistics and by elements, on both sides; the last rank's part or copy is wrong."""
    (tmp_path / "names.yaml").write_text(f'layouts: {{x: "{layout}"}}\nranks: {ranks}')
    names = Correspondence.read(tmp_path / "names.yaml")
    one, wrong = side({"x": W}), [*parts[:-1], parts[-1] * np.float32(1.05)]
    terms = Terms(option=AS_GIVEN, against=RUN, names=names)
    for some, count in ((parts, 0), (wrong, 1)):
        several = side(*({"x": part} for part in some))
        for golden, run in ((one, several), (several, one)):
            assert len(judge(golden, run, terms).failing) == count
    whole, held = write(tmp_path / "one", [{"x": W}]), write(tmp_path / "n", [{"x": part} for part in parts])
    records = [
        replace(Record.of(StatsTable.from_records(some)), tensors=some) for some in map(read, (whole, held))
    ]
    found = names.matched(*records)
    for tensor in found[1].tensors:
        assert isinstance(tensor, TensorRecord)
        assert tensor.payload is not None
        np.testing.assert_array_equal(load(tensor.payload, tensor.dtype, tensor.shape), W)


def read(folder: Path) -> tuple[TensorRecord, ...]:
    return tuple(read_dump(folder).records)


QKV = normal(5, 4 * 3), normal(5, 2 * 3), normal(5, 2 * 3)
"""Queries of four heads, keys and values of two."""


def fused(ranks: int) -> list[np.ndarray]:
    """What QKVParallelLinear gives on each rank: with more ranks than key heads several have the same."""
    cut = [np.split(one, min(ranks, one.shape[1] // 3), 1) for one in QKV]
    return [np.concatenate([one[at * len(one) // ranks] for one in cut], 1) for at in range(ranks)]


CLASSES: list[tuple[str, np.ndarray, list[np.ndarray], str]] = [
    ("ColumnParallelLinear[tp=2]", W, halves(W, 2), "x"),
    ("ColumnParallelLinear[tp=2]", W, [*halves(W, 2), *halves(W, 2)], "x#rank=2"),  # a copy a group
    ("QKVParallelLinear[tp=2:6+3+3]", np.concatenate(QKV, 1), fused(2), "x"),
    ("QKVParallelLinear[tp=4:3+3/2+3/2]", np.concatenate(QKV, 1), fused(4), "x#rank=1"),
    ("ColumnParallelLinear[tp=2:unordered]", W, halves(W, 2)[::-1], "x"),
    ("RowParallelLinear[0:tp=4]", W, ROWS, "x"),
    ("RowParallelLinear[tp=2:partial]", W, [W * np.float32(0.25), W * np.float32(0.75)], "x"),
    ("RowParallelLinear[tp=2>]", W, [W.copy(), W.copy()], "x#rank=1"),
    ("RowParallelLinear[0:tp=2>tp=2]", W, halves(W, 2), "x"),
    ("RotaryEmbedding", W, [part for part in halves(W, 2) for _ in range(2)], "x#rank=1"),
]


@pytest.mark.each(("kind", "whole", "parts", "wrong"), CLASSES)
def test_the_type_of_a_layer_tells_what_ranks_hold(
    kind: str, whole: np.ndarray, parts: list[np.ndarray], wrong: str, tmp_path: Path
) -> None:
    """Without a file. A type that says nothing leaves it to shapes, beside one that does."""
    copies = 1 + ("#" in wrong)
    known = np.ones((2, 4), np.float32)
    ups = np.split(known, len(parts), 1)

    def judged(parts: list[np.ndarray], folder: Path) -> Comparison:
        ranks = [{"x": part, "up": half} for part, half in zip(parts, ups, strict=True)]
        sides = []
        for some in ([{"x": whole, "up": known}], ranks):
            types = {"x": kind, "up": f"ColumnParallelLinear[tp={len(parts)}]"}
            records = read(write(folder / str(len(some)), some))
            typed = tuple(replace(one, op_type=types[one.key.layer]) for one in records)
            sides.append(replace(Record.of(StatsTable.from_records(typed)), tensors=typed))
        return judge(sides[0], sides[1], Terms(option=AS_GIVEN, against=RUN))

    comparison = judged(parts, tmp_path / "right")
    assert (failing(comparison), comparison.compared) == ([], copies + 1)
    elements = [found for found in comparison.elements.values() if found is not None]
    assert len(elements) == copies + 1 - ("unordered" in kind)
    told = "the order of elements is not compared, as the order of parts on ranks is not known (1): x"
    assert [one for one in comparison.remarks if "order" in one] == [told] * ("unordered" in kind)
    last = parts[-1].copy()
    last[..., -1] += 3
    changed = judged([*parts[:-1], last], tmp_path / "wrong")
    assert failing(changed) == [(f"{wrong}:output.0", "fail")]
    assert changed.failing[0].op_type.partition("[")[0] == kind.partition("[")[0]


def test_tensors_that_are_on_one_rank_each_need_no_layout() -> None:
    """Data parallel ranks serve other requests, those of a pipeline have other layers."""
    x, y, z = normal(3, 4), normal(2, 4), normal(3, 4)
    one, terms = side({"x": x, "y": y, "z": z}), Terms(option=AS_GIVEN, against=RUN)
    assert failing(judge(one, side({"x": x, "z": z}, {"y": y}), terms)) == []
    assert failing(judge(side({"x": x}, {"z": z, "y": y}), one, terms)) == []
    assert failing(judge(one, side({"x": x}, {"y": y * 2}), terms)) == [
        ("y:output.0", "fail"),
        ("z:output.0", "missing"),
    ]
    both = judge(one, side({"x": x, "z": z}, {"y": y, "z": z}), terms)  # shapes alone tell no copies
    assert len(failing(both)) > 0
    # What types tell is not taken where a rank has left nothing: a file may say otherwise.
    whole, kind = normal(4, 6), "ColumnParallelLinear[tp=3]"
    two = [{"x": part, "y": whole} for part in np.split(whole, 3, 1)[:2]]
    found = failing(judge(side({"x": whole, "y": whole}), side(*two, kind=kind), terms))
    assert {key for key, _ in found} >= {"x:output.0"}


X, Y = normal(6, 4), normal(6, 4)
LOST: list[tuple[list[Arrays], list[Arrays], list[str], str]] = [
    ([{"a": X, "mid": Y}], [{"a": X, "mid": Y}, {"a": X}], ["mid#rank=1"], ""),
    ([{"a": X, "mid": Y}], [{"a": X}, {"a": X, "mid": Y}], ["mid#rank=0"], ""),
    ([{"a": X, "b": Y}] * 2, [{"a": X, "b": Y}, {"a": X}], ["b#rank=1"], ""),
    ([{"a": X, "b": Y}, {"a": X}], [{"a": X, "b": Y}, {"a": X}, {"a": X}], [], ""),
    ([{"l.0": X, "l.1": Y}], [{"l.0": X}, {"l.0": X}, {"l.1": Y}, {"l.1": Y}], [], ""),
    ([{"l.0": X, "l.1": Y, "l.2": X}],
     [{"l.0": X, "l.1": Y}, {"l.0": X}, {"l.2": X}, {"l.2": X}], ["l.1#rank=1"], ""),
    ([{"net": X, "in": X, "l.0": X, "l.1": Y, "out": Y}],
     [{"net": X, "in": X, "l.0": X}, {"net": X, "l.1": Y, "out": Y}], [], "in (rank 1), out (rank 0)"),
    ([{"a": X, "experts.0.up": Y, "experts.1.up": X}],
     [{"a": X, "experts.0.up": Y}, {"a": X, "experts.1.up": X}], [], ""),
    ([{"l.0": X, "l.1": X, "experts.0.up": Y, "experts.1.up": X}],
     [{"l.0": X, "l.1": X, "experts.0.up": Y}, {"l.0": X, "experts.1.up": X}], ["l.1#rank=1"], ""),
    ([{"a": X, "experts.1.up": Y}], [{"a": X, "experts.1.up": Y}, {"a": X}], [],
     "experts.1.up (rank 1)"),
    ([{"a": X, "mid": Y}, {"a": X}], [{"a": X, "mid": Y}], [], "mid (rank 1)"),
]  # fmt: skip


@pytest.mark.each(("golden", "run", "lost", "note"), LOST)
def test_a_copy_that_a_rank_has_lost_is_missing_and_what_ranks_share_out_is_not(
    golden: list[Arrays], run: list[Arrays], lost: list[str], note: str, compared: Any
) -> None:
    comparison = compared(side(*golden), side(*run), 'layouts: {"none": "t h[tp]"}')
    assert failing(comparison) == [(f"{one}:output.0", "missing") for one in lost]
    told = [one for one in comparison.remarks if one.startswith("on some ranks only")]
    assert [one.partition("unknown: ")[2] for one in told] == ([note] if note else [])
    assert comparison.remarks[: len(told)] == tuple(told)


def test_a_change_is_not_traced_to_what_other_ranks_round_otherwise() -> None:
    """An all-reduce adds up in another order: that the golden repeats says nothing of a run of two ranks."""
    edges = Edges.of([Node("sum", "", ()), Node("up", "", (Port("sum"),))], "the run")
    near, off = X * np.float32(1 + 1e-6), Y * np.float32(1.01)
    golden = replace(
        side({"sum": X, "up": Y}),
        extra={"repeats": {"runs": 2}},
        blocks={EDGES: lines_of(edges, ["sum", "up"])},
    )
    for ranks, traced in ((1, "sum:output.0"), (2, None)):
        comparison = judge(golden, side(*[{"sum": near, "up": off}] * ranks), Terms(names=Correspondence()))
        found, _ = sources_of(golden, comparison)
        assert found is not None
        assert {source.key.layer for source in found.independent} == {"up"}
        assert found.independent[0].begins == (None if traced is None else TensorKey.parse(traced))


def test_another_order_is_seen_by_the_run_s_tensors_and_told_as_unseen_without_them(
    compared: Any, tmp_path: Path
) -> None:
    """The golden has projections of the whole; those of its parts do not give them."""
    whole, text = normal(6, 8), 'layouts: {"x": "t h[tp]"}'
    golden = side({"x": whole})
    golden = replace(golden, table=golden.table.with_projections({0: project(whole)}))
    left, right = halves(whole, 1)
    for number, (second, fails) in enumerate(((right, False), (right[:, ::-1], True))):
        parts = [{"x": left}, {"x": second}]
        comparison = compared(golden, side(*parts), text)
        assert failing(comparison) == []
        (told,) = (one for one in comparison.remarks if one.startswith("the order of elements"))
        assert "tensors joined from statistics of parts (1): x;" in told
        held = read(write(tmp_path / str(number), parts))
        run = replace(Record.of(StatsTable.from_records(held)), tensors=held)
        comparison = compared(golden, run, text)
        assert [key for key, _ in failing(comparison)] == ["x:output.0"] * fails
        assert not [one for one in comparison.remarks if "order of" in one]
        lacking = compared(run, side({"y": whole}), text)
        assert not [one for one in lacking.remarks if "order of" in one]


def test_numbers_of_experts_count_on_from_rank_to_rank(compared: Any) -> None:
    every = {f"layers.{at}.experts.{one}.up": normal(3, 4) for at in range(2) for one in range(4)}

    def rank(expert: int, tensor: int) -> Arrays:
        return {
            f"layers.{at}.experts.{one}.up": np.split(
                every[f"layers.{at}.experts.{2 * expert + one}.up"], 2, 1
            )[tensor]
            for at in range(2)
            for one in range(2)
        }

    for ranks, order in (
        ("ep=2 tp=2", ((0, 0), (0, 1), (1, 0), (1, 1))),
        ("tp=2 ep=2", ((0, 0), (1, 0), (0, 1), (1, 1))),
    ):
        text = f'layouts: {{"layers.*.experts.*.*": "{{2}}[ep] t h[tp]"}}\nranks: {ranks}'
        held = [dict(rank(*one)) for one in order]
        comparison = compared(side(every), side(*held), text)
        assert (failing(comparison), comparison.compared) == ([], 8)
        held[3]["layers.1.experts.0.up"] = held[3]["layers.1.experts.0.up"] + 1
        assert failing(compared(side(every), side(*held), text)) == [
            ("layers.1.experts.2.up:output.0", "fail")
        ]


@pytest.mark.each("pattern", ["*.experts.*", "*.experts.*.*"])
def test_weights_of_layers_that_are_renamed_and_that_count_on(pattern: str, tmp_path: Path) -> None:
    path = tmp_path / "names.yaml"
    path.write_text(f"gate: router\nlayouts: {{'{pattern}': '{{2}}[ep] t h'}}")
    texts = [f"float32 {at + 1} AAAAAAAA" for at in range(5)]
    whole = {"router": {"weight": texts[4]}} | {
        f"0.experts.{at}.up": {"weight": texts[at]} for at in range(4)
    }
    ranks = {
        str(rank): {"gate": {"weight": texts[4]}}
        | {f"0.experts.{at}.up": {"weight": texts[2 * rank + at]} for at in range(2)}
        for rank in (1, 0)
    }
    golden, run = side({"router": normal(2)}), side({"gate": normal(2)}, {"gate": normal(2)})
    golden, run = replace(golden, extra={SHARDS: {"0": whole}}), replace(run, extra={SHARDS: ranks})
    found, parts = Correspondence.read(path).weights(golden, run)
    assert found == {"gate.weight": texts[4]} | {f"0.experts.{at}.up.weight": texts[at] for at in range(4)}
    assert {name: text for one in parts.values() for name, text in one.items()} == found
    assert [*parts] == ["0", "1"]


def record(folder: Path, kind: str = "") -> Record:
    """Return a record of what lies in a folder, with its tensors, of layers of a type."""
    held = tuple(replace(one, op_type=kind) for one in read(folder))
    return replace(Record.of(StatsTable.from_records(held)), tensors=held)


def write(root: Path, ranks: list[Arrays], dtype: str = "Float32") -> Path:
    """Write the arrays as MindSpore does, a folder a rank."""
    for rank, arrays in enumerate(ranks):
        folder = root / f"rank_{rank}" / "net" / "0" / "0"
        folder.mkdir(parents=True)
        for number, (layer, array) in enumerate(arrays.items()):
            stamp = 1795228705872229 + number
            np.save(
                folder / f"MatMul.{layer.replace('.', '_')}.0.0.{stamp}.output.0.DefaultFormat.{dtype}.npy",
                array,
            )
    return root


def test_elements_of_parts_are_those_of_the_whole(tmp_path: Path, capsys: Any) -> None:
    x, zigzag, added = normal(8, 6), normal(8, 4), normal(4, 4)
    four = sharded(zigzag, 4, 0)
    ranks = [
        {"x": part, "z": np.concatenate([four[at], four[3 - at]]), "p": added / 2}
        for at, part in enumerate(sharded(x, 2, 1))
    ]
    golden = write(tmp_path / "one", [{"x": x, "z": zigzag, "p": added}])
    run = write(tmp_path / "two", ranks)
    names = tmp_path / "names.yaml"
    names.write_text('layouts: {x: "t h[tp]", z: "s[tp:zigzag] h", p: "t h[tp:partial]"}')
    assert main(["compare", str(golden), str(run), "--map", str(names)]) == 0
    assert "3 of 3 tensors compared, 3 of them element by element" in capsys.readouterr().out
    names.write_text('layouts: {x: "t h[tp]", z: "s[tp] h", p: "t h[tp:partial]"}')
    assert main(["compare", str(golden), str(run), "--map", str(names)]) == 1  # the order of the parts
    assert "first mismatch: z:output.0" in capsys.readouterr().out
    assert main(["compare", str(golden), str(run)]) == 1


WRONG = [
    ("a.*: b.*.*", "'b.*.*' has more asterisks than 'a.*' has"),
    ("a.*: 'b.{2}'", "'b.{2}': {2} is no asterisk of 'a.*', which has 1"),
    ("a + b: c + d", "only one side may have several names"),
    ("a: 3", "'a' is mapped to 3, expected names of layers of the golden"),
    ("layouts: {a: 'h[tp:up]'}", "the layout 'h[tp:up]' of 'a': expected one word per axis"),
    ("layouts: {a: 'h[tp:2+0]'}", "the layout 'h[tp:2+0]' of 'a': expected one word per axis"),
    ("layouts: 3", "layouts is 3, expected layers and their layouts"),
    ("layouts: {a: ''}", "expected one word per axis"),
    ("ranks: 8", "ranks is '8', expected sizes of groups such as 'cp=2 tp=4'"),
    ("ranks: tp2", "ranks is 'tp2', expected sizes of groups such as 'cp=2 tp=4'"),
    ("layouts: {a: 'h[ep]'}\nranks: tp=2", "layouts name the group 'ep', which ranks gives no size"),
    ("layouts: {'a.*': '{1}[ep] h'}\nranks: tp=2", "layouts name the group 'ep', which ranks gives no size"),
    ("a: [b", "not YAML"),
]


@pytest.mark.each(("text", "message"), WRONG)
def test_a_file_that_makes_no_sense_is_refused_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "names.yaml").write_text(text)
    with pytest.raises(RequestError) as caught:
        Correspondence.read(tmp_path / "names.yaml")
    assert message in str(caught.value)


TWICE = ["h.*.a: h.0.a", "h.1.a: h.0.a\nh.0.a: h.0.a", "h.0.a: h.0.a\nh.1.a: h.0.a + h.1.a"]
UNFIT = [
    ("layouts: {x: 't b h[tp]'}", "has 3 axes, and x [6, 8]"),
    ("layouts: {x: 't[cp] h[tp]'}", "this side has 2 ranks, and no line 'ranks:' gives the sizes"),
    ("layouts: {x: 't h[tp:2+1]'}", "the layout of 'x' cuts axis 1 by 2+1, and x has [6, 4]"),
    ("layouts: {x: 't h[tp]'}\nranks: tp=4", "this side has 2 ranks, and 'ranks: tp=4' makes 4: name"),
]


def test_a_layout_that_does_not_fit_or_maps_a_layer_of_the_golden_twice_is_refused(compared: Any) -> None:
    """What the last line names would take it from the first, which then has none."""
    parts = side({"x": normal(6, 4)}, {"x": normal(6, 4)})
    for text, message in UNFIT:
        with pytest.raises(RequestError) as caught:
            compared(side({"x": normal(6, 8)}), parts, text)
        assert message in str(caught.value)
    with pytest.raises(RequestError, match=r"names.yaml: the layout of 'x' has 3 axes, and x \[6, 8\]"):
        compared(side({"x": normal(6, 8)}), side({"x": normal(6, 8)}), UNFIT[0][0])  # where no side has ranks
    both = side({"h.0.a": normal(2, 3), "h.1.a": normal(2, 3)})
    for text in TWICE:
        line = rf"line {text.count(':')}: h.* are both mapped to h.0.a of the"
        with pytest.raises(RequestError, match=line):
            compared(both, both, text)
    x = normal(4, 6)
    parts = side({"up": x[:, :3]}, {"up": x[:, 3:].astype(np.float16)})
    with pytest.raises(RequestError, match="parts of different types: float32, float16"):
        compared(side({"up": x}), parts, 'layouts: {up: "t h[tp]"}')
    comparison = judge(side({"up": x}), side({"up": x[:, :3]}, {"up": x[:, 3:]}), Terms(against=RUN))
    assert comparison.failing  # other ranks without a layout are told
    assert any("state how they share tensors in a map" in note for note in comparison.notes)


WHERE: list[tuple[str, Callable[[list[np.ndarray]], list[np.ndarray]], str]] = [
    ("t h[tp]", lambda parts: [parts[0], parts[1] + 1, *parts[2:]], "only in the parts of rank 1: x"),
    ("t h[tp]", lambda parts: [parts[0] + 1e-7, parts[1] + 1, *parts[2:]], "only in the parts of rank 1: x"),
    ("t h[tp]", lambda parts: [parts[1], parts[1], parts[2], parts[2]], "only in the parts of rank 0, 3: x"),
    ("t h[tp]", lambda parts: [part + 1 for part in parts], ""),
    ("t h[tp]", lambda parts: parts[:3], "missing on some ranks of the run only: x (rank 3)"),
    ("t[tp] h", lambda parts: parts, ""),  # another shape
]


@pytest.mark.each(("layout", "fault", "note"), WHERE)
def test_notes_say_which_rank_a_mismatch_is_of(
    layout: str, fault: Callable[[list[np.ndarray]], list[np.ndarray]], note: str, tmp_path: Path, capsys: Any
) -> None:
    x, y = normal(6, 8), normal(5)
    held = fault(np.split(x, 4, 1))
    run = write(tmp_path / "run", [{"x": part, "y": y} for part in held] + [{"y": y}] * (4 - len(held)))
    golden = write(tmp_path / "golden", [{"x": x, "y": y}])
    names = tmp_path / "names.yaml"
    names.write_text(f"layouts: {{x: '{layout}'}}" if len(held) == 4 else "layouts: {none: 't h[tp]'}")
    assert main(["compare", str(golden), str(run), "--map", str(names)]) == 1
    told = [one for one in capsys.readouterr().out.splitlines() if re.match("note: (out of|missing)", one)]
    assert len(told) == bool(note)
    assert not told or note in told[0]
    records = [read_dump(folder).records for folder in (golden, run)]
    sides = [replace(Record.of(StatsTable.from_records(one)), tensors=tuple(one)) for one in records]
    remarks = judge(*sides, Terms(option=AS_GIVEN, tensors=EVERY, names=Correspondence.read(names))).remarks
    assert not told or any(note in one for one in remarks), "a test's report has it, too"


@pytest.mark.each("swap", [False, True])
def test_sums_without_tensors_fail_by_themselves_and_leave_the_rest_judged(
    *, swap: bool, compared: Any
) -> None:
    x, y, z = normal(6, 4), normal(6, 8), normal(6, 8)
    text = "layouts: {x: 't h[tp:partial]', '*': 't h[tp]'}"
    whole = side({"y": y, "x": x, "z": z})  # x is no mismatch to look at first

    def ranks(z: np.ndarray) -> Record:
        halves = zip(np.split(y, 2, 1), np.split(z, 2, 1), strict=True)
        return side(*({"y": one, "x": x / 2, "z": two} for one, two in halves))

    lost = [("x:output.0", "missing"), ("x#rank=0:output.0", "extra"), ("x#rank=1:output.0", "extra")]
    if swap:
        lost = [(key, {"missing": "extra", "extra": "missing"}[how]) for key, how in lost]
    for other, more in ((z, []), (z + 1, [("z:output.0", "fail")])):
        pair = (ranks(other), whole) if swap else (whole, ranks(other))
        comparison = compared(*pair, text)
        assert sorted(failing(comparison)) == sorted(lost + more)
        assert comparison.compared == 2
        assert comparison.first is not None
        assert comparison.first.key.layer == ("z" if more else "x")
        (note,) = comparison.remarks
        assert "need tensors, and a side has only statistics: x; " in note
    assert not compared(ranks(z), ranks(z), text).failing
    assert failing(compared(ranks(z), ranks(z + 1), text)) == [("z:output.0", "fail")]
    cut = side(*({"p": x[:, :1] / 2, "q": x[:, 1:] / 2, "y": one} for one in np.split(y, 2, 1)))
    text = "p + q: x\nlayouts: {y: 't h[tp]', '*': 't h[tp:partial]'}"
    apart = [(f"{name}#rank={rank}:output.0", "extra") for name in "pq" for rank in (0, 1)]
    assert sorted(failing(compared(side({"y": y, "x": x}), cut, text))) == [*apart, ("x:output.0", "missing")]


def test_names_are_suggested_by_order_shapes_and_values_and_never_taken(tmp_path: Path, capsys: Any) -> None:
    arrays = {f"h.{at}.{name}": normal(3, 4 + (name == "up")) for at in (0, 11) for name in ("q", "up")}
    golden = write(tmp_path / "one", [{**arrays, "norm": normal(5)}])
    renamed = {f"layers.{n.split('.')[1]}.attn_{n.split('.')[2]}": a * 1.0001 for n, a in arrays.items()}
    run = write(tmp_path / "two", [{**renamed, "final": normal(5)}])
    found = tmp_path / "names.yaml"
    assert main(["compare", str(golden), str(run), "--suggest", str(found), "--preset", "other"]) == 1
    out = capsys.readouterr().out
    assert "  layers_*_attn_q: h_*_q (values are close in 2 of 2)\n" in out
    assert "final: norm" not in out
    assert found.read_text() == (
        '# values are close in 2 of 2\n"layers_*_attn_q": "h_*_q"\n'
        '# values are close in 2 of 2\n"layers_*_attn_up": "h_*_up"\n'
        '# values are close in 0 of 1\n"final": "norm"\n'
    )
    assert main(["compare", str(golden), str(run), "--map", str(found), "--rtol", "1e-3"]) == 1
    assert "5 of 5 tensors compared, 5 of them element by element; mismatches: 1" in capsys.readouterr().out


@pytest.mark.each("swapped", [False, True])
@pytest.mark.each("drift", [1.0001, -3.0])
def test_joins_are_suggested_by_values_else_by_shapes(drift: float, *, swapped: bool) -> None:
    apart: dict[str, np.ndarray] = {"embed": normal(3, 6)}
    joined: dict[str, np.ndarray] = {"tokens": apart["embed"] * np.float32(drift)}
    for at in range(2):
        q, k, v, out, gate, up = (normal(3, size) for size in (8, 4, 4, 6, 10, 10))
        act, mean = np.tanh(gate), normal(3)
        names = ("attn.q", q), ("attn.k", k), ("attn.v", v), ("attn.out", out)
        names = (*names, ("mlp.gate", gate), ("act.fn", act), ("mlp.up", up), ("norm", mean))
        apart |= {f"layers.{at}.{name}": array for name, array in names}
        names = ("qkv.lin", np.hstack([q, k, v])), ("o.lin", out), ("gate_up.lin", np.hstack([gate, up]))
        names = (*names, ("glu", act * up), ("norm_of", mean))
        joined |= {f"h.{at}.{name}": array * np.float32(drift) for name, array in names}

    def table(arrays: Arrays) -> Any:
        made = side(arrays).table
        kinds = [key.rpartition(":")[0].rpartition(".")[2] for key in made.keys]
        linear = {"q", "k", "v", "out", "gate", "up", "lin"}
        return replace(made, op_types=tuple("Linear" if kind in linear else kind for kind in kinds))

    sides = table(joined), table(apart)
    found = suggested_names(*(sides if swapped else sides[::-1]))
    alike = 2 if drift > 0 else 0
    joins = {
        ("layers.*.attn.q + layers.*.attn.k + layers.*.attn.v", "h.*.qkv.lin", 2, alike),
        ("layers.*.mlp.gate + layers.*.mlp.up", "h.*.gate_up.lin", 2, alike),
        ("layers.*.attn.out", "h.*.o.lin", 2, alike),
        ("layers.*.norm", "h.*.norm_of", 2, alike),
        ("embed", "tokens", 1, alike // 2),
    }
    told = {(one.run, one.golden) if swapped else (one.golden, one.run): one for one in found}
    for first, second, layers, agree in joins:
        assert told[first, second][2:] == (layers, agree), [*told]
