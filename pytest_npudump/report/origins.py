"""The sources of a failure in words, and in the few that JUnit has room for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.stats.verdict import FAIL
from pytest_npudump.compare.tolerances.numerics import SAME
from pytest_npudump.language.text import first_of
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import ngettext

if TYPE_CHECKING:
    from pytest_npudump.compare.stats.verdict import Comparison, Verdict
    from pytest_npudump.dump.records import TensorKey
    from pytest_npudump.graph.sources import Source, Sources
    from pytest_npudump.regression.result import Result

_SHOWN = 3
_SEVERAL = 2


def origin_lines(sources: Sources | None, comparison: Comparison, *, brief: bool) -> list[str]:
    """Return the sources of what differs, or that they are not known.

    Args:
        sources: None where nothing is known of what feeds what differs.
        comparison: of which they are; among fewer than two tensors there is nothing to be known.
        brief: as for :func:`source_lines`.
    """
    if sources is not None:
        return source_lines(sources, brief=brief)
    if not comparison.count(FAIL) or comparison.compared < _SEVERAL:
        return []
    words = _(
        "sources:    not known, as nothing tells what feeds the tensors that fail: they are in the order of "
        'execution (graph= or acl_json={"dump_mode": "all"} in the marker may tell)'
    )
    return [words]


def source_lines(sources: Sources | None, *, brief: bool) -> list[str]:
    """Return which failing tensors are sources, what they are traced back to, and what is not known.

    Args:
        sources: of a failure; None where nothing is known of what feeds which.
        brief: whether to show the first few only, in at most three lines.
    """
    if sources is None:
        return []
    limit = _SHOWN if brief else None
    alone = sources.independent
    reached = [source for source in sources.found if source.behind is not None]
    words = first_of((_downstream(source, sources.failing) for source in alone), limit)
    count = ngettext("{count} source", "{count} sources", len(alone)).format(count=len(alone))
    lines = [_("sources:    {count}: {words}").format(count=count, words=words)]
    if reached:
        named = first_of((source.key for source in reached), 1 if brief else None)
        lines[0] += _("; then outside again, behind tensors that pass: {named}").format(named=named)
    walked = [source for source in alone if source.begins is not None]
    if walked:
        lines.append(_("traced to:  {words}").format(words=first_of(map(_traced, walked), limit)))
    if sources.unplaced:
        lines.append(
            _("unplaced:   {count} of {failing}, as not all is known that feeds {which}: {unplaced}").format(
                count=len(sources.unplaced),
                failing=sources.failing,
                which=_("them, first") if sources.unplaced[1:] else _("it"),
                unplaced=sources.unplaced[0],
            )
        )
    return lines


def _downstream(source: Source, failing: int) -> str:
    doubts = _(", in a cycle") * source.cycle + _(", what feeds it is not known") * (not source.known)
    downstream = source.explains - 1
    words = _("{key} ({downstream} of {failing} mismatches downstream{doubts})")
    if (
        downstream + 1 < failing
    ):  # what is reached through tensors that pass, or by no known edge, is not counted
        words = _("{key} (at least {downstream} of {failing} mismatches downstream{doubts})")
    return words.format(key=source.key, downstream=downstream, failing=failing, doubts=doubts)


def _traced(source: Source) -> str:
    return _("{begins} ({share:.2g} of its tolerance), upstream of {key}").format(
        key=source.key, begins=source.begins, share=source.share
    )


def first_change(result: Result) -> list[str]:
    """Return where values begin to differ at all, if that is before what is outside of its tolerance.

    That tells something of runs of the same numerics, if the golden is known to repeat; others differ
    everywhere, or anywhere.
    """
    comparison = result.comparison
    if comparison is None:
        return []
    change, first = comparison.first_change, comparison.first
    same = result.numerics is not None and result.numerics.bounds == SAME
    if not same or not comparison.repeats or change is None:
        return []
    if first is None or first.status != FAIL or change == first.key:
        return []
    return [
        _("changed:    {change} is the first whose statistics are not the golden's digit for digit").format(
            change=change
        )
    ]


def feeds_are_seen(sources: Sources | None, first: Verdict | None) -> bool:
    """Whether what feeds the first divergence is known and was compared; nothing before it fails."""
    at_first = [source for source in sources.found if source.key == first.key] if sources and first else []
    return any(source.known and source.fed and not source.cycle for source in at_first)


def more_sources(sources: Sources | None, shown: TensorKey) -> str:
    """Return which other operators a headline names as independent sources; "" for none."""
    alone = sources.independent if sources is not None else ()
    layers = {(source.key.model, source.key.layer): source.key.layer for source in alone}
    layers.pop((shown.model, shown.layer), None)
    others = list(layers.values())
    if not others:
        return ""
    named = first_of(others, _SHOWN)
    return ngettext(
        "; {count} other source: {named}", "; {count} other sources: {named}", len(others)
    ).format(count=len(others), named=named)


def small_sources(sources: Sources) -> dict[str, Any]:
    """Return the first independent sources, and how many there are in all."""
    alone = sources.independent
    return {"in_all": len(alone), "first": [source.to_json() for source in alone[:_SHOWN]]}
