"""Two acceptances of one golden: what touches different layers is joined, what touches the same is told."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import example, given, settings, strategies as st

from pytest_npudump.errors import GoldenError
from pytest_npudump.golden.approval_merge import Conflict, joined as joined_value, joined_order, merge
from pytest_npudump.record.noise import calibrated_of, calibration_of, repeats_of
from pytest_npudump.record.record import Record
from pytest_npudump.record.text import parse, render
from tests.golden.golden_text import golden_text

PATH = Path("golden/test_a.yaml")
BASE = {"conv": 1, "relu": 2, "fc": 3, "out": 4}
PROJECTIONS = "1 2 3 4 5 6 7 8"
Graph = dict[str, tuple[int, str, str]]


golden = partial(golden_text, producer="runtime: acl, scene: model, dump_mode: output")


MARKED = re.compile(r"<<<<<<< ours\n(?P<ours>.*?)=======\n(?P<theirs>.*?)>>>>>>> theirs\n", re.DOTALL)


def joined(ours: str, theirs: str, base: str = golden(BASE)) -> str:
    found = merge(PATH, base, ours, theirs)
    assert found.conflicts == ()
    assert merge(PATH, base, theirs, ours).text == found.text
    return found.text


def test_the_goldens_here_are_as_they_are_written() -> None:
    text = golden(
        BASE, head="reason: why\n", cells={"conv": "~1e-3,-,-,-"}, blocks="edges: |\n  relu < conv:output.0\n"
    )
    assert render(parse(text, PATH)) == text


def test_changes_of_different_layers_are_joined() -> None:
    """Neighbouring ones, the same on both sides, those inserted or removed in order, and blocks of one."""
    conv, relu = (golden(BASE | change) for change in ({"conv": 9}, {"relu": 8}))
    assert joined(conv, relu) == golden(BASE | {"conv": 9, "relu": 8})
    assert joined(conv, conv) == conv
    ours = golden({"conv": 1, "bn": 7, "relu": 2, "fc": 3, "out": 4})
    theirs = golden({"conv": 1, "relu": 2, "out": 5, "loss": 6})
    assert joined(ours, theirs) == golden({"conv": 1, "bn": 7, "relu": 2, "out": 5, "loss": 6})
    edges = "edges: |\n  relu < conv:output.0\n  fc < relu:output.0\n"
    assert joined(golden(BASE, blocks=edges), conv) == golden(BASE | {"conv": 9}, blocks=edges)
    assert joined(golden(BASE), golden(BASE), base="") == golden(BASE)
    assert merge(PATH, "", golden(BASE), golden(BASE | {"fc": 9})).conflicts == ("fc:output.0",)


def test_a_line_that_all_have_stays_as_it_is_written() -> None:
    changes: tuple[dict[str, float], ...] = ({}, {"conv": 5}, {"fc": 9})
    by_hand = (golden(BASE | change).replace(" 2 2 2 - 0", " 2.00 2 2 - 0") for change in changes)
    base, ours, theirs = by_hand
    assert "relu float32 2 2.00 2 2 -" in joined(ours, theirs, base)
    row = "  bn float32 2 7 7 7 - 0 0 0\n"
    changed = (theirs.replace("  fc ", f"{row}  fc "), re.sub("  out .*\n", "", theirs), theirs + row)
    for other in changed:  # added or removed beside it
        assert joined(ours, other, base) == other.replace("conv float32 2 1 1 1", "conv float32 2 5 5 5")


def test_each_change_keeps_its_day_and_commit() -> None:
    ours = golden(BASE | {"conv": 9}, changed={"conv": "2026-11-22 aaaaaaaaaaaa", "fc": "2025-01-01"})
    theirs = golden(BASE | {"out": 8}, changed={"out": "2026-11-23", "fc": "2025-01-01"})
    days = {"conv": "2026-11-22 aaaaaaaaaaaa", "out": "2026-11-23", "fc": "2025-01-01"}
    base = golden(BASE, changed={"fc": "2025-01-01"})
    assert joined(ours, theirs, base) == golden(BASE | {"conv": 9, "out": 8}, changed=days)


def test_what_both_sides_have_is_of_the_later_day_and_a_conflict_shows_both() -> None:
    head, days = "recorded: 2026-11-{} aaaaaaaaaaaa\n", (22, 23)
    sides = [
        golden(BASE | {"fc": 9}, head=head.format(day), changed={"fc": f"2026-11-{day}"}) for day in days
    ]
    assert joined(*sides) == sides[1]
    sides = [golden(BASE | {"fc": day - 14}, changed={"fc": f"2026-11-{day}"}) for day in days]
    found = merge(PATH, golden(BASE), *sides)
    assert found.conflicts == ("fc:output.0",)
    assert re.search(r"ours\n.* 8 .* # 2026-11-22\n=======\n.* 9 .* # 2026-11-23\n>>>>", found.text)


def test_a_new_column_of_one_side_is_there_for_all_and_no_noise_of_other_values() -> None:
    cells = {"conv": "~1e-3,-,-,-", "fc": "1e-4,-,-,-"}
    ours = golden(BASE, head="repeats: {runs: 2}\n", cells=cells)
    expected = golden(BASE | {"out": 9}, head="repeats: {runs: 2, compared: 3}\n", cells=cells)
    assert joined(ours, golden(BASE | {"out": 9})) == expected
    found = merge(PATH, golden(BASE), golden(BASE, cells=cells), golden(BASE | {"fc": 9}))
    assert (found.conflicts, found.text.count("<<<<<<< ")) == (("fc:output.0",), 1)


def test_edges_of_a_layer_that_has_gone_go_with_it() -> None:
    edges = "edges: |\n  relu < conv:output.0\n  fc < relu:output.0\n  out < fc:output.0\n"
    theirs = {"conv": 1, "fc": 3, "out": 4}
    for lines in (edges, edges.replace(":output.0", "")):
        text = joined(golden(BASE, blocks=lines), golden(theirs))
        assert text == golden(theirs, blocks=f"edges: |\n{lines.splitlines(keepends=True)[3]}")


def test_lines_of_models_are_joined_operator_by_operator() -> None:
    file, conv, fc = (
        "  #m.onnx AAAAAAAAAAAAAAAA graph1\n",
        "  conv - wwwwww 0000\n",
        "  fc AAAA wwwwww 0000\n",
    )
    base = golden(BASE, blocks=f"models: |\n{file}{conv}{fc}")
    ours = golden(BASE | {"conv": 9}, blocks=f"models: |\n{file}{conv.replace('w', 'v')}{fc}")
    theirs = golden(BASE | {"fc": 9}, blocks=f"models: |\n{file}{conv}{fc.replace('w', 'u')}  new AAAA\n")
    lines = f"{file}{conv.replace('w', 'v')}{fc.replace('w', 'u')}  new AAAA\n"
    assert joined(ours, theirs, base) == golden(BASE | {"conv": 9, "fc": 9}, blocks=f"models: |\n{lines}")
    found = merge(PATH, base, ours, base.replace("conv - wwwwww", "conv - uuuuuu"))
    assert found.conflicts == ("conv",)


def test_outputs_without_a_row_are_joined_line_by_line() -> None:
    line = "  y{} float32 2 {} 1 1 - 0 0 0 -\n"
    sides = [[(1, 5), (2, 5)], [(1, 6), (2, 5)], [(1, 5), (2, 7)], [(1, 6), (2, 7)]]
    blocks = ["outputs: |\n" + "".join(line.format(*one) for one in side) for side in sides]
    base, ours, theirs, both = (golden(BASE, blocks=block) for block in blocks)
    assert joined(ours, theirs, base) == both
    assert merge(PATH, base, ours, both.replace("y1 float32 2 6", "y1 float32 2 9")).conflicts == ("y1",)
    assert joined(ours, golden(BASE | {"fc": 9}), golden(BASE)) == golden(BASE | {"fc": 9}, blocks=blocks[1])


def test_digests_behind_edges_are_joined_operator_by_operator() -> None:
    edges = "edges: |\n  conv <{}\n  fc < conv{}\nmodels: |\n  #m.onnx AAAAAAAAAAAAAAAA graph1\n"

    def of(values: dict[str, float], conv: str, fc: str) -> str:
        return golden(BASE | values, blocks=edges.format(f" | - {conv}", f" | AAAA {fc}"))

    base, ours, theirs = (
        of({}, "wwwwww", "wwwwww"),
        of({"conv": 9}, "vvvvvv", "wwwwww"),
        of({"fc": 9}, "wwwwww", "uuuuuu"),
    )
    both = of({"conv": 9, "fc": 9}, "vvvvvv", "uuuuuu")
    assert joined(ours, theirs, base) == both
    apart = golden(BASE, blocks=edges.format("", "") + "  conv - wwwwww\n  fc AAAA wwwwww\n")
    assert joined(ours, theirs, apart) == both
    assert joined(ours, apart.replace("fc AAAA wwwwww", "fc AAAA uuuuuu"), apart) == both.replace(
        " 9 9 9 ", " 3 3 3 ", 2
    ).replace("  conv float32 2 3 3 3", "  conv float32 2 9 9 9")
    for was in (base, apart):
        found = merge(PATH, was, ours, of({"conv": 9}, "tttttt", "wwwwww"))
        assert found.conflicts == ("conv",)
        marked = "<<<<<<< ours\n  conv < | - vvvvvv\n=======\n  conv < | - tttttt\n>>>>>>> theirs\n"
        assert f"{marked}  fc < conv | AAAA wwwwww\n" in found.text


def test_digests_stay_behind_edges_where_a_side_adds_a_layer() -> None:
    edges = "".join(f"  {layer} < image | - wwwwww\n" for layer in BASE)
    text, added = golden(BASE, blocks=f"edges: |\n{edges}"), "  bn < conv | - vvvvvv\n"
    ours = text.replace("  relu f", "  bn float32 2 7 7 7 - 0 0 0\n  relu f")
    ours = ours.replace("  relu <", f"{added}  relu <")
    theirs, both = (one.replace("fc float32 2 3", "fc float32 2 9") for one in (text, ours))
    assert joined(ours, theirs, text) == both


FACTS = st.fixed_dictionaries({layer: st.tuples(*[st.sampled_from("vw")] * 2) for layer in BASE})


@example(  # among the rows that change, out stands in front of relu, whose digests alone change
    base=dict.fromkeys(BASE, ("w", "w")),
    ours=dict.fromkeys(BASE, ("w", "w")) | {"relu": ("w", "v"), "out": ("v", "v")},
    theirs=dict.fromkeys(BASE, ("w", "w")),
)
@given(FACTS, FACTS, FACTS)
def test_no_digest_is_lost_whichever_rows_change(
    base: dict[str, tuple[str, str]], ours: dict[str, tuple[str, str]], theirs: dict[str, tuple[str, str]]
) -> None:
    def text(facts: dict[str, tuple[str, str]]) -> str:
        edges = "".join(f"  {layer} < image | =Relu AAAA {facts[layer][1] * 6}\n" for layer in BASE)
        values: dict[str, float] = {layer: "vw".index(facts[layer][0]) for layer in BASE}
        return golden(values, blocks=f"edges: |\n{edges}models: |\n  #m.onnx AAAAAAAAAAAAAAAA graph1\n")

    found = merge(PATH, text(base), text(ours), text(theirs))
    assert found.conflicts == ()  # of two values, a side that differs from the base is the other's
    both = {
        layer: tuple(
            right if left == before else left
            for before, left, right in zip(base[layer], ours[layer], theirs[layer], strict=True)
        )
        for layer in BASE
    }
    assert found.text == text(both)


def test_a_file_that_cannot_be_read_is_told_with_its_own_line() -> None:
    lines = golden(BASE).splitlines(keepends=True)
    lines[7] = lines[7].replace(" 3 3 3 ", " 3 x 3 ")
    with pytest.raises(GoldenError, match=r"test_a\.yaml, line 8: "):
        merge(PATH, golden(BASE), golden(BASE | {"conv": 9}), "".join(lines))


def test_projections_go_with_the_statistics_they_are_of() -> None:
    lines = "".join(f"  {layer}:output.0 {PROJECTIONS}\n" for layer in BASE)
    ours = golden(BASE, blocks=f"projections: |\n{lines}")
    text = joined(ours, golden(BASE | {"fc": 9}))
    assert "fc:output.0 1 2" not in text
    assert text.count(PROJECTIONS) == 3


def test_a_golden_of_tensors_joined_with_one_of_statistics_can_be_read() -> None:
    exact = f"projections: |\n  out:output.0 {PROJECTIONS}\n"
    base = golden(BASE, blocks=exact)

    def of_tensors(told: dict[str, float]) -> str:
        rows = [
            f"  {layer} float32 2 {value} {value} {value} 3 gF534KEf411Fxw8kI6uQHtFn76\n"
            for layer, value in told.items()
        ]
        head = golden({}).replace(" nan -inf +inf", " sums").replace("output}", "output, dump_data: tensor}")
        return head + "".join(rows)

    assert joined(base, of_tensors(BASE), base) == of_tensors(BASE)
    found = merge(PATH, base, golden(BASE | {"fc": 8}, blocks=exact), of_tensors(BASE))
    assert found.conflicts == ("fc:output.0",)
    for side in ("ours", "theirs"):
        told = parse(resolved(found.text, side), PATH)
        assert told.table.values[:, 0].tolist() == [1, 2, 8 if side == "ours" else 3, 4]
        assert told.table.projected is not None
        assert told.table.projected.tolist() == [True, True, side == "theirs", True]
    for side in ("ours", "theirs"):  # both made it
        told = parse(resolved(merge(PATH, "", base, of_tensors(BASE)).text, side), PATH)
        assert told.table.values[:, 0].tolist() == [1, 2, 3, 4]
        assert ("dump_data" in told.facts) == (side == "theirs")


def resolved(text: str, side: str) -> str:
    """A text with one side of each conflict."""
    return MARKED.sub(lambda found: found[side], text)


def test_projections_alone_may_change() -> None:
    def projected(conv: int, fc: int) -> str:
        block = f"projections: |\n  conv:output.0 {conv} 2 3 4 5 6 7 8\n  fc:output.0 {fc} 2 3 4 5 6 7 8\n"
        return golden(BASE, blocks=block)

    assert joined(projected(9, 1), projected(1, 8), projected(1, 1)) == projected(9, 8)
    assert merge(PATH, projected(1, 1), projected(9, 1), projected(8, 1)).conflicts == ("conv:output.0",)


def test_reasons_of_both_sides_are_kept() -> None:
    base = golden(BASE, head="reason: first\n")
    ours = golden(BASE | {"conv": 9}, head="reason: new weights\n")
    theirs = golden(BASE | {"fc": 8}, head="reason: faster kernel\n")
    text = merge(PATH, base, ours, theirs).text
    assert "reason: new weights; faster kernel\n" in text


def test_a_layer_that_both_changed_is_in_markers_and_no_other() -> None:
    found = merge(PATH, golden(BASE), golden(BASE | {"fc": 9, "conv": 5}), golden(BASE | {"fc": 8, "out": 6}))
    assert found.conflicts == ("fc:output.0",)
    (marked,) = MARKED.findall(found.text)
    assert marked == tuple(f"  fc float32 2 {at} {at} {at} - 0 0 0\n" for at in (9, 8))
    assert resolved(found.text, "theirs") == golden({"conv": 5, "relu": 2, "fc": 8, "out": 6})
    with pytest.raises(GoldenError, match=r"line 8: the conflict markers of a git merge"):
        parse(found.text, PATH)


def test_layers_that_sides_remove_or_insert_otherwise_are_a_conflict_as_nobody_knows_their_order() -> None:
    """Values of one layer stay those of their side where its place is in conflict too."""
    found = merge(PATH, golden(BASE), golden({"conv": 1, "relu": 2, "out": 4}), golden(BASE | {"fc": 9}))
    assert found.conflicts == ("fc:output.0",)
    assert "<<<<<<< ours\n=======\n  fc float32 2 9" in found.text
    for ours, theirs in (({"a": 5}, {"b": 6}), ({"a": 5, "b": 6}, {"b": 8, "a": 7})):
        sides = [golden({"conv": 1, **new, "relu": 2, "fc": 3, "out": 4}) for new in (ours, theirs)]
        (marked,) = MARKED.findall(merge(PATH, golden(BASE), *sides).text)
        rows = [re.findall(r"  (\w) float32 2 (\d) \d \d - 0 0 0\n", side) for side in marked]
        assert rows == [[(name, str(value)) for name, value in new.items()] for new in (ours, theirs)]


def test_producers_of_both_sides_are_a_conflict() -> None:
    def of(cann: str, **values: float) -> str:
        return golden(BASE | values).replace("acl,", f"acl, cann: {cann},")

    assert merge(PATH, of("8.2"), of("9.0"), of("9.1")).conflicts == ("producer",)
    assert joined(of("9.0"), of("8.2", fc=9), of("8.2")) == of("9.0", fc=9)


def test_numbers_of_digits_that_differ_become_a_column() -> None:
    def of(digits: int, values: dict[str, float]) -> str:
        return golden(values).replace("output}", f"output, digits: {digits}}}")

    text = joined(of(6, BASE), of(6, BASE | {"fc": 9}), of(6, BASE))
    assert text == of(6, BASE | {"fc": 9})
    table = parse(merge(PATH, of(6, BASE), of(8, BASE), of(6, BASE | {"new": 1})).text, PATH).table
    expected = {f"{layer}:output.0": 8 for layer in BASE} | {"new:output.0": 6}
    assert dict(zip(table.keys, table.digits.tolist(), strict=True)) == expected


def test_the_record_of_a_run_is_no_golden() -> None:
    record = golden(BASE, blocks="op_types: |\n" + "  Conv\n" * len(BASE))
    with pytest.raises(GoldenError, match="the record of a run"):
        merge(PATH, record, record, record)


LAYERS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 2), min_size=1)


@given(LAYERS, LAYERS, LAYERS)
def test_a_merge_has_the_changes_of_both_sides_or_says_that_it_has_not(
    base: dict[str, float], ours: dict[str, float], theirs: dict[str, float]
) -> None:
    found = merge(PATH, golden(base), golden(ours), golden(theirs))
    assert ("<<<<<<<" in found.text) == bool(found.conflicts)
    if found.conflicts:
        return
    table = parse(found.text, PATH).table
    values = {key.partition(":")[0]: table.value(row, 0) for row, key in enumerate(table.keys)}
    for layer in {*base, *ours, *theirs}:
        before, left, right = base.get(layer), ours.get(layer), theirs.get(layer)
        assert values.get(layer) == (right if left == before else left)
        assert before in (left, right) or left == right


OF, OF_V = (0, "", "-"), (0, "", "v")
GRAPHS = st.dictionaries(
    st.sampled_from("abcd"),
    st.tuples(st.integers(0, 1), st.sampled_from(["", "image", "a", "b"]), st.sampled_from("-vw")),
    min_size=1,
)


MODELS = (False, False, True, False, False)


@settings(max_examples=20)
@example({"a": OF, "c": OF_V}, {"a": OF, "c": OF_V}, {"a": OF_V, "c": OF_V}, MODELS)
@example({"a": OF_V}, {"a": OF_V}, {"b": OF_V, "a": OF_V}, MODELS)
@given(GRAPHS, GRAPHS, GRAPHS, st.tuples(*[st.booleans()] * 5))
def test_lines_that_all_have_are_left_out_of_a_merge_where_it_is_the_same_without(
    base: Graph, ours: Graph, theirs: Graph, has: tuple[bool, ...]
) -> None:
    def text(graph: Graph, outputs: str) -> str:
        fed = {layer: source for layer, (_, source, _) in graph.items() if source and has[0]}
        digests = {layer: digest * 6 for layer, (_, _, digest) in graph.items() if digest != "-"}
        behind = {layer: f" | - {digests[layer]}" for layer in fed if has[1] and layer in digests}
        lines = {
            "edges": [f"{layer} < {source}{behind.get(layer, '')}" for layer, source in fed.items()],
            "models": [
                "#m.onnx AAAAAAAAAAAAAAAA graph1",
                *(f"{layer} - {digest}" for layer, digest in digests.items() if layer not in behind),
            ],
            "outputs": [f"{name} float32 2 1 1 1 - 0 0 0 -" for name in outputs],
        }
        told = (name for name, known in zip(lines, (has[0], has[2], has[3]), strict=True) if known)
        blocks = "".join("\n  ".join([f"{name}: |", *lines[name]]) + "\n" for name in told if lines[name])
        values = {layer: value for layer, (value, _, _) in graph.items()}
        return render(parse(golden(values, blocks=blocks), PATH))

    sides = text(base, "y"), text(ours, "yz" if has[4] else "y"), text(theirs, "y")
    found = merge(PATH, *sides)
    with mock.patch("pytest_npudump.golden.approval_merge._in_part", side_effect=ValueError):
        assert merge(PATH, *sides) == found


@given(LAYERS, LAYERS)
def test_where_one_side_changed_nothing_the_other_is_taken_to_the_byte(
    base: dict[str, float], side: dict[str, float]
) -> None:
    assert joined(golden(side), golden(base), golden(base)) == golden(side)


def test_a_tensor_that_one_side_leaves_out_as_unwritten_is_a_conflict() -> None:
    """Whoever accepted the other side has compared it, and may not know."""
    listed = "unwritten:\n  out: {output.0: left out}\n"
    without = {"conv": 1, "relu": 2, "fc": 3}
    ours, theirs = golden(without, head=listed), golden(BASE | {"conv": 9})
    for sides in ((ours, theirs), (theirs, ours)):
        found = merge(PATH, golden(BASE), *sides)
        assert found.conflicts == ("unwritten",)
        assert re.search("(<|=){7}.*\nunwritten:\n  out: {output.0: left out}\n(=|>){7}", found.text)
    both = golden(without | {"conv": 9}, head=listed)
    assert joined(both, golden(without | {"relu": 8}, head=listed)) == golden(
        without | {"conv": 9, "relu": 8}, head=listed
    )
    base = golden(without, head=listed)  # and a side that compares it again is as good as any other change
    assert joined(golden(BASE), golden(without | {"conv": 9}, head=listed), base) == golden(
        BASE | {"conv": 9}
    )


@pytest.mark.each(
    ("base", "ours", "theirs", "expected"),
    [
        *(("a", "a", "a", "a"), ("a", "b", "a", "b"), ("a", "a", "b", "b"), ("a", "b", "b", "b")),
        *(("a", None, "a", None), ("a", "a", None, None), (None, "b", None, "b")),
        ("a", "b", "c", Conflict("b", "c")),
        ("a", None, "c", Conflict(None, "c")),
        (None, "b", "c", Conflict("b", "c")),
    ],
)
def test_a_value_is_that_of_the_side_that_changed_it(
    base: str | None, ours: str | None, theirs: str | None, expected: object
) -> None:
    assert joined_value(base, ours, theirs) == expected


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


FIVE = "calibration:\n  members: 5\n  factor: 5\n  varied:\n  - repeats\n"
WIDE = "calibration:\n  members: 20\n  factor: 20\n  varied:\n  - inputs\n"
CELLS = dict.fromkeys(BASE, "1e-3,1e-3,-,-")


def read(base: str, ours: str, theirs: str) -> Record:
    found = merge(PATH, base, ours, theirs)
    assert found.conflicts == ()
    return parse(found.text, PATH)


def noise_of(found: Record) -> dict[str, str]:
    cells = found.table.noise or ("-",) * len(found.table)
    return {key.partition(":")[0]: cell for key, cell in zip(found.table.keys, cells, strict=True)}


def test_noise_of_one_factor_is_not_a_bound_by_the_other_sides_factor() -> None:
    base = golden(BASE, head=FIVE, cells=CELLS)
    ours = golden(BASE, head=WIDE, cells=CELLS | {"conv": "2e-3,-,-,-", "relu": "1e-3,1e-3,-,-"})
    theirs = golden(BASE | {"out": 9}, head=FIVE + "note: 1\n", cells=CELLS | {"out": "4e-2,4e-2,-,-"})
    for found in (read(base, ours, theirs), read(base, theirs, ours)):
        assert found.extra["note"] == 1
        calibration = calibration_of(found.extra, PATH)
        assert calibration is not None
        assert calibration.factor == 20
        assert noise_of(found) == {**CELLS, "conv": "2e-3,-,-,-", "out": "-"}


def test_the_spread_of_a_recording_does_not_widen_where_the_other_side_has_calibrated() -> None:
    repeats = "repeats:\n  runs: 2\n"
    base = golden(BASE, head=repeats, cells=dict.fromkeys(BASE, "-"))
    ours = golden(BASE, head=repeats + FIVE, cells=CELLS | {"fc": "-"})
    theirs = golden(BASE | {"fc": 7}, head=repeats, cells={"fc": "~3e-1,-,-,-"})
    measured = calibrated_of(read(base, ours, theirs))
    assert measured is not None
    assert measured.widens
    assert "fc:output.0" not in measured.noise


def test_where_both_have_calibrated_anew_ours_leads_and_a_line_of_theirs_has_no_noise() -> None:
    base = golden(BASE, cells=dict.fromkeys(BASE, "-"))
    ours = golden(BASE | {"conv": 9}, head=FIVE, cells=CELLS)
    theirs = golden(BASE | {"out": 8}, head=WIDE, cells=CELLS)
    found = merge(PATH, base, ours, theirs)
    assert found.conflicts == ("out:output.0",)
    assert "factor: 5\n" in found.text
    assert "  out float32 2 8 8 8 - 0 0 0 -\n>>>>>>> theirs" in found.text


def test_rows_of_the_same_calibration_keep_their_noise() -> None:
    base = golden(BASE, head=FIVE, cells=CELLS)
    ours = golden(BASE | {"conv": 9}, head=FIVE, cells=CELLS | {"conv": "2e-3,-,-,-"})
    theirs = golden(BASE | {"out": 8}, head=FIVE, cells=CELLS | {"out": "-"})
    assert noise_of(read(base, ours, theirs)) == {**CELLS, "conv": "2e-3,-,-,-", "out": "-"}


def test_what_either_side_does_not_know_of_repetition_the_result_does_not_know() -> None:
    base = golden(BASE, head="repeats:\n  runs: 3\n", cells=dict.fromkeys(BASE, "-"))
    ours = golden(BASE | {"conv": 9}, head="repeats:\n  runs: 3\n  compared: 3\n", cells={})
    theirs = golden(BASE | {"out": 8}, head="repeats:\n  runs: 2\n", cells={})
    found = repeats_of(read(base, ours, theirs).extra, PATH)
    assert found is not None
    assert (found.runs, found.compared) == (2, 3)
    unknown = golden(BASE | {"out": 8}, head="repeats:\n  runs: 1\n", cells={})
    found = repeats_of(read(base, ours, unknown).extra, PATH)
    assert found is not None
    assert (found.runs, found.compared) == (3, 2)  # of conv, relu and fc, as ours does not know one
    once = golden(BASE | {"conv": 9}, head="repeats:\n  runs: 1\n", cells={})
    found = repeats_of(read(base, once, unknown).extra, PATH)
    assert found is not None
    assert (found.runs, found.compared) == (1, None)


def test_layers_that_are_not_deterministic_on_either_side_stay_named() -> None:
    base = golden(BASE, head="repeats:\n  runs: 2\n", cells={})
    head = "repeats:\n  runs: 2\n  not_deterministic:\n  - {}\n"
    ours = golden(BASE | {"conv": 9}, head=head.format("conv"), cells={"conv": "~1e-3,-,-,-"})
    theirs = golden(BASE | {"out": 8}, head=head.format("out"), cells={"out": "~1e-3,-,-,-"})
    found = repeats_of(read(base, ours, theirs).extra, PATH)
    assert found is not None
    assert found.not_deterministic == ("conv", "out")
