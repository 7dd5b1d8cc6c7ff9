"""The tensors of the second run, element by element against the reference's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.compare.patterns.pattern_search import SEARCHED
from pytest_npudump.dump.records import sanitise
from pytest_npudump.errors import NpudumpError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_npudump.dump.records import TensorKey, TensorRecord
    from pytest_npudump.regression.case import Case
    from pytest_npudump.regression.outcome import Finding, FirstRun, Outcome


def known_keys(outcome: Outcome) -> tuple[str, ...]:
    """Return the texts of the keys that the golden and the reference know, with the raw names of layers."""
    found = (outcome.comparison, outcome.reference.comparison if outcome.reference is not None else None)
    return tuple(key for comparison in found if comparison is not None for key in comparison.golden.keys)


def failing_layers(outcome: Outcome) -> tuple[str, ...]:
    """Layers with values to look at: a missing one has none, a new one has nothing to be compared with.

    Each is there once, under its raw name where the golden or the reference knows that.
    """
    names: dict[str, str] = {}
    for key in failing_keys(outcome):
        plain = sanitise(key.layer)
        if names.get(plain, plain) == plain:
            names[plain] = key.layer
    return tuple(names.values())


def failing_keys(outcome: Outcome) -> tuple[TensorKey, ...]:
    """Return the tensors that differ from the golden or from the reference, in execution order."""
    golden = outcome.comparison
    found = outcome.reference.comparison if outcome.reference is not None else None
    here = [v.key for v in golden.failing if v.status == "fail"] if golden else []
    there = [v.key for v in found.failing if v.status == "fail"] if found else []
    if not here or not there:
        return (*here, *there)
    order = {str(key.sanitised): place for place, key in enumerate(_keys(outcome))}
    known = {str(key.sanitised) for key in here}
    both = [*here, *(key for key in there if str(key.sanitised) not in known)]
    return tuple(sorted(both, key=lambda key: order.get(str(key.sanitised), len(order))))


def _keys(outcome: Outcome) -> list[TensorKey]:
    assert outcome.comparison is not None  # noqa: S101 - the caller has failing tensors of it
    return [verdict.key for verdict in outcome.comparison.verdicts()]


def with_reference(
    case: Case, first: FirstRun, findings: Sequence[Finding], records: Mapping[str, TensorRecord]
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Add to the findings what the elements are off from the reference's.

    The reference runs again, on what the second run was fed, for just these layers.

    Args:
        case: the test.
        first: its first run.
        findings: one a failing tensor.
        records: the second run's tensors by sanitised key.

    Returns:
        The findings, and a note where the reference could not be computed.
    """
    result = first.outcome.reference
    if case.reference is None or result is None or result.comparison is None or not result.failing:
        return tuple(findings), ()
    failing = {str(verdict.key.sanitised) for verdict in result.comparison.failing}
    layers = {sanitise(verdict.key.layer) for verdict in result.comparison.failing}
    wanted = [record for record in records.values() if sanitise(record.key.layer) in layers]
    dumped = first.dump.records if first.dump is not None else ()
    case.reference.settle(case.goldens.facts(case.runtime.producer()))  # this may be another process
    try:
        compared = case.reference.compare(wanted, dumped=dumped, patterns=SEARCHED)
    except NpudumpError as error:
        return tuple(findings), (f"the second run was not compared with the reference: {error}",)
    found = {str(e.actual.key.sanitised): e for e in compared.expected}
    added = []
    for finding in findings:
        key = str(finding.key.sanitised)
        expected = found.get(key) if key in failing else None
        if expected is not None and expected.elements is not None:
            told = replace(finding, reference=expected.elements.difference)
            added.append(replace(told, reference_pattern=expected.pattern))
        else:
            added.append(replace(finding, reference=None))
    return tuple(added), compared.notes
