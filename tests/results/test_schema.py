"""The schema of a line describes what is written, and is what a reader refuses by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pytest_npudump.results
from pytest_npudump.report.result_json import COUNTS
from pytest_npudump.results.folder import VERSION, is_inside, line_of, parse_line

SCHEMA = json.loads((Path(pytest_npudump.results.__file__).parent / "schema.json").read_text("utf-8"))


def line() -> dict[str, Any]:
    """Return the line of a test, with what the schema requires and no more."""
    kinds = {"string": "", "integer": 0, "boolean": False, "array": [], "object": {}, "null": None}
    properties = SCHEMA["$defs"]["test"]["properties"]
    found = {
        name: kinds[kind["type"] if isinstance(kind["type"], str) else kind["type"][-1]]
        for name, kind in properties.items()
        if "type" in kind
    }
    golden = {"folder": "golden", "file": "a/b.yaml", "judged_with": None, "sha256": None}
    return found | {
        "version": VERSION,
        "kind": "test",
        "golden": golden,
        "tolerances": {"preset": "default", "rules": []},
        "test_file": {"path": "a.py", "sha256": None},
    }


def test_every_property_is_required_and_described() -> None:
    test = SCHEMA["$defs"]["test"]
    assert set(test["required"]) == set(test["properties"]) - {
        "item",
        "failure",
        "second_run",
        "models",
    }  # earlier lines lack these, and are read
    undescribed = [
        name for name, one in test["properties"].items() if not ({"description", "const"} & one.keys())
    ]
    assert undescribed == []
    assert all(name in test["properties"]["counts"]["description"] for name in COUNTS)


def test_a_line_is_read_back() -> None:
    assert parse_line(line_of(line())) == line()


def test_values_that_json_lacks_are_text() -> None:
    written = line() | {"reference": {"off": float("nan"), "by": [float("inf")]}}
    assert parse_line(line_of(written))["reference"] == {"off": "nan", "by": ["inf"]}


@pytest.mark.each("name", SCHEMA["$defs"]["test"]["required"])
def test_a_line_without_what_is_required_is_refused(name: str) -> None:
    broken = {key: value for key, value in line().items() if key != name}
    with pytest.raises(ValueError, match=r"version|kind|has no"):
        parse_line(line_of(broken))


@pytest.mark.each("name", ["tensors", "counts", "problems", "isolated", "golden", "record"])
def test_a_value_of_another_type_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' of the line is 'text'"):
        parse_line(line_of(line() | {name: "text"}))


@pytest.mark.each("text", [b"", b"{", b"[]", b'"a"', b"{}", b"[" * 100_000, b'{"kind":"x"}'])
def test_what_is_no_line_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"JSON|kind"):
        parse_line(text)


@pytest.mark.each(
    "name", ["", "/etc/a.yaml", "../a.yaml", "a/../../b.yaml", "a\\b.yaml", "a.txt", "a\0.yaml", 3, None]
)
def test_a_file_outside_of_its_folder_is_refused(name: object) -> None:
    assert not is_inside(name)
    golden = line()["golden"] | {"file": name}
    with pytest.raises(ValueError, match="expected one inside its folder"):
        parse_line(line_of(line() | {"golden": golden}))
