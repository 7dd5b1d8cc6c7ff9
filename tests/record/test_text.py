from __future__ import annotations

import difflib
import math
import re
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, strategies as st

from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.dtypes import ALL
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.errors import GoldenError
from pytest_npudump.record.record import Record
from pytest_npudump.record.rows import whole
from pytest_npudump.record.text import parse, render
from pytest_npudump.storage import safeyaml
from tests.conftest import real_table, table_of

PATH = Path("golden/test_ocr/test_classifier.yaml")
TEXT = """\
npudump-golden: 1
test: tests/test_ocr.py::test_classifier[fp16]
producer: {runtime: acl, soc: Ascend910B3, cann: 8.2.RC1, scene: model, dump_mode: output}
columns: tensor dtype shape max min avg l2norm nan -inf +inf
tensors: |
  conv1 float16 1x8x24x96 5.03125 -4.875 0.000659452 - 0 0 0
  fc float16 1x2 0.225464 -0.093811 0.0658264 - 0 0 0
"""


def same(left: Any, right: Any) -> Any:
    """Whether two tables say the same, to the bit."""
    return (
        left.keys == right.keys
        and left.dtypes == right.dtypes
        and left.shapes == right.shapes
        and left.counts == right.counts
        and left.known.tolist() == right.known.tolist()
        and left.digits.tolist() == right.digits.tolist()
        and left.wide == right.wide
        and np.array_equal(left.values, right.values, equal_nan=True)
        and np.array_equal(np.signbit(np.nan_to_num(left.values)), np.signbit(np.nan_to_num(right.values)))
    )


def test_the_designs_example_reads_and_is_written_as_it_was() -> None:
    golden = parse(TEXT, PATH)
    assert golden.test == "tests/test_ocr.py::test_classifier[fp16]"
    assert golden.producer["soc"] == "Ascend910B3"
    assert golden.table.keys == ("conv1:output.0", "fc:output.0")
    assert golden.table.counts == (18432, 2)
    assert (golden.table.value(0, 1), golden.table.value(0, 3)) == (-4.875, None)
    assert golden.table.digits.tolist() == [0, 0]
    assert render(golden) == TEXT


def test_a_real_model_comes_back_to_the_bit() -> None:
    """From plain YAML, in which numbers stand as CANN printed them."""
    for name in ("regressed", "nan", "golden"):
        table = real_table(name)
        text = render(Record("t", {"runtime": "acl"}, table, PATH))
        assert "producer: {runtime: acl, digits: 6}\n" in text
        assert same(parse(text, PATH).table, table)
    assert "  net_Conv@0 float16 1x8x24x96 5.03125 -4.875 0.000659452 - 0 0 0\n" in text
    data = yaml.safe_load(text)
    assert len(data["tensors"].splitlines()) == 551
    assert list(data) == ["npudump-golden", "test", "producer", "columns", "tensors"]


def test_a_diff_touches_only_lines_of_tensors_that_changed() -> None:
    before, after = (render(Record("t", {}, real_table(name), PATH)) for name in ("golden", "regressed"))
    changed = [
        line[3:].split()[0]
        for line in difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
        if line.startswith("+  ")
    ]
    comparison = compare_tables(real_table("golden"), real_table("regressed"), Tolerances("exact"))
    assert [*map(whole, changed)] == [str(verdict.key) for verdict in comparison.failing]


@pytest.mark.each("name", ["a|b", "edges:_|", "projections:%20|"])
def test_layers_named_like_a_block_are_rows(name: str) -> None:
    text = TEXT.replace("conv1", f"{name}:output.0" if ":" in name else name)
    for given_text in (text, text + BLOCKS.replace("conv1", name)):
        golden = parse(given_text, PATH)
        assert golden.table.keys == (f"{name}:output.0", "fc:output.0")
        assert render(golden) == given_text


def test_further_keys_are_kept_in_their_order() -> None:
    text = TEXT.replace(
        "columns:", "noise:\n  conv1: {max: 0.5, runs: [1, 2]}\ntolerances: [a, null]\ncolumns:"
    )
    golden = parse(text, PATH)
    assert golden.extra == {"noise": {"conv1": {"max": 0.5, "runs": [1, 2]}}, "tolerances": ["a", None]}
    assert parse(render(golden), PATH).extra == golden.extra
    assert list(parse(render(golden), PATH).extra) == ["noise", "tolerances"]


@pytest.mark.each(
    "test",
    ["a.py::b[1-2.5]", "b-1/c.py::C::d[x:y::z]", "a::b:", "a::b c", "a.py::b[c,d]", "null", "é::b", "1::2"],
)
def test_a_head_is_the_yaml_of_its_keys_whatever_was_written_before(test: str) -> None:
    """Values that look like other types stay text."""
    odd = {"cann": "8.2", "soc": "310", "flag": "yes", "time": "1:30", "empty": "", "odd": "a: {b"}
    heads: list[tuple[Any, Any]] = [({"a": "1"}, {}), ({"a": 1}, {"k": [1, "x"]}), ({"a": "é"}, {"": 1})]
    for producer, extra in (*heads, (odd, {})):
        golden = Record(test, producer, parse(TEXT, PATH).table, PATH, extra)
        head, _, _ = render(golden).partition("tensors: |")
        columns = safeyaml.load_mapping(head).data["columns"]
        keys = {"npudump-golden": 1, "test": test, "producer": producer, **extra, "columns": columns}
        assert head == safeyaml.dump_mapping(keys)
        assert parse(render(golden), PATH).producer == producer


def test_a_count_that_is_not_the_shapes_and_mixed_precision_have_a_column() -> None:
    table = table_of(("a:output.0", "int8", (2, 3), {"count": 8}), ("b:output.0", "int8", None, {}))
    text = render(Record("t", {}, table, PATH))
    assert "nan -inf +inf count\n" in text
    assert "  a int8 2x3 - - - - - - - 8\n  b int8 ? - - - - - - - -\n" in text
    assert same(parse(text, PATH).table, table)
    stats = {"max": 1.0, "digits": 6}
    table = table_of(("a:output.0", "float16", (1,), stats), ("b:output.0", "float16", (1,), {"max": 1.0}))
    text = render(Record("t", {}, table, PATH))
    assert "+inf digits\n" in text
    assert "digits:" not in text
    assert same(parse(text, PATH).table, table)
    assert len(parse(render(Record("t", {}, table_of(), PATH)), PATH).table) == 0


def test_integers_and_floats_are_told_apart_by_dtype() -> None:
    table = table_of(
        ("a:output.0", "int64", (1,), {"max": 2**63 - 1, "min": -(2**63)}),
        ("b:output.0", "float32", (1,), {"max": 2.0**63, "min": 4.0}),
        ("c:output.0", "-", (1,), {"max": 2**64 - 1}),
    )
    text = render(Record("t", {}, table, PATH))
    assert "9223372036854775807 -9223372036854775808" in text
    assert "9.223372036854776e+18 4 " in text
    back = parse(text, PATH).table
    assert same(back, table)
    assert back.value(0, 0) == 2**63 - 1
    assert back.value(2, 0) == 2**64 - 1
    assert isinstance(back.value(1, 1), float)


floats = st.one_of(
    st.floats(),
    st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0]),
    st.sampled_from([0.0, -0.0, 5e-324, 1.7976931348623157e308, 1e16, 2.0**53, math.inf, math.nan]),
)
maybe = st.one_of(st.none(), floats)
names = st.text(min_size=1, max_size=20)
shapes = st.one_of(st.none(), st.lists(st.integers(0, 2**40), max_size=8).map(tuple))


@st.composite
def records(draw: st.DrawFn) -> Any:
    dtype = draw(st.sampled_from(ALL))
    whole = st.integers(-(2**63), 2**64 - 1)
    extreme = st.one_of(st.none(), whole) if dtype.exact else maybe
    count = st.one_of(st.none(), st.integers(0, 2**63 - 1))
    stats = Stats(
        count=draw(count),
        max=draw(extreme),
        min=draw(extreme),
        avg=draw(maybe),
        l2norm=draw(maybe),
        nan=draw(count),
        neg_inf=draw(count),
        pos_inf=draw(count),
        digits=draw(st.sampled_from([None, 6])),
    )
    key = TensorKey(draw(names), "output", draw(st.integers(0, 99)), turn=draw(st.integers(0, 2)))
    return TensorRecord(key, "", dtype.name, draw(shapes), PATH, stats=draw(st.sampled_from([stats, None])))


@given(st.lists(records(), max_size=8, unique_by=lambda record: str(record.key)))
def test_any_table_comes_back_to_the_bit(rows: Any) -> None:
    table = StatsTable.from_records(rows)
    text = render(Record("t", {}, table, PATH))
    assert same(parse(text, PATH).table, table)
    assert render(parse(text, PATH)) == text


@given(st.text())
def test_any_test_id_comes_back_or_is_refused(test: str) -> None:
    golden = Record(test, {}, parse(TEXT, PATH).table, PATH)
    assert parse(render(golden), PATH).test == test


@pytest.mark.each("digits", [1, 5, 18])
def test_a_precision_that_no_producer_has_is_neither_written_nor_read(digits: int) -> None:
    rows = [("a:output.0", "float16", (1,), {"max": 1.0, "digits": n}) for n in (6, digits)]
    rows[1] = ("b:output.0", *rows[1][1:])
    with pytest.raises(GoldenError, match=rf"b:output.0 carries {digits} digits, expected 6 to 17"):
        render(Record("t", {}, table_of(*rows), PATH))
    rows[1] = (*rows[1][:3], {"max": 1.0})
    text = render(Record("t", {}, table_of(*rows), PATH)).removesuffix("0\n") + f"{digits}\n"
    with pytest.raises(GoldenError, match=rf"line 7: '{digits}' in column digits, expected 6 to 17"):
        parse(text, PATH)


@given(st.integers(0, len(TEXT) - 1), st.characters(codec="utf-8"))
def test_a_damaged_file_is_refused_or_is_another_golden(position: int, character: str) -> None:
    damaged = TEXT[:position] + character + TEXT[position + 1 :]
    with suppress(GoldenError):
        assert len(parse(damaged, PATH).table) <= 2


def edit(old: str, new: str) -> Any:
    assert old in TEXT
    return TEXT.replace(old, new, 1)


@pytest.mark.each(
    ("text", "message"),
    [
        ("", r"line 1: the file is empty"),
        ("npudump-golden\n", r"line 1: expected a mapping"),
        ("a: 1\n", r"not a golden file, expected the key 'npudump-golden: 1'"),
        (edit("golden: 1", "golden: 2"), r"written in version 2 .* reads version 1: install"),
        (edit("golden: 1", "golden: true"), r"written in version True"),
        (edit("golden: 1", "golden: '1'"), r"written in version '1'"),
        (edit("test: tests", "tset: tests"), r"line 1: 'test' is missing"),
        (edit("test: tests/test_ocr.py::test_classifier[fp16]", "test: 5"), r"line 2: 'test' holds int"),
        (edit("producer: {", "test: {"), r"line 3: the key 'test' occurs twice"),
        (edit("runtime: acl, ", "runtime: acl, runtime: acl, "), r"line 3: the key 'runtime' occurs twice"),
        (edit("{runtime: acl, ", "{digits: -1, "), r"line 3: producer.digits is -1"),
        (edit("{runtime: acl, ", "{digits: yes, "), r"line 3: producer.digits is 'yes'"),
        *[
            (edit("{runtime", f"{{digits: {n}, runtime"), rf"line 3: producer.digits is {n}, expected 6 to")
            for n in (0, 1, 5, 18, 10**30, 6.0)
        ],
        (edit("max min", "min max"), r"line 4: columns are"),
        (edit("+inf\n", "+inf zero\n"), r"line 4: columns are"),
        (edit("5.03125 -4.875", "5.03125"), r"line 6: 9 cells, expected 10"),
        (edit("0 0 0\n  fc", "0 0\n  0 fc"), r"line 6: 9 cells, expected 10"),
        (edit("  fc float16", "\n  fc float16"), r"line 7: 0 cells, expected 10"),
        (edit("fc ", "conv1 "), r"line 7: the tensor conv1:output.0 stands here a second"),
        (edit("fc ", "f\x1bc:output.0 "), r"line 7: not YAML: unacceptable character #x001b"),
        (edit("fc ", "fc:output,0 "), r"line 7: 'fc:output,0' is not a tensor key"),
        (edit("fc ", ":output.0 "), r"line 7: ':output.0' is not a tensor key"),
        (edit("fc ", "fc#turn=x "), r"line 7: 'fc#turn=x:output.0' is not a tensor key"),
        (edit("0.225464", "0.22x464"), r"line 7: '0.22x464' in column max is not a number"),
        (edit("0.225464", "0_225464"), r"line 7: '0_225464' in column max is not a number"),
        (edit("0.225464", "٣"), r"line 7: '٣' in column max is not a number"),
        (edit("0.225464", "1e999"), r"line 7: '1e999' in column max is beyond the range"),
        (edit("- 0 0 0\n  fc", "- 0.5 0 0\n  fc"), r"line 6: '0.5' is not a count in column nan"),
        (edit("- 0 0 0\n  fc", "- -1 0 0\n  fc"), r"line 6: '-1' is not a count in column nan"),
        (edit("1x2", "1x"), r"line 7: '1x' is not a shape"),
        (edit("float16 1x2", "ﬂoat16 1x2"), r"line 7: 'ﬂoat16' is not a dtype"),
        (edit("producer: {", "producer: &a {"), r"line 3: anchors and aliases"),
        (edit("producer: {runtime", "x: &a [1]\nproducer: {runtime: *a, y"), r"line 3: anchors and aliases"),
        (edit("runtime: acl", "runtime: !!python/object:os.system acl"), r"line 3: tags are not accepted"),
        (edit("test: tests", "test: !!str tests"), r"line 2: tags are not accepted"),
        (edit("runtime: acl", "load: 1e999"), r"line 3: '1e999' is beyond the range of float64"),
        (edit("runtime: acl", "digits: 1:30"), r"line 3: producer.digits is '1:30', expected 6 to 17"),
        (edit("test:", "x: [" + "1," * 100_001 + "1]\ntest:"), r"line 2: more than 100,000 values"),
        (TEXT + "x: [" + "1," * 100_001 + "1]\n", r"line 8: more than 100,000 values"),
        ("#" * 4_200_000 + "\n" + TEXT, r"line 2: more than 4,194,304 characters"),
        (edit("producer", "#" * safeyaml.SIZE + "\nproducer"), "more than 4,194,304 characters"),
        (TEXT + "#" * 4_200_000 + "\n", r"line 9: more than 4,194,304 characters"),
        (edit("test: ", "test: '\ntensors: |\n"), r"not YAML"),
        (edit("test:", "tensors: x\ntest:"), r"line 6: the key 'tensors' occurs twice"),
        (edit("runtime: acl", "5: acl"), r"line 3: a key must be text"),
        (edit("runtime: acl", "[a]: acl"), r"line 3: a key must be text"),
        (edit("runtime: acl", "<<: {}"), r"line 3: merge keys"),
        (TEXT + "---\na: 1\n", r"line 8: expected one document"),
        (TEXT + "...\n", r"expected one document"),
        (edit("runtime: acl", "runtime: " + "[" * 60 + "]" * 60), r"line 3: nested deeper than 32 levels"),
        (edit("acl", "a\x07l"), r"line 3: not YAML"),
        (edit("  fc", "<<<<<<< HEAD\n  fc"), r"conflict markers of a git merge"),
    ],
)  # fmt: skip
def test_a_golden_that_cannot_be_trusted_is_refused(text: str, message: str) -> None:
    with pytest.raises(GoldenError, match=message) as caught:
        parse(text, PATH)
    assert str(PATH) in str(caught.value)


def test_every_refusal_names_the_way_out() -> None:
    with pytest.raises(GoldenError, match=r"Restore the file from version control, or accept anew with"):
        parse(edit("1x2", "1x"), PATH)


@pytest.mark.each(
    ("golden", "message"),
    [
        (lambda t: Record("t", {}, t, PATH, {"tensors": "x"}), "'tensors' is a key of the file itself"),
        (lambda t: Record("t", {"a": (1, 2)}, t, PATH), "expected text, finite numbers"),
        (lambda t: Record("t", {}, t, PATH, {"x": float("nan")}), "'x' would not be read back"),
        (lambda t: Record("t", {}, t, PATH, {"x": object()}), "expected text, finite numbers"),
        (lambda t: Record("t", {}, t, PATH, {"x": {1: 2}}), "a key must be text"),
    ],
)
def test_what_would_not_be_read_back_is_not_written(golden: Any, message: str) -> None:
    with pytest.raises(GoldenError, match=message):
        render(golden(parse(TEXT, PATH).table))


def test_one_object_in_two_places_is_written_out_twice() -> None:
    shared = ["a"]
    golden = Record("t", {}, parse(TEXT, PATH).table, PATH, {"x": shared, "y": shared})
    assert parse(render(golden), PATH).extra == {"x": ["a"], "y": ["a"]}


def test_a_key_or_dtype_that_would_break_a_line_is_not_written() -> None:
    table = table_of(("a:output.0", "float16", (1,), {}))
    with pytest.raises(GoldenError, match=r"is not a tensor key, .* the golden was not written"):
        render(Record("t", {}, replace(table, keys=("a\x1b:output.0",)), PATH))
    with pytest.raises(GoldenError, match="is not a dtype, the golden was not written"):
        render(Record("t", {}, table_of(("a:output.0", "a b", (1,), {})), PATH))


LAID_OUT: dict[str, Callable[[str], str]] = {
    "line ends of Windows": lambda text: text.replace("\n", "\r\n"),
    "padded by hand": lambda text: text.replace(" float16 ", "   float16   "),
    "a remark": lambda text: text.replace("tensors: |\n", "tensors: |  # a remark\n"),
    "no line end": lambda text: text.replace("tensors: |\n", "tensors: |-\n"),
    "an indentation": lambda text: text.replace("tensors: |\n", "tensors: |2\n"),
    "a key behind": lambda text: f"{text}other: x\n",
}


@pytest.mark.each("name", LAID_OUT)
def test_a_table_that_is_laid_out_otherwise_reads_the_same(name: str) -> None:
    for text in (TEXT, TEXT + BLOCKS):
        found, expected = parse(LAID_OUT[name](text), PATH), parse(text, PATH)
        assert same(found.table, expected.table)
        assert found.blocks == expected.blocks
    assert parse(f"{LAID_OUT[name](TEXT)}remark: x\n", PATH).extra["remark"] == "x"


def test_hashes_stand_in_a_column_of_their_own() -> None:
    text = edit("+inf\n", "+inf digest\n").replace("- 0 0 0\n", "- 0 0 0 md5:5d41,sha1:aaf4\n", 1)
    text = text.replace("- 0 0 0\n", "- 0 0 0 -\n")
    golden = parse(text, PATH)
    assert golden.table.digests == ("md5:5d41 sha1:aaf4", "")
    assert render(golden) == text


@pytest.mark.each("cell", ["5d41", "md5:", "md5:5d41,", "MD5:5d41", "md5:5d41,sha1"])
def test_what_is_no_hash_is_refused_with_its_line(cell: str) -> None:
    text = edit("+inf\n", "+inf digest\n").replace("- 0 0 0\n", f"- 0 0 0 {cell}\n")
    with pytest.raises(GoldenError, match=r"line 6: .* is not a digest, expected such as md5:5d41"):
        parse(text, PATH)


BLOCKS = "projections: |\n  conv1:output.0 1.5 -2 0 3 4 5 6 7\nedges: |\n  conv1 < -\n  fc < conv1:output.0\n"


def test_blocks_behind_the_table_are_read_and_written_as_they_are() -> None:
    golden = parse(TEXT + BLOCKS, PATH)
    assert golden.blocks == {
        "projections": "conv1:output.0 1.5 -2 0 3 4 5 6 7\n",
        "edges": "conv1 < -\nfc < conv1:output.0\n",
    }
    assert same(golden.table, parse(TEXT, PATH).table)
    assert golden.extra == {}
    assert render(golden) == TEXT + BLOCKS
    assert render(replace(golden, blocks={}, table=parse(TEXT, PATH).table)) == TEXT


MODELS = "models: |\n  #m.onnx AAAAAAAAAAAAAAAA graph1=\n{}  #m.fed AAAAAAAAAAAAAAAA -\n"
WHOLE = TEXT.replace("conv1", "conv1:output.0").replace("  fc", "  fc:output.0") + (
    "edges: |\n  conv1 < -\n  fc < conv1:output.0\n"
    + MODELS.format("  body =Conv\n  conv1 =Conv iLeh---- mi2sC0 jODP D3aH\n  fc 9c1w\n")
)
JOINT = (
    f"{TEXT}edges: |\n  conv1 < - | =Conv iLeh---- mi2sC0 jODP D3aH\n  fc < conv1:output.0 | 9c1w\n"
    + MODELS.format("  body =Conv\n")
)


def test_goldens_with_whole_keys_and_digests_apart_read_the_same() -> None:
    was, now = parse(WHOLE, PATH), parse(JOINT, PATH)
    assert (was.blocks, was.table.keys) == (now.blocks, now.table.keys)
    assert same(was.table, now.table)
    assert render(was) == render(now) == JOINT
    stamp = "fc:output.0 float16 1x2 0.225464 -0.093811 0.0658264 - 0 0 0"
    assert parse(WHOLE.replace(stamp, f"{stamp} # 2026-11-23"), PATH).changed == {"fc:output.0": "2026-11-23"}


@pytest.mark.each("operators", ["  fc 9c1w\n  conv1 Z8gZ\n", "  conv1 Z8gZ\n  body 9c1w\n"])
def test_digests_in_another_order_than_edges_stay_apart(operators: str) -> None:
    text = f"{TEXT}edges: |\n  conv1 < -\n  fc < conv1\n{MODELS.format(operators)}"
    assert render(parse(text, PATH)) == text


@pytest.mark.each(
    ("text", "reason"),
    [
        (JOINT.replace("9c1w", "9c1"), "line 10: 'fc < conv1:output.0 | 9c1' is no edge"),
        (JOINT.replace("| 9c1w", "|"), "line 10: 'fc < conv1:output.0 |' is no edge"),
        (JOINT.replace("  body", "  conv1"), "line 13: 'conv1' stands here a second time"),
    ],
)
def test_digests_that_are_damaged_behind_edges_are_told(text: str, reason: str) -> None:
    with pytest.raises(GoldenError, match=re.escape(reason)):
        parse(text, PATH)


@pytest.mark.each(
    ("text", "reason"),
    [
        (f"edges: x\n{TEXT}{BLOCKS}", r"line 11: the key 'edges' occurs twice"),
        (f"{TEXT}edges: [a]\n", r"line 8: 'edges' holds list, expected text"),
        (f"{TEXT}{BLOCKS}{BLOCKS}", r"line 13: the key 'projections' occurs twice"),
    ],
)
def test_a_block_that_is_not_one_block_of_lines_is_told_by_its_line(text: str, reason: str) -> None:
    with pytest.raises(GoldenError, match=reason):
        parse(text, PATH)


@pytest.mark.each("lines", ["a\x1b\n", " a\n", "a\n\nb\n"], ids=ascii)
def test_lines_that_would_not_be_read_back_are_not_written(lines: str) -> None:
    with pytest.raises(GoldenError, match="is no line of 'edges', the golden was not written"):
        render(replace(parse(TEXT, PATH), blocks={"edges": lines}))
