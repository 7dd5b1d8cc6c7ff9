"""The HTML that results in a notebook are made of."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from pytest_npudump.report.figures.colours import STYLE
from pytest_npudump.report.verdicts import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def framed(parts: Iterable[str]) -> str:
    """Return parts as one element with what their charts are drawn by."""
    style = f".npudump svg {{ max-width: 960px; width: 100%; }}\n{STYLE}"
    return f'<div class="npudump"><style>{style}</style>{"".join(parts)}</div>'


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows as a table; what cells hold stays text."""
    heads = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{cells(row)}</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def cells(row: Sequence[str]) -> str:
    """Return the cells of a row."""
    return "".join(f"<td>{escape(plain(cell))}</td>" for cell in row)
