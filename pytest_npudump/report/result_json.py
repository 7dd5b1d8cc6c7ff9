"""A test's result as data: for the report object, JUnit, and the files beside the dump."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.stats.verdict import EXTRA, FAIL, MISSING
from pytest_npudump.errors import mapped
from pytest_npudump.language.text import cut
from pytest_npudump.language.translation import speaking
from pytest_npudump.report.origins import small_sources

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.regression.case import Origin
    from pytest_npudump.regression.outcome import Outcome, Result
    from pytest_npudump.report.files import ReportFiles

_NOTES = 5
_NOTE = 300
_TEXT = 1000
"""Characters of a text in a JUnit file: names in a dump may have any length."""
_TOLD = ("expected", "compared", "passed", "unjudged", "identical", "changed", "wavering")
COUNTS = (*_TOLD, FAIL, MISSING, EXTRA)
"""Numbers of tensors in a result, where there was a comparison."""


def result_json(result: Result, details: ReportFiles | None) -> dict[str, Any]:
    """Return what reaches the controller and JUnit: small, whatever the number of failing layers."""
    outcome, escalation = result.outcome, result.escalation
    told: dict[str, Any] = {
        "test": result.origin.test,
        "status": outcome.status if result.good or not outcome.good else "error",
        "runtime": result.origin.runtime,
        "golden": str(outcome.golden) if outcome.golden else None,
        "tensors": outcome.tensors,
        "attempts": len(result.runs),
    }
    if outcome.comparison is not None:
        comparison = outcome.comparison
        told |= {name: getattr(comparison, name) for name in _TOLD}
        told |= {name: comparison.count(name) for name in (FAIL, MISSING, EXTRA)}
        told |= {"idle_rules": list(outcome.idle_rules)} if outcome.idle_rules else {}
        first = comparison.first
        told["first"] = str(first.key) if first else None
        told["first_change"] = str(comparison.first_change) if comparison.differing else None
        told["first_within"] = str(comparison.first_within) if comparison.changed else None
    if outcome.sources is not None:
        told["sources"] = small_sources(outcome.sources)
    if outcome.measured is not None and outcome.measured.widens:
        told["calibrated"] = outcome.measured_bounds
    if outcome.numerics is not None and not outcome.numerics.preset:
        told["bounds"] = outcome.numerics.bounds
    if outcome.reference is not None:
        told["reference"] = outcome.reference.summary()
        told["first"] = told.get("first") or told["reference"]["first"]
    if result.origin.rank is not None:
        told["rank"] = result.origin.rank.number
    if outcome.findings:
        from pytest_npudump.report.scenes import finding_operator  # noqa: PLC0415 - only for some scenes

        told["findings"] = len(outcome.findings)
        told["operator"] = finding_operator(outcome.findings[0])
    if escalation is not None:
        told["reproduced"] = None if escalation.problem else escalation.reproduced
    told["notes"] = _notes(result)
    if details is not None:
        from pytest_npudump.report.terminal import headline, ways_out  # noqa: PLC0415 - only for failures

        told["details"] = str(details.text)
        told |= {"artifact": f"tests/{details.text.parent.name}"} if result.origin.artifacts else {}
        told["headline"] = headline(result)
        told["way_out"] = next(iter(ways_out(result)), "")
    return told


def small(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result for JUnit, its texts cut, with the first of its notes, and how many there are."""
    notes = result.get("notes", [])
    shown = [cut(note, _NOTE) for note in notes[:_NOTES]]
    told = {name: _cut_within(value) for name, value in result.items() if name != "idle_rules"}
    return {**told, "notes": shown} | ({"notes_in_all": len(notes)} if len(notes) > _NOTES else {})


def _cut_within(value: Any) -> Any:
    if isinstance(value, str):
        return cut(value, _TEXT)
    if isinstance(value, dict):
        return {name: _cut_within(one) for name, one in value.items()}
    return [*map(_cut_within, value)] if isinstance(value, list | tuple) else value


def _notes(result: Result) -> list[str]:
    """Return the notes on all runs, alike in every session: without the name of the folder of the dumps."""
    notes = result.outcome.notes + (result.escalation.notes if result.escalation is not None else ())
    place = f"{result.origin.directory}/"
    return list(dict.fromkeys(mapped(note, lambda text: text.replace(place, "")) for note in notes))


def full_json(result: Result) -> dict[str, Any]:
    """Return everything that is known of a test's runs."""
    outcome = result.outcome
    return {
        "test": result.origin.test,
        "status": outcome.status,
        "origin": _origin(result.origin),
        "golden": str(outcome.golden) if outcome.golden else None,
        "problems": list(outcome.problems),
        "notes": list(outcome.notes),
        "numerics": outcome.numerics.to_json() if outcome.numerics else None,
        "measured": _measured(outcome),
        "environment": {name: list(pair) for name, pair in outcome.environment.items()},
        "findings": [finding.to_json() for finding in outcome.findings],
        "comparison": outcome.comparison.to_json() if outcome.comparison else None,
        "changes": [verdict.to_json() for verdict in outcome.changes],
        "sources": outcome.sources.to_json() if outcome.sources else None,
        "reference": outcome.reference.to_json() if outcome.reference else None,
        "escalation": result.escalation.to_json() if result.escalation else None,
        "runs": [*map(str, result.runs)],
    }


def _measured(outcome: Outcome) -> dict[str, Any] | None:
    if outcome.measured is None:
        return None
    return {**outcome.measured.to_json(), "bounds": outcome.measured_bounds}


def _origin(origin: Origin) -> dict[str, Any]:
    """Return what ran, for those who want to run it again."""
    return {
        "runtime": origin.runtime,
        "producer": dict(origin.producer),
        "models": list(origin.models),
        "digests": dict(origin.digests),
        "reference": str(origin.reference) if origin.reference else None,
        "reference_map": str(origin.reference_map) if origin.reference_map else None,
    }


def write_details(result: Result) -> ReportFiles:
    """Write ``report.txt`` and ``report.json`` beside the test's dumps, over those of the first run."""
    from pytest_npudump.report.files import ReportFiles  # noqa: PLC0415 - only for failures
    from pytest_npudump.report.terminal import full_lines  # noqa: PLC0415 - the same

    files = ReportFiles.named(result.origin.directory, "report")
    data = full_json(result)
    with speaking(result.origin.lang):
        lines = full_lines(result)
    return files.write("the report files", lines, data)
