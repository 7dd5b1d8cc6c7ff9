"""The verdicts on operators alone, in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_npudump.reference.isolation import ACQUITTED, CONVICTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.reference.suspects import Isolated

_SHOWN = 2


def isolated_lines(isolated: Sequence[Isolated], *, brief: bool) -> list[str]:
    """Return a line for each operator that was judged alone, the convicted first.

    Args:
        isolated: the verdicts.
        brief: whether to show the first few only.
    """
    order = {CONVICTED: 0, ACQUITTED: 1}
    ranked = sorted(isolated, key=lambda one: order.get(one.alone.verdict, 2))
    shown = ranked[: _SHOWN if brief else None]
    lines = [f"alone:      {one.key} {_sentence(one)}" for one in shown]
    if len(ranked) > len(shown):
        lines[-1] += f" (and {len(ranked) - len(shown)} more)"
    return lines


def _sentence(one: Isolated) -> str:
    alone = one.alone
    apart = "" if math.isnan(alone.apart) else f"{alone.apart:.2g} off"
    if alone.verdict == CONVICTED:
        given = "kernel" if one.own else "kernel, weights or attributes"
        given += " or its conversion" * one.converted
        off = alone.why or f"{apart} (relative L2), and a healthy operator no more than {alone.allowed:.2g}"
        return f"is CONVICTED: not what its inputs give by {one.model}: {off}; its {given} did it"
    if alone.verdict == ACQUITTED and one.own:
        return (
            f"computes what {one.model}, the run's own model, says ({apart}): its weights, its attributes or "
            f"what came in have changed; reference= can tell which"
        )
    if alone.verdict == ACQUITTED:
        return (
            f"is acquitted: it is what its inputs give by {one.model} ({apart}): the change came in with them"
        )
    return f"is not judged alone: {alone.why}" + (f" ({apart})" if apart else "")
