"""Which execution of a layer a file belongs to: the first in its step, the second ..."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_npudump.dump.execution import Execution


def number_turns(group: Sequence[Execution]) -> list[int]:
    """Return the turn of each file of one layer in one step; ``group`` is in order of time.

    * FFTS+ slices of one operator run at the same time, so they are counted by their thread, not by time.
    * A collective operator has two files, its inputs from before and its outputs from after: one turn.
    * Where each tensor has a file or row of its own, a turn ends when one of its tensors comes again.
    * Eager calls are counted by the counter in their names: the order in which the process made them, which
      is the same in every run where the order of their times on several streams is not.
    """
    if any(execution.call >= 0 for execution in group):
        return _by_call(group)
    if any(execution.thread is not None for execution in group):
        return _by_thread(group)
    return list(_by_time(group))


def _by_thread(group: Sequence[Execution]) -> list[int]:
    seen: Counter[object] = Counter()
    ranks = []
    for at, execution in enumerate(group):
        thread = (execution.task, execution.stream, execution.thread)
        ranks.append((seen[thread], execution.thread or (-1, -1, -1), at))
        seen[thread] += 1
    turns = [0] * len(group)
    for turn, (_, _, at) in enumerate(sorted(ranks)):
        turns[at] = turn
    return turns


def _by_call(group: Sequence[Execution]) -> list[int]:
    """Inputs and outputs of a call may have a file and a task each; a call may run one kernel twice."""
    turn = -1
    call = -1
    held: set[tuple[str, int]] = set()
    turns = [0] * len(group)
    for at in sorted(range(len(group)), key=lambda at: (group[at].call, at)):
        tensors = {(part.io, part.slot) for part in group[at].parts}
        if group[at].call != call or held & tensors:
            turn, held = turn + 1, set()
        call = group[at].call
        held |= tensors
        turns[at] = turn
    return turns


def _by_time(group: Sequence[Execution]) -> Iterator[int]:
    turn = -1
    held: set[tuple[str, int]] = set()
    previous: Execution | None = None
    for execution in group:
        tensors = {(part.io, part.slot) for part in execution.parts}
        joins = previous is not None and not held & tensors and _continues(previous, execution, held, tensors)
        if joins:
            held |= tensors
        else:
            turn, held = turn + 1, tensors
        previous = execution
        yield turn


def _continues(
    previous: Execution, execution: Execution, held: set[tuple[str, int]], tensors: set[tuple[str, int]]
) -> bool:
    if previous.single and execution.single:
        return previous.op_type == execution.op_type
    same = (previous.op_type, previous.task, previous.stream) == (
        execution.op_type,
        execution.task,
        execution.stream,
    )
    return same and {io for io, _ in held} == {"input"} and {io for io, _ in tensors} == {"output"}
