"""The mapping file is read strictly."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.errors import RequestError
from pytest_npudump.reference.name_map import NameMap

if TYPE_CHECKING:
    from pathlib import Path

KNOWN = frozenset({"conv/1", "relu_1", "tensor_7", "12"})


def read(tmp_path: Path, text: str | bytes) -> NameMap:
    path = tmp_path / "map.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return NameMap.read(path, KNOWN)


def test_names_and_globs_are_read_in_the_order_of_the_file(tmp_path: Path) -> None:
    found = read(tmp_path, 'fused_1: relu_1\n"att*": tensor_7\n"3": "12"\n')
    assert [(e.layer, e.target, e.line) for e in found.entries] == [
        ("fused_1", "relu_1", 1),
        ("att*", "tensor_7", 2),
        ("3", "12", 3),
    ]


@pytest.mark.each(
    ("text", "message"),
    [
        ("fused: relu_2\n", "line 1: the reference has no node or tensor 'relu_2'; did you mean 'relu_1'?"),
        ("a: relu_1\nb: zzz\n", "line 2: the reference has no node or tensor 'zzz'; look the names up"),
        ("a: 12\n", "line 1: 'a' is mapped to 12, expected .*in quotes, if it is a number"),
        ("a:\n", "line 1: 'a' is mapped to None"),
        ("a: ''\n", "line 1: 'a' is mapped to ''"),
        ("'': relu_1\n", "line 1: '' is mapped to 'relu_1'"),
        ("a: [relu_1]\n", r"line 1: 'a' is mapped to \['relu_1'\]"),
        ("a: {b: relu_1}\n", "line 1: 'a' is mapped to"),
        ("a: true\n", "line 1: 'a' is mapped to True"),
        ("a: relu_1\n1: relu_1\n", "line 2: a key must be text, put '1' in quotes"),
        ("- relu_1\n", "line 1: expected a mapping at the top level"),
        ("a: relu_1\na: conv/1\n", "line 2: the key 'a' occurs twice"),
        ("a: &x relu_1\nb: *x\n", "line 1: anchors and aliases are not accepted"),
        ("a: !!str relu_1\n", "line 1: tags are not accepted"),
        ("a: relu_1\n---\nb: relu_1\n", "one document"),
        ("", "line 1: the file is empty"),
        ("a: 'relu_1\n", "not YAML"),
        (b"a: \xff\n", "line 1: byte 3 is not UTF-8"),
    ],
)
def test_bad_file_is_refused_with_its_line(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(RequestError, match=message) as raised:
        read(tmp_path, text)
    assert str(tmp_path / "map.yaml") in str(raised.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"reference_map: .*nowhere\.yaml cannot be read"):
        NameMap.read(tmp_path / "nowhere.yaml", KNOWN)


def test_entries_about_no_layer_are_told(tmp_path: Path) -> None:
    found = read(tmp_path, 'a/b: relu_1\n"gone*": relu_1\nc: relu_1\n')
    (unused,) = found.unused(["a_b", "c", "d"])
    assert "line 2: no layer of the dump is called 'gone*'" in unused


@pytest.mark.parametrize(
    ("text", "shadowed"),
    [
        (
            '"conv*": relu_1\n"conv_?": conv/1\n',
            "line 2: every layer that 'conv_?' names is mapped by line 1,",
        ),
        (
            '"conv*": relu_1\nconv_1: conv/1\nconv_2: conv/1\n',
            "line 1: * 'conv*' names is mapped by line 2, 3,",
        ),
        (
            "a/b: relu_1\na_b: relu_1\nconv_1: relu_1\n",
            "line 2: every layer that 'a_b' names is mapped by line 1,",
        ),
    ],
)
def test_entry_that_others_shadow_for_every_layer_is_told(tmp_path: Path, text: str, shadowed: str) -> None:
    (unused,) = read(tmp_path, text).unused(["conv_1", "conv_2", "a_b"])
    assert fnmatchcase(unused, f"*, {shadowed} as an exact name counts *; correct or remove the entry")


def test_entry_that_decides_for_one_layer_is_used(tmp_path: Path) -> None:
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
