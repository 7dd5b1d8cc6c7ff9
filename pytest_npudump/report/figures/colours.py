"""Colours that the colour-blind tell apart, after Okabe and Ito, and one scale from dark to light.

No chart tells anything by colour alone: height, pattern or a word says the same.
"""

from __future__ import annotations

from itertools import pairwise

from pytest_npudump.compare.tensors.picture import NO_NUMBER
from pytest_npudump.language.translation import mark
from pytest_npudump.report.view import CHANGED, IDENTICAL, OUTSIDE, SOURCE, UNJUDGED, UNPAIRED

COLOURS = {
    SOURCE: "#b3261e",
    OUTSIDE: "#d55e00",
    UNPAIRED: "#9a4d8e",
    CHANGED: "#e0a200",
    UNJUDGED: "#8a8f98",
    IDENTICAL: "#0072b2",
}
"""By state of a tensor, for media without a style sheet."""

WORDS = {
    SOURCE: mark("source: outside its tolerance, and traced back to no other that is"),
    OUTSIDE: mark("outside its tolerance"),
    UNPAIRED: mark("only in the golden, or only in the run"),
    CHANGED: mark("changed, within its tolerance"),
    UNJUDGED: mark("not judged"),
    IDENTICAL: mark("identical, digit for digit"),
}

STYLE = "\n".join(
    [
        *(f".npudump .{state} {{ fill: {colour}; }}" for state, colour in COLOURS.items()),
        ".npudump text { font: 11px sans-serif; fill: currentColor; } .npudump .tick { text-anchor: end; }",
        ".npudump .title { font-size: 14px; } .npudump .flag { fill: currentColor; }",
        ".npudump .grid, .npudump .ground { stroke: #8a8f98; opacity: .3; }",
        ".npudump .limit { stroke: currentColor; stroke-dasharray: 4 3; }",
        f".npudump .area {{ fill: {COLOURS[IDENTICAL]}; opacity: .38; }}",
        f".npudump .line {{ fill: none; stroke: {COLOURS[OUTSIDE]}; stroke-width: 1.6; }}",
        f".npudump .errors {{ fill: {COLOURS[OUTSIDE]}; opacity: .75; }}",
    ]
)
"""Of charts inside of an element of the class ``npudump``, for media without a style sheet of their own."""

_STOPS = (
    (0.0, (33, 37, 84)),
    (0.25, (49, 89, 140)),
    (0.5, (38, 139, 141)),
    (0.75, (122, 191, 92)),
    (1.0, (250, 229, 70)),
)
SAME = (226, 228, 233)
"""Of a cell in which nothing differs."""
NOT_A_NUMBER = (179, 38, 30)


def cell_colour(level: int) -> tuple[int, int, int]:
    """Return the colour of a cell of :class:`~pytest_npudump.compare.tensors.picture.Picture`, as RGB."""
    if level in {0, NO_NUMBER}:
        return NOT_A_NUMBER if level else SAME
    place = (level - 1) / (NO_NUMBER - 2)
    for (start, one), (end, other) in pairwise(_STOPS):
        if place <= end:
            part = (place - start) / (end - start)
            red, green, blue = (round(a + part * (b - a)) for a, b in zip(one, other, strict=True))
            return red, green, blue
    return _STOPS[-1][1]
