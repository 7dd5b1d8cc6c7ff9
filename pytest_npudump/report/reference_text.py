"""A comparison with an ONNX reference in words."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from pytest_npudump.compare.stats.first_divergence import GRAPH_INPUT, explain_first
from pytest_npudump.explain.rounding import DEVICE, DTYPE
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.report.origins import feeds_are_seen, more_sources, source_lines
from pytest_npudump.report.verdicts import COLUMNS, deciding_rule, number, row, sentence, table

if TYPE_CHECKING:
    from pytest_npudump.explain.reference import ReferenceResult
    from pytest_npudump.graph.sources import Sources
    from pytest_npudump.regression.outcome import Outcome

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


def way_out(outcome: Outcome) -> str:
    """Return how a difference from the reference is accepted; "" where there is none."""
    result = outcome.reference
    first = result.comparison.first if result is not None and result.comparison is not None else None
    if first is None:
        return ""
    return _(
        "to accept:  in the marker, tolerances=[{{'against': 'reference', 'layer': {layer!r}, 'rtol': ..., "
        "'atol': 0, 'reason': '...'}}]; a fused layer belongs into a reference_map"
    ).format(layer=first.key.layer)
