"""Agreements of ranks: whether a test runs again, whether one golden holds for all, and what failed where.

A rank that runs waits for the others. There is one decision a question, made once: by the first rank that has
heard all others, that gives up waiting for one, or that cannot take part. Every rank acts on it, whatever it
has heard itself. At the end one of them says which ranks differ.

Each rank is a process with a dump of its own. For a golden that all share, rank 0 shows its statistics and
the others compare theirs: either it is recorded, or every rank fails with the same words.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.compare.judge import judge_tables
from pytest_npudump.errors import said
from pytest_npudump.golden.store import read_golden, write_golden
from pytest_npudump.language.text import first_of
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.ranks import rank
from pytest_npudump.ranks.rank import LAST, Exchange
from pytest_npudump.record.record import Record

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.dump.table import StatsTable


_FEW = 8
_NO_COMPARISON = "its run came to no comparison"
NO_REPETITION = "it may fail, or its session is about to stop"


def agree(exchange: Exchange, test: str, *, wants: bool) -> tuple[bool, str]:
    """Agree with the other ranks whether ``test`` runs again: send this one's wish, return the decision.

    Args:
        exchange: of this rank.
        test: its name, the same on every rank.
        wants: whether this rank has something to find out.

    Returns:
        Whether all ranks run the test again; and why they cannot, "" if they can or nobody wants to. Every
        rank of this machine gets the same.
    """
    if exchange.rank.spans_machines:
        return False, _no(exchange, "they are on several machines, which share no files")
    _refuse_sharing(exchange, test, _NO_COMPARISON)
    name = f"again {test}"
    decision = exchange.decided(name)
    if decision is None:
        exchange.post(name, wants)
        told = exchange.gather(name, unless=name)
        missing = why_missing(exchange, told)
        again, problem = not missing and any(told.values()), missing and _no(exchange, missing)
        decision = exchange.decide(name, {"again": again, "problem": problem})
    return bool(decision["again"]), str(decision["problem"])


def _no(exchange: Exchange, why: str) -> str:
    return f"not run: all {exchange.rank.size} ranks would have to run again together, and {why}"


def why_missing(exchange: Exchange, told: Collection[int], of: Iterable[int] | None = None) -> str:
    """Return why some ranks have no part in an agreement; "" if all of ``of`` have answered and live."""
    wanted = range(exchange.rank.size) if of is None else of
    missing = [number for number in wanted if number not in told or not exchange.lives(number)]
    absent = [number for number in missing if not exchange.has_come(number)]
    ended = [number for number in missing if number not in absent and exchange.has_ended(number)]
    if absent:
        return absence(absent)
    if ended:
        return f"{names(ended)} has ended"
    return f"nothing came from {names(missing)} within {rank.PATIENCE:g} seconds" if missing else ""


def absence(numbers: Collection[int]) -> str:
    """Report missing ranks, and the likely cause."""
    return (
        f"{names(numbers)} did not come: start all ranks by one launcher, or set MASTER_ADDR and MASTER_PORT "
        f"for all, and run the same tests on each"
    )


def names(numbers: Collection[int]) -> str:
    """Return ``rank 1, 2``."""
    return f"rank {first_of(numbers, _FEW)}"


def stand_aside(exchange: Exchange, test: str, why: str = _NO_COMPARISON) -> None:
    """Decide the open questions of ``test``, so that nobody waits for a rank that will not take part.

    Args:
        exchange: of this rank.
        test: its name, the same on every rank.
        why: what keeps this rank from it, as half a sentence on the test.
    """
    if exchange.rank.spans_machines:
        return
    _refuse_sharing(exchange, test, why)
    name = f"again {test}"
    if exchange.decided(name) is None:
        problem = _no(exchange, f"rank {exchange.rank.number} will not: {why}")
        exchange.decide(name, {"again": False, "problem": problem})


def _refuse_sharing(exchange: Exchange, test: str, why: str) -> None:
    """Decide that the golden of ``test`` is not shared, unless that is decided: this rank is past it."""
    name = f"share {test}"
    if exchange.decided(name) is None:
        exchange.decide(name, f"rank {exchange.rank.number} has nothing to compare: {why}")


_FIRST = 0


def why_not_shared(exchange: Exchange, test: str, table: StatsTable, tolerances: Tolerances) -> str:
    """Compare the statistics of all ranks with those of rank 0, which are about to become the golden.

    Args:
        exchange: of this rank; its ranks are on one machine.
        test: its name, the same on every rank.
        table: what this rank would record.
        tolerances: what it may differ by.

    Returns:
        Why nothing may be recorded, the same on every rank; "" where the golden holds for all.

    Raises:
        GoldenError: the statistics cannot be written, or those of rank 0 cannot be read.
    """
    if (settled := exchange.decided(f"share {test}")) is not None:
        return str(settled)
    if exchange.rank.number == _FIRST:
        path = exchange.folder / f"statistics-{blake2b(test.encode(), digest_size=10).hexdigest()}.yaml"
        write_golden(Record(test=test, producer={}, table=table, path=path))
        exchange.post(f"statistics of {test}", str(path))
        exchange.post(f"verdict on {test}", "")
        problem = ""
    else:
        problem = _compare(exchange, test, table, tolerances)
    if not problem:
        told = exchange.gather(f"verdict on {test}", unless=f"share {test}")
        problems = (str(problem) for _, problem in sorted(told.items()) if problem)
        problem = next(problems, "") or why_missing(exchange, told)
    return str(exchange.decide(f"share {test}", problem))


def differing(name: str, first: str, table: StatsTable, other: StatsTable, tolerances: Tolerances) -> str:
    """Describe how the rank ``name`` differs from the rank ``first``; "" where one golden holds for both.

    Args:
        name: of the rank, or device.
        first: the one whose statistics are the golden.
        table: of that one.
        other: of the rank ``name``.
        tolerances: what they may differ by.
    """
    comparison = judge_tables(table, other, tolerances)
    if comparison.first is None:
        return ""
    return said(
        "{name} differs from {first} in {key} (mismatches: {count}); give each rank a golden of "
        "its own with ranks='each'",
        name=name,
        first=first,
        key=comparison.first.key,
        count=len(comparison.mismatches),
    )


def nothing_recorded(why: str) -> str:
    """Return the problem of a shared golden that is not recorded."""
    return said("nothing was recorded: ranks='same', and {why}", why=why)


def _compare(exchange: Exchange, test: str, table: StatsTable, tolerances: Tolerances) -> str:
    shown = exchange.gather(f"statistics of {test}", of=(_FIRST,), unless=f"share {test}")
    if missing := why_missing(exchange, shown, of=(_FIRST,)):
        return missing
    first = read_golden(Path(shown[_FIRST])).table
    problem = differing(f"rank {exchange.rank.number}", f"rank {_FIRST}", first, table, tolerances)
    exchange.post(f"verdict on {test}", problem)
    return problem


_PRINTED = "printed"
_TESTS = 10
_FAREWELL = 5.0
"""Seconds in which a rank prints: a launcher ends all ranks as soon as one has ended with a failure."""


def compare_notes(exchange: Exchange, failures: Mapping[str, str]) -> tuple[str, ...]:
    """Send this rank's failures to the others, wait for theirs, and return the lines to print.

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
    """Release the other ranks, once their notes are printed."""
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
