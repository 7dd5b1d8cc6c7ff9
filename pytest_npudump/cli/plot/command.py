"""``npudump plot``: a comparison drawn with matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.cli.common.executors import open_workers
from pytest_npudump.cli.common.options import chosen_tolerances
from pytest_npudump.cli.common.output import emit
from pytest_npudump.cli.common.source import report_problems
from pytest_npudump.cli.compare.engine import compare_sides, terms_of
from pytest_npudump.cli.compare.sides import read_dump_side, read_golden_side
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.report.plots import check_matplotlib, elements_figure, save, strip_figure
from pytest_npudump.report.verdicts import shown
from pytest_npudump.report.view.tensor_views import tensor_views

if TYPE_CHECKING:
    import argparse

DRAWN = 6
"""Failing tensors that are drawn."""


def run(arguments: argparse.Namespace) -> int:
    """Compare, draw, say where, and return 0 or 2."""
    check_matplotlib()
    tolerances = chosen_tolerances(arguments)
    with open_workers(arguments.executor) as workers:
        golden = read_golden_side(arguments.golden, workers, latest=arguments.latest)
        actual = read_dump_side(arguments.actual, workers, latest=arguments.latest)
        terms = terms_of(golden, tolerances, arguments.layout)
        result = compare_sides(golden, actual, terms, workers, drawn=DRAWN)
    comparison = result.comparison
    first = [comparison.first.key] if comparison.first is not None else []
    tensors = tensor_views(comparison, comparison.tolerances, first)
    title = _("{golden} against {actual}").format(
        golden=shown(arguments.golden), actual=shown(arguments.actual)
    )
    written = save(strip_figure(tensors, title), arguments.output / "run")
    for number, (at, picture) in enumerate(result.pictures.items(), 1):
        figure = elements_figure(picture, str(tensors[at].key))
        written += save(figure, arguments.output / f"tensor-{number}")
    emit(_("picture: {path}").format(path=shown(path.absolute())) for path in written)
    report_problems(result.problems)
    return 2 if result.problems else 0
