from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from pytest_npudump.dump.records import sanitise
from pytest_npudump.dump.selection import find_raw_names
from pytest_npudump.errors import DumpError

if TYPE_CHECKING:
    from pathlib import Path


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(tag: int, text: str) -> bytes:
    raw = text.encode()
    return bytes([tag]) + varint(len(raw)) + raw


def save_model(path: Path, names: list[str]) -> None:
    nodes = [helper.make_node("Relu", [f"t{at}"], [f"t{at + 1}"], name=name) for at, name in enumerate(names)]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("t0", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info(f"t{len(names)}", TensorProto.FLOAT, [1])],
    )
    onnx.save(helper.make_model(graph), path)


def test_names_of_an_onnx_model_are_found_as_onnx_has_them(tmp_path: Path) -> None:
    names = ["net/conv.1", "a b\\c", "plain", "long/" + "x" * 300, "名/前", "y" * 127, "/" + "z" * 127]
    save_model(tmp_path / "m.onnx", names)
    loaded = [node.name for node in onnx.load(tmp_path / "m.onnx").graph.node]
    found = find_raw_names([sanitise(name) for name in loaded], tmp_path / "m.onnx")
    assert found == {sanitise(name): (name,) for name in names}


def test_all_raw_names_of_one_sanitised_name_come_back(tmp_path: Path) -> None:
    save_model(tmp_path / "m.onnx", ["a/b", "a.b", "a_b", "a b"])
    assert find_raw_names({"a_b"}, tmp_path / "m.onnx") == {"a_b": ("a b", "a.b", "a/b", "a_b")}


def test_names_that_the_model_has_not_are_left_out(tmp_path: Path) -> None:
    save_model(tmp_path / "m.onnx", ["a/b"])
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


def test_a_model_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match="cannot be read"):
        find_raw_names({"a"}, tmp_path / "gone.om")


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
