"""Whether the ranks run a test again: all of them or none, since a rank that runs waits for the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.ranks.exchange import PATIENCE

if TYPE_CHECKING:
    from pytest_npudump.ranks.exchange import Exchange

_FEW = 8


def agree(exchange: Exchange, test: str, *, wants: bool) -> tuple[bool, str]:
    """Tell the other ranks whether this one wants to run ``test`` again, and hear what they want.

    Args:
        exchange: of this rank.
        test: its name, the same on every rank.
        wants: whether this rank has something to find out.

    Returns:
        Whether any rank wants to; and why they cannot, "" if they can.
    """
    rank = exchange.rank
    if rank.spans_machines:
        return wants, (
            f"not run: all {rank.size} ranks would have to run again together, and they are on several "
            f"machines, which share no files"
        )
    name = _name(test)
    exchange.post(name, wants)
    told = exchange.gather(name)
    silent = [number for number in range(rank.size) if number not in told]
    if silent:
        names = ", ".join(map(str, silent[:_FEW]))
        return any(told.values()), (
            f"not run: all {rank.size} ranks would have to run again together, and nothing came from rank "
            f"{names} within {PATIENCE:g} seconds"
        )
    return any(told.values()), ""


def stand_aside(exchange: Exchange, test: str) -> None:
    """Keep the others from waiting for a rank whose run of ``test`` came to no comparison."""
    if not exchange.posted(_name(test)):
        exchange.post(_name(test), content=False)


def _name(test: str) -> str:
    return f"again {test}"
