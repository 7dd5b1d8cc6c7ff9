"""The sources of a failure in words, and in the few that JUnit has room for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
    alone = sources.independent
    reached = [source for source in sources.found if source.behind is not None]
    words = _several(alone, limit, lambda source: _explains(source, sources.failing))
    count = f"{len(alone)} source{'' if len(alone) == 1 else 's'}"
    lines = [f"sources:    {count}: {words}"]
    if reached:
        named = _several(reached, 1 if brief else None, lambda source: str(source.key))
        lines[0] += f"; then outside again, behind tensors that pass: {named}"
    walked = [source for source in alone if source.begins is not None]
    if walked:
        lines.append(f"begins:     {_several(walked, limit, _begins)}")
    if sources.unplaced:
        lines.append(
            f"unplaced:   {len(sources.unplaced)} of {sources.failing}, as not all is known that feeds "
            f"{'them, first' if sources.unplaced[1:] else 'it'}: {sources.unplaced[0]}"
        )
    return lines


def _several(items: Sequence[Source], limit: int | None, words: Callable[[Source], str]) -> str:
    more = f" and {len(items) - limit} more" if limit is not None and len(items) > limit else ""
    return f"{', '.join(map(words, items[:limit]))}{more}"


def _explains(source: Source, failing: int) -> str:
    doubts = ", in a cycle" * source.cycle + ", what feeds it is not known" * (not source.known)
    return f"{source.key} (explains {source.explains} of {failing}{doubts})"


def _begins(source: Source) -> str:
    return (
        f"first outside: {source.key}; the change begins at {source.begins} ({source.share:.2g} of what is "
        f"allowed)"
    )


def more_sources(sources: Sources | None, shown: TensorKey) -> str:
    """Return what a headline says of independent sources other than the one it is about; "" for none."""
    others = [source for source in sources.independent if source.key != shown] if sources else []
    if not others:
        return ""
    named = ", ".join(source.key.layer for source in others[:_SHOWN])
    more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    return f"; {len(others)} other source{'' if len(others) == 1 else 's'}: {named}{more}"


def small_sources(sources: Sources) -> dict[str, Any]:
    """Return the first independent sources, and how many there are in all."""
    alone = sources.independent
    return {"in_all": len(alone), "first": [source.to_json() for source in alone[:_SHOWN]]}
