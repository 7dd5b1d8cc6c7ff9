"""The charts of a page as matplotlib figures, and these as PNG and SVG."""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.tensors.picture import HIGHEST as MOST
from pytest_npudump.compare.tensors.picture import LOWEST as LEAST
from pytest_npudump.errors import MissingExtraError, NpudumpError
from pytest_npudump.report.figures.colours import COLOURS, WORDS, cell_colour
from pytest_npudump.report.verdicts import plain
from pytest_npudump.report.view.strip_columns import strip_columns
from pytest_npudump.report.view.tensor_views import HIGHEST, IDENTICAL, LOWEST, SOURCE, STATES, UNJUDGED

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_npudump.compare.tensors.picture import Picture
    from pytest_npudump.report.view.tensor_views import TensorView

_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "npudump",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8a8f98",
    "axes.titlesize": 9,
}
_LETTERS = 90
"""Of a title."""
_FLAT = 0.12
"""Height of a bar of which nothing differs, in decades."""


def check_matplotlib() -> None:
    """Raise MissingExtraError where matplotlib is not installed."""
    _matplotlib()


def strip_figure(tensors: Sequence[TensorView], title: str) -> Any:
    """Return a figure of the tensors of a run in order of execution, by error against tolerance.

    Args:
        tensors: in that order.
        title: of the figure.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure, [axes] = _figure((10, 3), 1)
    columns = strip_columns(tensors)
    for state in STATES:
        chosen = [column for column in columns if column.state == state]
        flat = state in {IDENTICAL, UNJUDGED}
        heights = [_FLAT if flat else max(column.height - LOWEST, _FLAT) for column in chosen]
        label = f"{sum(one.state == state for one in tensors)} {WORDS[state].partition(':')[0]}"
        if not chosen:
            continue
        places = [column.at + 1 for column in chosen]
        width = [max(0.8, column.last - column.first + 0.8) for column in chosen]
        axes.bar(places, heights, width, bottom=LOWEST, color=COLOURS[state], label=label)
        if state == SOURCE:
            axes.plot(places, [LOWEST + height + 0.4 for height in heights], "v", color=COLOURS[state])
    axes.axhline(0, color="#5b6270", linestyle="--", linewidth=1)
    axes.set_ylim(LOWEST, HIGHEST + 0.6)
    axes.set_xlim(0.4, max(len(tensors), 1) + 0.6)
    axes.set_yticks([LOWEST, 0, 3, HIGHEST], ["≤ 0.001", "tolerance", "1000", "≥ 1000000"])
    axes.set_xlabel("tensors in order of execution")
    axes.set_title(_title(title), loc="left", parse_math=False)
    if columns:
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.2), ncols=len(STATES), frameon=False)
    return figure


def elements_figure(picture: Picture, title: str) -> Any:
    """Return a figure of two tensors: their values, their errors, and where these are.

    Args:
        picture: of both.
        title: of the figure.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure, (values, errors, places) = _figure((10, 3.2), 3)
    edges = np.linspace(picture.low, picture.high, len(picture.actual) + 1)
    values.stairs(picture.golden, edges, fill=True, color=COLOURS[IDENTICAL], alpha=0.4, label="golden")
    values.stairs(picture.actual, edges, color="#d55e00", linewidth=1.4, label="this run")
    values.set_yscale("symlog")
    values.set_title("values", loc="left")
    values.legend(frameon=False)
    bins = np.linspace(LEAST, MOST, len(picture.errors) + 1)
    errors.stairs(picture.errors, bins, fill=True, color="#d55e00", alpha=0.75)
    errors.axvline(0, color="#5b6270", linestyle="--", linewidth=1)
    errors.set_yscale("symlog")
    errors.set_title("errors by tolerance, decades", loc="left")
    palette = np.array([cell_colour(level) for level in range(256)], np.uint8)
    cells = np.frombuffer(picture.cells, np.uint8).reshape(picture.rows, picture.columns)
    places.imshow(palette[cells], aspect="auto", interpolation="nearest")
    places.set_xticks([])
    places.set_yticks([])
    places.set_xlabel("bright is large, grey is equal, red is NaN or Inf")
    places.set_title("where the errors are", loc="left")
    figure.suptitle(_title(title), x=0.01, ha="left", fontsize=10, parse_math=False)
    return figure


def save(figure: Any, stem: Path) -> list[Path]:
    """Write a figure as ``stem.png`` and ``stem.svg``, and return both; the same figure gives the same files.

    Raises:
        NpudumpError: they cannot be written.
    """
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        with _matplotlib().rc_context(_STYLE), warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "Glyph", UserWarning
            )  # a name in a script that no font here has
            for path in paths:
                metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
                figure.savefig(path, dpi=150, metadata=metadata)
    except OSError as error:
        raise NpudumpError(f"{stem}.png and .svg cannot be written: {error.strerror or error}") from error
    return paths


def _title(text: str) -> str:
    shown = plain(text)
    half = _LETTERS // 2
    return shown if len(shown) <= _LETTERS else f"{shown[:half]}…{shown[-half:]}"


def _figure(size: tuple[float, float], columns: int) -> tuple[Any, Any]:
    matplotlib = _matplotlib()
    with matplotlib.rc_context(_STYLE):
        figure = importlib.import_module("matplotlib.figure").Figure(figsize=size, layout="constrained")
        return figure, figure.subplots(1, columns, squeeze=False)[0]


def _matplotlib() -> Any:
    try:
        return importlib.import_module("matplotlib")
    except ImportError as error:
        raise MissingExtraError("npudump plot", "matplotlib", "plot") from error
