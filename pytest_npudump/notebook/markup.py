"""The HTML that results in a notebook are made of."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from pytest_npudump.report.figures.colours import COLOURS
from pytest_npudump.report.verdicts import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_STYLE = "\n".join(
    [
        *(f".npudump .{state} {{ fill: {colour}; }}" for state, colour in COLOURS.items()),
        ".npudump svg { max-width: 960px; width: 100%; } .npudump svg text { font: 11px sans-serif; }",
        ".npudump svg text, .npudump .flag { fill: currentColor; } .npudump .tick { text-anchor: end; }",
        ".npudump .grid { stroke: #8a8f98; opacity: .3; }",
        ".npudump .limit { stroke: currentColor; stroke-dasharray: 4 3; }",
    ]
)


def framed(parts: Iterable[str]) -> str:
    """Return parts as one element with what their charts are drawn by."""
    return f'<div class="npudump"><style>{_STYLE}</style>{"".join(parts)}</div>'


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows as a table; what cells hold stays text."""
    heads = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{cells(row)}</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def cells(row: Sequence[str]) -> str:
    """Return the cells of a row."""
    return "".join(f"<td>{escape(plain(cell))}</td>" for cell in row)
