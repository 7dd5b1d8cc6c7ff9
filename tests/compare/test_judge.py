"""The judge: a run is read as its golden asks for, whatever golden it was read with before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_npudump.compare.judge import (
    AS_GIVEN,
    BY_DEFAULT,
    GOLDEN,
    REFERENCE,
    RUN,
    Terms,
    fed_as_before,
    judge,
    seen_by,
)
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.dump.records import Payload, Stats, TensorKey, TensorRecord
from pytest_npudump.dump.stats.compact_projections import as_printed
from pytest_npudump.dump.stats.projections import project
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.dump.table import StatsTable, layer_of
from pytest_npudump.record.edges import Edges, GraphNode, Port, lines_of
from pytest_npudump.record.record import EDGES, MODELS, UNWRITTEN, Record

DEFAULTS = Terms(unasked=BY_DEFAULT)
BY_NAME = Terms()
CPU = {"runtime": "mindspore", "device_target": "CPU", "mindspore": "2.9.0"}


def record(
    rows: Mapping[str, tuple[float, float | None]],
    *,
    digits: int | None = 6,
    producer: Mapping[str, str] | None = None,
    unwritten: Mapping[str, object] | None = None,
) -> Record:
    """A record of tensors by key: the value of max, min and avg, and the l2norm or None for none."""
    records = [
        TensorRecord(
            TensorKey.parse(key),
            "Conv",
            "float32",
            (4,),
            Path("a.csv"),
            stats=Stats(4, value, value, value, norm, 0, 0, 0, None, digits),
        )
        for key, (value, norm) in rows.items()
    ]
    extra = {} if unwritten is None else {UNWRITTEN: unwritten}
    return Record("", producer or {}, StatsTable.from_records(records), Path("golden.yaml"), extra)


def told(golden: Record, run: Record, terms: Terms = DEFAULTS) -> tuple[list[str], list[str]]:
    """What fails, and the notes."""
    comparison = judge(golden, run, terms)
    return [f"{verdict.key} {verdict.status}" for verdict in comparison.failing], [*comparison.notes]


def test_l2norm_that_nobody_asked_for_counts_where_the_golden_has_it() -> None:
    without, having, off = (record({"a:output.0": (1, norm)}) for norm in (None, 2, 3))
    note = "not compared, as the golden does not have it (tensors: 1, first: {}:output.0): l2norm"
    lost = "not compared, as no tensor of this dump has it but the golden does: l2norm"
    assert told(without, having) == ([], [])
    assert told(without, having, BY_NAME) == ([], [note.format("a")])
    assert told(having, off)[0] == told(having, off, BY_NAME)[0] == ["a:output.0 fail"]
    assert told(having, without) == told(having, without, BY_NAME) == ([], [lost])
    computed = record({"a:output.0": (1, 2)}, digits=None)  # of a tensor, which costs nothing
    assert told(without, computed) == ([], [note.format("a")])
    # That of one tensor of the golden makes all of it count.
    golden = record({"a:output.0": (1, 2), "b:output.0": (1, None)})
    run = record({"a:output.0": (1, 3), "b:output.0": (1, 5)})
    assert told(golden, run) == (["a:output.0 fail"], [note.format("b")])
    assert seen_by(golden, run, DEFAULTS) == (run, ())  # as it is, not a copy


NOT_COMPARED = "tensors not compared, as nothing wrote them when the golden was recorded"
LEFT_OUT = {"a": {"output.1": "left out"}}


@pytest.mark.each(
    ("unwritten", "slots", "run_facts", "failing", "note"),
    [
        (LEFT_OUT, "0", CPU, [], f"{NOT_COMPARED}: a:output.1"),
        ({"a": {"output.1": "judged"}}, "0", CPU, ["a:output.1 extra"], ""),
        (LEFT_OUT, "01", CPU, ["a:output.1 fail"], ""),
        (LEFT_OUT, "0", CPU | {"mindspore": "2.8.0"}, ["a:output.1 extra"], "golden.yaml: 'unwritten'"),
        (LEFT_OUT, "0", CPU | {"device_target": "Ascend"}, ["a:output.1 extra"], "golden.yaml: "),
        (None, "0", CPU, ["a:output.1 extra"], ""),
    ],
)
def test_unwritten_tensors_are_left_out_by_the_golden_that_judges(
    unwritten: Mapping[str, object] | None,
    slots: str,
    run_facts: Mapping[str, str],
    failing: list[str],
    note: str,
) -> None:
    rows = dict.fromkeys((f"a:output.{slot}" for slot in slots), (1.0, None))
    golden = record(rows, producer=CPU, unwritten=unwritten)
    run = record({"a:output.0": (1, None), "a:output.1": (7, None)}, producer=run_facts)
    found, notes = told(golden, run)
    assert found == failing
    assert [one for one in notes if one.startswith(note)] if note else not notes


def test_what_a_golden_leaves_out_whole_is_no_comparison_and_another_run_leaves_nothing_out() -> None:
    golden = record({"b:output.0": (1, None)}, producer=CPU, unwritten={"a": {"output.0": "left out"}})
    comparison = judge(golden, record({"a:output.0": (1, None)}, producer=CPU), DEFAULTS)
    assert not len(comparison.actual)
    assert [verdict.status for verdict in comparison.failing] == ["missing"]
    one = record({"a:output.0": (1, None)}, producer=CPU, unwritten=LEFT_OUT)
    other = record({"a:output.0": (1, None), "a:output.1": (7, None)}, producer=CPU)
    assert told(one, other, replace(DEFAULTS, against=RUN))[0] == ["a:output.1 extra"]


@pytest.mark.each(
    ("golden_layers", "run_layers", "seen", "seen_if_known"),
    [
        (["a/b"], ["a_b"], ["a/b"], ["a/b"]),
        (["a/b"], ["a.b"], ["a/b"], ["a.b"]),
        (["a/b", "a.b"], ["a_b"], ["a_b"], ["a_b"]),  # it may be either
        (["a_b"], ["a_b"], ["a_b"], ["a_b"]),
        (["a_b"], ["a/b"], ["a_b"], ["a/b"]),
        (["a/b", "c"], ["a_b", "d_e"], ["a/b", "d_e"], ["a/b", "d_e"]),
    ],
)
def test_a_run_has_the_raw_names_of_the_golden_that_judges(
    golden_layers: list[str], run_layers: list[str], seen: list[str], seen_if_known: list[str]
) -> None:
    golden, run = (
        record({f"{layer}:output.{slot}": (1, None) for layer in layers for slot in range(slots)})
        for layers, slots in ((golden_layers, 1), (run_layers, 2))
    )
    for file_names, expected in ((True, seen), (False, seen_if_known)):
        comparison = judge(golden, replace(run, file_names=file_names), DEFAULTS)
        assert list(dict.fromkeys(layer_of(key) for key in comparison.actual.keys)) == expected
        extra = {str(verdict.key) for verdict in comparison.failing if verdict.status == "extra"}
        assert {f"{layer}:output.1" for layer in expected} <= extra


def test_a_name_of_files_that_two_layers_of_a_run_share_is_not_given_to_the_other() -> None:
    golden = record({"a/b:output.0": (1, None)})
    for rows in (
        {"a/b:output.0": (2, None), "a_b:output.0": (1, None)},
        {"a_b:output.0": (1, None), "a/b:output.0": (2, None)},
    ):
        for file_names in (False, True):
            run = replace(record(rows), file_names=file_names)
            assert sorted(told(golden, run)[0]) == ["a/b:output.0 fail", "a_b:output.0 extra"]
    other = record({"a.b:output.0": (1, None)})  # either of them may be it
    run = record({"a_b:output.0": (1, None), "a/b:output.0": (1, None)})
    assert sorted(told(other, run)[0]) == ["a.b:output.0 missing", "a/b:output.0 extra", "a_b:output.0 extra"]


def test_names_of_an_earlier_golden_make_no_verdict() -> None:
    """A kept run may have the names of the golden that it was first judged by."""
    runs = [
        replace(record({f"{name}:output.0": (value, None)}), file_names=True)
        for name in ("a_b", "a/b")
        for value in (1, 2)
    ]
    for name in ("a_b", "a/b", "a.b"):
        golden = record({f"{name}:output.0": (1, None)})
        assert [told(golden, run)[0] for run in runs] == 2 * [[], [f"{name}:output.0 fail"]]
    renamed = record({"a/b:output.0": (1, None)})  # which a header of its files says, so that it is so
    failing = told(record({"a.b:output.0": (1, None)}), renamed)[0]
    assert failing == ["a.b:output.0 missing", "a/b:output.0 extra"]


def dumped(folder: Path, values: Sequence[float], *, told: bool, layer: str = "a") -> Record:
    """A record of one tensor whose elements lie in a file, with its statistics where they are told."""
    folder.mkdir(exist_ok=True)
    array = np.asarray(values, np.float32)
    path = folder / f"{layer}.bin"
    path.write_bytes(array.tobytes())
    high, low, mean = float(array.max()), float(array.min()), float(array.mean())
    one = TensorRecord(
        TensorKey.parse(f"{layer}:output.0"),
        "Conv",
        "float32",
        array.shape,
        path,
        format="ND",
        stats=Stats(len(array), high, low, mean, None, 0, 0, 0, None, None) if told else None,
        payload=Payload(path, 0, array.nbytes),
    )
    return replace(Record.of(StatsTable.from_records([one])), tensors=(one,))


def test_elements_are_compared_where_both_have_them_and_they_are_wanted(tmp_path: Path) -> None:
    golden = dumped(tmp_path / "golden", [1, 2, 3, 4], told=True)
    moved = dumped(tmp_path / "run", [4, 3, 2, 1], told=True)
    failing = judge(golden, moved, Terms(against=RUN)).failing
    assert [reason.statistic for reason in failing[0].reasons] == ["max_abs", "relative_l2"]
    assert judge(golden, moved, Terms(against=RUN, tensors=("a",))).failing
    comparison = judge(golden, moved, Terms(against=RUN, tensors=("b*",)))
    assert not comparison.failing
    assert not comparison.elements
    without = replace(moved, tensors=())
    assert not judge(golden, without, Terms(against=RUN)).failing
    known = judge(golden, moved, Terms(against=RUN)).elements
    found = judge(replace(golden, tensors=()), without, Terms(against=REFERENCE), elements=known)
    assert [verdict.status for verdict in found.failing] == ["fail"]


def test_elements_are_judged_by_the_rules_for_the_raw_name_and_type_that_one_side_knows(
    tmp_path: Path,
) -> None:
    rules = Rule(9, 9), Rule(0, 0, layer="a/b", op_type="Conv"), Rule(9, 9, layer="a.b")
    tolerances = Tolerances(rules=rules)
    for raw in range(2):
        sides = []
        for side, values in enumerate(([1, 2, 3, 4], [4, 3, 2, 1])):
            one = dumped(tmp_path / str(side), values, told=True, layer="a_b").tensors[0]
            one = replace(one, op_type="Conv" if side == raw else "")
            if side == raw:
                one = replace(one, key=TensorKey.parse("a/b:output.0"))
            sides.append(replace(Record.of(StatsTable.from_records([one])), tensors=(one,)))
        failing = judge(*sides, Terms(tolerances, against=RUN)).failing
        assert [reason.statistic for reason in failing[0].reasons] == ["elements"]


@pytest.mark.each("side", [0, 1])
def test_statistics_are_computed_without_the_padding_that_the_other_side_does_not_have(
    tmp_path: Path, side: int
) -> None:
    host = np.arange(1, 13, dtype=np.float32).reshape(1, 3, 2, 2)
    device = np.zeros((1, 1, 2, 2, 16), np.float32)
    device[0, 0, :, :, :3] = host[0].transpose(1, 2, 0)
    path = tmp_path / "a.bin"
    path.write_bytes(device.tobytes())
    key, stats = TensorKey.parse("a:output.0"), Stats(12, 12, 1, 6.5, None, 0, 0, 0, None, None)
    told = TensorRecord(key, "Conv", "float32", host.shape, path, format="NCHW", stats=stats)
    padded = replace(
        told, shape=device.shape, original_shape=host.shape, format="NC1HWC0", stats=None,
        payload=Payload(path, 0, device.nbytes),
    )  # fmt: skip
    records = [
        replace(Record.of(StatsTable.from_records([one])), tensors=(one,) if one is padded else ())
        for one in (told, padded)
    ]
    comparison = judge(*records[:: -1 if side == 0 else 1], Terms(against=RUN, layout="NCHW"))
    assert comparison.failing == ()
    assert comparison.golden.shapes == comparison.actual.shapes


def test_elements_of_one_tensor_are_compared_in_whatever_order_the_two_came(tmp_path: Path) -> None:
    values = {"a": [1, 2, 3, 4], "b": [5, 6, 7, 9]}
    sides = []
    for name, layers in (("golden", "ab"), ("run", "ba")):
        ones = [dumped(tmp_path / name, values[layer], told=True, layer=layer).tensors[0] for layer in layers]
        sides.append(replace(Record.of(StatsTable.from_records(ones)), tensors=tuple(ones)))
    comparison = judge(*sides, Terms(against=RUN))
    assert (comparison.failing, len(comparison.elements), comparison.passed) == ((), 2, 2)
    assert all(one.difference.max_abs == 0 for one in comparison.elements.values())


@pytest.mark.each("side", [0, 1])
def test_statistics_that_a_record_of_tensors_lacks_are_computed(tmp_path: Path, side: int) -> None:
    untold = dumped(tmp_path / "untold", [1, 2, 3, 4], told=False)
    for values, statuses in (([1, 2, 3, 4], []), ([1, 2, 3, 5], ["fail"])):
        other = replace(dumped(tmp_path / "told", values, told=True), tensors=())
        records = (untold, other) if side == 0 else (other, untold)
        comparison = judge(*records, Terms(against=RUN))
        assert [verdict.status for verdict in comparison.failing] == statuses
        assert comparison.golden.known[0, :3].all()
        assert comparison.actual.known[0, :3].all()


def test_projections_of_a_golden_are_computed_of_the_elements_of_a_run_that_can_be_read(
    tmp_path: Path,
) -> None:
    golden, run = (dumped(tmp_path / name, [1, 2, 3, 4], told=True) for name in ("golden", "run"))
    assert not judge(replace(golden, tensors=()), run, Terms()).failing
    projected = replace(golden, table=golden.table.with_projections({0: [1.0] * 8}), tensors=())
    (found,) = judge(projected, run, Terms()).failing
    assert [reason.statistic for reason in found.reasons] == ["projections"]
    run.tensors[0].path.unlink()
    comparison = judge(golden, run, Terms(against=RUN))
    assert [len(errors) for errors in comparison.unreadable.values()] == [1]


def test_producers_decide_by_which_bounds() -> None:
    golden = record({"a:output.0": (1e-3, None)}, digits=None, producer={"soc": "A"})
    off = record({"a:output.0": (1e-3 + 1e-7, None)}, digits=None, producer={"soc": "A"})
    for soc, terms, bounds, failing in (
        ("A", Terms(), "same", True),
        ("B", Terms(), "other", False),
        ("B", Terms(option="same"), "same", True),
        ("A", Terms(Tolerances("other"), option="same"), "other", False),
    ):
        comparison = judge(golden, replace(off, producer={"soc": soc}), terms)
        assert comparison.numerics is not None
        assert (comparison.numerics.bounds, bool(comparison.failing)) == (bounds, failing)
        assert comparison.tolerances.preset == bounds
    given = judge(golden, off, Terms(Tolerances("other"), option=AS_GIVEN))
    assert (given.numerics, given.failing) == (None, ())


def test_what_was_measured_and_approved_is_a_golden_s_alone() -> None:
    golden = replace(record({"a:output.0": (1, None)}), extra={"repeats": {"runs": 2}})
    found = [judge(golden, golden, Terms(against=kind)).repeats for kind in (GOLDEN, RUN)]
    assert found == [True, None]
    known = golden.table.known.copy()
    known[:, 0] = False  # a value that nobody approved fails, and one of another run is noted
    before = replace(golden, table=replace(golden.table, known=known), extra={})
    assert [judge(before, golden, Terms(against=kind)).count("fail") for kind in (GOLDEN, RUN)] == [1, 0]


FILES = "#m.om {:0<16} {:0<6}\nconv abcdefgh {:0<6}\nother abcdefgh {:0<6}\n"


@pytest.mark.each(
    ("models", "failing"),
    [
        (FILES.format(1, 1, 1, 1), ["conv:output.0 fail"]),
        (FILES.format(2, 1, 2, 1), ["conv:output.0 fail"]),
        (FILES.format(2, 1, 1, 2), []),  # what others make of it may be hidden by its digits
        (FILES.format(2, 1, 1, 1), []),  # compiled anew
        (FILES.format(2, 2, 2, 1), []),
        (FILES.format(2, 1, 2, 1).replace("conv abcd", "conv efgh"), []),
        ("", []),
    ],
)
def test_what_an_operator_makes_of_the_same_input_is_held_to_its_rounding(
    models: str, failing: list[str]
) -> None:
    """A change of 2e-6, where float32 of the same numerics is held to 1.5e-5 and one operator to 4.8e-7."""
    edges = lines_of(Edges.of([GraphNode("conv", "Conv2D", (Port("x"),))], "m.om"), ["x", "conv"])
    arrays = np.random.default_rng(1).standard_normal((2, 64)).astype(np.float32)

    def of(scale: float, models: str) -> Record:
        records = [
            TensorRecord(
                TensorKey(name, "output", 0),
                "Conv2D",
                "float32",
                array.shape,
                Path("a.bin"),
                stats=replace(tensor_stats(array), projections=project(array)),
            )
            for name, array in (("x", arrays[0]), ("conv", (arrays[1] * np.float32(scale))))
        ]
        table = StatsTable.from_records(as_printed(records))
        extra = {"repeats": {"runs": 2}}
        return Record("", {}, table, Path("golden.yaml"), extra, {EDGES: edges, MODELS: models})

    golden, run = of(1, FILES.format(1, 1, 1, 1)), of(1 + 2e-6, models)
    assert told(golden, run)[0] == failing
    # One that does not repeat, or knows no edges, holds none to that.
    for other in (replace(golden, extra={}), replace(golden, blocks={MODELS: golden.blocks[MODELS]})):
        assert told(other, run)[0] == []


NUMBER, AROUND_0, FAR = np.float32([2.5]), [-1, 2, -3, 1], [9, 9.5, 9, 9.2]


@pytest.mark.each(
    ("op_type", "read", "made", "held"),
    [
        ("Mul", [AROUND_0, AROUND_0], AROUND_0, True),
        ("Mul", [AROUND_0, NUMBER], AROUND_0, True),  # which scales all of it alike
        ("Mul", [NUMBER, AROUND_0], AROUND_0, True),
        ("Mul", [AROUND_0, FAR], AROUND_0, False),
        ("Div", [AROUND_0, NUMBER], AROUND_0, True),
        ("Div", [NUMBER, AROUND_0], AROUND_0, False),
        ("Conv2D", [FAR], AROUND_0, False),
        ("Conv2D", [AROUND_0], [0.1, 0, 0, 0.1], True),
        ("Add", [AROUND_0], [0.1, 0, 0, 0.1], False),  # most of what it added is gone
        ("Add", [AROUND_0], AROUND_0, True),
        ("Exp", [AROUND_0], AROUND_0, False),
    ],
)
def test_only_what_enlarges_no_hidden_difference_is_held_to_its_rounding(
    op_type: str, read: list[Sequence[float]], made: Sequence[float], *, held: bool
) -> None:
    arrays = {f"x{at}": values for at, values in enumerate(read)} | {"op": made}
    table = StatsTable.from_records(
        TensorRecord(
            *(TensorKey(name, "output", 0), op_type, "float32", (len(values),), Path("a.bin")),
            stats=tensor_stats(np.asarray(values, np.float32)),
        )
        for name, values in arrays.items()
    )
    node = GraphNode("op", op_type, tuple(Port(f"x{at}") for at in range(len(read))))
    edges = lines_of(Edges.of([node], "m.om"), [*arrays])
    golden = Record("", {}, table, Path("golden.yaml"), {}, {EDGES: edges})
    found = fed_as_before(golden, table, range(len(read)), [len(read)], {len(read): op_type})
    assert found == (frozenset({"op:output.0"}) if held else frozenset())
