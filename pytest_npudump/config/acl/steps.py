"""The ``dump_step`` grammar of acl.json: ``3|5-10``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.config.checker_verdict import Refusal, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_INTERVALS = 100
_LONG_MAX = (1 << 63) - 1
_LONG_DIGITS = 19
_INTERVAL_BOUNDS = 2


def step_reasons(step: str) -> Iterator[Refusal]:
    """Yield what is wrong with a ``dump_step`` (``dump_config_converter.cpp:566-609``).

    Empty means every step. There is no upper bound: ``strtol`` saturates, so two huge bounds are equal.
    """
    if not step:
        return
    intervals = step.split("|")
    if len(intervals) > MAX_INTERVALS:
        problem = f"{len(intervals)} intervals, CANN takes {MAX_INTERVALS}"
        yield Refusal("dump_step", problem, "join neighbours into ranges such as 5-10", "EP0003")
        return
    for index, interval in enumerate(intervals):
        problem = _problem(interval.split("-"))
        if problem:
            remedy = 'write steps as "3" or "5-10", joined by |'
            yield Refusal(f"dump_step[{index}]", f"{shown(interval)} {problem}", remedy, "EP0003")


def _problem(bounds: list[str]) -> str:
    if len(bounds) > _INTERVAL_BOUNDS:
        return "has more than one -"
    if not all(bound.isascii() and bound.isdigit() for bound in bounds):
        return "is not made of digits"
    if _strtol(bounds[0]) > _strtol(bounds[-1]):
        return "starts after its end"
    return ""


def _strtol(digits: str) -> int:
    significant = digits.lstrip("0")
    return min(int(significant or "0"), _LONG_MAX) if len(significant) <= _LONG_DIGITS else _LONG_MAX
