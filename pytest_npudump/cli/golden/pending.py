"""``npudump golden pending``: the runs that wait for a decision, the largest change first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.output import columns, emit, write_json
from pytest_npudump.cli.golden.waiting_runs import read_waiting
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import mark, spoken

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from pytest_npudump.results.acceptance import Pending

_HEADER = (mark("test"), mark("tensors"), mark("differ"), mark("largest"), mark("first"), mark("refused"))


def run(arguments: argparse.Namespace) -> int:
    """List them; 1 where there are any."""
    waiting = read_waiting(arguments)
    if arguments.json:
        write_json([*map(as_json, waiting.chosen)], arguments.json)
    if arguments.json != "-":
        emit(_lines(waiting.chosen))
    if not waiting.is_readable:
        return 2
    return 1 if waiting.chosen else 0


def _lines(pending: Sequence[Pending]) -> Iterator[str]:
    if not pending:
        yield _("no run waits for a decision")
        return
    yield from columns([_row(one) for one in pending], _HEADER)
    yield _("npudump golden diff TEST shows what differs; accept and reject decide")


def _row(pending: Pending) -> tuple[str, ...]:
    comparison = pending.comparison
    refused = spoken(pending.refusals[0]) if pending.refusals else ""
    count = str(pending.entry.data["tensors"])
    if comparison is None:
        return (
            pending.entry.test,
            count,
            "-",
            _("no golden") if pending.golden is None else "-",
            "",
            refused,
        )
    first = comparison.first
    return (
        *(pending.entry.test, count, str(len(comparison.failing)), size(pending)),
        *(str(first.key) if first is not None else "", refused),
    )


def size(pending: Pending) -> str:
    """Return how far a run is off: its worst value in allowances, and what cannot be told so."""
    times = [f"{pending.largest:.3g}x"] if pending.largest else []
    others = [_("{count} not comparable").format(count=pending.incomparable)] if pending.incomparable else []
    return ", ".join(times + others) or "-"


def as_json(pending: Pending) -> dict[str, Any]:
    """Return a waiting run as plain JSON data."""
    comparison = pending.comparison
    return {
        "test": pending.entry.test,
        "status": pending.entry.status,
        "golden": str(pending.path),
        "has_golden": pending.golden is not None,
        "largest": pending.largest,
        "incomparable": pending.incomparable,
        "refusals": list(pending.refusals),
        "comparison": None if comparison is None else comparison.to_json()["summary"],
        "first": str(comparison.first.key) if comparison is not None and comparison.first else None,
    }
