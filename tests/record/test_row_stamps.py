"""Stamps at the ends of lines: read back as written, told by line where they are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_npudump.errors import GoldenError
from pytest_npudump.record.text import parse, render

PATH = Path("golden/test_a.yaml")
HEAD = (
    "npudump-golden: 1\ntest: test_a.py::test_a\nproducer: {runtime: acl}\n"
    "columns: tensor dtype shape max min avg l2norm nan -inf +inf\ntensors: |\n"
)
ROW = "  {}:output.0 float32 2 1 1 1 - 0 0 0{}\n"


def text(**ends: str) -> str:
    return HEAD + "".join(ROW.format(layer, end) for layer, end in ends.items())


@pytest.mark.each("stamp", ["2026-11-23", "2026-11-23 1f3a5c7e9b2d"])
def test_a_stamp_is_of_its_tensor_and_written_as_it_was(stamp: str) -> None:
    golden = parse(text(conv="", relu=f" # {stamp}", fc=""), PATH)
    assert golden.changed == {"relu:output.0": stamp}
    assert len(golden.table) == 3
    assert render(golden) == text(conv="", relu=f" # {stamp}", fc="")


def test_a_qualified_key_is_no_stamp() -> None:
    line = "  conv#step=1:output.0 float32 2 1 1 1 - 0 0 0 # 2026-11-23\n"
    golden = parse(HEAD + line, PATH)
    assert golden.changed == {"conv#step=1:output.0": "2026-11-23"}
    assert render(golden) == HEAD + line


@pytest.mark.each("end", [" # looks better", " # ", " # 2026-11-23 main", " # 2026-11-23  1f3a5c7e"])
def test_what_is_no_stamp_is_told_with_its_line(end: str) -> None:
    with pytest.raises(GoldenError, match=r"line 7: .* is no day and commit"):
        parse(text(conv="", relu=end), PATH)
