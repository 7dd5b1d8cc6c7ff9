"""Which tensor of the reference a layer is, and what a mapping file says of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from pytest_npudump.dump.reader import read_dump
from pytest_npudump.errors import RequestError
from pytest_npudump.explain.matches import HEADER, JOINED, MAPPED, NAME, MapEntry, NameMap, Names, match
from pytest_npudump.explain.reference_model import Node, ReferenceModel
from pytest_npudump.onnxmodels.graph import Operator
from tests.explain.conftest import make_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.dump.records import TensorRecord

    Record = Callable[..., TensorRecord]


DATA = Path(__file__).parents[1] / "data"


def model_of(*nodes: tuple[str, tuple[str, ...], tuple[str, ...]], weights: str = "w") -> ReferenceModel:
    """A model of ``(name, inputs, outputs)`` nodes; inputs that begin with ``weights`` are weights."""
    made = []
    for task, (name, inputs, outputs) in enumerate(nodes, 1):
        given_to = tuple(i for i in inputs if i and not i.startswith(weights))
        made.append(Node(Operator(name, "Op", given_to, outputs, task), inputs))
    return ReferenceModel(
        None, tuple(made), ("x",), (nodes[-1][2][0],), raised=False, halved=False, proto=None
    )  # type: ignore[arg-type]


CHAIN = (
    ("conv/1", ("x", "w1", "w2"), ("a",)),
    ("relu.1", ("a",), ("b",)),
    ("Conv_10", ("b", "w3"), ("c",)),
    ("Relu_1", ("c",), ("d",)),
    ("Relu_11", ("d",), ("e",)),
    ("split", ("e",), ("f", "g")),
    ("Add_2", ("f", "g"), ("h",)),
)


def found(
    record: TensorRecord,
    model: ReferenceModel | None = None,
    *,
    entries: dict[str, str] | None = None,
    original: tuple[str, int] | None = None,
    slots: int = 0,
) -> tuple[str, str] | None:
    mapping = NameMap(None, tuple(MapEntry(k, v, 1) for k, v in (entries or {}).items()))
    mapping = mapping.for_layers([record.key.layer])
    names = Names(model or model_of(*CHAIN), mapping, {record.key.layer: slots})
    counterpart = names.find(record, original)
    return None if counterpart is None else (counterpart.tensor, counterpart.how)


def test_layers_are_found_by_name_as_they_are_or_as_file_names_spell_them() -> None:
    cases: dict[str, tuple[str, str] | None] = {
        "conv/1:output.0": ("a", NAME),
        "conv_1:output.0": ("a", NAME),
        "relu_1:output.0": ("b", NAME),
        "split:output.1": ("g", NAME),
        "split:output.2": None,
        "conv_1:workspace.0": None,
        "trans_TransData_12:output.0": None,
        "Conv_1:output.0": None,
        "CONV_10:output.0": None,
        "conv/1relu.1:output.0": ("b", JOINED),
        "conv_1relu_1:output.0": ("b", JOINED),
        "conv_1_relu_1:output.0": ("b", JOINED),
        "Conv_10Relu_1:output.0": ("d", JOINED),
        "Conv_10Relu_1Relu_11:output.0": ("e", JOINED),
        "Relu_1Conv_10:output.0": ("d", JOINED),
        "splitAdd_2:output.0": ("h", JOINED),
        "conv_1Conv_10:output.0": None,  # relu.1 lies between them: conv/1 has a consumer outside
        "Conv_10Conv_10:output.0": None,  # one operator twice
        "Conv_10Relu_1x:output.0": None,  # a rest that is no name
        "Conv_10Relu:output.0": None,  # the same
        "Relu_1split:output.0": None,  # Relu_1 feeds Relu_11
        "Conv_10Relu_1:output.1": None,  # the last operator has one output
    }
    assert {key: found(make_record(key)) for key in cases} == cases
    assert found(make_record("conv_1relu_1:input.0"), slots=1) is None


def test_names_that_file_names_spell_alike_or_that_can_be_read_in_two_ways_mean_none() -> None:
    model = model_of(("a/b", ("x",), ("t",)), ("a.b", ("t",), ("u",)), ("c", ("u",), ("v",)))
    expected = {"a_b": None, "a/b": ("t", NAME), "a.b": ("u", NAME), "c": ("v", NAME)}
    assert {name: found(make_record(f"{name}:output.0"), model) for name in expected} == expected
    model = model_of(("a/b", ("x",), ("t",)), ("a_b", ("t",), ("u",)))
    assert found(make_record("a_b:output.0"), model) is None
    chain = [("a", ("x",), ("1",)), ("ab", ("1",), ("2",)), ("b", ("2",), ("3",)), ("ba", ("3",), ("4",))]
    assert found(make_record("aba:output.0"), model_of(*chain)) is None
    # Many that are parts of each other take no time.
    chain = [("1" * k, (f"t{k - 1}" if k > 1 else "x",), (f"t{k}",)) for k in range(1, 60)]
    assert found(make_record(f"{'1' * 200}x:output.0"), model_of(*chain)) is None
    assert found(make_record(f"{'1' * 200}:output.0"), model_of(*chain)) is None
    # The inner result of fused operators that is an output of the graph.
    model = model_of(("p", ("x",), ("t",)), ("q", ("t",), ("u",)))
    assert found(make_record("pq:output.0"), model) == ("u", JOINED)
    assert found(make_record("pq:output.0"), replace(model, outputs=("t", "u"))) is None


def test_mapping_decides_before_the_header_and_the_header_before_the_name() -> None:
    record = make_record("Conv_10:output.0")
    assert found(record, original=("Relu_1", 0)) == ("d", HEADER)
    assert found(record, original=("split", 1)) == ("g", HEADER)
    assert found(record, original=("nobody", 0)) == ("c", NAME)
    assert found(record, original=("split", 2)) is None
    assert found(record, entries={"Conv_10": "Relu_1"}, original=("split", 1)) == ("d", MAPPED)
    for key, entries, expected in (
        ("Conv_10:output.0", {"Conv_*": "h"}, ("h", MAPPED)),
        ("fused:output.1", {"fused": "split"}, ("g", MAPPED)),
        ("fused:output.1", {"fused": "h"}, None),
        ("fused:input.0", {"fused": "h"}, None),
        ("my_layer_x:output.0", {"my/layer.x": "h"}, ("h", MAPPED)),  # raw names and those of files
        ("my/layer.x:output.0", {"my_layer_x": "h"}, ("h", MAPPED)),
        ("my/layer:output.0", {"my*": "h", "my_layer": "d"}, ("d", MAPPED)),  # exact before a glob
    ):
        assert found(make_record(key), entries=entries) == expected, (key, entries)


def test_graph_inputs_are_found_by_name_and_input_slots_by_how_many_there_are() -> None:
    assert found(make_record("x:output.0", op_type="Data")) == ("x", NAME)
    for key, op_type in (("y:output.0", "Data"), ("x:output.1", "Data"), ("x:output.0", "TransData")):
        assert found(make_record(key, op_type=op_type)) is None
    # with weights; a weight; without weights; unclear; more than it has
    for slots, slot, tensor in ((3, 0, "x"), (3, 1, None), (1, 0, "x"), (2, 0, None), (4, 0, None)):
        counterpart = found(make_record(f"conv/1:input.{slot}"), slots=slots)
        assert counterpart == (None if tensor is None else (tensor, NAME)), (slots, slot)


@given(st.lists(st.text("ab_1", min_size=1, max_size=4), min_size=2, max_size=5, unique=True), st.data())
def test_joined_name_never_means_anything_but_the_end_of_its_own_chain(
    names: list[str], data: st.DataObject
) -> None:
    chain = [(name, ("x" if i == 0 else f"t{i - 1}",), (f"t{i}",)) for i, name in enumerate(names)]
    model = model_of(*chain)
    start = data.draw(st.integers(0, len(names) - 2))
    end = data.draw(st.integers(start + 2, len(names)))
    last = Names(model, NameMap(), {}).joined("".join(names[start:end]))
    readings = _readings("".join(names[start:end]), names)
    if last is None:
        assert len(readings) > 1
    else:
        assert readings == [tuple(names[start:end])]
        assert last.name == names[end - 1]


def _readings(text: str, names: list[str]) -> list[tuple[str, ...]]:
    """All ways to read ``text`` as names, by trying everything."""
    if not text:
        return [()]
    return list(
        dict.fromkeys(
            (name, *rest)
            for name in names
            if text.startswith(name)
            for joint in ("", "_", "/")
            if text[len(name) :].startswith(joint) and (not joint or text[len(name) + len(joint) :])
            for rest in _readings(text[len(name) + len(joint) :], names)
        )
    )


def test_reader_tells_the_original_operator_of_a_real_header() -> None:
    tree = DATA / "trees" / "acl-mixed-op"
    records = [r for r in read_dump(tree).records if r.key.io == "output"]
    model = model_of(("before", ("x",), ("t",)), ("orig/x", ("t",), ("u", "v")))
    matching = match(records, model, NameMap())
    assert [(m.record.key.slot, m.counterpart.tensor, m.counterpart.how) for m in matching.matches] == [
        (0, "v", HEADER)
    ]


KNOWN = frozenset({"conv/1", "relu_1", "tensor_7", "12"})


def read(tmp_path: Path, text: str) -> NameMap:
    path = tmp_path / "map.yaml"
    path.write_text(text)
    return NameMap.read(path, KNOWN)


def test_names_and_globs_are_read_in_the_order_of_the_file(tmp_path: Path) -> None:
    found = read(tmp_path, 'fused_1: relu_1\n"att*": tensor_7\n"3": "12"\n')
    assert [(e.layer, e.target, e.line) for e in found.entries] == [
        ("fused_1", "relu_1", 1),
        ("att*", "tensor_7", 2),
        ("3", "12", 3),
    ]


BAD: dict[str, str] = {
    "fused: relu_2\n": "line 1: the reference has no node or tensor 'relu_2'; did you mean 'relu_1'?",
    "a: relu_1\nb: zzz\n": "line 2: the reference has no node or tensor 'zzz'; look the names up",
    "a: 12\n": "line 1: 'a' is mapped to 12, expected .*in quotes, if it is a number",
    "a:\n": "line 1: 'a' is mapped to None",
    "a: ''\n": "line 1: 'a' is mapped to ''",
    "'': relu_1\n": "line 1: '' is mapped to 'relu_1'",
    "a: [relu_1]\n": r"line 1: 'a' is mapped to \['relu_1'\]",
    "a: {b: relu_1}\n": "line 1: 'a' is mapped to",
    "a: true\n": "line 1: 'a' is mapped to True",
    "": "line 1: the file is empty",
    "a: 'relu_1\n": "not YAML",
}


def test_bad_file_is_refused_with_its_line_and_a_missing_one_named(tmp_path: Path) -> None:
    for text, message in BAD.items():
        with pytest.raises(RequestError, match=message) as raised:
            read(tmp_path, text)
        assert str(tmp_path / "map.yaml") in str(raised.value)
    with pytest.raises(RequestError, match=r"map: .*nowhere\.yaml cannot be read"):
        NameMap.read(tmp_path / "nowhere.yaml", KNOWN)


def test_entries_that_decide_about_no_layer_are_told(tmp_path: Path) -> None:
    found = read(tmp_path, 'a/b: relu_1\n"gone*": relu_1\nc: relu_1\n')
    (unused,) = found.unused(["a_b", "c", "d"])
    assert "line 2: 'gone*' decides about no layer of the dump" in unused
    for text, line, name in (
        ('"conv*": relu_1\n"conv_?": conv/1\n', 2, "conv_?"),
        ('"conv*": relu_1\nconv_1: conv/1\nconv_2: conv/1\n', 1, "conv*"),
        ("a/b: relu_1\na_b: relu_1\nconv_1: relu_1\n", 2, "a_b"),
    ):
        (unused,) = read(tmp_path, text).unused(["conv_1", "conv_2", "a_b"])
        assert f", line {line}: {name!r} decides about no layer of the dump (an exact name counts" in unused
        assert unused.endswith("; correct or remove the entry")
    found = read(tmp_path, 'conv_1: conv/1\n"conv*": relu_1\n')
    assert found.unused(["conv_1", "conv_2"]) == ()


def test_a_layer_that_is_there_is_mapped_alone_though_its_name_is_a_glob_of_another(tmp_path: Path) -> None:
    found = read(tmp_path, '"blk[1]": relu_1\n"blk*": conv/1\n"gone[12]": tensor_7\n')
    deciding = found.for_layers(["blk1", "blk[1]", "gone1"]).deciding
    assert {layer: entry.target for layer, entry in deciding.items()} == {
        "blk1": "conv/1",
        "blk[1]": "relu_1",
        "gone1": "tensor_7",
    }
    later = found.for_layers(["blk1", "blk[1]"]).for_layers(["blk1"])  # a run that dumps some of them
    assert later.deciding["blk1"].target == "conv/1"
