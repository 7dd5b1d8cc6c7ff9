"""The end of a distributed run: every rank tells what failed, and rank 0 says which ranks differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_npudump.ranks.exchange import Exchange

_RESULTS = "results"
_PRINTED = "printed"
_FEW = 8
_TESTS = 10
_FAREWELL = 5.0
"""Seconds in which rank 0 prints: a launcher ends all ranks as soon as one has ended with a failure."""


def compare_notes(exchange: Exchange, failures: Mapping[str, str]) -> tuple[str, ...]:
    """Tell the other ranks what failed, wait for them, and return what rank 0 is to print.

    Args:
        exchange: of this rank.
        failures: what is to be known of each marked test that failed here, by test; "" for those that passed.
    """
    rank = exchange.rank
    if rank.spans_machines:
        return ()
    exchange.post(_RESULTS, dict(failures))
    told: dict[int, dict[str, str]] = exchange.gather(_RESULTS)
    if rank.number != 0:
        exchange.gather(_PRINTED, patience=_FAREWELL, of=(0,))
        return ()
    silent = [str(number) for number in range(rank.size) if number not in told]
    lines = [*_differing(told, rank.size)]
    if silent:
        lines.append(f"no result from rank {', '.join(silent[:_FEW])}")
    return tuple(lines)


def printed(exchange: Exchange) -> None:
    """Let the other ranks go, once rank 0 has printed what they told."""
    if exchange.rank.number == 0 and not exchange.rank.spans_machines:
        exchange.post(_PRINTED, content=True)


def _differing(told: Mapping[int, Mapping[str, str]], size: int) -> Iterator[str]:
    tests = dict.fromkeys(test for failures in told.values() for test, words in failures.items() if words)
    for test in list(tests)[:_TESTS]:
        bad = [(number, found[test]) for number, found in sorted(told.items()) if found.get(test)]
        words = ", ".join(f"{number} ({what})" for number, what in bad[:_FEW])
        more = ", ..." if len(bad) > _FEW else ""
        yield f"{test} fails on {len(bad)} of {size} ranks: {words}{more}"
    if len(tests) > _TESTS:
        yield f"... and {len(tests) - _TESTS} more tests"
