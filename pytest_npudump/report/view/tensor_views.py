"""The tensors of a comparison in order of execution: how each came out, and by how much of its allowance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npudump.compare.stats.order import ABSENT
from pytest_npudump.compare.stats.shares import shares_of_allowed
from pytest_npudump.compare.stats.verdict import EXTRA, FAIL, MISSING, PASS
from pytest_npudump.language.translation import mark
from pytest_npudump.report.verdicts import deciding_rule, worst

if TYPE_CHECKING:
    from collections.abc import Collection

    from pytest_npudump.compare.stats.verdict import Comparison, Value, Verdict
    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.dump.records import TensorKey
    from pytest_npudump.dump.table import StatsTable

SOURCE, OUTSIDE, UNPAIRED = mark("source"), mark("outside"), mark("unpaired")
CHANGED, UNJUDGED, IDENTICAL = mark("changed"), mark("unjudged"), mark("identical")
STATES = (SOURCE, OUTSIDE, UNPAIRED, CHANGED, UNJUDGED, IDENTICAL)
"""How a tensor came out, the worst first: outside its tolerance with no other that explains it, outside, on
one side only, within its tolerance though not the golden's digit for digit, with no value that was judged,
and the golden's digits."""


@dataclass(frozen=True, slots=True)
class TensorView:
    """One tensor.

    Attributes:
        key: which one.
        op_type: its operator's type; "" where unknown.
        state: one of :data:`STATES`.
        share: its largest difference by what that may be; infinite where nothing may differ or no number
            tells it, NaN where only one side has the tensor.
        verdict: ``pass``, ``fail``, ``missing`` or ``extra``.
        dtype, shape: of the golden's side, where it has the tensor.
        golden, actual: the values of :data:`~pytest_npudump.dump.table.STATISTICS`, None where a side does
            not tell one; no values where it lacks the tensor.
        decided: the statistic that decided a failure; "" for none.
        rule: the rule that decided it, in words.
    """

    key: TensorKey
    op_type: str
    state: str
    share: float
    verdict: str
    dtype: str
    shape: str
    golden: tuple[Value, ...]
    actual: tuple[Value, ...]
    decided: str = ""
    rule: str = ""


def tensor_views(
    comparison: Comparison, tolerances: Tolerances, sources: Collection[TensorKey] = ()
) -> tuple[TensorView, ...]:
    """Return the tensors of a comparison in order of execution.

    Args:
        comparison: of both sides.
        tolerances: what decided.
        sources: failing tensors that no other explains.
    """
    shares = shares_of_allowed(comparison, tolerances).tolist()
    unjudged = frozenset[int]().union(*(doubt.unjudged for doubt in comparison.doubts))
    alignment = comparison.alignment
    rows = zip(alignment.golden.tolist(), alignment.actual.tolist(), strict=True)
    golden, actual = comparison.golden, comparison.actual
    found = []
    for at, (verdict, (here, there)) in enumerate(zip(comparison.verdicts(), rows, strict=True)):
        table, row = (actual, there) if here == ABSENT else (golden, here)
        state = _state(verdict, sources)
        if state == IDENTICAL and at in comparison.within_noise:
            state = CHANGED
        elif state == IDENTICAL and at in unjudged:
            state = UNJUDGED
        reason = worst(verdict)
        found.append(
            TensorView(
                key=verdict.key,
                op_type=verdict.op_type,
                state=state,
                share=shares[at],
                verdict=verdict.status,
                dtype=table.dtypes[row],
                shape=table.shapes[row],
                golden=_values(golden, here),
                actual=_values(actual, there),
                decided=reason.statistic if reason is not None else "",
                rule=deciding_rule(verdict),
            )
        )
    return tuple(found)


def _state(verdict: Verdict, sources: Collection[TensorKey]) -> str:
    if verdict.status == FAIL:
        return SOURCE if verdict.key in sources else OUTSIDE
    if verdict.status in {MISSING, EXTRA}:
        return UNPAIRED
    assert verdict.status == PASS  # noqa: S101 - there are four
    return CHANGED if verdict.changed else IDENTICAL


def _values(table: StatsTable, row: int) -> tuple[Value, ...]:
    if row == ABSENT:
        return ()
    return tuple(table.statistics(row))


def magnitude(share: float) -> float:
    """Return the height of a share on a logarithmic scale: 0 at the tolerance, cut to -3 and 6.

    NaN, which stands for no share, is at the tolerance.
    """
    if math.isnan(share):
        return 0.0
    if share == math.inf:
        return HIGHEST
    return min(max(math.log10(share), LOWEST), HIGHEST) if share > 0 else LOWEST


LOWEST, HIGHEST = -3.0, 6.0
"""Decades of the scale below and above the tolerance."""
