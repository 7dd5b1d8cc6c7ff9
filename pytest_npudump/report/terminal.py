"""What a failed test shows in the terminal: a screenful, or with ``-v`` everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump import outcome as status
from pytest_npudump.compare.first import explain_first
from pytest_npudump.report.elements import finding_lines
from pytest_npudump.report.verdicts import COLUMNS, row, sentence, table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_npudump.outcome import Escalation, Finding, Outcome
    from pytest_npudump.report.result import Details
    from pytest_npudump.session import MarkedTest

ROWS = 10
"""Failing tensors shown without ``-v``."""
FINDINGS = 2
"""Tensors of the second run shown without ``-v``."""


def headline(test: MarkedTest) -> str:
    """Return the first line, which is also the line of pytest's short summary."""
    outcome = test.outcome
    assert outcome is not None  # noqa: S101 - there is no failure without a judgement
    if outcome.comparison is not None and outcome.comparison.first is not None:
        return f"npudump: {sentence(outcome.comparison.first)}"
    if outcome.problems:
        return f"npudump: {outcome.problems[0]}"
    problem = test.escalation.problem if test.escalation else ""
    return f"npudump: {problem}"


def failure_text(test: MarkedTest, details: Details, *, verbose: bool) -> str:
    """Return the text of a failing test, at most about 30 lines unless ``verbose``."""
    lines = [*_body(test, None if verbose else ROWS, None if verbose else FINDINGS)]
    if details.problem:
        lines.append(details.problem)
    else:
        lines.append(f"details:    {details.text}")
    lines += _ways_out(test)
    return "\n".join(lines)


def full_lines(test: MarkedTest) -> list[str]:
    """Return everything, for a file."""
    return [*_body(test, None, None), *_ways_out(test)]


def _body(test: MarkedTest, rows: int | None, findings: int | None) -> list[str]:
    outcome = test.outcome
    assert outcome is not None  # noqa: S101 - there is no failure without a judgement
    lines = [headline(test)]
    shown = 0 if outcome.comparison and outcome.comparison.failing else 1
    lines += [f"also: {problem}" for problem in outcome.problems[shown:]]
    if outcome.comparison is not None and outcome.comparison.failing:
        lines += _comparison_lines(outcome, rows)
    if test.escalation is not None:
        lines += _escalation_lines(test.escalation, findings)
    lines += [f"note: {note}" for note in outcome.notes[: rows or None]]
    return lines


def _comparison_lines(outcome: Outcome, rows: int | None) -> list[str]:
    comparison = outcome.comparison
    assert comparison is not None  # noqa: S101 - checked by the caller
    failing = comparison.failing
    lines = [
        f"first:      {explain_first(comparison)}",
        f"golden:     {len(failing)} of {comparison.expected} tensors fail against {outcome.golden}",
    ]
    if outcome.environment:
        changed = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in outcome.environment.items())
        lines.append(f"            it was recorded elsewhere: {changed}")
    lines += table([row(verdict) for verdict in failing[:rows]], COLUMNS)
    if rows is not None and len(failing) > rows:
        lines.append(f"  ... and {len(failing) - rows} more")
    first = comparison.first
    rule = next((reason.rule for reason in first.reasons if reason.rule), "") if first else ""
    return [*lines, f"rule:       {rule}"] if rule else lines


def _escalation_lines(escalation: Escalation, limit: int | None) -> list[str]:
    if escalation.problem:
        return [f"second run: {escalation.problem}"]
    findings = escalation.findings
    agreeing = sum(finding.reproduced is True for finding in findings)
    if escalation.reproduced:
        verdict = "the failure reproduced"
    else:
        verdict = (
            f"NOT REPRODUCED in {len(findings) - agreeing} of {len(findings)} tensors: the runs disagree"
        )
    lines = [f"second run: {verdict} ({_layers(escalation)} dumped as tensors)"]
    for finding in _most_telling(findings)[:limit]:
        lines += finding_lines(finding, worst=1 if limit else 5)
    lines += [f"note: {note}" for note in escalation.notes]
    return [*lines, f"tensors:    {escalation.directory}"]


def _layers(escalation: Escalation) -> str:
    count = len(escalation.layers)
    return f"{count} layer{'' if count == 1 else 's'}"


def _most_telling(findings: Iterable[Finding]) -> list[Finding]:
    """Put tensors that did not reproduce first, else keep execution order."""
    return sorted(findings, key=lambda finding: finding.reproduced is not False)


def _ways_out(test: MarkedTest) -> list[str]:
    outcome = test.outcome
    assert outcome is not None  # noqa: S101 - there is no failure without a judgement
    if outcome.status == status.MISSING_GOLDEN:
        return [f"to create:  pytest --npudump-update-golden '{test.nodeid}'"]
    if outcome.status == status.FAILED and outcome.comparison is not None:
        return [f"to approve: pytest --npudump-update-golden '{test.nodeid}'"]
    return []
