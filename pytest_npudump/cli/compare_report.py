"""The result of ``npudump compare`` as text and as JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_npudump.cli.common.output import columns, screen
from pytest_npudump.compare.tensors.element_verdict import (
    BYTES,
    ELEMENTS,
    MAX_ABS,
    RELATIVE_L2,
    SPECIAL,
    specials,
)
from pytest_npudump.language import mark
from pytest_npudump.language.translation import counted, gettext as _, spoken
from pytest_npudump.report import verdicts
from pytest_npudump.report.layer_names import LayerNames
from pytest_npudump.report.verdicts import COLUMNS, number, row, table, times as ratio, worst

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_npudump.compare.name_suggestions import Suggestion
    from pytest_npudump.compare.patterns.pattern_search import Pattern
    from pytest_npudump.compare.stats.verdict import Comparison, Reason, Verdict
    from pytest_npudump.compare.tensors.difference import TensorDifference
    from pytest_npudump.compare.tensors.picture import Picture
    from pytest_npudump.compare.tensors.tensor_pair import PairElements
    from pytest_npudump.dump.records import TensorKey
    from pytest_npudump.errors import FormatError


Found = TypeVar("Found")

_SHOWN = 20
_NOTES = 5
_MEASURES = (mark("max abs"), mark("max rel"), mark("cosine"), mark("within"), mark("compared in"))


@dataclass(frozen=True, slots=True, eq=False)
class SidesComparison:
    """Result of ``npudump compare``.

    Attributes:
        comparison: the verdicts, elements included.
        problems: what could not be read, of either side.
        notes: what the reader decided.
        patterns: where inside of them the first tensors that fail differ, by position.
        pictures: what can be drawn of the first tensors that fail, by position; none unless asked for.
        suggestions: names of layers that may be those of the other side.
    """

    comparison: Comparison
    problems: tuple[FormatError, ...]
    notes: tuple[str, ...]
    patterns: Mapping[int, Pattern] = field(default_factory=dict)
    pictures: Mapping[int, Picture] = field(default_factory=dict)
    suggestions: tuple[Suggestion, ...] = ()

    @property
    def compared(self) -> int:
        """Number of tensors compared element by element."""
        return sum(
            found.difference is not None or found.unequal_bytes is not None
            for found in self.comparison.elements.values()
        )

    def by_key(self, found: Mapping[int, Found]) -> dict[TensorKey, Found]:
        """Replace positions of tensors by their keys."""
        return {self.comparison.key(position): value for position, value in found.items()}


def as_json(result: SidesComparison) -> dict[str, Any]:
    """Plain JSON data: the comparison's, with ``elements`` where a tensor was compared element by element."""
    data = result.comparison.to_json()
    data["summary"]["elements_compared"] = result.compared
    data["summary"]["notes"] += [*result.notes, *_element_notes(result, None)]
    if result.suggestions:
        data["summary"]["suggestions"] = [one._asdict() for one in result.suggestions]
    data["summary"]["problems"] = [str(problem) for problem in result.problems]
    for position, verdict in enumerate(data["verdicts"]):
        if (found := result.comparison.elements.get(position)) is not None:
            measures = found.difference.to_json() if found.difference is not None else {}
            if found.difference is not None and not comparable(found.difference):
                measures |= dict.fromkeys(("max_abs", "max_rel", "mean_rel", "cosine", "relative_l2"))
            unequal = {} if found.unequal_bytes is None else {"unequal_bytes": found.unequal_bytes}
            verdict["elements"] = {**measures, "layout": found.layout, "note": found.note, **unequal}
        if position in result.patterns:
            verdict["pattern"] = result.patterns[position].to_json()
    return data


def lines(result: SidesComparison, *, verbose: bool) -> Iterator[str]:
    """Yield the report; ``verbose`` lists every failing tensor and every note."""
    comparison = result.comparison
    failing = comparison.mismatches
    notes = *result.notes, *comparison.notes, *_element_notes(result, None if verbose else _NOTES)
    for note in dict.fromkeys(notes):  # as both sides have some
        yield _("note: {note}").format(note=spoken(note))
    compared = result.compared
    closely = _(", {compared} of them element by element").format(compared=compared) if compared else ""
    alone = (
        _(", {unjudged} of them without a finite value").format(unjudged=comparison.unjudged)
        if comparison.unjudged
        else ""
    )
    told = _("{compared} of {expected} tensors compared{closely}{alone}").format(
        compared=comparison.compared, expected=comparison.expected, closely=closely, alone=alone
    )
    if comparison.nothing_judged:
        yield _("{counted}: nothing was compared").format(counted=told)
        return
    if not failing:
        yield told + (_(", the rest could not be read") if result.problems else _(", all within tolerance"))
        yield from _changed_within(comparison)
        return
    yield _("{counted}; mismatches: {count}").format(counted=told, count=len(failing))
    yield from _changed_within(comparison)
    elements = result.by_key(comparison.elements) if compared else {}
    patterns = result.by_key(result.patterns)
    first = comparison.first.key if comparison.first is not None else None
    names, shown = LayerNames.of(comparison, screen()), failing if verbose else failing[:_SHOWN]
    if elements:
        cell_rows = [(*cells(verdict), *_measures(elements.get(verdict.key))) for verdict in shown]
        rows = columns(cell_rows, (*COLUMNS, *_MEASURES))
    else:
        rows = verdict_table(shown, names, margin="")
    if comparison.first is not None:
        words = _("first mismatch: {sentence}")
        words = words.format(sentence=sentence(comparison.first, elements.get(comparison.first.key)))
        yield names.text(words)
        if comparison.first.key in patterns:
            yield _("pattern: {pattern}").format(pattern=spoken(str(patterns[comparison.first.key])))
        if comparison.first_change != comparison.first.key and comparison.differing:
            yield _("first change: {first_change} is the first that is not identical as printed").format(
                first_change=comparison.first_change
            )
    yield from (*names.legend(), *rows)
    if len(failing) > len(shown):
        yield _("... and {left} more (-v lists all)").format(left=len(failing) - len(shown))
    yield from _suggested(result.suggestions, verbose=verbose)
    yield from (
        _("pattern of {key}: {pattern}").format(key=key, pattern=spoken(str(patterns[key])))
        for key in patterns
        if key != first
    )


def _suggested(suggestions: Sequence[Suggestion], *, verbose: bool) -> Iterator[str]:
    """Yield likely names of the other side: where values match, and with ``verbose`` the rest."""
    sure = [one for one in suggestions if verbose or 2 * one.alike > one.layers]
    if not sure:
        return
    yield _("layers that may match, by order and shapes (--suggest FILE writes them for --map):")
    for one in sure if verbose else sure[:_NOTES]:
        yield _("  {run}: {golden} ({words})").format(run=one.run, golden=one.golden, words=one.confidence)


def _changed_within(comparison: Comparison) -> Iterator[str]:
    if comparison.changed:
        yield _("{changed} changed within tolerance, first {first}").format(
            changed=comparison.changed, first=comparison.first_within
        )


def verdict_table(failing: Sequence[Verdict], names: LayerNames, *, margin: str = "  ") -> list[str]:
    """Return verdicts as rows: on a terminal those that fit into it, elsewhere with whole names.

    Args:
        failing: the verdicts.
        names: of their layers, for a terminal or for whole lines.
        margin: what stands before each row.
    """
    rows = [row(verdict) for verdict in failing]
    if names.columns is not None:
        return table(rows, COLUMNS, names)
    return [f"{margin}{line}" for line in columns(rows, COLUMNS)]


def _measures(found: PairElements | None) -> tuple[str, ...]:
    if found is None or found.difference is None:
        return ("-",) * (len(_MEASURES) - 1) + ("-" if found is None else found.layout,)
    d = found.difference
    share = f"{100 * d.within:.4g}%"
    # Rounding must not make a share of elements look like all of them.
    within = ">99.99%" if d.outside and share == "100%" else share
    distances = (number(d.max_abs), number(d.max_rel), number(d.cosine)) if comparable(d) else ("-",) * 3
    return (*distances, within, found.layout)


def _element_notes(result: SidesComparison, limit: int | None) -> Iterator[str]:
    """Yield each tensor that was not compared as asked, and why."""
    if not any(found.note for found in result.comparison.elements.values()):
        return
    noted = [
        (key, found.note) for key, found in result.by_key(result.comparison.elements).items() if found.note
    ]
    yield from (f"{key}: {note}" for key, note in noted[:limit])
    if limit is not None and len(noted) > limit:
        yield _("... and {left} more (-v lists all)").format(left=len(noted) - limit)


_STATISTIC, _GOLDEN = COLUMNS.index("statistic"), COLUMNS.index("golden")
_DISTANCES = {MAX_ABS: mark("elements: max abs"), RELATIVE_L2: mark("elements: relative_l2")}


def comparable(difference: TensorDifference) -> bool:
    """Return whether any pair of elements has a distance: none has where each holds a NaN or an infinity."""
    return difference.special < difference.count


def cells(verdict: Verdict) -> tuple[str, ...]:
    """Return a failing verdict as cells of a table; a distance between elements has no golden value."""
    row = list(verdicts.row(verdict))
    if (reason := worst(verdict)) is not None and reason.statistic in _DISTANCES:
        row[_STATISTIC] = row[_STATISTIC].replace(reason.statistic, _(_DISTANCES[reason.statistic]), 1)
        row[_GOLDEN] = "-"
    return tuple(row)


def sentence(verdict: Verdict, found: PairElements | None) -> str:
    """Return a failing verdict as a sentence; ``found`` has the findings of its elements, or None."""
    reason = worst(verdict)
    words = "" if reason is None or found is None else _words(reason, found.difference)
    if words:
        return _("{key} differs: {words}").format(key=verdict.key, words=words)
    told = verdicts.sentence(verdict)
    difference = found.difference if found is not None else None
    if difference is None or not difference.outside or not comparable(difference):
        return told
    return _("{told}; elements: max abs {max_abs}, {outside}").format(
        told=told, max_abs=number(difference.max_abs), outside=_outside(difference)
    )


def _words(reason: Reason, difference: TensorDifference | None) -> str:
    if reason.statistic == BYTES:
        return _("{differ} of {count} bytes").format(
            differ=str(reason.actual).removesuffix(" differ"), count=str(reason.golden).removesuffix(" equal")
        )
    if difference is None:
        return ""
    if reason.statistic == SPECIAL:
        d = difference
        return counted(
            d.special_different,
            "NaN or Inf differ in {count} place, first at {index} (golden: {golden}; actual: {actual})",
            "NaN or Inf differ in {count} places, first at {index} (golden: {golden}; actual: {actual})",
            index=list(d.first_special_different or ()),
            golden=specials(d.nan_golden, d.inf_golden),
            actual=specials(d.nan_actual, d.inf_actual),
        )
    if reason.statistic == ELEMENTS:
        return _("elements must be equal, {actual}").format(actual=reason.actual)
    if reason.statistic == MAX_ABS:
        return _("elements: max abs {actual}{far}, {outside}").format(
            actual=number(reason.actual), far=_times(reason), outside=_outside(difference)
        )
    if reason.statistic == RELATIVE_L2:
        length = _("the length of the difference by that of the golden")
        return _("elements: relative_l2, {length}, is {actual}{far}").format(
            length=length, actual=number(reason.actual), far=_times(reason)
        )
    return ""


def _outside(difference: TensorDifference) -> str:
    return _("{outside} of {count} out of tolerance").format(
        outside=difference.outside, count=difference.count
    )


def _times(reason: Reason) -> str:
    times = reason.excess
    return _(" ({times}x tolerance)").format(times=ratio(times)) if math.isfinite(times) else ""
