"""Layers by name: selected, missed, and given their raw names back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import pytest
from onnx import TensorProto, helper

from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import Dump, TensorKey, TensorRecord, sanitise
from pytest_npudump.dump.selection import (
    absent_layers,
    layers_meant,
    resolve_raw_names,
    select_layers,
    suggest,
    with_raw_names,
)
from pytest_npudump.errors import DumpError
from pytest_npudump.request import DumpRequest

if TYPE_CHECKING:
    from collections.abc import Iterable


STATS = Path(__file__).parents[1] / "data" / "trees" / "acl-stats"


def dump(*layers: str, raw: bool = False) -> Dump:
    records = tuple(
        TensorRecord(TensorKey(layer, "output", 0), "", "float32", (1,), Path("f")) for layer in layers
    )
    return Dump(Path("d"), records, raw_names=raw)


def names(found: Dump) -> list[str]:
    return [record.key.layer for record in found.records]


def save_model(path: Path, *nodes: str) -> Path:
    graph = helper.make_graph(
        [helper.make_node("Relu", [f"t{at}"], [f"t{at + 1}"], name=name) for at, name in enumerate(nodes)],
        "graph",
        [helper.make_tensor_value_info("t0", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info(f"t{len(nodes)}", TensorProto.FLOAT, [1])],
    )
    onnx.save(helper.make_model(graph), str(path))
    return path


def resolve(
    sanitised: Iterable[str],
    *,
    layers: tuple[str, ...] = (),
    keys: tuple[str, ...] = (),
    models: Iterable[Path] = (),
) -> dict[str, tuple[str, ...]]:
    request = DumpRequest(layers=layers)
    return resolve_raw_names(set(sanitised), request=request, golden_keys=keys, models=models)


def test_without_layers_everything_is_selected() -> None:
    everything = dump("a", "b")
    assert select_layers(everything, DumpRequest()) is everything


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


def test_raw_names_in_the_dump_are_selected_by_either_spelling() -> None:
    raw = dump("net/conv.1", "net/fc", raw=True)
    assert names(select_layers(raw, DumpRequest(layers=("net/conv.1",)))) == ["net/conv.1"]
    assert names(select_layers(raw, DumpRequest(layers=("net/*",)))) == ["net/conv.1", "net/fc"]


def test_layers_of_a_real_dump_are_selected_in_its_order() -> None:
    whole = read_dump(STATS)
    wanted = [layer for layer in dict.fromkeys(names(whole)) if layer.startswith("net_")][:3]
    selected = select_layers(whole, DumpRequest(layers=tuple(reversed(wanted))))
    assert list(dict.fromkeys(names(selected))) == wanted
    assert absent_layers(names(whole), tuple(wanted)) == ()


@pytest.mark.parametrize("raw", [False, True])
def test_names_and_globs_that_nothing_answers_to_are_absent(raw: bool) -> None:  # noqa: FBT001 - a parameter
    found = dump("net/conv.1", raw=True) if raw else dump("net_conv_1")
    request = DumpRequest(layers=("net/conv.1", "net/conv.2", "net/*", "x*"))
    assert absent_layers(names(found), request.layers) == ("net/conv.2", "x*")


def test_absent_is_judged_on_what_was_selected_too() -> None:
    request = DumpRequest(layers=("a", "b"))
    assert absent_layers(names(select_layers(dump("a", "c"), request)), request.layers) == ("b",)


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


def test_exact_layers_of_the_marker_are_raw() -> None:
    assert resolve(["net_conv_1"], layers=("net/conv.1",)) == {"net_conv_1": ("net/conv.1",)}
    assert resolve(["a_b"], layers=("a_b",)) == {"a_b": ("a_b",)}


def test_a_sanitised_name_beside_a_glob_may_stand_for_a_raw_one_of_the_model(tmp_path: Path) -> None:
    model = save_model(tmp_path / "m.onnx", "net/conv.1", "fc")
    assert resolve(["net_conv_1"], layers=("net_conv_1", "fc*"), models=[model]) == {
        "net_conv_1": ("net/conv.1",)
    }
    assert resolve(["net_conv_1"], layers=("net_conv_1", "fc*")) == {}


def test_layers_of_golden_keys_are_raw_where_sanitising_changes_them() -> None:
    keys = ("net/conv.1#step=1:output.0", "net_fc:output.0", "head%201:input.0")
    assert resolve(["net_conv_1", "net_fc", "head_1"], keys=keys) == {
        "net_conv_1": ("net/conv.1",),
        "head_1": ("head 1",),
    }


def test_name_without_an_underscore_is_its_own_raw_name() -> None:
    assert resolve(["conv1"]) == {"conv1": ("conv1",)}


def test_model_tells_what_marker_and_golden_do_not(tmp_path: Path) -> None:
    model = save_model(tmp_path / "m.onnx", "net/conv.1", "net fc", "plain_name", "名/前")
    raw = [node.name for node in onnx.load(str(model)).graph.node]
    found = resolve([sanitise(name) for name in raw], keys=("net/conv.1:output.0",), models=[model])
    assert found == {sanitise(name): (name,) for name in raw}


def test_two_raw_names_behind_one_sanitised_are_both_told(tmp_path: Path) -> None:
    model = save_model(tmp_path / "m.onnx", "a/b", "a.b", "c/d")
    found = resolve(["a_b", "c_d"], models=[model])
    assert found == {"a_b": ("a.b", "a/b"), "c_d": ("c/d",)}
    assert resolve(["a_b"], layers=("a/b", "a.b")) == {"a_b": ("a/b", "a.b")}


def test_onnx_beside_an_om_that_is_not_there_is_searched(tmp_path: Path) -> None:
    save_model(tmp_path / "m.onnx", "a/b")
    assert resolve(["a_b"], models=[tmp_path / "m.om"]) == {"a_b": ("a/b",)}
    assert resolve(["a_b"], models=[tmp_path / "none.om"]) == {}


def test_models_are_searched_until_every_name_is_known(tmp_path: Path) -> None:
    first, second = save_model(tmp_path / "1.onnx", "a/b"), save_model(tmp_path / "2.onnx", "c/d")
    unread = tmp_path / "3.onnx"
    assert resolve(["a_b", "c_d"], models=[first, second, unread]) == {"a_b": ("a/b",), "c_d": ("c/d",)}


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


def test_hint_lists_some_layers_where_none_is_close() -> None:
    layers = [f"layer{number}" for number in range(7)]
    assert suggest("#", layers) == "the dump has 7 layers: layer0, layer1, layer2, layer3, layer4 and 2 more"
    assert suggest("#", ["a", "a"]) == "the dump has 1 layers: a"


@pytest.mark.parametrize("wanted", [0, 4321, 9999])
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
        resolve(["a_b"], models=[model])
