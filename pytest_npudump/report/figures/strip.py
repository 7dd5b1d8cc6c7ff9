"""A run at a glance: its tensors in order of execution, by error against tolerance, as SVG."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import mark
from pytest_npudump.report.view import HIGHEST, IDENTICAL, LOWEST, SOURCE, STATES, UNJUDGED, strip_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.report.view import Column, TensorView

WIDTH, HEIGHT = 960, 148
_LEFT, _TOP, _BOTTOM = 58, 16, 18
_GROUND = HEIGHT - _BOTTOM
_LEAST = 4.0
"""Height of a bar of which nothing differs."""
_LINES = ((6, "≥ 10⁶"), (3, "10³"), (0, mark("tolerance")), (-3, "≤ 10⁻³"))


def strip_svg(tensors: Sequence[TensorView], label: str) -> str:
    """Return the strip as an ``svg`` element; "" without tensors.

    Each column is a ``rect`` of its own, named by the position of the worst tensor in it (``data-at``).

    Args:
        tensors: in order of execution.
        label: what a screen reader says of it.
    """
    columns = strip_columns(tensors)
    if not columns:
        return ""
    step = (WIDTH - _LEFT) / len(columns)
    parts = [*_scale(), *_bars(columns, step), *_flags(columns, step, tensors)]
    return (
        f'<svg class="strip" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}" '
        f'preserveAspectRatio="none">{"".join(parts)}</svg>'
    )


def _y(height: float) -> float:
    return _TOP + (HIGHEST - height) / (HIGHEST - LOWEST) * (_GROUND - _TOP - _LEAST)


def _scale() -> list[str]:
    parts = []
    for decade, words in _LINES:
        kind = "limit" if decade == 0 else "grid"
        y = _y(decade)
        parts.append(f'<line class="{kind}" x1="{_LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 6}" y="{y + 3:.1f}">{_(words)}</text>')
    return parts


def _bars(columns: Sequence[Column], step: float) -> list[str]:
    """Return the bars, grouped by state so that a style sheet colours few elements."""
    gap = 0.0 if step < 3 else 1.0 if step < 12 else 2.0  # noqa: PLR2004 - pixels
    width = min(step - gap, 28.0)
    parts = []
    for state in reversed(STATES):
        bars = []
        for number, column in enumerate(columns):
            if column.state != state:
                continue
            flat = state in {IDENTICAL, UNJUDGED}
            top = _GROUND - _LEAST if flat else _y(column.height)
            x = _LEFT + number * step
            bars.append(
                f'<rect x="{x:.1f}" y="{top:.1f}" width="{width:.2f}" height="{_GROUND - top:.1f}" '
                f'data-at="{column.at}"/>'
            )
        if bars:
            parts.append(f'<g class="{state}">{"".join(bars)}</g>')
    return parts


def _flags(columns: Sequence[Column], step: float, tensors: Sequence[TensorView]) -> list[str]:
    """Return a mark above each source, and the first and the last position below."""
    parts = []
    for number, column in enumerate(columns):
        if column.state == SOURCE:
            x = _LEFT + (number + 0.5) * step if step < 28 else _LEFT + number * step + 14  # noqa: PLR2004 - a bar
            y = _y(column.height) - 3
            parts.append(f'<path class="flag" d="M{x:.1f} {y:.1f}l-5 -9h10z" data-at="{column.at}"/>')
    ends = ((_LEFT, "start", "1"), (WIDTH, "end", f"{len(tensors)}"))
    for x, anchor, words in ends:
        parts.append(f'<text class="end" x="{x}" y="{HEIGHT - 4}" text-anchor="{anchor}">{words}</text>')
    return parts
