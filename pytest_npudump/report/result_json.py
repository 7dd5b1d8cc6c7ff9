"""A test's result as data: for the report object, JUnit, and the files beside the dump."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.stats.verdict import EXTRA, FAIL, MISSING, Comparison
from pytest_npudump.errors import mapped
from pytest_npudump.language.text import cut, terminal_columns
from pytest_npudump.language.translation import speaking
from pytest_npudump.record.run_folder import REPORT
from pytest_npudump.regression.result import GOOD, Result
from pytest_npudump.report.layer_names import LayerNames

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.report.files import ReportFiles


_NOTES = 5
_NOTE = 300
_INNER = {"idle_rules", "cut_names"}
_TEXT = 1000
"""Characters of a text in a JUnit file: names in a dump may have any length."""
_TOLD = ("expected", "compared", "passed", "unjudged", "identical", "changed", "wavering")
COUNTS = (*_TOLD, FAIL, MISSING, EXTRA)
"""Numbers of tensors in a result, where there was a comparison."""


def result_json(result: Result, details: ReportFiles | None) -> dict[str, Any]:
    """Return a result for the controller and JUnit: small, whatever the number of failing layers."""
    escalation = result.escalation
    told: dict[str, Any] = {
        "test": result.origin.test,
        "status": result.status if result.good or result.status not in GOOD else "error",
        "runtime": result.origin.runtime,
        "golden": str(result.golden) if result.golden else None,
        "tensors": result.tensors,
        "attempts": len(result.runs),
    }
    if result.comparison is not None:
        comparison = result.comparison
        told |= {name: getattr(comparison, name) for name in _TOLD}
        told |= {name: comparison.count(name) for name in (FAIL, MISSING, EXTRA)}
        told |= {"idle_rules": list(result.idle_rules)} if result.idle_rules else {}
        first = comparison.first
        told["first"] = str(first.key) if first else None
        told["first_change"] = str(comparison.first_change) if comparison.differing else None
        told["first_within"] = str(comparison.first_within) if comparison.changed else None
        names = LayerNames.of(comparison, terminal_columns())
        names.fit(names.layers, names.room)  # as in the text of a failure
        keys = filter(None, (told["first"], told["first_within"]))
        if short := {key: text for key in keys if (text := names.text(key)) != key}:
            told["cut_names"] = short
    sources, models, calibrated = result.sources, result.models, result.measured
    if sources is not None:
        from pytest_npudump.report.origins import small_sources  # noqa: PLC0415 - where something fails

        told["sources"] = small_sources(sources)
    told |= {
        **({"calibrated": result.measured_bounds} if calibrated is not None and calibrated.widens else {}),
        **({"bounds": result.numerics.bounds} if result.numerics and not result.numerics.preset else {}),
        **({"model": models.summary()} if models is not None else {}),
    }
    if result.reference is not None:
        told["reference"] = result.reference.summary()
        told["first"] = told.get("first") or told["reference"]["first"]
    if result.origin.rank is not None:
        told["rank"] = result.origin.rank.number
    if result.findings:
        from pytest_npudump.report.scenes import finding_operator  # noqa: PLC0415 - only for some scenes

        told["findings"] = len(result.findings)
        told["operator"] = finding_operator(result.findings[0])
    if escalation is not None:
        told["reproduced"] = None if escalation.problem else escalation.reproduced
    # The notes on all runs, alike in every session: without the name of the folder of the dumps.
    notes = result.notes + (escalation.notes if escalation is not None else ())
    place = f"{result.origin.directory}/"
    told["notes"] = [*dict.fromkeys(mapped(note, lambda text: text.replace(place, "")) for note in notes)]
    if details is not None:
        from pytest_npudump.report.terminal import hand_over, headline, ways_out  # noqa: PLC0415 - only for failures

        told["details"] = str(details.text)
        told["headline"] = headline(result)
        told["way_out"] = next(iter(ways_out(result, "report.txt")), "")
        told |= {"hand_over": command} if (command := hand_over(result, details)) else {}
    return told


def small(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result for JUnit, its texts cut, with the first of its notes, and how many there are."""
    notes = result.get("notes", [])
    shown = [cut(note, _NOTE) for note in notes[:_NOTES]]
    told = {name: _cut_within(value) for name, value in result.items() if name not in _INNER}
    return {**told, "notes": shown} | ({"notes_in_all": len(notes)} if len(notes) > _NOTES else {})


def _cut_within(value: Any) -> Any:
    if isinstance(value, str):
        return cut(value, _TEXT)
    if isinstance(value, dict):
        return {name: _cut_within(one) for name, one in value.items()}
    return [*map(_cut_within, value)] if isinstance(value, list | tuple) else value


def full_json(result: Result) -> dict[str, Any]:
    """Return everything that is known of a test's runs."""
    origin, measured = result.origin, result.measured
    return {
        "test": result.origin.test,
        "status": result.status,
        "origin": {
            "runtime": origin.runtime,
            "producer": dict(origin.producer),
            "models": list(origin.models),
            "digests": dict(origin.digests),
            "reference": str(origin.reference) if origin.reference else None,
            "reference_map": str(origin.reference_map) if origin.reference_map else None,
        },
        "golden": str(result.golden) if result.golden else None,
        "problems": list(result.problems),
        "notes": list(result.notes),
        "numerics": result.numerics.to_json() if result.numerics else None,
        "measured": None if measured is None else {**measured.to_json(), "bounds": result.measured_bounds},
        "environment": {name: list(pair) for name, pair in result.environment.items()},
        "findings": [finding.to_json() for finding in result.findings],
        "comparison": _compared(result.comparison) if result.comparison else None,
        "changes": [verdict.to_json() for verdict in result.changes],
        "sources": result.sources.to_json() if result.sources else None,
        "model": result.models.to_json() if result.models else None,
        "code": dict(result.code),
        "reference": result.reference.to_json() if result.reference else None,
        "escalation": result.escalation.to_json() if result.escalation else None,
        "runs": [*map(str, result.runs)],
    }


@lru_cache(maxsize=1)
def _compared(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON data, which is written before a second run and behind it."""
    return comparison.to_json()


def write_details(result: Result, *, ended: bool = True) -> ReportFiles:
    """Write ``report.txt`` and ``report.json`` beside the test's dumps, over those of the first run.

    Args:
        result: of the test.
        ended: whether all is known; else only the second is written, which has everything.
    """
    from pytest_npudump.report.files import ReportFiles  # noqa: PLC0415 - only for failures
    from pytest_npudump.report.terminal import full_lines  # noqa: PLC0415 - the same

    files, lines = ReportFiles.named(result.origin.directory, REPORT), None
    if ended:
        with speaking(result.origin.lang):
            lines = full_lines(result)
    written = files.write("the report files", lines, full_json(result))
    if ended:
        _compared.cache_clear()
    return written
