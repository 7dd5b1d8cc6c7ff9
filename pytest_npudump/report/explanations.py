"""Text of a failure's explanations: elements of a tensor, operators recomputed, an ONNX reference."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from pytest_npudump.compare.stats.verdict import GRAPH_INPUT, explain_first
from pytest_npudump.explain.operator_alone import (
    ACQUITTED,
    CONVICTED,
    FED,
    NO_OPERATOR,
    POSSIBLE,
    UNKNOWN,
    WEIGHTED,
    JudgedOperator,
)
from pytest_npudump.explain.rounding import DEVICE, DTYPE
from pytest_npudump.language import mark
from pytest_npudump.language.text import HANG, first_of
from pytest_npudump.language.translation import gettext as _, spoken
from pytest_npudump.record.model_lines import ALL, NOTHING, WEIGHTS, ModelChange
from pytest_npudump.report.layer_names import LayerNames
from pytest_npudump.report.origins import by_operator, feeds_are_seen, more_sources, source_lines
from pytest_npudump.report.verdicts import (
    COLUMNS,
    PROJECTIONS,
    deciding_rule,
    number,
    numbers,
    row,
    sentence,
    table,
    times,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pytest_npudump.compare.tensors.difference import TensorDifference
    from pytest_npudump.compare.tensors.picture import TensorDescription
    from pytest_npudump.dump.records import TensorKey
    from pytest_npudump.explain.reference import ReferenceResult
    from pytest_npudump.graph.sources import Sources
    from pytest_npudump.regression.result import Finding, Result


def _disagreement(name: str, first: object, second: object) -> str:
    if name == PROJECTIONS and first == 0:  # what the second is, is how far off the elements are
        words = _("l2norm of the difference about {actual:.2g}, estimated from projections")
        return words.format(actual=second)
    first, second = numbers(first, second)
    return _("{name} {first}, then {second}").format(name=name, first=first, second=second)


def finding_lines(finding: Finding, *, brief: bool) -> list[str]:
    """Describe one tensor of the second run.

    Args:
        finding: what that run says of it.
        brief: whether to say only what differs, and where, in one line each; nothing where that is unknown.
    """
    lines = []
    if finding.differences:
        pairs = _(", ").join(_disagreement(name, *pair) for name, pair in finding.differences.items())
        lines.append(_("first and second run differ: {pairs}").format(pairs=pairs))
    for difference, pattern, side in (
        (finding.difference, finding.pattern, mark("golden")),
        (finding.reference, finding.reference_pattern, mark("reference")),
    ):
        if difference is not None and not (brief and pattern is not None):
            lines += _difference_lines(difference, side, brief=brief)
        known = finding.pattern if side == "reference" else None
        if pattern is not None and (known is None or known.what != pattern.what):
            lines.append(spoken(str(pattern)))
    tensor = finding.description
    odd = tensor is not None and (tensor.first_nan is not None or tensor.first_inf is not None)
    if tensor is not None and finding.reference is None and (odd or not brief):
        lines.append(tensor_words(tensor))
    if finding.note and not brief:
        lines.append(spoken(finding.note))
    return [_("elements:   {key}: {line}").format(key=finding.key, line=line) for line in lines]


def _difference_lines(difference: TensorDifference, side: str, *, brief: bool) -> list[str]:
    d = difference
    words = _(side)
    shown = [(list(e.index), *numbers(e.golden, e.actual)) for e in d.worst[: 1 if brief else 5]]
    places = [
        _("worst at {index}: {actual}, expected {golden}").format(index=index, actual=actual, golden=golden)
        for index, golden, actual in shown
    ]
    measures = _("max abs error {max_abs}, max rel error {max_rel}, cosine similarity {cosine}").format(
        max_abs=number(d.max_abs), max_rel=number(d.max_rel), cosine=number(d.cosine)
    )
    share = _("{outside} of {count} out of tolerance of the {side} tensor; {measures}")
    if not d.outside:  # what fails is held to another tolerance than the elements
        share = _("all {count} within rtol={rtol:g} atol={atol:g} of the {side} tensor; {measures}")
    measures = places[0] if brief and places else measures
    lines = [
        share.format(
            outside=d.outside, count=d.count, rtol=d.rtol, atol=d.atol, side=words, measures=measures
        )
    ]
    if not d.special_equal:
        lines.append(_("NaN or Inf differ: {words}").format(words=d.special_text().replace("golden", words)))
    return lines if brief else lines + places


def tensor_words(tensor: TensorDescription) -> str:
    """Describe the places of a tensor's remarkable elements."""
    ends = tensor.max_at is not None and tensor.min_at is not None
    parts = (
        f"{tensor.dtype} {list(tensor.shape)}",
        _("max {max} at {max_at}").format(max=number(tensor.max), max_at=[*(tensor.max_at or ())])
        if ends
        else "",
        _("min {min} at {min_at}").format(min=number(tensor.min), min_at=[*(tensor.min_at or ())])
        if ends
        else "",
        _("{nan} NaN, first at {first_nan}").format(nan=tensor.nan, first_nan=list(tensor.first_nan))
        if tensor.first_nan is not None
        else "",
        _("{inf} Inf, first at {first_inf}").format(
            inf=tensor.pos_inf + tensor.neg_inf, first_inf=list(tensor.first_inf)
        )
        if tensor.first_inf is not None
        else "",
    )
    return _(", ").join(filter(None, parts))


_SHOWN = 2


def isolated_lines(
    isolated: Sequence[JudgedOperator],
    *,
    brief: bool,
    begins: Collection[TensorKey] = (),
    most: int | None = None,
    models: ModelChange | None = None,
    matched: Collection[str] = (),
    ended: str = "",
    headed: bool = False,
    changed: bool = False,
) -> list[str]:
    """Return a line for each operator that is convicted, then one for all that match, then the undecided.

    Those that are no suspects and undecided are left out.

    Args:
        isolated: the verdicts.
        brief: whether to show the first few convicted only, or the first line of others where there is none.
        begins: where changes begin: what is said of these tensors comes before others.
        most: lines of one kind; None for as many as that takes.
        models: how the models differ from the golden's; None where that is not known.
        matched: keys of those the statistics of whose inputs match.
        ended: where the search for a cause ended.
        headed: whether the headline has the error of the first convicted, but for those that have changed.
        changed: whether operators are known to have changed, and may be the cause.
    """
    ranked = sorted(isolated, key=lambda one: (one.upstream, one.key not in begins))
    convicted, matching = _judged(isolated, CONVICTED), _judged(ranked, ACQUITTED)
    undecided = [one for one in _judged(ranked, UNKNOWN) if one.alone.why != NO_OPERATOR]
    told = _("recomputed: {key} is undecided: {why}")
    others = [
        told.format(key=one.key, why=spoken(one.alone.why)) + _error(one)
        for one in undecided
        if not one.upstream
    ]
    if matching:  # behind suspects that are undecided, unless it tells of another suspect
        at = len(others) if matching[0].upstream else 0
        cause = changed or bool(convicted)
        others.insert(at, _matching(matching, models, matched, begins, brief=brief, cause=cause))
    if ended and others and not (brief and convicted):
        others[0] += _("; {ended}").format(ended=spoken(ended))
    if brief:
        alike = bool(convicted) and convicted[0].certainty == POSSIBLE  # of all, which may have one reason
        others, most = others[: not convicted], most or (1 if alike else _SHOWN)
    shown = convicted[:most]
    known = next((one for one in convicted if not altered(one, models)), None) if headed else None
    lines = [_convicted(one, models, told=one is known) for one in shown]
    if any(one.inputs == FED and not altered(one, models) for one in shown):
        lines[-1] += _("; whether an input was overwritten is known with {option}").format(option=_INPUTS)
    if len(convicted) > len(shown) > 0:
        lines[-1] += _(" (and {left} more)").format(left=len(convicted) - len(shown))
    if ended and lines and (brief or not others):
        lines[-1] += _("; {ended}").format(ended=spoken(ended))
    words, seen = _("elements:   {key}: {line}"), (one for one in shown if one.pattern is not None)
    lines += [words.format(key=one.key, line=spoken(str(one.pattern))) for one in seen]
    return [*lines, *others[:most]]


def _judged(isolated: Sequence[JudgedOperator], verdict: str) -> list[JudgedOperator]:
    """Return the operators with a verdict: of several executions, which are alike, the first.

    What may have another explanation comes behind what has none.
    """
    found = sorted(
        (one for one in isolated if one.alone.verdict == verdict), key=lambda one: one.certainty == POSSIBLE
    )
    return [one for one, _count in by_operator(found, lambda one: one.key)]


_INPUTS = 'acl_json={"dump_mode": "all"}'


def _by(one: JudgedOperator) -> str:
    return _("{call} on the CPU").format(call=one.call) if one.call else one.model


def _error(one: JudgedOperator) -> str:
    apart = one.alone.apart
    return "" if math.isnan(apart) else _(" (relative L2 error {apart:.2g})").format(apart=apart)


def _matching(
    matching: Sequence[JudgedOperator],
    models: ModelChange | None,
    matched: Collection[str],
    begins: Collection[TensorKey],
    *,
    brief: bool,
    cause: bool,
) -> str:
    """Describe operators whose recomputation matches; without a cause, the meaning for the first."""
    first = matching[0]
    if len(matching) == 1:
        words = _("recomputed: {key} matches {by} on the same inputs{error}")
    else:
        words = _("recomputed: {count} operators match {by} on the same inputs: {key}")
    keys = first_of((one.key for one in matching), _SHOWN if brief else None)
    by = first_of(dict.fromkeys(map(_by, matching)), _SHOWN)
    words = words.format(key=keys, by=by, error=_error(first), count=len(matching))
    if first.alone.why:
        return _("{words}; {key} {why}").format(words=words, key=first.key, why=spoken(first.alone.why))
    known = models is not None and (models.mixed or models.names(first.key))
    given = models is not None and models.fed and str(first.key) not in matched
    if cause or first.upstream or known or given:
        return words
    possible = _possible(models, call=bool(first.call), matched=str(first.key) in matched)
    means = _("{words}; possible causes for {key}: {possible}, or another kernel in the recording")
    if first.own and not first.call and len(possible) > 1:
        means += _(" (reference= narrows it down)")
    if first.key in begins and first.alone.apart > 0 and not first.alone.bounded:
        possible.append(mark("an error in small elements"))
    return means.format(words=words, key=first.key, possible=_(", ").join(map(_, possible)))


def _possible(models: ModelChange | None, *, call: bool, matched: bool) -> list[str]:
    """Return possible causes, apart from the golden's kernel, for an operator whose recomputation matches.

    Args:
        models: how the models differ, in which its weights, attributes and connections do not.
        call: whether it is a call of torch, of whose type and attributes no model tells.
        matched: whether the statistics of its inputs match.
    """
    read = models.read if models is not None else NOTHING
    graph = models is None or models.graph or bool(models.types or models.operators or models.rewired)
    causes = (
        (not matched, mark("inputs")),
        (call or graph or read not in {ALL, WEIGHTS}, mark("type")),
        (read == NOTHING, mark("weights")),
        (call or read != ALL, mark("attributes")),
        (matched, mark("inputs with the same statistics")),
    )
    return [cause for may_be, cause in causes if may_be]


def altered(one: JudgedOperator, models: ModelChange | None) -> bool:
    """Return whether the model has changed at an operator that differs from a reference's."""
    return models is not None and not one.own and models.names(one.key)


def _convicted(one: JudgedOperator, models: ModelChange | None, *, told: bool) -> str:
    """Describe an operator whose recomputation differs, by how much if that is not told, and causes."""
    if altered(one, models):
        words = _("recomputed: {key} differs from {by} ({off}): the model has changed there")
        return words.format(key=one.key, by=_by(one), off=_off(one))
    wrong = _("the kernel") if one.own else _("the kernel, type, weights or attributes")
    if one.call:
        wrong = _("a kernel of this call")
    if one.converted:
        wrong = _("{wrong} or the conversion").format(wrong=wrong)
    if one.certainty == POSSIBLE:
        wrong = _("a fusion or another order of sums may explain it, or {wrong}").format(wrong=wrong)
    if one.inputs == FED:
        words = _(
            "recomputed: {key} differs from {by} on what feeds it{off}: {wrong} must be wrong, or "
            "something wrote to its inputs, weights or output"
        )
    else:
        words = _(
            "recomputed: {key} differs from {by} on the same inputs{off}: {wrong} must be wrong, or "
            "something wrote to its weights or output"
        )
    off = "" if told else _(" ({off})").format(off=_off(one))
    return words.format(key=one.key, by=_by(one), off=off, wrong=wrong)


def _off(one: JudgedOperator) -> str:
    """Describe an operator's error on its own inputs, with the limit."""
    return spoken(one.alone.why) or _("relative L2 error {apart:.2g}, limit {allowed:.2g}").format(
        apart=one.alone.apart, allowed=one.alone.allowed
    )


def conviction(isolated: Sequence[JudgedOperator], most: int = 2) -> str:
    """Name the operators that do not give what their own inputs give, as the cause; "" for none.

    Args:
        isolated: the verdicts.
        most: operators that are named beside the first; the others are counted.
    """
    if not (convicted := _judged(isolated, CONVICTED)):
        return ""
    first, *others = (
        one for one in convicted if (one.certainty == POSSIBLE) == (convicted[0].certainty == POSSIBLE)
    )
    kind = _("kernel error") if first.own or first.call else _("operator error")
    if first.own and first.converted and not first.call:
        kind = _("kernel or conversion error")
    if first.inputs in {WEIGHTED, FED}:
        kind = _("{kind} or overwritten tensor").format(kind=kind)
    if first.certainty == POSSIBLE:
        kind = _("possible {kind}").format(kind=kind)
    words = _("{key}: {kind}, {off}").format(kind=kind, key=first.key, off=_off(first))
    if not most:
        return words + (_(" (and {left} more)").format(left=len(others)) if others else "")
    return words + (
        _("; also {named}").format(named=first_of((one.key for one in others), most)) if others else ""
    )


_REMARKS = 2
"""Remarks shown without ``-v``."""
_COLUMNS = tuple("reference" if name == "golden" else name for name in COLUMNS)


def reference_sentence(result: ReferenceResult, sources: Sources | None = None) -> str:
    """Return the first divergence from the reference as a sentence; "" where nothing diverges.

    Other ``sources`` of what differs are named behind it.
    """
    found = result.comparison
    if found is None or found.first is None:
        return ""
    words = _("against the reference {name}: {sentence}").format(
        name=result.model.name, sentence=sentence(found.first, sides=("reference", "dump"))
    )
    return words + more_sources(sources, found.first)


def reference_lines(
    result: ReferenceResult | None,
    rows: int | None,
    sources: Sources | None = None,
    *,
    brief: bool = False,
    names: LayerNames | None = None,
) -> list[str]:
    """Describe mismatches with the reference.

    Args:
        result: of the comparison; None without a reference.
        rows: tensors to list; None for all of them.
        sources: of what differs, if they are known.
        brief: whether to say nothing but what differs.
        names: of the test's layers, as its terminal has them; None for a file.
    """
    if result is None or result.good or result.comparison is None:
        return []
    found = result.comparison
    failing = found.mismatches
    lines = [
        _(
            "reference:  {name}; mismatches: {count} of {compared}; layers with a counterpart: {known} of "
            "{layers}"
        ).format(
            name=result.model.name,
            count=len(failing),
            compared=found.compared,
            known=result.compared,
            layers=result.layers,
        )
    ]
    if (first := found.first) is not None:
        reason = _("an input of the graph: not what the reference was fed")
        if first.op_type != GRAPH_INPUT:
            reason = explain_first(found, feeds_seen=feeds_are_seen(sources, first))
        words = _("first:      {key}; {reason}").format(key=first.key, reason=reason)
        lines += [] if brief else [words]
        lines += source_lines(sources, brief=rows is not None)
        names = names or LayerNames.of(found)
        laid = table([row(verdict) for verdict in failing[:rows]], _COLUMNS, names) if rows != 0 else []
        lines = [*(one for line in lines for one in names.lines(line)), *names.legend(), *laid]
    if rows and len(failing) > rows:
        lines.append("  " + _("... and {left} more").format(left=len(failing) - rows))
    lines += [f"{HANG}{line}" for line in whose_error(result)]
    if brief:
        return lines
    if rule := deciding_rule(found.first):
        lines.append(_("tolerance:  {rule}").format(rule=spoken(rule)))
    remarks = result.remarks if rows is None else result.remarks[:_REMARKS]
    return [*lines, *(f"{HANG}{remark}" for remark in remarks)]


def whose_error(result: ReferenceResult) -> list[str]:
    """Describe whose error the first difference is, and count the errors of each."""
    if not result.blames:
        return []
    first = result.blames[0]
    values = {
        "key": first.key,
        "statistic": first.statistic,
        "device": number(first.device),
        "rounding": number(first.rounding),
        "ratio": times(first.ratio) if math.isfinite(first.ratio) else "",
    }
    if first.whose == DTYPE:
        words = _(
            "rounding can explain it: {key}: {statistic} error {device}; {rounding} on the CPU with "
            "rounding after every operator"
        )
    elif math.isfinite(first.ratio):
        words = _(
            "rounding does not explain it: {key}: {statistic} error {device}, {ratio}x that on the CPU with "
            "rounding after every operator"
        )
    else:
        words = _(
            "rounding does not explain it: {key}: no error on the CPU with rounding after every operator"
        )
    words = words.format(**values)
    counts = Counter(blame.whose for blame in result.blames)
    several = (
        _(" (not rounding {device}, rounding {dtype})").format(device=counts[DEVICE], dtype=counts[DTYPE])
        if len(counts) > 1
        else ""
    )
    return [_("whose error: {words}{several}").format(words=words, several=several)]


def way_out(result: Result, file: str = "") -> str:
    """Describe how to accept a difference from the reference; "" where there is none.

    Args:
        result: of the test.
        file: the one that has all rules where they are many; "" to have them in the line.
    """
    reference = result.reference
    if not (result.off_reference or (reference is not None and reference.failing)):
        return ""
    if result.models is not None and result.models.changed:
        return _("to accept:  in the marker, give reference= the changed model")
    if reference is None or reference.comparison is None:
        return _("to accept:  in the marker, the tolerances= that {file} gives").format(file="report.txt")
    needed, beyond = reference.accepting
    if beyond:
        words = _("to accept:  no tolerance covers {key}; list a fused layer in the file of map=")
        return words.format(key=first_of(beyond, 1))
    if file and len(needed) > _RULES:
        words = _("to accept:  in the marker, tolerances= with the {count} rules of {file}")
        return words.format(count=len(needed), file=file)
    words = _("to accept:  in the marker, tolerances=[{rules}]; list a fused layer in the file of map=")
    return words.format(
        rules=", ".join(_RULE.format(layer=layer, rtol=rtol) for layer, rtol in needed.items())
    )


_RULES = 2
"""Rules in the line of a terminal, at most."""
_RULE = "{{'against': 'reference', 'layer': {layer!r}, 'rtol': {rtol:.2g}, 'atol': 0, 'reason': 'accepted'}}"
