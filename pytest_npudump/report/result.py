"""A test's result as data: for the report object, JUnit, and the files beside the dump."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.stats.verdict import EXTRA, FAIL, MISSING
from pytest_npudump.storage.atomic import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_npudump.regression.session import MarkedTest

_NOTES = 5
_NOTE = 300


@dataclass(frozen=True, slots=True)
class Details:
    """The files that say everything about a failure.

    Attributes:
        text: for people.
        data: JSON with the same content.
        problem: why they could not be written; "" if they were.
    """

    text: Path
    data: Path
    problem: str = ""


def result_json(test: MarkedTest, details: Details | None) -> dict[str, Any]:
    """Return what reaches the controller and JUnit: small, whatever the number of failing layers."""
    outcome, escalation = test.outcome, test.escalation
    assert outcome is not None  # noqa: S101 - a result exists only behind a judgement
    result: dict[str, Any] = {
        "test": test.nodeid,
        "status": outcome.status if test.good or not outcome.good else "error",
        "runtime": test.runtime.name,
        "golden": str(outcome.golden) if outcome.golden else None,
        "tensors": outcome.tensors,
        "attempts": len(test.attempts),
    }
    if outcome.comparison is not None:
        comparison = outcome.comparison
        result |= {name: getattr(comparison, name) for name in ("expected", "compared", "passed", "unjudged")}
        result |= {name: comparison.count(name) for name in (FAIL, MISSING, EXTRA)}
        first = comparison.first
        result["first"] = str(first.key) if first else None
    if outcome.reference is not None:
        result["reference"] = outcome.reference.summary()
        result["first"] = result.get("first") or result["reference"]["first"]
    if test.exchange is not None:
        result["rank"] = test.exchange.rank.number
    if outcome.findings:
        from pytest_npudump.report.scenes import finding_operator  # noqa: PLC0415 - only for some scenes

        result["findings"] = len(outcome.findings)
        result["operator"] = finding_operator(outcome.findings[0])
    if escalation is not None:
        result["reproduced"] = None if escalation.problem else escalation.reproduced
    result["notes"] = _notes(test)
    if details is not None:
        from pytest_npudump.report.terminal import headline, ways_out  # noqa: PLC0415 - it builds on this module

        result["details"] = str(details.text)
        result["headline"] = headline(test)
        result["way_out"] = next(iter(ways_out(test)), "")
    return result


def small(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result for JUnit, with the first of its notes, and how many there are."""
    notes = result.get("notes", [])
    shown = [note if len(note) <= _NOTE else f"{note[: _NOTE - 3]}..." for note in notes[:_NOTES]]
    return {**result, "notes": shown} | ({"notes_in_all": len(notes)} if len(notes) > _NOTES else {})


def _notes(test: MarkedTest) -> list[str]:
    """Return the notes on all runs, alike in every session: without the name of the folder of the dumps."""
    assert test.outcome is not None  # noqa: S101 - the same
    notes = test.outcome.notes + (test.escalation.notes if test.escalation is not None else ())
    return list(dict.fromkeys(note.replace(f"{test.directory}/", "") for note in notes))


def full_json(test: MarkedTest) -> dict[str, Any]:
    """Return everything that is known of a test's runs."""
    outcome = test.outcome
    assert outcome is not None  # noqa: S101 - the same
    return {
        "test": test.nodeid,
        "status": outcome.status,
        "golden": str(outcome.golden) if outcome.golden else None,
        "problems": list(outcome.problems),
        "notes": list(outcome.notes),
        "environment": {name: list(pair) for name, pair in outcome.environment.items()},
        "findings": [finding.to_json() for finding in outcome.findings],
        "comparison": outcome.comparison.to_json() if outcome.comparison else None,
        "reference": outcome.reference.to_json() if outcome.reference else None,
        "escalation": test.escalation.to_json() if test.escalation else None,
        "runs": [str(attempt.directory) for attempt in test.attempts],
    }


def write_details(test: MarkedTest) -> Details:
    """Write ``report.txt`` and ``report.json`` beside the test's dumps, over those of the first run."""
    from pytest_npudump.report.terminal import full_lines  # noqa: PLC0415 - it builds on this module

    details = Details(test.directory / "report.txt", test.directory / "report.json")
    try:
        text = json.dumps(full_json(test), indent=1, default=str) + "\n"
        write_whole(details.data, [text.encode()])
        # A name in a dump may be no UTF-8.
        lines = (f"{line}\n".encode("utf-8", "backslashreplace") for line in full_lines(test))
        write_whole(details.text, lines)
    except OSError as error:
        return Details(details.text, details.data, f"the report files could not be written: {error}")
    return details
