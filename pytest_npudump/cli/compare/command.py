"""``npudump compare``: two dumps, or a golden file and a dump, judged as the plugin judges them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.executors import open_workers
from pytest_npudump.cli.common.options import chosen_tolerances, for_told_run, told_facts
from pytest_npudump.cli.common.output import emit, to_stderr, write_json
from pytest_npudump.cli.common.source import report_problems
from pytest_npudump.cli.compare import what_if
from pytest_npudump.cli.compare.engine import compare_sides, terms_of
from pytest_npudump.cli.compare.report import as_json, lines
from pytest_npudump.cli.compare.sides import are_kept_results, read_dump_side, read_golden_side
from pytest_npudump.cli.compare.what_if import Alternative, other_tolerances
from pytest_npudump.compare.stats.both_sides import told_by_both
from pytest_npudump.compare.tolerances.numerics import SAME
from pytest_npudump.compare.tolerances.tolerance import Rule
from pytest_npudump.errors import RequestError
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.report.verdicts import shown

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pytest_npudump.cli.compare.engine import SidesComparison
    from pytest_npudump.compare.stats.verdict import Comparison
    from pytest_npudump.compare.tolerances.tolerance import Tolerances


_DRAWN = 6
"""Failing tensors that have a picture of their own."""


def run(arguments: argparse.Namespace) -> int:
    """Compare, print the verdict, and return 0, 1 or 2."""
    if arguments.golden.suffix == ".onnx":
        for flag, given in (("--what-if", arguments.what_if), ("--plots", arguments.plots)):
            if given:
                raise RequestError(_("{flag}: not with an ONNX model in place of GOLDEN").format(flag=flag))
        from pytest_npudump.cli.compare import onnx_reference  # noqa: PLC0415 - only for ONNX models

        return onnx_reference.run(arguments)
    if are_kept_results(arguments.golden, arguments.actual):
        from pytest_npudump.cli.compare import kept_results  # noqa: PLC0415 - only for kept results

        return kept_results.run(arguments, _rules(arguments))
    if arguments.inputs or arguments.map:
        raise RequestError(_("--inputs and --map: only with an ONNX model in place of GOLDEN"))
    tolerances = chosen_tolerances(arguments).extended(_rules(arguments))
    facts = told_facts(arguments)
    others = {
        name: for_told_run(other_tolerances(name), facts, what_if.given(name)).under(
            arguments.numerics or SAME
        )
        for name in arguments.what_if
    }
    with open_workers(arguments.executor) as workers:
        golden = read_golden_side(arguments.golden, workers, latest=arguments.latest)
        actual = read_dump_side(arguments.actual, workers, latest=arguments.latest)
        terms = terms_of(golden, tolerances, arguments.layout)
        result = compare_sides(golden, actual, terms, workers, drawn=_DRAWN if arguments.plots else 0)
        alternatives, idle = [], []
        for name, other in others.items():
            tried = compare_sides(golden, actual, terms_of(golden, other, arguments.layout), workers)
            alternatives.append(Alternative.of(name, result.comparison, tried.comparison))
            idle += [f"{what_if.given(name)}: {line}" for line in _idle_lines(other, tried.comparison)]
    if arguments.json:
        told = {"what_if": [one.to_json() for one in alternatives]} if alternatives else {}
        write_json(as_json(result) | told, arguments.json)
    if arguments.json != "-":
        emit(lines(result, verbose=arguments.verbose))
        emit(what_if.lines(alternatives))
    if arguments.plots:
        written = _draw(arguments, result)
        if arguments.json != "-":
            emit(written)
    for line in (*_idle_lines(tolerances, result.comparison), *idle):
        to_stderr(f"npudump: {line}")
    report_problems(result.problems)
    if result.problems or result.comparison.nothing_judged:
        return 2
    return 1 if result.comparison.failing else 0


def _draw(arguments: argparse.Namespace, result: SidesComparison) -> list[str]:
    """Write the pictures of a comparison, and say where they are."""
    from pytest_npudump.report.charts import write_figures  # noqa: PLC0415 - only where asked for
    from pytest_npudump.report.view import tensor_views  # noqa: PLC0415 - the same

    comparison = result.comparison
    first = [comparison.first.key] if comparison.first is not None else []
    title = _("{golden} against {actual}").format(
        golden=shown(arguments.golden), actual=shown(arguments.actual)
    )
    tensors = tensor_views(comparison, comparison.tolerances, first)
    written = write_figures(arguments.plots, title, tensors, result.pictures)
    return [_("picture: {path}").format(path=shown(path.absolute())) for path in written]


def _idle_lines(tolerances: Tolerances, comparison: Comparison) -> Iterator[str]:
    """Name the rules that decide about nothing of the two sides."""
    idle = tolerances.unmatched(*told_by_both(comparison))
    absent = replace(tolerances, rules=idle).unmatched(comparison.golden, comparison.actual)
    for rule in idle:
        words = (
            _("the rule {rule} matches no tensor of either side")
            if rule in absent
            else _(
                "the rule {rule} decides nothing: only one side has this statistic of the tensors that it "
                "matches"
            )
        )
        yield words.format(rule=rule.describe())


def _rules(arguments: argparse.Namespace) -> tuple[Rule, ...]:
    """Return the rule that ``--rtol`` and ``--atol`` make, if they are given."""
    for name in ("rtol", "atol"):
        value = getattr(arguments, name)
        if value is not None and not 0 <= value < float("inf"):
            raise RequestError(
                _("--{name} {value}: expected a finite number, 0 or greater").format(name=name, value=value)
            )
    if arguments.rtol is None and arguments.atol is None:
        return ()
    return (Rule(arguments.rtol or 0.0, arguments.atol or 0.0, source="command line"),)
