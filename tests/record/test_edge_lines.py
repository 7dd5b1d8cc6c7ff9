"""The lines of a golden's edges are checked whenever it is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.errors import GoldenError
from pytest_npudump.record.rows import RowError
from pytest_npudump.record.text import Golden, check_edge_lines, parse, render

if TYPE_CHECKING:
    from collections.abc import Callable


TEXT = "x <\nconv1 < x:output.0 - ?\nrelu <\n"
KEYS = ("x:output.0", "conv1:output.0", "conv1#turn=1:output.0", "relu:input.0", "relu:output.0")


def test_lines_of_edges_are_good() -> None:
    check_edge_lines(TEXT)
    check_edge_lines("")
    check_edge_lines(TEXT + "more < * a:b:output.1 c:output.0\n")


@pytest.mark.each(
    ("text", "row", "reason"),
    [
        (TEXT + "\n", 3, "is no edge"),
        (TEXT + "conv x:output.0\n", 3, "is no edge"),
        (TEXT + "< x:output.0\n", 3, "is no edge"),
        (TEXT + "conv#turn=1 < x:output.0\n", 3, "is no edge"),
        (TEXT + "conv < x\n", 3, "is no edge"),
        (TEXT + "conv < x:input.0\n", 3, "is no edge"),
        (TEXT + "conv < x#step=1:output.0\n", 3, "is no edge"),
        (TEXT + "conv <  x:output.0\n", 3, "is no edge"),
        (TEXT + "conv < x:output.0 \n", 3, "is no edge"),
        (TEXT + "x < relu:output.0\n", 3, "'x' stands here a second time"),
        (TEXT[:-1], 2, "the file ends within this line"),
        (TEXT[:-6], 2, "is no edge"),
    ],
)
def test_any_other_is_damage(text: str, row: int, reason: str) -> None:
    with pytest.raises(RowError, match=reason) as caught:
        check_edge_lines(text)
    assert caught.value.row == row


def test_a_golden_with_damaged_edges_is_refused_by_its_line(make_table: Callable[..., Any]) -> None:
    table = make_table(*[(key, "float32", (4,), {"count": 4, "max": 1.0}) for key in KEYS])
    path = Path("test_ocr.yaml")
    golden = Golden("t", {}, table, path, blocks={"edges": TEXT})
    text = render(golden)
    assert parse(text, path).blocks == {"edges": TEXT}
    damaged = render(replace(golden, blocks={"edges": TEXT.replace("conv1 <", "conv1 >")}))
    line = damaged.splitlines().index("  conv1 > x:output.0 - ?") + 1
    with pytest.raises(
        GoldenError, match=rf"test_ocr.yaml, line {line}: .* is no edge.*--npudump-update-golden"
    ):
        parse(damaged, path)
