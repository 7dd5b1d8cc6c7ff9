"""Histograms of a tensor's values and errors, as SVG."""

from __future__ import annotations

from html import escape
from math import log1p
from typing import TYPE_CHECKING

from pytest_npudump.compare.tensors.picture import HIGHEST, LOWEST
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.report.verdicts import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.compare.tensors.picture import Picture

WIDTH, HEIGHT = 320, 132
_TOP, _BOTTOM = 6, 18
_GROUND = HEIGHT - _BOTTOM


def values_svg(picture: Picture) -> str:
    """Return the values of both tensors, the golden's as an area and the run's as a line."""
    highest = log1p(max((*picture.golden, *picture.actual)))
    parts = []
    if picture.golden:
        parts.append(f'<path class="area" d="{_outline(picture.golden, highest)}"/>')
    parts.append(f'<path class="line" d="{_outline(picture.actual, highest)}"/>')
    ends = number(picture.low), number(picture.high)
    words = _("Elements by value, from {low} to {high}, on a logarithmic scale of numbers").format(
        low=ends[0], high=ends[1]
    )
    return _framed(parts, ends, words)


def errors_svg(picture: Picture) -> str:
    """Return the elements that differ by the size of their error, the tolerance marked; "" without any."""
    if not picture.errors:
        return ""
    highest = log1p(max(picture.errors))
    middle = WIDTH * -LOWEST / (HIGHEST - LOWEST)
    parts = [
        f'<path class="errors" d="{_outline(picture.errors, highest)}"/>',
        f'<line class="limit" x1="{middle}" x2="{middle}" y1="0" y2="{_GROUND}"/>',
        f'<text class="end" x="{middle}" y="{HEIGHT - 4}" text-anchor="middle">{_("tolerance")}</text>',
    ]
    words = _(
        "Elements that differ by error over tolerance, both scales logarithmic; the line is the tolerance"
    )
    return _framed(parts, ("10⁻⁸", "10⁸"), words)


def _outline(counts: Sequence[int], highest: float) -> str:
    step = WIDTH / len(counts)
    points = [f"M0 {_GROUND}"]
    for place, count in enumerate(counts):
        y = _GROUND - (log1p(count) / highest if highest else 0.0) * (_GROUND - _TOP)
        points.append(f"V{y:.1f}H{(place + 1) * step:g}")
    return f"{''.join(points)}V{_GROUND}z"


def _framed(parts: Sequence[str], ends: tuple[str, str], words: str) -> str:
    low, high = (escape(text) for text in ends)
    y = HEIGHT - 4
    return (
        f'<svg class="histogram" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(words)}">'
        f'<line class="ground" x1="0" x2="{WIDTH}" y1="{_GROUND}" y2="{_GROUND}"/>{"".join(parts)}'
        f'<text class="end" x="0" y="{y}">{low}</text>'
        f'<text class="end" x="{WIDTH}" y="{y}" text-anchor="end">{high}</text></svg>'
    )
