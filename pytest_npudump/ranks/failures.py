"""The end of a distributed run: every rank tells what failed, and one of them says which ranks differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.language.excerpt import first_of
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.ranks.agreement import absence, names
from pytest_npudump.ranks.exchange import LAST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_npudump.ranks.exchange import Exchange

_PRINTED = "printed"
_FEW = 8
_TESTS = 10
_FAREWELL = 5.0
"""Seconds in which a rank prints: a launcher ends all ranks as soon as one has ended with a failure."""


def compare_notes(exchange: Exchange, failures: Mapping[str, str]) -> tuple[str, ...]:
    """Tell the other ranks what failed, wait for them, and return what this rank is to print.

    Rank 0 prints, or where it did not come the first that did.

    Args:
        exchange: of this rank.
        failures: what is to be known of each marked test that failed here, by test; "" for those that passed.
    """
    rank = exchange.rank
    if rank.spans_machines:
        return ()
    exchange.post(LAST, dict(failures))
    told: dict[int, dict[str, str]] = exchange.gather(LAST)
    printer = _printer(exchange)
    if rank.number != printer:
        exchange.gather(_PRINTED, patience=_FAREWELL, of=(printer,), last=None)
        return ()
    return (*_differing(told, rank.size), *_silent(exchange, told))


def printed(exchange: Exchange) -> None:
    """Let the other ranks go, once what they told is printed."""
    if not exchange.rank.spans_machines and exchange.rank.number == _printer(exchange):
        exchange.post(_PRINTED, content=True)


def _printer(exchange: Exchange) -> int:
    return min({*range(exchange.rank.size)} - exchange.absent, default=exchange.rank.number)


def _silent(exchange: Exchange, told: Mapping[int, object]) -> Iterator[str]:
    silent = [number for number in range(exchange.rank.size) if number not in told]
    absent = [number for number in silent if not exchange.has_come(number)]
    if absent:
        yield absence(absent)
    if ended := [number for number in silent if number not in absent]:
        yield _("no result from {names}").format(names=names(ended))


def _differing(told: Mapping[int, Mapping[str, str]], size: int) -> Iterator[str]:
    tests = dict.fromkeys(test for failures in told.values() for test, words in failures.items() if words)
    for test in list(tests)[:_TESTS]:
        bad = [(number, found[test]) for number, found in sorted(told.items()) if found.get(test)]
        words = first_of((f"{number} ({what})" for number, what in bad), _FEW)
        yield _("{test} fails on {count} of {size} ranks: {words}").format(
            test=test, count=len(bad), size=size, words=words
        )
    if len(tests) > _TESTS:
        yield _("... and {left} more tests").format(left=len(tests) - _TESTS)
