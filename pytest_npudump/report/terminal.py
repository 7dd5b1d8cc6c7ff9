"""Terminal text of a failed test: a screenful, or with ``-v`` everything."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.stats.verdict import FAIL, PASS, Comparison, Verdict
from pytest_npudump.dump.records import TensorKey, sanitise
from pytest_npudump.errors import joined
from pytest_npudump.explain.operator_alone import CONVICTED, POSSIBLE, JudgedOperator
from pytest_npudump.language.text import cut, first_of, hung, terminal_columns, typed
from pytest_npudump.language.translation import carrying, gettext as _, ngettext, spoken
from pytest_npudump.onnxmodels.graph import drawing_words, draws_random
from pytest_npudump.regression import result as status
from pytest_npudump.regression.result import Escalation, Finding, Result, SceneFinding
from pytest_npudump.report.explanations import (
    altered,
    conviction,
    finding_lines,
    isolated_lines,
    reference_lines,
    reference_sentence,
    way_out,
    whose_error,
)
from pytest_npudump.report.layer_names import LayerNames
from pytest_npudump.report.origins import (
    changed_behind,
    first_change,
    is_altered,
    mismatches,
    model_line,
    more_sources,
    not_reproduced,
    one_sided,
    origin_lines,
    what_changed,
    where_it_begins,
    with_matching_inputs,
)
from pytest_npudump.report.scenes import can_be_approved, finding_details, finding_sentence
from pytest_npudump.report.verdicts import COLUMNS, deciding_rule, plain, row, sentence, shown, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_npudump.report.files import ReportFiles


WIDTH = 500
"""Characters of a line of words without ``-v``."""
ROWS = 3
"""Failing tensors shown without ``-v``."""
MOST_ROWS = 10_000
"""Failing tensors shown with ``-v``, and in the file for people; the one of JSON has all."""
_HEAD, _ALL = 2, 3
"""Lines of the headline in a terminal, at most, and how much it says of what there is to say."""
_LISTED = 2
"""Further problems, and notes, shown without ``-v``."""
_DETAILS = 10
"""Findings of a scene, and lines of one, shown without ``-v``."""
_ALONE = 4
"""Operators alone of which a page tells."""
_DOTTED = re.compile(r"(^|\s)\.\.\./")
"""A name without what the names of a model begin with."""
_ROW = re.compile(r"  \S")
WHOLE, SHORT, BOTH = "whole", "short", "both"
"""Texts that have a line: a short one is shown where the budget of the run is spent."""


def headline(result: Result, detail: int = _ALL) -> str:
    """Return the first line, which is also the line of pytest's short summary.

    Args:
        result: of a test.
        detail: how much of it: 3 for all, 2 without values where a cause is known, 1 with the first change of
            each kind, 0 without a mismatch, too.
    """
    return f"npudump: {_caption(result, detail)}"


def _caption(result: Result, detail: int = _ALL) -> str:
    ranks = [spoken(str(result.origin.rank))] if result.origin.rank is not None else []
    return joined(": ", [*filter(None, [*ranks, result.part]), _what(result, detail)])


def _what(result: Result, detail: int) -> str:
    """Return the cause as far as it is known: an operator, where the change begins, or the first mismatch."""
    brief = detail < _ALL - 1
    changed = what_changed(result, 1, counts=False) if brief else what_changed(result)
    cause = _cause(result, brief=brief)
    if result.comparison is not None and result.comparison.first is not None:
        first = result.comparison.first
        behind = changed_behind(result)
        begins = (not behind and changed) or where_it_begins(result)
        if cause and changed:  # what is certain first
            possible = not behind and _convicted(result)[0].certainty == POSSIBLE
            return joined(_("; "), (changed, cause) if possible else (cause, changed))
        if cause or (begins and not detail):
            return cause or begins
        label = _("{begins}; first mismatch: {words}")
        named = {*result.models.operators} if result.models is not None else set[str]()
        if first.status != FAIL and named & {*first.key.operator_names}:
            label = _("{begins}; next mismatch: {words}")  # it is what was removed or added
            failing = result.comparison.failing
            others = (one for one in failing if one.status == FAIL or not named & {*one.key.operator_names})
            if (following := next(others, None)) is None:
                return begins
            first = following
        words = sentence(first, short=bool(begins) and detail < _ALL) + more_sources(result.sources, first)
        if not_reproduced(result):
            words = _("{words}; not reproduced by the second run").format(words=words)
        told = label.format(begins=begins, words=words) if begins else words
        return joined(_("; "), (told, changed)) if behind else told
    if result.findings:
        return finding_sentence(result.findings[0])
    if result.problems:
        words = spoken(result.problems[0])
        return joined(_("; "), [changed, words]) if changed and result.changes else words
    if result.reference is not None and result.reference.failing:
        return cause or reference_sentence(result.reference, result.sources)
    return spoken(result.escalation.problem) if result.escalation else ""


def _cause(result: Result, *, brief: bool = False) -> str:
    """Return the operators with an error; ``brief`` with the first only."""
    convicted = _convicted(result)
    cause = conviction(convicted, 0 if brief else 2)
    findings = result.escalation.findings if result.escalation is not None else ()
    otherwise = any(one.reproduced is False for one in findings)
    if otherwise and convicted and convicted[0].key not in result.failing_keys:
        cause = _("{cause} (in the second run)").format(cause=cause)
    return cause


def _in_headline(result: Result) -> bool:
    """Return whether operators with an error are in the first line."""
    compared = result.comparison is not None and result.comparison.first is not None
    return compared or not (result.findings or result.problems)


def _convicted(result: Result) -> list[JudgedOperator]:
    """Return the operators with an error, but for those where the model has changed since the reference."""
    isolated = result.escalation.isolated if result.escalation is not None else ()
    found = (one for one in isolated if one.alone.verdict == CONVICTED and not altered(one, result.models))
    return sorted(found, key=lambda one: one.certainty == POSSIBLE)  # what is certain first


def failure_lines(
    result: Result, details: ReportFiles, *, verbose: bool, spent: bool = False
) -> tuple[list[str], list[str]]:
    """Return the text of a failing test, and the one without rows, where it may come to that.

    Args:
        result: of the test.
        details: the files of its report.
        verbose: whether to tell everything, whatever room that takes.
        spent: whether there is no room for rows any more.
    """
    rows, behind = MOST_ROWS if verbose else ROWS, _behind(result, details)
    body = _body(result, rows, terminal_columns(), brief=not verbose, rest=details.text.name)
    whole, short = (_cut(body, kind, brief=not verbose) + behind for kind in (WHOLE, SHORT))
    return short if spent else whole, [] if verbose else short


def _cut(lines: list[tuple[str, str]], kind: str = WHOLE, *, brief: bool) -> list[str]:
    return [plain(cut(line, WIDTH) if brief else line) for text, line in lines if text in (kind, BOTH)]


def _behind(result: Result, details: ReportFiles) -> list[str]:
    """Return the last lines, which are to be copied whole: the file with everything, and the ways out."""
    place = shown(details.text, result.origin.here)
    words = spoken(details.problem) or _("report:     {text}").format(text=place)
    command = hand_over(result, details)
    handed = [_("hand over:  {command}").format(command=command)] if command else []
    lines = map(plain, [words, *handed, *ways_out(result, "" if details.problem else details.text.name)])
    return [one for line in lines for one in hung(line, terminal_columns())]


def hand_over(result: Result, details: ReportFiles) -> str:
    """Return the command that hands over an operator that is wrong by itself; "" without such a one.

    One that is wrong by the golden has to be out of tolerance: nothing else tells where it is run alone.
    """
    convicted = _convicted(result)
    if details.problem or not any(one.saved is not None or not one.call for one in convicted):
        return ""
    if convicted[0].alone.why and convicted[0].key not in result.failing_keys:
        return ""
    if any(one.key == convicted[0].key and one.size == 0 for one in result.run.records):  # it left no file
        return ""
    return f"npudump repro {typed(shown(details.text.parent, result.origin.here))} -o DIR"


def failure_summary(result: Result) -> dict[str, Any]:
    """Return a failure for saved results: first line and reasons, as sentences that carry their templates.

    That is whose error a reference shows, what the second run said, operators alone, and elements.
    """
    with carrying():
        return {"headline": _caption(result), "why": [*_reasons(result)]}


def _reasons(result: Result) -> Iterator[str]:
    reference, escalation = result.reference, result.escalation
    if reference is not None:
        yield from whose_error(reference)
    if escalation is None or escalation.problem in result.problems:
        return
    if escalation.problem:
        yield _("second run: {problem}").format(problem=spoken(escalation.problem))
    elif escalation.findings:
        yield _("second run: {problem}").format(problem=_reproduction(result, escalation))
        yield from _fed_lines(escalation)
    telling, begins = _in_order(result, escalation)
    yield from isolated_lines(
        escalation.isolated,
        brief=True,
        begins=begins,
        most=_ALONE,
        models=result.models,
        matched=with_matching_inputs(result),
        ended=escalation.ended,
        headed=_in_headline(result),
        changed=is_altered(result),
    )
    for finding in telling[:ROWS]:
        yield from finding_lines(finding, brief=True)


def _in_order(result: Result, escalation: Escalation) -> tuple[list[Finding], set[TensorKey]]:
    """Return findings in the order of the report, and where changes begin.

    Tensors that did not reproduce come first, then sources, else in the order of execution.
    """
    sources = result.sources.independent if result.sources is not None else ()
    named = {source.key for source in sources}
    telling = sorted(escalation.findings, key=lambda one: (one.reproduced is not False, one.key not in named))
    return telling, {source.begins for source in sources if source.begins is not None}


def verdict_lines(result: Result, cause: Sequence[str] = (), *, verbose: bool, margin: int = 0) -> list[str]:
    """Return the text of a result that no run has left files of; ``cause`` as for :func:`full_lines`."""
    rows, columns = MOST_ROWS if verbose else ROWS, terminal_columns() - margin
    lines = _cut(_body(result, rows, columns, brief=not verbose, cause=cause), brief=not verbose)
    return [*lines, *map(plain, ways_out(result))]


def full_lines(result: Result, cause: Sequence[str] = ()) -> list[str]:
    """Return everything, for a file; ``cause`` is the first line and reasons of the run itself."""
    body = _body(result, MOST_ROWS, None, brief=False, cause=cause)
    return [*_cut(body, brief=False), *map(plain, ways_out(result))]


def _body(
    result: Result,
    rows: int,
    columns: int | None,
    *,
    brief: bool,
    rest: str = "",
    cause: Sequence[str] = (),
) -> list[tuple[str, str]]:
    """Return all but the last lines, each behind the text that has it.

    Args:
        result: of a test.
        rows: failing tensors to list.
        columns: of the terminal; None for a file.
        brief: whether to tell the most important only.
        rest: the file that has the other rows; "" for none.
        cause: the first line and the reasons, where they are known from elsewhere.
    """
    limit = _LISTED if brief else None
    compared = result.comparison is not None and bool(result.comparison.failing)
    first = spoken(cause[0]) if cause else ""
    said_first = not first or first == headline(result).removeprefix("npudump: ")
    hidden = 1 if said_first and not (compared or result.findings) else 0
    problems = [one for one in result.problems[hidden:] if not (compared and one == result.weights)]
    reference = result.reference.comparison if result.reference is not None else None
    names, detail = LayerNames.of(result.comparison or reference, columns), _ALL
    if columns is not None:
        names.fit(names.layers, names.room)
    by_verdict = compared or not (result.findings or result.problems)
    head = names.lines(f"npudump: {first}" if first else headline(result))
    while by_verdict and len(head) > _HEAD and detail and not first:
        detail -= 1
        head = names.lines(headline(result, detail))
    named = (what_changed(result, most, counts=False) for most in (1, None))
    untold = detail < _ALL - 1 and len({*named}) > 1
    untold |= result.sources is not None and bool(result.sources.beside)
    untold |= bool(first) and what_changed(result) not in first  # as the run knew more edges
    words = _comparison_lines(result, rows, names, rest, brief=brief, untold=untold) if compared else []
    head += [line for one in _listed(_("also:       {text}"), problems, limit) for line in names.lines(one)]
    head += _scene_lines(result.findings, _DETAILS if brief else None)
    head += _code_lines(result, brief=brief)
    lines = [(BOTH, line) for line in head]
    lines += [
        (text, one)
        for text, line in words
        for one in ([line] if line.startswith("  ") else names.lines(line))
    ]
    if not compared:
        lines += _rows(result.changes, rows, names, rest)  # where the test fails for changes
    behind, sources = len(lines), None if compared else result.sources
    most = rows if rows < MOST_ROWS else None
    beside = brief and compared  # the golden's table names the layers
    for kind, shown_rows, few in ((WHOLE, 0 if beside else most, beside), (SHORT, 0, True)):
        told = reference_lines(result.reference, shown_rows, sources, brief=few, names=names)
        lines += [(kind, line) for line in told]
    if reference is not None and reference.failing and not beside:
        lines.append(_rows_left(len(reference.mismatches), rest))
    if result.escalation is not None:
        words = _escalation_lines(result, result.escalation, brief=brief, notes=limit)
        lines += [(text, one) for text, line in words for one in names.lines(line)]
    lines += [(BOTH, one) for line in cause[1:] for one in names.lines(spoken(line))]
    begun = any(_DOTTED.search(line) for text, line in lines if text != WHOLE)
    rows_at = next((at for at, (_text, line) in enumerate(lines) if _ROW.match(line)), behind)
    legends = ((WHOLE, names.legend()), (SHORT, names.legend(again=True) if begun else []))
    lines[rows_at:rows_at] = [(kind, line) for kind, legend in legends for line in legend]
    notes = _listed(_("note:       {text}"), result.notes, limit)
    lines += [(WHOLE, line) for note in notes for line in names.lines(note)]
    escalation = result.escalation or Escalation()
    count = len(result.notes) + (0 if escalation.problem else len(escalation.notes))
    left = _("notes:      {count} in {where}").format(count=count, where=rest)
    return [*lines, (SHORT, left)] if count else lines


def _code_lines(result: Result, *, brief: bool) -> list[str]:
    """Return the source lines of the layers that the headline names: the cause first, the mismatch last."""
    sources = result.sources.independent if result.sources is not None else ()
    first = result.comparison.first if result.comparison is not None else None
    layers = [one.key.layer for one in _convicted(result)]
    layers += [source.altered or (source.begins or source.key).layer for source in sources]
    layers += [first.key.layer] if first is not None else []
    known = [layer for layer in dict.fromkeys(layers) if sanitise(layer) in result.code]
    line = _("code:       {layer}: {code}")
    return [line.format(layer=one, code=result.code[sanitise(one)]) for one in known[: 1 if brief else None]]


def _rows(verdicts: Sequence[Verdict], rows: int, names: LayerNames, rest: str) -> list[tuple[str, str]]:
    """Return a table of the first verdicts, and how many more there are, which a short text says of all."""
    if not verdicts:
        return []
    laid = table([row(one) for one in verdicts[:rows]], COLUMNS, names)
    lines = [(WHOLE, line) for line in (*names.legend(), *laid)]
    where = "report.json" if rows == MOST_ROWS else rest
    words = _("  ... {left} more in {where}") if where else "  " + _("... and {left} more")
    if (left := len(verdicts) - rows) > 0:
        lines.append((WHOLE, words.format(left=left, where=where)))
    return [*lines, _rows_left(len(verdicts), where)]


def _rows_left(count: int, where: str) -> tuple[str, str]:
    """Count, for a short text, the rows of a table that are only in a file."""
    words = ngettext("  ... {left} row in {where}", "  ... {left} rows in {where}", count)
    return SHORT, words.format(left=count, where=where)


def _scene_lines(findings: Sequence[SceneFinding], limit: int | None) -> list[str]:
    lines = [*map(finding_sentence, findings[1:limit])]
    if limit is not None and len(findings) > limit:
        lines.append(_("... and {left} more").format(left=len(findings) - limit))
    details = finding_details(findings[0]) if findings else []
    if limit is not None and len(details) > limit:
        details = [
            *details[: limit - 2],
            "  " + _("... and {left} more").format(left=len(details) - limit + 1),
            details[-1],
        ]
    return [*details, *lines]


def _listed(words: str, items: Sequence[str], limit: int | None) -> list[str]:
    lines = [words.format(text=spoken(item)) for item in items[:limit]]
    if limit and len(items) > limit:
        lines.append(words.format(text=_("... and {left} more").format(left=len(items) - limit)))
    return lines


def _comparison_lines(
    result: Result, rows: int, names: LayerNames, rest: str, *, brief: bool, untold: bool
) -> list[tuple[str, str]]:
    comparison = result.comparison
    assert comparison is not None  # noqa: S101 - checked by the caller
    failing = comparison.mismatches
    cause = _cause(result)
    traced = not (brief and (cause or where_it_begins(result)))
    told, last = origin_lines(
        result.sources,
        comparison,
        brief=brief,
        traced=traced,
        unlike=one_sided(result),
        models=result.models,
    )
    if cause and (wrong := _convicted(result)[0].key).sanitised in _passing(comparison):  # and is no source
        told[0] += _("; {key} is within tolerance of the golden").format(key=wrong)
    others = model_line(result, brief=brief, cause=bool(cause), untold=untold)
    others += [] if brief else first_change(result)
    golden = _("golden:     {golden}; {mismatches}").format(
        golden=shown(result.golden, result.origin.here), mismatches=mismatches(comparison)
    )
    lines = [(BOTH if at <= last else WHOLE, line) for at, line in enumerate(told)]
    lines += [(BOTH, line) for line in (*others, golden)]
    numerics, rule = result.numerics, deciding_rule(comparison.first)
    preset = []
    if numerics is not None and not (brief and numerics.same and not numerics.differs):
        preset = [(BOTH, _("preset:     {numerics}").format(numerics=numerics.describe()))]
        if numerics.compiled:  # first of all, as it may be the cause of every row
            lines, preset = [*preset, *lines], []
    lines += _rows(failing, rows, names, rest)
    if rule:
        words = _("tolerance:  {rule}").format(rule=spoken(rule))
        chosen = numerics is None or not numerics.same or numerics.fixed or numerics.preset
        if not chosen and any(one.certainty == POSSIBLE for one in _convicted(result)[:1]):
            words += _("; where kernels may fuse or sum otherwise: -o npudump_preset=other")
        lines.append((BOTH, words))
    lines += preset
    if result.measured is not None and result.measured.noise:
        measured = result.measured.describe(result.measured_bounds)
        lines.append((BOTH, _("measured:   {measured}").format(measured=measured)))
    return lines


def _passing(comparison: Comparison) -> set[TensorKey]:
    """Return the tensors with values that were compared and are within tolerance."""
    unseen = frozenset[int]().union(*(doubt.unjudged for doubt in comparison.doubts))
    told = enumerate(comparison.verdicts())
    return {one.key.sanitised for at, one in told if one.status == PASS and at not in unseen}


def _escalation_lines(
    result: Result, escalation: Escalation, *, brief: bool, notes: int | None
) -> list[tuple[str, str]]:
    if escalation.problem in result.problems:
        return []  # the headline says it
    if escalation.problem:
        return [(BOTH, _("second run: {problem}").format(problem=spoken(escalation.problem)))]
    behind = [(WHOLE, line) for line in _listed(_("note:       {text}"), escalation.notes, notes)]
    if not escalation.findings and not result.failing_keys:
        words = _("second run: {layers} dumped as tensors, which an update stores with the golden")
        return [(BOTH, words.format(layers=_layers(escalation))), *behind]
    words = _("second run: {reproduction}; {layers} dumped as tensors").format(
        reproduction=_reproduction(result, escalation), layers=_layers(escalation)
    )
    telling, begins = _in_order(result, escalation)
    described = ((finding, finding_lines(finding, brief=brief)) for finding in telling)
    found = list(islice((one for one in described if one[1]), 1 if brief else None))
    known = {finding.key for finding, _lines in found if finding.pattern or finding.reference_pattern}
    alone = isolated_lines(
        [replace(one, pattern=None) if one.key in known else one for one in escalation.isolated],
        brief=brief,
        begins=begins,
        models=result.models,
        matched=with_matching_inputs(result),
        ended=escalation.ended,
        headed=_in_headline(result),
        changed=is_altered(result),
    )
    elements = [line for _finding, lines in found for line in lines]
    ordered = [*elements, *alone] if brief else [*alone, *elements]
    lines = dict.fromkeys(ordered, BOTH)
    place = shown(escalation.directory, result.origin.here)
    bare = [one.key for one in telling if one.description and not (one.reference or one.note)]
    if bare and not brief:
        words_of_bare = _("elements:   no golden tensor of {keys} (golden_tensors= in the marker keeps one)")
        lines |= {words_of_bare.format(keys=first_of(bare)): WHOLE}
    behind += [] if brief else [(WHOLE, _("tensors:    {directory}").format(directory=place))]
    fed = [(BOTH, line) for line in _fed_lines(escalation)]
    return [(BOTH, words), *fed, *((kind, line) for line, kind in lines.items()), *behind]


def _fed_lines(escalation: Escalation) -> list[str]:
    """Report that a test feeds its model other values in each run, which recording refuses."""
    words = _("the test feeds its model other values in each run: {names}; give these a seed")
    fed = words.format(names=first_of(escalation.fed, _LISTED))
    return [_("inputs:     {words}").format(words=fed)] if escalation.fed else []


def _reproduction(result: Result, escalation: Escalation) -> str:
    findings = escalation.findings
    different = sum(finding.reproduced is False for finding in findings)
    unseen = sum(finding.reproduced is None for finding in findings)
    if different:
        words = _("NOT REPRODUCED in {different} of {count} tensors").format(
            different=different, count=len(findings)
        )
        now = Counter(finding.now for finding in findings if finding.reproduced is False and finding.now)
        known = [how for how in (status.AS_PRINTED, status.WITHIN, status.OUTSIDE) if now[how]]
        golden = joined(_(", "), [_("{number} {how}").format(number=now[how], how=_(how)) for how in known])
        return _("{words}: {golden}").format(words=words, golden=golden) if golden else words
    if escalation.reproduced is None:
        return _("none of the mismatching tensors was dumped")
    rest = ""
    if unseen:
        rest = ngettext(
            ", but for {unseen} tensor not dumped", ", but for {unseen} tensors not dumped", unseen
        )
        rest = rest.format(unseen=unseen)
    comparison = result.comparison
    first = comparison.first if comparison is not None else None
    if first is not None and draws_random(first.op_type) and not result.origin.isolated:
        return _("reproduced{rest}, as the runs of one process draw the same random numbers").format(
            rest=rest
        )
    if escalation.drawing:
        return _(
            "reproduced{rest}, as the runs of one process draw the same random numbers, and {drawn}"
        ).format(rest=rest, drawn=drawing_words(escalation.drawing))
    return _("reproduced{rest}").format(rest=rest)


def _layers(escalation: Escalation) -> str:
    count = len(escalation.layers)
    return ngettext("{count} layer", "{count} layers", count).format(count=count)


def ways_out(result: Result, file: str = "") -> list[str]:
    """Name commands that create or update the golden, or accept another reference; ``file`` as for that."""
    command = typed("pytest", "--npudump-update-golden", *result.origin.arguments)
    if result.status == status.MISSING_GOLDEN:
        others = result.problems[1:]  # with which none can be
        return [] if others else [_("to create:  {command}").format(command=command)]
    lines = [found] if (found := way_out(result, file)) else []
    known = any(map(can_be_approved, result.findings))
    if result.status != status.FAILED or not (result.comparison is not None or known):
        return lines
    words = _("to accept:  {command}")
    if result.off_reference is not None or (result.reference is not None and not result.reference.good):
        if not lines or (result.comparison is not None and result.comparison.ok):
            return lines
        words = _("then:       {command}")  # which refuses before
    elif result.escalation is not None and result.escalation.fed:
        lines.append(_("to accept:  give the inputs a seed"))
        words = _("then:       {command}")
    elif result.environment.get("runtime", ("", ""))[1] == "emulator":
        words = _("to accept on the device: {command}")
    return [*lines, words.format(command=command)]
