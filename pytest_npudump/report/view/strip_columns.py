"""The tensors of a run in few columns: the worst of each stretch of the run, however many it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npudump.report.view.tensor_views import STATES, magnitude

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.report.view.tensor_views import TensorView

COLUMNS = 480
"""Most columns of a strip."""


@dataclass(frozen=True, slots=True)
class Column:
    """Consecutive tensors.

    Attributes:
        first, last: their positions, both included.
        at: position of the worst, which the column stands for.
        state: of that, one of :data:`~pytest_npudump.report.view.tensor_views.STATES`.
        height: of that, as :func:`~pytest_npudump.report.view.tensor_views.magnitude` gives it.
    """

    first: int
    last: int
    at: int
    state: str
    height: float


def strip_columns(tensors: Sequence[TensorView], most: int = COLUMNS) -> tuple[Column, ...]:
    """Return the columns of a strip, at most ``most``, each of as many tensors or one fewer.

    A source shows whatever else is in its column, and a failing tensor before one that passes.

    Args:
        tensors: in order of execution.
        most: number of columns.
    """
    count = min(most, len(tensors))
    found = []
    for number in range(count):
        first, end = number * len(tensors) // count, (number + 1) * len(tensors) // count
        at = min(range(first, end), key=lambda at: _badness(tensors[at]))
        found.append(Column(first, end - 1, at, tensors[at].state, magnitude(tensors[at].share)))
    return tuple(found)


def _badness(tensor: TensorView) -> tuple[int, float]:
    return STATES.index(tensor.state), -magnitude(tensor.share)
