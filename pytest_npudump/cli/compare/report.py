"""The result of ``npudump compare`` as text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.output import columns
from pytest_npudump.cli.compare.words import cells, comparable, sentence
from pytest_npudump.compare.stats.verdict import aligned_keys
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import mark, spoken
from pytest_npudump.report.verdicts import COLUMNS, number, row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_npudump.cli.compare.engine import SidesComparison
    from pytest_npudump.compare.patterns.pattern_search import Pattern
    from pytest_npudump.compare.stats.verdict import Comparison, Verdict
    from pytest_npudump.compare.tensors.tensor_pair import Elements
    from pytest_npudump.dump.records import TensorKey

_SHOWN = 20
_NOTES = 5
_DISTANCES = ("max_abs", "max_rel", "mean_rel", "cosine", "relative_l2")
_MEASURES = (mark("max abs"), mark("max rel"), mark("cosine"), mark("within"), mark("compared in"))


def as_json(result: SidesComparison) -> dict[str, Any]:
    """Plain JSON data: the comparison's, with ``elements`` where a tensor was compared element by element."""
    data = result.comparison.to_json()
    data["summary"]["elements_compared"] = _compared(result)
    data["summary"]["notes"] += [*result.notes, *_element_notes(result, None)]
    data["summary"]["problems"] = [str(problem) for problem in result.problems]
    for position, verdict in enumerate(data["verdicts"]):
        found = result.comparison.elements.get(position)
        if found is not None:
            verdict["elements"] = _elements_json(found)
        if position in result.patterns:
            verdict["pattern"] = result.patterns[position].to_json()
    return data


def _elements_json(found: Elements) -> dict[str, Any]:
    measures = found.difference.to_json() if found.difference is not None else {}
    if found.difference is not None and not comparable(found.difference):
        measures |= dict.fromkeys(_DISTANCES)
    data = {**measures, "layout": found.layout, "note": found.note}
    return data if found.unequal_bytes is None else data | {"unequal_bytes": found.unequal_bytes}


def lines(result: SidesComparison, *, verbose: bool) -> Iterator[str]:
    """Yield the report; ``verbose`` lists every failing tensor and every note."""
    comparison = result.comparison
    failing = comparison.failing
    for note in (*result.notes, *comparison.notes, *_element_notes(result, None if verbose else _NOTES)):
        yield _("note: {note}").format(note=spoken(note))
    compared = _compared(result)
    closely = _(", {compared} of them element by element").format(compared=compared) if compared else ""
    alone = (
        _(", {unjudged} of them without a value to judge").format(unjudged=comparison.unjudged)
        if comparison.unjudged
        else ""
    )
    counted = _("{compared} of {expected} tensors compared{closely}{alone}").format(
        compared=comparison.compared, expected=comparison.expected, closely=closely, alone=alone
    )
    if comparison.nothing_judged:
        yield _("{counted}: nothing was judged").format(counted=counted)
        return
    if not failing:
        yield counted + (
            _(", the rest could not be read") if result.problems else _(", all within tolerance")
        )
        yield from _changed_within(comparison)
        return
    yield _("{counted}: {count} differ").format(counted=counted, count=len(failing))
    yield from _changed_within(comparison)
    elements = _by_key(result) if compared else {}
    patterns = _patterns(result)
    first = comparison.first.key if comparison.first is not None else None
    if comparison.first is not None:
        yield _("first diverging layer: {sentence}").format(
            sentence=sentence(comparison.first, elements.get(comparison.first.key))
        )
        if comparison.first.key in patterns:
            yield _("pattern: {pattern}").format(pattern=spoken(str(patterns[comparison.first.key])))
        if comparison.first_change != comparison.first.key and comparison.differing:
            yield _("first change: {first_change} is the first that is not equal digit for digit").format(
                first_change=comparison.first_change
            )
    shown = failing if verbose else failing[:_SHOWN]
    yield from _table(shown, elements)
    if len(failing) > len(shown):
        yield _("... and {left} more (-v lists all)").format(left=len(failing) - len(shown))
    yield from (
        _("pattern of {key}: {pattern}").format(key=key, pattern=spoken(str(patterns[key])))
        for key in patterns
        if key != first
    )


def _changed_within(comparison: Comparison) -> Iterator[str]:
    if comparison.changed:
        yield _("{changed} changed within tolerance, first {first}").format(
            changed=comparison.changed, first=comparison.first_within
        )


def _patterns(result: SidesComparison) -> dict[TensorKey, Pattern]:
    """Return where inside of the first tensors that fail they differ, where that is known."""
    if not result.patterns:
        return {}
    comparison = result.comparison
    keys = [key for key, _ in aligned_keys(comparison.golden, comparison.actual, comparison.alignment)]
    return {keys[position]: pattern for position, pattern in result.patterns.items()}


def _table(failing: tuple[Verdict, ...], elements: Mapping[TensorKey, Elements]) -> list[str]:
    if not elements:
        return columns([row(verdict) for verdict in failing], COLUMNS)
    rows = [(*cells(verdict), *_measures(elements.get(verdict.key))) for verdict in failing]
    return columns(rows, (*COLUMNS, *_MEASURES))


def _measures(found: Elements | None) -> tuple[str, ...]:
    if found is None or found.difference is None:
        return ("-",) * (len(_MEASURES) - 1) + ("-" if found is None else found.layout,)
    d = found.difference
    share = f"{100 * d.within:.4g}%"
    # Rounding must not make a share of elements look like all of them.
    within = ">99.99%" if d.outside and share == "100%" else share
    distances = (number(d.max_abs), number(d.max_rel), number(d.cosine)) if comparable(d) else ("-",) * 3
    return (*distances, within, found.layout)


def _by_key(result: SidesComparison) -> dict[TensorKey, Elements]:
    comparison = result.comparison
    keys = [key for key, _ in aligned_keys(comparison.golden, comparison.actual, comparison.alignment)]
    return {keys[position]: found for position, found in result.comparison.elements.items()}


def _compared(result: SidesComparison) -> int:
    return sum(
        found.difference is not None or found.unequal_bytes is not None
        for found in result.comparison.elements.values()
    )


def _element_notes(result: SidesComparison, limit: int | None) -> Iterator[str]:
    """What was not compared as asked, tensor by tensor."""
    if not any(found.note for found in result.comparison.elements.values()):
        return
    noted = [(key, found.note) for key, found in _by_key(result).items() if found.note]
    for key, note in noted[:limit]:
        yield f"{key}: {note}"
    if limit is not None and len(noted) > limit:
        yield _("... and {left} more such tensors (-v lists all)").format(left=len(noted) - limit)
