"""What a page reads of the report beside a dump, and what it refuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pytest_npudump.compare.tensors.picture import draw
from pytest_npudump.report.view import picture_from, read_elements

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def picture() -> dict[str, Any]:
    golden = np.arange(12.0).reshape(3, 4)
    found = draw(golden, golden + 1, rtol=0, atol=0.5)
    assert found is not None
    return json.loads(json.dumps(found.to_json()))  # type: ignore[no-any-return]


def report(folder: Path, **finding: Any) -> Path:
    usual = {"key": "a:output.0", "reproduced": True, "elements": None, "pattern": None, "note": None}
    data = {"test": "t", "escalation": {"problem": None, "findings": [{**usual, "path": None, **finding}]}}
    path = folder / "report.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_a_picture_survives_the_file(tmp_path: Path, picture: dict[str, Any]) -> None:
    found, problem = read_elements(report(tmp_path, picture=picture), "t")
    assert problem == ""
    assert found[0].picture is not None
    assert json.loads(json.dumps(found[0].picture.to_json())) == picture


def test_a_report_without_pictures_is_read_as_well(tmp_path: Path) -> None:
    (found,), _ = read_elements(report(tmp_path), "t")
    assert found.picture is None


def test_a_report_of_another_test_is_refused(tmp_path: Path) -> None:
    found, problem = read_elements(report(tmp_path), "other")
    assert found == ()
    assert "is of another test" in problem


@pytest.mark.parametrize("text", ["", "[]", "{", '{"test": "t", "escalation": {"findings": [{}]}}'])
def test_a_damaged_report_is_told_and_is_no_fault(tmp_path: Path, text: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(text, encoding="utf-8")
    found, problem = read_elements(path, "t")
    assert found == ()
    assert str(path) in problem


@pytest.mark.parametrize(
    "damage",
    [
        {"cells": "AA=="},
        {"cells": "?"},
        {"rows": 2**40},
        {"errors": [1]},
        {"golden": ["x"] * 64},
        {"rows": -1},
    ],
)
def test_a_picture_that_is_none_is_refused(picture: dict[str, Any], damage: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        picture_from(picture | damage)
