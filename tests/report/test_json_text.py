"""JSON as text."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npudump.report.files import json_text

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(PLAIN)
def test_what_is_written_is_read_again(data: Any) -> None:
    assert json.loads(json_text(data)) == data


def test_an_object_is_in_lines_and_an_item_of_a_list_in_one() -> None:
    data = {"summary": {"failed": 2, "notes": []}, "verdicts": [{"layer": "a", "reasons": ["x"]}, {}]}
    assert json_text(data).splitlines() == [
        "{",
        ' "summary": {',
        '  "failed": 2,',
        '  "notes": []',
        " },",
        ' "verdicts": [',
        '  {"layer": "a", "reasons": ["x"]},',
        "  {}",
        " ]",
        "}",
    ]


def test_numbers_that_json_does_not_know_are_python_s() -> None:
    assert json_text([math.nan, math.inf, -math.inf]).split() == ["[", "NaN,", "Infinity,", "-Infinity", "]"]


def test_what_is_no_plain_data_is_an_error_or_made_plain() -> None:
    with pytest.raises(TypeError, match="PosixPath"):
        json_text({"path": Path("a")})
    assert json_text({"path": Path("a")}, default=str) == '{\n "path": "a"\n}\n'
