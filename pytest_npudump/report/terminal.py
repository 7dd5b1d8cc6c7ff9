"""What a failed test shows in the terminal: a screenful, or with ``-v`` everything."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_npudump.compare.stats.verdict import explain_first
from pytest_npudump.explain.operator_alone import CONVICTED
from pytest_npudump.language import mark
from pytest_npudump.language.text import cut, typed
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import ngettext, spoken
from pytest_npudump.onnxmodels.graph import drawing_words, draws_random
from pytest_npudump.regression import result as status
from pytest_npudump.report.explanations import (
    finding_lines,
    isolated_lines,
    reference_lines,
    reference_sentence,
    way_out,
)
from pytest_npudump.report.origins import feeds_are_seen, first_change, more_sources, origin_lines
from pytest_npudump.report.scenes import can_be_approved, finding_details, finding_sentence
from pytest_npudump.report.verdicts import COLUMNS, deciding_rule, plain, row, sentence, shown, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.compare.stats.verdict import Verdict
    from pytest_npudump.regression.result import Escalation, Result, SceneFinding
    from pytest_npudump.report.files import ReportFiles


LINES = 30
"""Lines of one failure without ``-v``; each is cut to :data:`WIDTH` characters."""
WIDTH = 500
ROWS = 10
"""Failing tensors shown without ``-v``; fewer where other lines need the room, but never under 2."""
MOST_ROWS = 10_000
"""Failing tensors shown with ``-v``, and in the file for people; the one of JSON has all."""
_FINDINGS = (2, 1, 0)
"""Tensors of the second run shown without ``-v``; the fewer the less room there is."""
_LISTED = 2
"""Further problems, and notes, shown without ``-v``."""
_FEWEST_ROWS = 2
_FIXED = 13
"""Lines around the rows: first, sources (3), changed, golden, bounds, header, rest, rule, details, hand over,
way."""


def headline(result: Result) -> str:
    """Return the first line, which is also the line of pytest's short summary."""
    ranks = [spoken(str(result.origin.rank))] if result.origin.rank is not None else []
    whose = "".join(f"{name}: " for name in [*ranks, result.part] if name)
    return f"npudump: {whose}{_what(result)}"


def _what(result: Result) -> str:
    if result.comparison is not None and result.comparison.first is not None:
        first = result.comparison.first
        return sentence(first) + more_sources(result.sources, first.key)
    if result.findings:
        return finding_sentence(result.findings[0])
    if result.problems:
        return spoken(result.problems[0])
    if result.reference is not None and result.reference.failing:
        return reference_sentence(result.reference, result.sources)
    return spoken(result.escalation.problem) if result.escalation else ""


def failure_text(result: Result, details: ReportFiles, *, verbose: bool) -> str:
    """Return the text of a failing test, at most :data:`LINES` lines unless ``verbose``."""
    place = shown(details.text, result.origin.here)
    behind = [spoken(details.problem) or _("details:    {text}").format(text=place)]
    behind += [*_hand_over(result, details), *ways_out(result)]
    lines = _body(result, None if verbose else LINES - len(behind))
    if not verbose:
        lines = [cut(line, WIDTH) for line in lines]
    return "\n".join(map(plain, [*lines, *behind]))


def _hand_over(result: Result, details: ReportFiles) -> list[str]:
    """Return how to hand over an operator that is wrong by itself."""
    isolated = result.escalation.isolated if result.escalation is not None else ()
    convicted = [one for one in isolated if one.alone.verdict == CONVICTED]
    if details.problem or not any(one.saved is not None or not one.call for one in convicted):
        return []
    folder = shown(details.text.parent, result.origin.here)
    return [_("hand over:  npudump repro {parent} -o DIR").format(parent=typed(folder))]


def verdict_lines(result: Result, *, verbose: bool) -> list[str]:
    """Return the text of a result that no run has left files of."""
    behind = ways_out(result)
    lines = _body(result, None if verbose else LINES - len(behind))
    return [plain(line) for line in [*(line if verbose else cut(line, WIDTH) for line in lines), *behind]]


def short_lines(result: Result) -> list[str]:
    """Return the two lines of a failure that comes when the budget of the run is spent."""
    way_out = next(
        iter(ways_out(result)), _("details:    {text}").format(text=result.origin.directory / "report.txt")
    )
    return [plain(cut(headline(result), WIDTH)), plain(way_out)]


def full_lines(result: Result) -> list[str]:
    """Return everything, for a file."""
    return [plain(line) for line in [*_body(result, None), *ways_out(result)]]


def _body(result: Result, room: int | None) -> list[str]:
    """Return all but the last lines, in so many: with fewer tensors of the second run where it has to be."""
    lines: list[str] = []
    for findings in _FINDINGS if room is not None else (None,):
        lines = _with_findings(result, findings)
        if room is None or len(lines) <= room:
            break
    return lines


def _with_findings(result: Result, findings: int | None) -> list[str]:
    brief = findings is not None
    limit = _LISTED if brief else None
    shown = 0 if (result.comparison and result.comparison.failing) or result.findings else 1
    head = [headline(result), *_listed(mark("also"), result.problems[shown:], limit)]
    head += _scene_lines(result.findings, ROWS if brief else None)
    tail = _listed(mark("note"), result.notes, limit)
    if result.escalation is not None:
        tail = _escalation_lines(result, result.escalation, findings) + tail
    tail = _reference_lines(result, LINES - _FIXED - len(head) - len(tail) if brief else None) + tail
    if result.comparison is None or not result.comparison.failing:
        return head + _change_lines(result.changes, brief=brief) + tail
    room = LINES - _FIXED - len(head) - len(tail)
    rows = max(_FEWEST_ROWS, min(ROWS, room)) if brief else MOST_ROWS
    return head + _comparison_lines(result, rows, brief=brief) + tail


def _change_lines(changes: Sequence[Verdict], *, brief: bool) -> list[str]:
    """Return what changed within tolerance, where the test fails for that."""
    if not changes:
        return []
    rows = ROWS if brief else MOST_ROWS
    lines = table([row(verdict) for verdict in changes[:rows]], COLUMNS)
    if len(changes) > rows:
        lines.append(_("  ... and {left} more{place}").format(left=len(changes) - rows, place=""))
    return lines


def _reference_lines(result: Result, room: int | None) -> list[str]:
    """Return what differs from the reference: briefly where the golden has its own table above."""
    differs = result.comparison is not None and result.comparison.failing
    sources = None if differs else result.sources
    if room is None:
        return reference_lines(result.reference, None, sources)
    if differs:
        return reference_lines(result.reference, _FEWEST_ROWS, brief=True)
    return reference_lines(result.reference, max(_FEWEST_ROWS, min(ROWS, room)), sources)


def _scene_lines(findings: Sequence[SceneFinding], limit: int | None) -> list[str]:
    lines = [*map(finding_sentence, findings[1:limit])]
    if limit is not None and len(findings) > limit:
        lines.append(_("... and {left} more").format(left=len(findings) - limit))
    details = finding_details(findings[0]) if findings else []
    if limit is not None and len(details) > limit:
        details = [
            *details[: limit - 2],
            _("  ... and {left} more").format(left=len(details) - limit + 1),
            details[-1],
        ]
    return [*details, *lines]


def _listed(label: str, items: Sequence[str], limit: int | None) -> list[str]:
    label = _(label)
    lines = [f"{label}: {spoken(item)}" for item in items[:limit]]
    if limit is not None and len(items) > limit:
        lines.append(_("{label}: ... and {left} more").format(label=label, left=len(items) - limit))
    return lines


def _comparison_lines(result: Result, rows: int, *, brief: bool) -> list[str]:
    comparison = result.comparison
    assert comparison is not None  # noqa: S101 - checked by the caller
    failing = comparison.failing
    feeds_seen = feeds_are_seen(result.sources, comparison.first)
    lines = [
        _("first:      {words}").format(words=explain_first(comparison, feeds_seen=feeds_seen)),
        _("golden:     {count} of {expected} tensors fail against {golden}").format(
            count=len(failing),
            expected=comparison.expected,
            golden=shown(result.golden, result.origin.here),
        ),
    ]
    lines[1:1] = [*origin_lines(result.sources, comparison, brief=brief), *first_change(result)]
    if result.numerics is not None:
        lines.append(_("bounds:     {numerics}").format(numerics=result.numerics.describe()))
    if result.measured is not None and result.measured.noise:
        measured = result.measured.describe(result.measured_bounds)
        lines.append(_("measured:   {measured}").format(measured=measured))
    lines += table([row(verdict) for verdict in failing[:rows]], COLUMNS)
    if len(failing) > rows:
        lines.append(
            _("  ... and {left} more{place}").format(
                left=len(failing) - rows, place=_(", all in report.json") * (rows == MOST_ROWS)
            )
        )
    rule = deciding_rule(comparison.first)
    return [*lines, _("rule:       {rule}").format(rule=rule)] if rule else lines


def _escalation_lines(result: Result, escalation: Escalation, limit: int | None) -> list[str]:
    if escalation.problem in result.problems:
        return []  # the headline says it
    if escalation.problem:
        return [_("second run: {problem}").format(problem=spoken(escalation.problem))]
    findings = escalation.findings
    if not findings and not result.failing_keys:
        words = _("second run: {layers} dumped as tensors, for an approval to keep with the golden")
        return [words.format(layers=_layers(escalation)), *_listed(mark("note"), escalation.notes, limit)]
    lines = [
        _("second run: {reproduction} ({layers} dumped as tensors)").format(
            reproduction=_reproduction(result, escalation), layers=_layers(escalation)
        )
    ]
    lines += isolated_lines(escalation.isolated, brief=limit is not None)
    # Tensors that did not reproduce come first, then sources, else in the order of execution.
    named = {source.key for source in result.sources.independent} if result.sources is not None else set()
    telling = sorted(findings, key=lambda one: (one.reproduced is not False, one.key not in named))
    for finding in telling[:limit]:
        lines += finding_lines(finding, worst=1 if limit else 5)
    lines += _listed(mark("note"), escalation.notes, limit)
    place = shown(escalation.directory, result.origin.here)
    return [*lines, _("tensors:    {directory}").format(directory=place)]


def _reproduction(result: Result, escalation: Escalation) -> str:
    findings = escalation.findings
    different = sum(finding.reproduced is False for finding in findings)
    unseen = sum(finding.reproduced is None for finding in findings)
    if different:
        words = _("NOT REPRODUCED in {different} of {count} tensors").format(
            different=different, count=len(findings)
        )
        now = Counter(finding.now for finding in findings if finding.reproduced is False and finding.now)
        golden = _(", ").join(
            _("{number} {how}").format(number=now[how], how=_(how))
            for how in (status.AS_PRINTED, status.WITHIN, status.OUTSIDE)
            if now[how]
        )
        return _("{words}: {golden}").format(words=words, golden=golden) if golden else words
    if escalation.reproduced is None:
        return _("it has none of the failing tensors, so it says nothing of them")
    rest = _(", but for {unseen} tensors it did not dump").format(unseen=unseen) if unseen else ""
    comparison = result.comparison
    first = comparison.first if comparison is not None else None
    if first is not None and draws_random(first.op_type) and not result.origin.isolated:
        return _("it agrees{rest}, as runs of one process do whose random numbers come from one seed").format(
            rest=rest
        )
    if escalation.drawing:
        words = _("as runs of one process do whose random numbers come from one seed")
        return _("it agrees{rest}, {words}, and {drawing_words}").format(
            rest=rest, words=words, drawing_words=drawing_words(escalation.drawing)
        )
    return _("the failure reproduced{rest}").format(rest=rest)


def _layers(escalation: Escalation) -> str:
    count = len(escalation.layers)
    return ngettext("{count} layer", "{count} layers", count).format(count=count)


def ways_out(result: Result) -> list[str]:
    """Return the command that creates or approves the golden, where one would."""
    command = typed("pytest", "--npudump-update-golden", *result.origin.arguments)
    if result.status == status.MISSING_GOLDEN:
        return [_("to create:  {command}").format(command=command)]
    lines = [found] if (found := way_out(result)) else []
    known = any(map(can_be_approved, result.findings))
    comparison = result.comparison
    beside = comparison is not None and comparison.failing
    if result.reference is not None and not result.reference.good and not beside:
        return lines
    if result.status == status.FAILED and (comparison is not None or known):
        words = _("to approve: {command}")
        if result.environment.get("runtime", ("", ""))[1] == "emulator":
            words = _("to approve on the device: {command}")
        lines.append(words.format(command=command))
    return lines
