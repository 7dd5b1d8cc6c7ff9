"""The charts of a run as SVG: the strip of its tensors, elements of one, the graph around a source.

Colours are those that the colour-blind tell apart, after Okabe and Ito, and one scale from dark to light.

No chart tells anything by colour alone: height, pattern or a word says the same.
"""

from __future__ import annotations

import base64
import re
import struct
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from math import log1p
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.compare.tensors.picture import HIGHEST as MOST, LOWEST as LEAST, NO_NUMBER, Picture
from pytest_npudump.language import mark
from pytest_npudump.language.text import width as wide
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.report.files import write_files
from pytest_npudump.report.verdicts import number, plain
from pytest_npudump.report.view import (
    CHANGED,
    HIGHEST,
    IDENTICAL,
    LOWEST,
    OUTSIDE,
    SOURCE,
    STATES,
    UNJUDGED,
    UNPAIRED,
    Column,
    Neighbourhood,
    SessionView,
    TensorView,
    ViewedOperator,
    strip_columns,
)

if TYPE_CHECKING:
    from pytest_npudump.report.layer_names import LayerNames


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
    SOURCE: mark("source: mismatch, not traced to another mismatch"),
    OUTSIDE: mark("out of tolerance"),
    UNPAIRED: mark("only in the golden, or only in the run"),
    CHANGED: mark("changed, within its tolerance"),
    UNJUDGED: mark("not compared"),
    IDENTICAL: mark("identical as printed"),
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


WIDTH, HEIGHT = 960, 148
_LEFT, _TOP, _BOTTOM = 58, 16, 18
_GROUND = HEIGHT - _BOTTOM
_LEAST = 4.0
"""Height of a bar of which nothing differs."""
_LINES = ((6, "≥ 10⁶"), (3, "10³"), (0, mark("tolerance")), (-3, "≤ 10⁻³"))


def strip_svg(tensors: Sequence[TensorView], label: str) -> str:
    """Return the strip as an ``svg`` element; "" without tensors.

    Each column is a ``rect`` of its own, named by the position of the worst tensor in it (``data-at``).
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


def _scale() -> Iterator[str]:
    for decade, words in _LINES:
        kind = "limit" if decade == 0 else "grid"
        y = _y(decade)
        yield f'<line class="{kind}" x1="{_LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="tick" x="{_LEFT - 6}" y="{y + 3:.1f}">{_(words)}</text>'


def _bars(columns: Sequence[Column], step: float) -> Iterator[str]:
    """Yield the bars, grouped by state so that a style sheet colours few elements."""
    gap = 0.0 if step < 3 else 1.0 if step < 12 else 2.0  # noqa: PLR2004 - pixels
    width = min(step - gap, 28.0)
    for state in reversed(STATES):
        bars = []
        for at, column in enumerate(columns):
            if column.state != state:
                continue
            flat = state in {IDENTICAL, UNJUDGED}
            top = _GROUND - _LEAST if flat else _y(column.height)
            x = _LEFT + at * step
            bars.append(
                f'<rect x="{x:.1f}" y="{top:.1f}" width="{width:.2f}" height="{_GROUND - top:.1f}" '
                f'data-at="{column.at}"/>'
            )
        if bars:
            yield f'<g class="{state}">{"".join(bars)}</g>'


def _flags(columns: Sequence[Column], step: float, tensors: Sequence[TensorView]) -> Iterator[str]:
    """Yield a mark above each source, and the first and the last position below."""
    for at, column in enumerate(columns):
        if column.state == SOURCE:
            x = _LEFT + (at + 0.5) * step if step < 28 else _LEFT + at * step + 14  # noqa: PLR2004 - a bar
            y = _y(column.height) - 3
            yield f'<path class="flag" d="M{x:.1f} {y:.1f}l-5 -9h10z" data-at="{column.at}"/>'
    for x, anchor, words in ((_LEFT, "start", "1"), (WIDTH, "end", f"{len(tensors)}")):
        yield f'<text class="end" x="{x}" y="{HEIGHT - 4}" text-anchor="{anchor}">{words}</text>'


_ACROSS, _DOWN = 320, 132
_ABOVE, _BELOW_FOOT = 6, 18
_FOOT = _DOWN - _BELOW_FOOT


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
    middle = _ACROSS * -LEAST / (MOST - LEAST)
    parts = [
        f'<path class="errors" d="{_outline(picture.errors, highest)}"/>',
        f'<line class="limit" x1="{middle}" x2="{middle}" y1="0" y2="{_FOOT}"/>',
        f'<text class="end" x="{middle}" y="{_DOWN - 4}" text-anchor="middle">{_("tolerance")}</text>',
    ]
    words = _(
        "Elements that differ by error over tolerance, both scales logarithmic; the line is the tolerance"
    )
    return _framed(parts, ("10⁻⁸", "10⁸"), words)


def _outline(counts: Sequence[int], highest: float) -> str:
    step = _ACROSS / len(counts)
    points = [f"M0 {_FOOT}"]
    for place, count in enumerate(counts):
        y = _FOOT - (log1p(count) / highest if highest else 0.0) * (_FOOT - _ABOVE)
        points.append(f"V{y:.1f}H{(place + 1) * step:g}")
    return f"{''.join(points)}V{_FOOT}z"


def _framed(parts: Sequence[str], ends: tuple[str, str], words: str) -> str:
    low, high = (escape(text) for text in ends)
    y = _DOWN - 4
    return (
        f'<svg class="histogram" viewBox="0 0 {_ACROSS} {_DOWN}" role="img" aria-label="{escape(words)}">'
        f'<line class="ground" x1="0" x2="{_ACROSS}" y1="{_FOOT}" y2="{_FOOT}"/>{"".join(parts)}'
        f'<text class="end" x="0" y="{y}">{low}</text>'
        f'<text class="end" x="{_ACROSS}" y="{y}" text-anchor="end">{high}</text></svg>'
    )


_PALETTE = b"".join(bytes(cell_colour(level)) for level in range(256))


def map_png(picture: Picture) -> bytes:
    """Return the map of a picture that has one, as a PNG of as many pixels."""
    width = picture.columns
    rows = (picture.cells[start : start + width] for start in range(0, len(picture.cells), width))
    header = struct.pack(">IIBBBBB", width, picture.rows, 8, 3, 0, 0, 0)  # 8 bits, by palette
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    chunks = ((b"IHDR", header), (b"PLTE", _PALETTE), (b"IDAT", pixels), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def map_uri(picture: Picture) -> str:
    """Return the map as a ``data:`` address; "" where the picture has none."""
    return f"data:image/png;base64,{base64.b64encode(map_png(picture)).decode()}" if picture.cells else ""


def axes_words(picture: Picture, rank: int) -> tuple[str, str]:
    """Name the axes of a tensor of ``rank`` axes that run down the map, and those across."""
    return _axes(range(picture.axes)), _axes(range(picture.axes, rank))


def _axes(axes: range) -> str:
    if not axes:
        return "-"
    return (
        _("axis {axis}").format(axis=axes[0])
        if len(axes) == 1
        else _("axes {first}-{last}").format(first=axes[0], last=axes[-1])
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


_BOX, _TALL, _LINE, _APART, _BELOW = 160, 27, 13, 24, 14
IN_BOX, _STATED = 20, 20
"""Letters of an operator's name, and of its type and state, that a box has room for."""


def graph_svg(around: Neighbourhood, names: LayerNames) -> str:
    """Return the operators around a source; each is named by its worst tensor (``data-at``)."""
    first = min(one.column for one in around.operators)
    width = (max(one.column for one in around.operators) - first + 1) * (_BOX + _APART) - _APART
    abreast = max(one.row for one in around.operators) + 1
    words = [_broken(names.short(plain(one.name))) for one in around.operators]
    tall = _TALL + _LINE * max(map(len, words))
    height = abreast * (tall + _BELOW) - _BELOW
    counts = Counter(one.column for one in around.operators)

    def place(one: ViewedOperator) -> tuple[float, float]:
        spare = (abreast - counts[one.column]) * (tall + _BELOW) / 2
        return (one.column - first) * (_BOX + _APART), one.row * (tall + _BELOW) + spare

    parts = []
    for start, end in around.arrows:
        (x, y), (to, down) = place(around.operators[start]), place(around.operators[end])
        x, y, down = x + _BOX, y + tall / 2, down + tall / 2
        curve = f"M{x:g} {y:g}C{x + 16:g} {y:g} {to - 18:g} {down:g} {to - 4:g} {down:g}"
        parts.append(f'<path class="edge" d="{curve}"/>')
        parts.append(f'<path class="head" d="M{to:g} {down:g}l-6 -3.5v7z"/>')
    parts += (_box(one, *place(one), tall, name) for one, name in zip(around.operators, words, strict=True))
    label = _("Operators around {source}").format(source=plain(around.source))
    return (
        f'<svg class="graph" viewBox="-3 -3 {width + 6} {height + 6}" width="{width + 6}" '
        f'height="{height + 6}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def _broken(name: str) -> list[str]:
    """Return a name in lines that fit a box, broken behind its parts where these are short enough."""
    lines = [""]
    for part in re.findall(rf"[^/._]{{1,{IN_BOX - 1}}}[/._]?|[/._]{{1,{IN_BOX}}}", name):
        if len(lines[-1]) + len(part) > IN_BOX and lines[-1]:
            lines.append("")
        lines[-1] += part
    return lines


def _box(one: ViewedOperator, x: float, y: float, tall: float, lines: Sequence[str]) -> str:
    name, kind = plain(one.name), plain(one.op_type)
    words = " · ".join(filter(None, (_short(kind, _STATED - wide(_(one.state))), _(one.state))))
    return (
        f'<g class="operator {one.state}" data-at="{one.at}" transform="translate({x:g} {y:g})">'
        f"<title>{escape(f'{name} ({kind}): {_(one.state)}')}</title>"
        f'<rect width="{_BOX}" height="{tall}" rx="5"/>'
        + "".join(
            f'<text x="10" y="{17 + _LINE * at}">{escape(line)}</text>' for at, line in enumerate(lines)
        )
        + f'<text class="type" x="10" y="{tall - 8}">{escape(words)}</text></g>'
    )


def _short(text: str, letters: int) -> str:
    half = (letters - 1) // 2
    return text if len(text) <= letters else f"{text[:half]}…{text[-half:]}"


_LETTERS = 110
"""Of a title."""
_HEAD, _LINE, _ABREAST = 46, 20, 3
_WIDE = (WIDTH - (_ABREAST - 1) * _APART) // _ABREAST
_HIGH = _WIDE * _DOWN // _ACROSS


def write_figures(
    folder: Path, title: str, tensors: Sequence[TensorView], pictures: Mapping[int, Picture]
) -> list[Path]:
    """Write ``run.svg`` and a ``tensor-N.svg`` for each picture, and return their paths.

    Raises:
        NpudumpError: they cannot be written.
    """
    texts = {"run": run_svg(tensors, title)}
    for file, (at, picture) in enumerate(pictures.items(), 1):
        tensor = tensors[at]
        texts[f"tensor-{file}"] = elements_svg(picture, str(tensor.key), tensor.shape.count("x") + 1)
    failure = _("{folder}: the pictures cannot be written: {error}")
    return write_files(
        {folder / f"{name}.svg": text.encode() for name, text in texts.items()},
        lambda error: failure.format(folder=folder, error=error),
    )


def write(view: SessionView, folder: Path, name: str = "", /) -> list[Path]:
    """Write the pictures of each test whose tensors were compared, as a ``Writer`` of the table of media.

    Raises:
        NpudumpError: they cannot be written.
    """
    written = []
    for test in view.tests:
        drawn = {one.key: one.picture for one in test.elements if one.picture is not None}
        at = {str(tensor.key): place for place, tensor in enumerate(test.tensors)}
        pictures = {at[key]: picture for key, picture in drawn.items() if key in at}
        if test.tensors:
            written += write_figures(folder / name / test.file_name, test.name, test.tensors, pictures)
    return written


def run_svg(tensors: Sequence[TensorView], title: str) -> str:
    """Return the tensors of a run by error against tolerance, with what the colours mean."""
    parts = [_placed(strip_svg(tensors, title), 0, _HEAD, WIDTH, HEIGHT)]
    counts = {state: sum(one.state == state for one in tensors) for state in STATES}
    shown = [state for state in STATES if counts[state]]
    for at, state in enumerate(shown):
        x, y = at % _ABREAST * (_WIDE + _APART), _HEAD + HEIGHT + (at // _ABREAST + 1) * _LINE
        parts.append(f'<rect x="{x}" y="{y - 10}" width="10" height="10" fill="{COLOURS[state]}"/>')
        parts.append(_text(x + 16, y, f"{counts[state]} {_(WORDS[state]).partition(':')[0]}"))
    rows = -(-len(shown) // _ABREAST)
    return _file(parts, title, _HEAD + HEIGHT + (rows + 1) * _LINE)


def elements_svg(picture: Picture, title: str, rank: int) -> str:
    """Return the values of two tensors of ``rank`` axes, their errors, and where these are."""
    across, down = (_WIDE + _APART, 2 * (_WIDE + _APART)), _HEAD + _LINE + _HIGH
    parts = [
        _text(0, _HEAD + 12, _("values: the golden's as an area, the run's as a line")),
        _placed(values_svg(picture), 0, _HEAD + _LINE, _WIDE, _HIGH),
        _text(across[0], _HEAD + 12, _("errors by tolerance")),
        _placed(errors_svg(picture), across[0], _HEAD + _LINE, _WIDE, _HIGH),
    ]
    if uri := map_uri(picture):
        rows, columns = axes_words(picture, rank)
        words = _("where the errors are: {rows} down, {columns} across").format(rows=rows, columns=columns)
        place = f'x="{across[1]}" y="{_HEAD + _LINE}" width="{_WIDE}" height="{_HIGH}"'
        stretched = 'preserveAspectRatio="none" style="image-rendering: pixelated"'
        parts += [
            _text(across[1], _HEAD + 12, words),
            f'<image {place} {stretched} href="{uri}"/>',
            _text(across[1], down + 14, _("bright is large, grey is equal, red is NaN or Inf")),
        ]
    return _file(parts, title, down + _LINE)


def _placed(svg: str, x: int, y: int, width: int, height: int) -> str:
    """Return a chart as a part of another one."""
    return svg.replace("<svg ", f'<svg x="{x}" y="{y}" width="{width}" height="{height}" ', 1)


def _text(x: int, y: int, words: str, kind: str = "words") -> str:
    return f'<text class="{kind}" x="{x}" y="{y}">{escape(plain(words))}</text>'


def _file(parts: Sequence[str], title: str, height: int) -> str:
    width = WIDTH + 24
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="npudump" width="{width}" height="{height}" '
        f'viewBox="-12 0 {width} {height}">\n<style>{STYLE}</style>\n'
        f'<rect x="-12" width="{width}" height="{height}" fill="#fff"/>\n'
        + "\n".join([_text(0, 26, _short(title, _LETTERS + 1), "title"), *parts])
        + "\n</svg>\n"
    )
