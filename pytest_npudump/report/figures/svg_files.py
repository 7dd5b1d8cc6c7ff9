"""The charts of a comparison as SVG files of their own, for papers, tickets and slides."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from pytest_npudump.errors import NpudumpError
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.report.figures import histogram, strip
from pytest_npudump.report.figures.colours import COLOURS, STYLE, WORDS
from pytest_npudump.report.figures.error_map import axes_words, map_uri
from pytest_npudump.report.verdicts import plain
from pytest_npudump.report.view import STATES
from pytest_npudump.storage.atomic import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_npudump.compare.tensors.picture import Picture
    from pytest_npudump.report.view import TensorView

_LETTERS = 110
"""Of a title."""
_HEAD, _LINE, _ABREAST = 46, 20, 3
_APART = 24
_WIDE = (strip.WIDTH - (_ABREAST - 1) * _APART) // _ABREAST
_TALL = _WIDE * histogram.HEIGHT // histogram.WIDTH


def write_figures(
    folder: Path, title: str, tensors: Sequence[TensorView], pictures: Mapping[int, Picture]
) -> list[Path]:
    """Write ``run.svg`` and a ``tensor-N.svg`` for each picture, and return their paths.

    Args:
        folder: made if missing.
        title: of the run.
        tensors: all of it, in order of execution.
        pictures: what can be drawn of some of them, by position.

    Raises:
        NpudumpError: they cannot be written.
    """
    texts = {"run": run_svg(tensors, title)}
    for number, (at, picture) in enumerate(pictures.items(), 1):
        tensor = tensors[at]
        texts[f"tensor-{number}"] = elements_svg(picture, str(tensor.key), tensor.shape.count("x") + 1)
    paths = {folder / f"{name}.svg": text for name, text in texts.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in paths.items():
            write_whole(path, [text.encode()])
    except OSError as error:
        raise NpudumpError(
            _("{folder}: the pictures cannot be written: {error}").format(
                folder=folder, error=error.strerror or error
            )
        ) from error
    return [*paths]


def run_svg(tensors: Sequence[TensorView], title: str) -> str:
    """Return the tensors of a run by error against tolerance, with what the colours mean."""
    parts = [_placed(strip.strip_svg(tensors, title), 0, _HEAD, strip.WIDTH, strip.HEIGHT)]
    counts = {state: sum(one.state == state for one in tensors) for state in STATES}
    shown = [state for state in STATES if counts[state]]
    for number, state in enumerate(shown):
        x, y = number % _ABREAST * (_WIDE + _APART), _HEAD + strip.HEIGHT + (number // _ABREAST + 1) * _LINE
        parts.append(f'<rect x="{x}" y="{y - 10}" width="10" height="10" fill="{COLOURS[state]}"/>')
        parts.append(_text(x + 16, y, f"{counts[state]} {_(WORDS[state]).partition(':')[0]}"))
    rows = -(-len(shown) // _ABREAST)
    return _framed(parts, title, _HEAD + strip.HEIGHT + (rows + 1) * _LINE)


def elements_svg(picture: Picture, title: str, rank: int) -> str:
    """Return the values of two tensors of ``rank`` axes, their errors, and where these are."""
    across, down = (_WIDE + _APART, 2 * (_WIDE + _APART)), _HEAD + _LINE + _TALL
    parts = [
        _text(0, _HEAD + 12, _("values: the golden's as an area, the run's as a line")),
        _placed(histogram.values_svg(picture), 0, _HEAD + _LINE, _WIDE, _TALL),
        _text(across[0], _HEAD + 12, _("errors by tolerance")),
        _placed(histogram.errors_svg(picture), across[0], _HEAD + _LINE, _WIDE, _TALL),
    ]
    if uri := map_uri(picture):
        rows, columns = axes_words(picture, rank)
        words = _("where the errors are: {rows} down, {columns} across").format(rows=rows, columns=columns)
        place = f'x="{across[1]}" y="{_HEAD + _LINE}" width="{_WIDE}" height="{_TALL}"'
        stretched = 'preserveAspectRatio="none" style="image-rendering: pixelated"'
        parts += [
            _text(across[1], _HEAD + 12, words),
            f'<image {place} {stretched} href="{uri}"/>',
            _text(across[1], down + 14, _("bright is large, grey is equal, red is NaN or Inf")),
        ]
    return _framed(parts, title, down + _LINE)


def _placed(svg: str, x: int, y: int, width: int, height: int) -> str:
    """Return a chart as a part of another one."""
    return svg.replace("<svg ", f'<svg x="{x}" y="{y}" width="{width}" height="{height}" ', 1)


def _text(x: int, y: int, words: str, kind: str = "words") -> str:
    return f'<text class="{kind}" x="{x}" y="{y}">{escape(plain(words))}</text>'


def _framed(parts: Sequence[str], title: str, height: int) -> str:
    width, half = strip.WIDTH + 24, _LETTERS // 2
    title = title if len(title) <= _LETTERS else f"{title[:half]}…{title[-half:]}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="npudump" width="{width}" height="{height}" '
        f'viewBox="-12 0 {width} {height}">\n<style>{STYLE}</style>\n'
        f'<rect x="-12" width="{width}" height="{height}" fill="#fff"/>\n'
        + "\n".join([_text(0, 26, title, "title"), *parts])
        + "\n</svg>\n"
    )
