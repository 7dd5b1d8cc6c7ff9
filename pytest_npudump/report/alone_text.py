"""The verdicts on operators alone, in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_npudump.explain.operator_alone import ACQUITTED, CONVICTED, UPSTREAM
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import spoken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.explain.operator_alone import JudgedOperator

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
