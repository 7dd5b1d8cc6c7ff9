"""Layers by name: selected, missed, and given their raw names back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, strategies as st
from onnx import helper

from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import Dump, TensorKey, TensorRecord, sanitise
from pytest_npudump.dump.selection import (
    absent_layers,
    find_raw_names,
    layers_meant,
    mindspore_raw_names,
    resolve_raw_names,
    select_layers,
    suggest,
    with_raw_names,
)
from pytest_npudump.errors import DumpError
from pytest_npudump.request import DumpRequest
from tests.dump.conftest import DATA
from tests.onnxmodels.models import onnx_file


def dump(*layers: str, raw: bool = False) -> Dump:
    records = tuple(
        TensorRecord(TensorKey(layer, "output", 0), "", "float32", (1,), Path("f")) for layer in layers
    )
    return Dump(Path("d"), records, raw_names=raw)


def names(found: Dump) -> list[str]:
    return [record.key.layer for record in found.records]


def save_model(path: Path, *nodes: str) -> Path:
    made = [helper.make_node("Relu", [f"t{at}"], [f"t{at + 1}"], name=name) for at, name in enumerate(nodes)]
    return onnx_file(path, made, {"t0": [1]}, {f"t{len(nodes)}": [1]})


RESOLVED = [
    # names of files; layers of the marker; keys of the golden; models and their nodes; raw names
    ("net_conv_1", "net/conv.1", "", {}, {"net_conv_1": "net/conv.1"}),
    ("a_b", "a_b", "", {}, {"a_b": "a_b"}),
    ("a_b", "a/b a.b", "", {}, {"a_b": "a/b a.b"}),
    # beside a glob a name may be a sanitised one
    ("net_conv_1", "net_conv_1 fc*", "", {"1.onnx": "net/conv.1 fc"}, {"net_conv_1": "net/conv.1"}),
    ("net_conv_1", "net_conv_1 fc*", "", {}, {}),
    (
        "net_conv_1 net_fc head_1",
        "",
        "net/conv.1#step=1:output.0 net_fc:output.0 head%201:input.0",
        {},
        {"net_conv_1": "net/conv.1", "head_1": "head|1"},
    ),
    ("conv1", "", "", {}, {"conv1": "conv1"}),
    (
        "net_conv_1 net_fc plain_name 名_前",
        "",
        "net/conv.1:output.0",
        {"1.onnx": "net/conv.1 net|fc plain_name 名/前"},
        {"net_conv_1": "net/conv.1", "net_fc": "net|fc", "plain_name": "plain_name", "名_前": "名/前"},
    ),
    ("a_b c_d", "", "", {"1.onnx": "a/b a.b c/d a_b a|b"}, {"a_b": "a|b a.b a/b a_b", "c_d": "c/d"}),
    ("a_b", "", "", {"m.onnx": "a/b", "m.om": ""}, {"a_b": "a/b"}),  # beside an om that is not there
    ("a_b", "", "", {"none.om": ""}, {}),
    # models are searched until every name is known
    ("a_b c_d", "", "", {"1.onnx": "a/b", "2.onnx": "c/d", "3.onnx": ""}, {"a_b": "a/b", "c_d": "c/d"}),
]


@pytest.mark.each(("files", "layers", "keys", "models", "expected"), RESOLVED)
def test_raw_names_are_those_of_the_marker_the_golden_and_the_model(
    tmp_path: Path, *, files: str, layers: str, keys: str, models: dict[str, str], expected: dict[str, str]
) -> None:
    for name, nodes in models.items():
        if nodes:
            save_model(tmp_path / name, *(node.replace("|", " ") for node in nodes.split()))
    found = resolve_raw_names(
        set(files.split()),
        request=DumpRequest(layers=tuple(layers.split())),
        golden_keys=keys.split(),
        models=[tmp_path / name for name in models if name != "m.onnx"],
    )
    assert found == {
        name: tuple(one.replace("|", " ") for one in raw.split()) for name, raw in expected.items()
    }


def test_raw_names_in_the_dump_are_selected_by_either_spelling_and_all_without_layers() -> None:
    raw = dump("net/conv.1", "net/fc", raw=True)
    assert names(select_layers(raw, DumpRequest(layers=("net/conv.1",)))) == ["net/conv.1"]
    assert names(select_layers(raw, DumpRequest(layers=("net/*",)))) == ["net/conv.1", "net/fc"]
    assert select_layers(raw, DumpRequest()) is raw


@pytest.mark.each(
    ("layers", "kept"),
    [
        (("net/conv.1",), ["net_conv_1"]),
        (("net/*",), ["net_conv_1", "net_fc"]),
        (("*.1",), ["net_conv_1", "head_1"]),
        (("net_fc",), ["net_fc"]),
        (("head 1", "net/fc"), ["net_fc", "head_1"]),
        (("conv",), []),
    ],
)
def test_raw_names_and_globs_select_the_files_of_sanitised_names(
    layers: tuple[str, ...], kept: list[str]
) -> None:
    selected = select_layers(dump("net_conv_1", "net_fc", "head_1"), DumpRequest(layers=layers))
    assert names(selected) == kept


def test_layers_of_a_real_dump_are_selected_in_its_order() -> None:
    whole = read_dump(DATA / "acl-stats")
    wanted = [layer for layer in dict.fromkeys(names(whole)) if layer.startswith("net_")][:3]
    selected = select_layers(whole, DumpRequest(layers=tuple(reversed(wanted))))
    assert list(dict.fromkeys(names(selected))) == wanted
    assert absent_layers(names(whole), tuple(wanted)) == ()


@pytest.mark.each("raw", [False, True])
def test_names_and_globs_that_nothing_answers_to_are_absent(raw: bool) -> None:  # noqa: FBT001 - a parameter
    found = dump("net/conv.1", raw=True) if raw else dump("net_conv_1")
    request = DumpRequest(layers=("net/conv.1", "net/conv.2", "net/*", "x*"))
    assert absent_layers(names(found), request.layers) == ("net/conv.2", "x*")


@pytest.mark.each(
    ("pattern", "layers", "meant"),
    [
        ("blk[1]", ["blk1", "blk[1]", "blk_1"], ["blk[1]"]),
        ("blk[12]", ["blk1", "blk3"], ["blk1"]),
        ("net/blk[1]", ["net_blk1", "net_blk[1]"], ["net_blk[1]"]),
        ("net_blk[1]", ["net/blk1", "net/blk[1]"], ["net/blk[1]"]),
        ("net/blk[12]", ["net_blk1", "net/blk1"], ["net/blk1", "net_blk1"]),
        ("net_*", ["net/a", "net_b", "other"], ["net/a", "net_b"]),
        ("a/b", ["a.b", "a_b"], ["a_b"]),
    ],
)
def test_a_layer_that_is_there_is_meant_alone_in_either_spelling(
    pattern: str, layers: list[str], meant: list[str]
) -> None:
    assert sorted(layers_meant([pattern], layers)) == meant


def test_only_names_with_one_raw_name_are_replaced() -> None:
    named = with_raw_names(dump("a_b", "c_d", "e_f"), {"a_b": ("a/b", "a.b"), "c_d": ("c/d",)})
    assert names(named) == ["a_b", "c/d", "e_f"]


def test_raw_names_of_a_dump_are_left_alone() -> None:
    raw = dump("a_b", raw=True)
    assert with_raw_names(raw, {"a_b": ("a/b",)}) is raw


def test_hint_names_close_layers_whatever_the_spelling() -> None:
    layers = ["net_conv_1", "net_conv_2", "head_softmax"]
    assert suggest("net/conv.3", layers).startswith("did you mean net_conv_")
    assert suggest("head/softmx", layers) == "did you mean head_softmax?"
    layers = ["bytes", "jax/Magika/Conv_0/AddV2", "jax/Magika/Conv_0/Conv2D"]
    for name in ("*Conv2d*", "Conv2d", "jax/magika/conv_0/conv2d", "jax_Magika_Conv_0_Conv2d"):
        assert suggest(name, layers) == "did you mean jax/Magika/Conv_0/Conv2D?"


@pytest.mark.each(
    ("glob", "hint"),
    [
        ("/model/encoderr/*", "did you mean /model/encoder/*?"),
        ("/model/encodr/*Conv", "did you mean /model/encoder/*Conv?"),
        ("/modl/*", "did you mean /model/*?"),
    ],
)
def test_hint_on_a_glob_is_a_glob(glob: str, hint: str) -> None:
    layers = [f"/model/{part}/{at}/Conv" for part in ("encoder", "decoder/decoder") for at in range(4)]
    assert suggest(glob, layers) == hint


def test_hint_lists_some_layers_where_none_is_close() -> None:
    layers = [f"layer{number}" for number in range(7)]
    assert suggest("#", layers) == "the dump has layer0, layer1, layer2, layer3, layer4 and 2 more"
    assert suggest("#", ["a", "a"]) == "the dump has a"


@pytest.mark.each("wanted", [0, 4321, 9999])
def test_hint_among_ten_thousand_layers_is_the_one_that_was_meant(wanted: int) -> None:
    layers = [f"encoder/layer_{number}/attention/query" for number in range(10_000)]
    assert layers[wanted] in suggest(f"encoder/layer_{wanted}/atention/qery", layers)


def test_model_that_cannot_be_read_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save_model(tmp_path / "m.onnx", "a/b")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", refuse)
    with pytest.raises(DumpError, match=r"m\.onnx: cannot be read for operator names: Permission denied"):
        find_raw_names({"a_b"}, model)


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(tag: int, text: str) -> bytes:
    raw = text.encode()
    return bytes([tag]) + varint(len(raw)) + raw


def test_names_of_an_onnx_model_are_found_as_onnx_has_them(tmp_path: Path) -> None:
    names = ["net/conv.1", "a b\\c", "plain", "long/" + "x" * 300, "名/前", "y" * 127, "/" + "z" * 127]
    save_model(tmp_path / "m.onnx", *names)
    loaded = [node.name for node in onnx.load(tmp_path / "m.onnx").graph.node]
    found = find_raw_names([sanitise(name) for name in loaded], tmp_path / "m.onnx")
    assert found == {sanitise(name): (name,) for name in names}


def test_names_that_the_model_has_not_are_left_out(tmp_path: Path) -> None:
    save_model(tmp_path / "m.onnx", "a/b")
    assert find_raw_names({"a_c", "zz"}, tmp_path / "m.onnx") == {}
    assert find_raw_names((), tmp_path / "m.onnx") == {}


def test_names_are_found_among_weights_and_across_any_boundary(tmp_path: Path) -> None:
    path = tmp_path / "m.om"
    noise = np.random.default_rng(0).integers(0, 256, 1 << 20, dtype=np.uint8).tobytes()
    for cut in range(-40, 4):
        path.write_bytes(noise[: (1 << 20) + cut] + field(0x0A, "net/conv.1") + field(0x1A, "n/" + "x" * 200))
        found = find_raw_names({"net_conv_1", "n_" + "x" * 200}, path)
        assert found == {"net_conv_1": ("net/conv.1",), "n_" + "x" * 200: ("n/" + "x" * 200,)}


def test_a_length_beyond_the_end_and_bytes_that_are_no_text_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "m.om"
    path.write_bytes(b"\x0a\x03\xff\xff\xff" + b"\x0a\x03ab")
    assert find_raw_names({"a_b", "ab"}, path) == {}
    path.write_bytes(b"\x0a")
    assert find_raw_names({"a"}, path) == {}
    path.write_bytes(b"")
    assert find_raw_names({"a"}, path) == {}


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=200), min_size=1
    ),
    st.binary(max_size=50),
    st.sampled_from([0x0A, 0x1A]),
)
def test_any_name_behind_any_bytes_is_found(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], before: bytes, tag: int
) -> None:
    path = tmp_path_factory.mktemp("model") / "m.om"
    path.write_bytes(before + b"".join(field(tag, name) for name in names))
    found = find_raw_names([sanitise(name) for name in names], path)
    assert all(name in found[sanitise(name)] for name in names)


TITLE = "NodeExecutionOrder-FullNameWithScope\n"


def order(root: Path, text: str, graph: int = 0, rank: int = 0) -> None:
    path = root / f"rank_{rank}" / "execution_order" / f"ms_execution_order_graph_{graph}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(TITLE + text, encoding="utf-8")


def graph(root: Path, *parameters: str) -> None:
    """Write names as ``ParameterProto.name`` of MindSpore's graphs has them: field 1, length-prefixed."""
    path = root / "rank_0" / "graphs" / "ms_output_trace_code_graph_0.pb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(b"\x0a" + bytes([len(name)]) + name.encode() for name in parameters))


@pytest.mark.each("tree", ["control_flow_multigraph", "long_names_mapping", "op_fails_in_step_1"])
def test_every_operator_of_a_real_dump_has_a_raw_name(tree: str) -> None:
    root = DATA / f"mindspore-{tree}"
    layers = {record.key.layer for record in read_dump(root).records if record.op_type != "Parameter"}
    found = mindspore_raw_names(layers, root)
    assert found.keys() == layers
    for layer, names in found.items():
        assert all(sanitise(name) == layer for name in names)
        assert all("/" in name for name in names)


def test_the_number_is_the_file_s_where_the_list_has_another_and_names_alike_come_all(tmp_path: Path) -> None:
    """MindSpore 2.10 lists Cast-op3 to Cast-op5 where files, and kernels, say 0 to 2."""
    order(tmp_path, "Default/Cast-op3\nDefault/Cast-op4\nDefault/a_b/Add-op0\n")
    order(tmp_path, "Default/a/b/Add-op0\n", graph=1)
    order(tmp_path, "Default/a.b/Add-op0\n", rank=1)
    alike = tuple(f"Default/{name}/Add-op7" for name in ("a.b", "a/b", "a_b"))
    assert mindspore_raw_names({"Default_Cast-op0", "Default_a_b_Add-op7"}, tmp_path) == {
        "Default_Cast-op0": ("Default/Cast-op0",),
        "Default_a_b_Add-op7": alike,
    }


def test_parameters_are_named_by_the_graph(tmp_path: Path) -> None:
    order(tmp_path, "Default/Add-op0\n")
    graph(tmp_path, "fc1.weight", "fc1_bias", "x")
    assert mindspore_raw_names({"fc1_weight", "fc1_bias", "fc2_weight", "Default_Add-op0"}, tmp_path) == {
        "fc1_weight": ("fc1.weight",),
        "fc1_bias": ("fc1_bias",),
        "Default_Add-op0": ("Default/Add-op0",),
    }


def test_what_is_not_there_or_cannot_be_read_tells_nothing(tmp_path: Path) -> None:
    assert mindspore_raw_names({"Default_Add-op0", "w_b"}, tmp_path) == {}
    (tmp_path / "rank_0" / "execution_order" / "ms_execution_order_graph_0.csv").mkdir(parents=True)
    (tmp_path / "rank_0" / "graphs" / "ms_output_trace_code_graph_0.pb").mkdir(parents=True)
    assert mindspore_raw_names({"Default_Add-op0", "w_b"}, tmp_path) == {}
    assert mindspore_raw_names(set(), tmp_path / "absent") == {}
