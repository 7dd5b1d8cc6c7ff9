"""``npudump trend``: a table a test, with a line of bars for each statistic of each tensor."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.output import columns, emit, to_stderr, write_json
from pytest_npudump.cli.trend.sparkline import sparkline, terminal_bars
from pytest_npudump.errors import RequestError
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import mark
from pytest_npudump.report.verdicts import number
from pytest_npudump.results.folder import ResultsFolder
from pytest_npudump.results.statistic_series import DEFAULT, trends_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from pytest_npudump.results.statistic_series import Run, Series, Trend

_SHOWN = 20
_HEADER = (mark("tensor"), mark("statistic"), mark("runs"), mark("first"), mark("last"), mark("spread"))
_SHORT = 10
"""Digits of a commit's name that are shown."""


def run(arguments: argparse.Namespace) -> int:
    """Show it; 0, or 2 where something cannot be read or nothing can be shown."""
    kept = [(folder, folder.read()) for folder in map(ResultsFolder, arguments.results)]
    trends = trends_of(kept, arguments.test, arguments.layer, arguments.statistic or DEFAULT)
    _refuse_nothing(arguments, trends)
    problems = [problem for _, results in kept for problem in results.problems]
    problems += [problem for trend in trends for problem in trend.problems]
    if arguments.json:
        write_json({"tests": [*map(_as_json, trends)], "problems": problems}, arguments.json)
    if arguments.json != "-":
        bars = terminal_bars()
        emit(line for trend in trends for line in _lines(trend, bars, verbose=arguments.verbose))
    for problem in problems:
        to_stderr(f"npudump: {problem}")
    return 2 if problems else 0


def _refuse_nothing(arguments: argparse.Namespace, trends: Sequence[Trend]) -> None:
    if not trends:
        raise RequestError(
            _("--test {test}: names no test of these results").format(test=" ".join(arguments.test))
        )
    if not any(trend.series for trend in trends):
        asked = f"--layer {' '.join(arguments.layer)}: " if arguments.layer else ""
        raise RequestError(
            _("{asked}none of these results has such a statistic of such a layer").format(asked=asked)
        )


def _as_json(trend: Trend) -> dict[str, Any]:
    return {
        "test": trend.test,
        "runs": [run.to_json() for run in trend.runs],
        "series": [one.to_json() for one in trend.series],
    }


def _lines(trend: Trend, bars: str, *, verbose: bool) -> Iterator[str]:
    yield trend.test
    for at, run in enumerate(trend.runs, 1):
        yield f"  {at}: {_described(run)}"
    moving = [one for one in trend.series if one.spread]
    chosen: Sequence[Series] = trend.series
    if not verbose:
        chosen = sorted(moving, key=lambda one: one.spread, reverse=True)[:_SHOWN]
    if chosen:
        yield from (f"  {line}" for line in columns([_row(one, bars) for one in chosen], _HEADER))
    words = _("{moving} of {count} statistics are not the same in all runs").format(
        moving=len(moving), count=len(trend.series)
    )
    yield f"  {words}" + (
        ""
        if len(chosen) >= len(moving)
        else _("; the {count} widest (-v shows all)").format(count=len(chosen))
    )


def _described(run: Run) -> str:
    if run.entry is None:
        return _("{folder}: has no result of it").format(folder=run.folder)
    data = run.entry.data
    parts = [str(run.folder), data["time"], (data["revision"] or "")[:_SHORT], _(run.entry.status)]
    left = "" if run.table is not None else _(" (no statistics)")
    return ", ".join(filter(None, parts)) + left


def _row(one: Series, bars: str) -> tuple[str, ...]:
    known = [value for value in one.values if value is not None]
    spread = "-" if math.isinf(one.spread) else f"{100 * one.spread:.3g}%"
    return one.key, one.statistic, sparkline(one.values, bars), number(known[0]), number(known[-1]), spread
