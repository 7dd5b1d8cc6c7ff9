"""``npudump golden diff``: what differs between waiting runs and their goldens, layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import columns, emit, write_json
from pytest_npudump.cli.golden.pending import as_json, size
from pytest_npudump.cli.golden.waiting_runs import read_waiting
from pytest_npudump.compare.stats.not_finite import describe_not_finite
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import spoken
from pytest_npudump.report.origins import source_lines
from pytest_npudump.report.verdicts import COLUMNS, row, shown

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from pytest_npudump.compare.stats.verdict import Verdict
    from pytest_npudump.graph.sources import Sources
    from pytest_npudump.results.acceptance import Pending


def run(arguments: argparse.Namespace) -> int:
    """Show it; 1 where anything differs."""
    waiting = read_waiting(arguments)
    if arguments.json:
        data = [
            as_json(one) | {"verdicts": [verdict.to_json() for verdict in _failing(one, arguments.layers)]}
            for one in waiting.chosen
        ]
        write_json(data, arguments.json)
    if arguments.json != "-":
        emit(line for one in waiting.chosen for line in lines(one, arguments.layers))
    if not waiting.is_readable:
        return 2
    return 1 if waiting.chosen else 0


def lines(pending: Pending, layers: Sequence[str] = ()) -> Iterator[str]:
    """Yield what differs in one run; ``layers`` are names or globs of those that are shown, none for all."""
    yield f"{pending.entry.test} ({shown(pending.path)})"
    for refusal in pending.refusals:
        yield "  " + _("cannot be accepted: {refusal}").format(refusal=spoken(refusal))
    result = pending.judged.result
    for problem in result.outcome.problems if result is not None else (pending.judged.why,):
        yield f"  {spoken(problem)}"
    if pending.record is not None and (note := describe_not_finite(pending.record.table)):
        yield "  " + _("note: {note}").format(note=spoken(note))
    comparison = pending.comparison
    if comparison is None:
        return
    failing = _failing(pending, layers)
    count = _("{count} of {expected} tensors differ").format(
        count=len(comparison.failing), expected=comparison.expected
    )
    yield f"  {count}: {size(pending)}"
    yield from (f"  {line}" for line in source_lines(_sources(pending), brief=False))
    if failing:
        yield from (f"  {line}" for line in columns([row(verdict) for verdict in failing], COLUMNS))


def _failing(pending: Pending, layers: Sequence[str]) -> list[Verdict]:
    """Return what differs: the sources first, then what they explain, each in the order of execution."""
    comparison = pending.comparison
    failing = comparison.failing if comparison is not None else ()
    named = pending.layers_named(layers)
    sources = _sources(pending)
    first = {str(source.key) for source in sources.independent} if sources is not None else set()
    wanted = [one for one in failing if one.key.layer in named]
    return sorted(wanted, key=lambda one: str(one.key) not in first)


def _sources(pending: Pending) -> Sources | None:
    result = pending.judged.result
    return result.outcome.sources if result is not None else None
