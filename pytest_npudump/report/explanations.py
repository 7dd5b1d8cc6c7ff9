"""Text of what explains a failure: elements of a tensor, operators recomputed, an ONNX reference."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from pytest_npudump.compare.stats.verdict import GRAPH_INPUT, explain_first
from pytest_npudump.explain.operator_alone import ACQUITTED, CONVICTED, UPSTREAM
from pytest_npudump.explain.rounding import DEVICE, DTYPE
from pytest_npudump.language import mark
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import spoken
from pytest_npudump.report.origins import feeds_are_seen, more_sources, source_lines
from pytest_npudump.report.verdicts import (
    COLUMNS,
    PROJECTIONS,
    deciding_rule,
    number,
    numbers,
    row,
    sentence,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.compare.tensors.difference import TensorDifference
    from pytest_npudump.compare.tensors.picture import TensorDescription
    from pytest_npudump.explain.operator_alone import JudgedOperator
    from pytest_npudump.explain.reference import ReferenceResult
    from pytest_npudump.graph.sources import Sources
    from pytest_npudump.regression.result import Finding, Result


def _disagreement(name: str, first: object, second: object) -> str:
    if name == PROJECTIONS and first == 0:  # what the second is, is how far off the elements are
        return _("{name} off by roughly {distance:.2g}").format(name=name, distance=second)
    first, second = numbers(first, second)
    return _("{name} {first} then {second}").format(name=name, first=first, second=second)


def finding_lines(finding: Finding, *, worst: int) -> list[str]:
    """Describe one tensor; ``worst`` is the number of worst elements to list."""
    key = finding.key
    lines = []
    if finding.differences:
        pairs = ", ".join(_disagreement(name, *pair) for name, pair in finding.differences.items())
        lines.append(_("  {key}: first and second run disagree: {pairs}").format(key=key, pairs=pairs))
    golden = (finding.difference, finding.pattern, mark("golden"))
    for difference, pattern, side in (
        golden,
        (finding.reference, finding.reference_pattern, mark("reference")),
    ):
        if difference is not None:
            lines += [f"  {key}: {line}" for line in _difference_lines(difference, worst, side)]
        if pattern is not None:
            lines.append(_("  {key}: pattern: {pattern}").format(key=key, pattern=spoken(str(pattern))))
    if finding.description is not None and finding.reference is None:
        lines.append(f"  {key}: {tensor_words(finding.description)}, {_(_NO_GOLDEN)}")
    if finding.note:
        lines.append(f"  {key}: {spoken(finding.note)}")
    return lines


def _difference_lines(difference: TensorDifference, worst: int, side: str) -> list[str]:
    d = difference
    measures = _("max abs {max_abs}, max rel {max_rel}, cosine {cosine}").format(
        max_abs=number(d.max_abs), max_rel=number(d.max_rel), cosine=number(d.cosine)
    )
    words = _(side)
    lines = [
        _("against the {side} tensor: {measures}, {share:.4g} % of {count} within tolerance").format(
            side=words, measures=measures, share=100 * d.within, count=d.count
        )
    ]
    if not d.special_equal:
        lines.append(_("NaN or Inf differ: {words}").format(words=d.special_text().replace("golden", words)))
    lines += [
        _("worst at {index}: {side} {golden}, actual {actual}").format(
            index=list(e.index), side=words, golden=golden, actual=actual
        )
        for e in d.worst[:worst]
        for golden, actual in (numbers(e.golden, e.actual),)
    ]
    return lines


_NO_GOLDEN = mark("no golden tensor to compare with (golden_tensors=)")


def tensor_words(tensor: TensorDescription) -> str:
    """Return where the remarkable elements of a tensor lie."""
    parts = [f"{tensor.dtype} {list(tensor.shape)}"]
    if tensor.max_at is not None and tensor.min_at is not None:
        parts.append(_("max {max} at {max_at}").format(max=number(tensor.max), max_at=list(tensor.max_at)))
        parts.append(_("min {min} at {min_at}").format(min=number(tensor.min), min_at=list(tensor.min_at)))
    if tensor.first_nan is not None:
        parts.append(
            _("{nan} NaN, first at {first_nan}").format(nan=tensor.nan, first_nan=list(tensor.first_nan))
        )
    if tensor.first_inf is not None:
        parts.append(
            _("{inf} Inf, first at {first_inf}").format(
                inf=tensor.pos_inf + tensor.neg_inf, first_inf=list(tensor.first_inf)
            )
        )
    return ", ".join(parts)


_SHOWN = 2


def isolated_lines(isolated: Sequence[JudgedOperator], *, brief: bool) -> list[str]:
    """Return a line for each operator that was judged alone, the convicted first.

    Those upstream of suspects are counted where they are not convicted: nothing speaks against them.

    Args:
        isolated: the verdicts.
        brief: whether to show the first few only.
    """
    order = {CONVICTED: 0, ACQUITTED: 1}
    convicted = any(one.alone.verdict == CONVICTED for one in isolated)
    told = (one for one in isolated if not one.upstream or one.alone.verdict == CONVICTED)
    ranked = sorted(told, key=lambda one: order.get(one.alone.verdict, 2))
    shown = ranked[: _SHOWN if brief else None]
    lines = [_("alone:      {key} {sentence}").format(key=one.key, sentence=_sentence(one)) for one in shown]
    if len(ranked) > len(shown):
        lines[-1] += _(" (and {left} more)").format(left=len(ranked) - len(shown))
    upstream = [one.alone.verdict for one in isolated if one.upstream]
    passed = upstream.count(ACQUITTED)
    if passed and not (brief and convicted):
        words = _(
            "alone:      {passed} of {count} operators looked at upstream are what their inputs give; at "
            "most {most} per source are looked at"
        )
        lines.append(words.format(passed=passed, count=len(upstream), most=UPSTREAM))
    return lines


def _call_sentence(one: JudgedOperator, apart: str) -> str:
    alone = one.alone
    if alone.verdict == ACQUITTED:
        return _(
            "is acquitted: {call} gives it on the CPU too, from the same inputs ({apart}): the change came "
            "in with them"
        ).format(call=one.call, apart=apart)
    off = spoken(alone.why) or _(
        "{apart} (relative L2), and a healthy operator no more than {allowed:.2g}"
    ).format(apart=apart, allowed=alone.allowed)
    return _(
        "is CONVICTED: {call} gives something else on the CPU, from the same inputs: {off}; a kernel that "
        "this call ran did it"
    ).format(call=one.call, off=off)


def _sentence(one: JudgedOperator) -> str:
    alone = one.alone
    apart = "" if math.isnan(alone.apart) else _("{apart:.2g} off").format(apart=alone.apart)
    if one.call and alone.verdict in (CONVICTED, ACQUITTED):
        return _call_sentence(one, apart)
    if alone.verdict == CONVICTED:
        given = _("kernel") if one.own else _("kernel, type, weights or attributes")
        given += _(" or its conversion") * one.converted
        off = spoken(alone.why) or _(
            "{apart} (relative L2), and a healthy operator no more than {allowed:.2g}"
        ).format(apart=apart, allowed=alone.allowed)
        return _("is CONVICTED: not what its inputs give by {model}: {off}; its {given} did it").format(
            model=one.model, off=off, given=given
        )
    if alone.verdict == ACQUITTED and one.own:
        return _(
            "computes what {model}, the run's own model, says ({apart}): its type, its weights, its "
            "attributes or what came in have changed; reference= can tell which"
        ).format(model=one.model, apart=apart)
    if alone.verdict == ACQUITTED:
        return _(
            "is acquitted: it is what its inputs give by {model} ({apart}): the change came in with them"
        ).format(model=one.model, apart=apart)
    return _("is not judged alone: {why}").format(why=spoken(alone.why)) + (f" ({apart})" if apart else "")


_REMARKS = 2
"""Remarks shown without ``-v``."""
_COLUMNS = tuple("reference" if name == "golden" else name for name in COLUMNS)
_INDENT = " " * 12


def reference_sentence(result: ReferenceResult, sources: Sources | None = None) -> str:
    """Return the first divergence from the reference as a sentence; "" where nothing diverges.

    Other ``sources`` of what differs are named behind it.
    """
    found = result.comparison
    if found is None or found.first is None:
        return ""
    words = _("against the reference {name}: {sentence}").format(
        name=result.model.name, sentence=sentence(found.first, against="reference")
    )
    return words + more_sources(sources, found.first.key)


def reference_lines(
    result: ReferenceResult | None, rows: int | None, sources: Sources | None = None, *, brief: bool = False
) -> list[str]:
    """Describe what differs from the reference.

    Args:
        result: of the comparison; None without a reference.
        rows: tensors to list; None for all of them.
        sources: of what differs, if they are known.
        brief: whether to say nothing but what differs.
    """
    if result is None or result.good or result.comparison is None:
        return []
    found = result.comparison
    failing = found.failing
    against = _("{count} of {compared} tensors fail against {name}").format(
        count=len(failing), compared=found.compared, name=result.model.name
    )
    lines = [
        _("reference:  {against}; {compared} of {layers} layers have a counterpart").format(
            against=against, compared=result.compared, layers=result.layers
        )
    ]
    if failing:
        lines += [] if brief else [f"{_INDENT}{_first(result, sources)}"]
        lines += source_lines(sources, brief=rows is not None)
        lines += table([row(verdict) for verdict in failing[:rows]], _COLUMNS)
    if rows is not None and len(failing) > rows:
        lines.append(_("  ... and {left} more").format(left=len(failing) - rows))
    lines += _whose(result)
    if brief:
        return lines
    if rule := deciding_rule(found.first):
        lines.append(_INDENT + _("rule: {rule}").format(rule=rule))
    remarks = result.remarks if rows is None else result.remarks[:_REMARKS]
    return [*lines, *(f"{_INDENT}{remark}" for remark in remarks)]


def _whose(result: ReferenceResult) -> list[str]:
    """Say whose error the first difference is, and how many are whose."""
    if not result.blames:
        return []
    first = result.blames[0]
    far, cpu = (
        _("{statistic} is off by {device}").format(statistic=first.statistic, device=number(first.device)),
        _("rounding after every operator, on the CPU,"),
    )
    if first.whose == DTYPE:
        words = _("the number format's: {key}: {far}, {cpu} does {rounding}").format(
            key=first.key, far=far, cpu=cpu, rounding=number(first.rounding)
        )
    elif math.isfinite(first.ratio):
        words = _("the device's: {key}: {far}, {ratio:.3g} times what {cpu} does").format(
            key=first.key, far=far, ratio=first.ratio, cpu=cpu
        )
    else:
        words = _("the device's: {key}: {cpu} does not do it").format(key=first.key, cpu=cpu)
    counts = Counter(blame.whose for blame in result.blames)
    several = (
        _(" (device's {device}, number format's {dtype})").format(device=counts[DEVICE], dtype=counts[DTYPE])
        if len(counts) > 1
        else ""
    )
    return [_INDENT + _("whose error: {words}{several}").format(words=words, several=several)]


def _first(result: ReferenceResult, sources: Sources | None) -> str:
    comparison = result.comparison
    assert comparison is not None  # noqa: S101 - checked by the caller
    first = comparison.first
    if first is not None and first.op_type == GRAPH_INPUT:
        return _(
            "output {slot} of {layer} is the first mismatch: it is an input of the graph, so the "
            "reference was not given what the device was"
        ).format(slot=first.key.slot, layer=first.key.layer)
    return explain_first(comparison, feeds_seen=feeds_are_seen(sources, first))


def way_out(result: Result) -> str:
    """Return how a difference from the reference is accepted; "" where there is none."""
    reference = result.reference
    found = reference.comparison if reference is not None else None
    first = found.first if found is not None else None
    if first is None:
        return ""
    return _(
        "to accept:  in the marker, tolerances=[{{'against': 'reference', 'layer': {layer!r}, 'rtol': ..., "
        "'atol': 0, 'reason': '...'}}]; a fused layer belongs into the file of map="
    ).format(layer=first.key.layer)
