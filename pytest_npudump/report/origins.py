"""The sources of a failure in words, and in the few that JUnit has room for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_npudump.dump.records import TensorKey
    from pytest_npudump.graph.sources import Source, Sources

_SHOWN = 3


def source_lines(sources: Sources | None, *, brief: bool) -> list[str]:
    """Return which failing tensors explain the others, where their change begins, and what is not known.

    Args:
        sources: None where nothing is known of what feeds which.
        brief: whether to show the first few only, in at most three lines.
    """
    if sources is None:
        return []
    limit = _SHOWN if brief else None
    found = sources.found
    count = f"{len(found)} source{'' if len(found) == 1 else 's'}"
    words = ", ".join(_explains(source, sources.failing) for source in found[:limit])
    lines = [f"sources:    {count}: {words}{_more(len(found), limit)}"]
    walked = [source for source in found[:limit] if source.begins is not None]
    if walked:
        lines.append(f"begins:     {'; '.join(map(_begins, walked))}")
    if sources.unplaced:
        lines.append(
            f"unplaced:   {len(sources.unplaced)} of {sources.failing}, as it is not known what feeds them "
            f"(first: {sources.unplaced[0]})"
        )
    return lines


def _explains(source: Source, failing: int) -> str:
    doubts = ", in a cycle" * source.cycle + ", what feeds it is not known" * (not source.known)
    return f"{source.key} (explains {source.explains} of {failing}{doubts})"


def _begins(source: Source) -> str:
    return (
        f"first outside: {source.key}; the change begins at {source.begins} ({source.share:.2g} of what is "
        f"allowed)"
    )


def _more(count: int, limit: int | None) -> str:
    return f" and {count - limit} more" if limit is not None and count > limit else ""


def more_sources(sources: Sources | None, shown: TensorKey) -> str:
    """Return what a headline says of sources other than the one it is about; "" for none."""
    others = [source.key.layer for source in sources.found if source.key != shown] if sources else []
    if not others:
        return ""
    named = f"{len(others)} other source{'' if len(others) == 1 else 's'}"
    return f"; {named}: {', '.join(others[:_SHOWN])}{_more(len(others), _SHOWN)}"


def small_sources(sources: Sources) -> dict[str, Any]:
    """Return the first sources, and how many there are in all."""
    return {"in_all": len(sources.found), "found": [source.to_json() for source in sources.found[:_SHOWN]]}
