"""The graph around a source, as SVG: what feeds it on the left, what it spreads to on the right."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from pytest_npudump.language.translation import gettext as _
from pytest_npudump.report.verdicts import plain

if TYPE_CHECKING:
    from pytest_npudump.report.view import Neighbourhood, Operator

_BOX, _TALL, _APART, _BELOW = 160, 40, 24, 14
_NAME, _TYPE = 20, 15
"""Letters of an operator's name and type that a box has room for."""


def graph_svg(around: Neighbourhood) -> str:
    """Return the operators around a source; each is named by its worst tensor (``data-at``)."""
    first = min(one.column for one in around.operators)
    width = (max(one.column for one in around.operators) - first + 1) * (_BOX + _APART) - _APART
    abreast = max(one.row for one in around.operators) + 1
    height = abreast * (_TALL + _BELOW) - _BELOW
    counts = {one.column: 0 for one in around.operators}
    for one in around.operators:
        counts[one.column] += 1

    def place(one: Operator) -> tuple[float, float]:
        spare = (abreast - counts[one.column]) * (_TALL + _BELOW) / 2
        return (one.column - first) * (_BOX + _APART), one.row * (_TALL + _BELOW) + spare

    parts = []
    for start, end in around.arrows:
        (x, y), (to, down) = place(around.operators[start]), place(around.operators[end])
        x, y, down = x + _BOX, y + _TALL / 2, down + _TALL / 2
        curve = f"M{x:g} {y:g}C{x + 16:g} {y:g} {to - 18:g} {down:g} {to - 4:g} {down:g}"
        parts.append(f'<path class="edge" d="{curve}"/>')
        parts.append(f'<path class="head" d="M{to:g} {down:g}l-6 -3.5v7z"/>')
    parts += (_box(one, *place(one)) for one in around.operators)
    label = _("Operators around {source}").format(source=plain(around.source))
    return (
        f'<svg class="graph" viewBox="-3 -3 {width + 6} {height + 6}" width="{width + 6}" '
        f'height="{height + 6}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def _box(one: Operator, x: float, y: float) -> str:
    name, kind = plain(one.name), plain(one.op_type)
    words = " · ".join(filter(None, (_short(kind, _TYPE), _(one.state))))
    return (
        f'<g class="operator {one.state}" data-at="{one.at}" transform="translate({x:g} {y:g})">'
        f"<title>{escape(f'{name} ({kind}): {_(one.state)}')}</title>"
        f'<rect width="{_BOX}" height="{_TALL}" rx="5"/>'
        f'<text x="10" y="17">{escape(_short(name, _NAME))}</text>'
        f'<text class="type" x="10" y="32">{escape(words)}</text></g>'
    )


def _short(text: str, letters: int) -> str:
    half = (letters - 1) // 2
    return text if len(text) <= letters else f"{text[:half]}…{text[-half:]}"
