"""Whether bounds made of some runs hold for a run that they were not made of.

Each member is left out in turn, and has to pass the bounds of the others: the larger of what presets and
rules allow and ``factor`` times the others' largest deviation. A factor that does not do is raised, to a
limit: a bound that has to be wider says that the members are too few or the layer is not fit to be judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.golden.content.noise import FACTOR, LARGEST_FACTOR, MEASURABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.compare.stats.deviations import Deviations

FACTORS = (FACTOR, 7.0, 10.0, 14.0, LARGEST_FACTOR)
"""The factors that are tried: probtest's, and steps of about the square root of 2 up to four times it."""


@dataclass(frozen=True, slots=True)
class Sensitive:
    """A statistic of which one member strays further than the others foretell.

    Attributes:
        key: the tensor.
        statistic: which of its statistics.
        strayed: by how much, in the statistic's scale.
        others: the largest deviation of the other members.
    """

    key: str
    statistic: str
    strayed: float
    others: float

    def __str__(self) -> str:
        """``Conv@20:output.0 max strays by 3e-2 of its scale, the other members by 1e-4 at most``."""
        others = f"{self.others:.2g} at most" if self.others else "not at all"
        return f"{self.key} {self.statistic} strays by {self.strayed:.2g} of its scale, the others {others}"


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What leaving each member out has shown.

    Attributes:
        factor: the smallest of :data:`FACTORS` under which every member passes the bounds of the others; None
            where none does.
        sensitive: what fails under the largest factor, worst first; empty where a factor is found.
    """

    factor: float | None
    sensitive: tuple[Sensitive, ...] = ()


def hold_out(members: Sequence[Deviations]) -> HeldOut:
    """Leave each member out of the bounds in turn.

    Only the member that strays furthest in a statistic can break a bound there, as the bounds of all others
    are made of it.

    Args:
        members: two or more, of the same n tensors.
    """
    strayed = np.stack([member.largest for member in members])
    furthest = strayed.argmax(axis=0)[np.newaxis]
    largest = np.take_along_axis(strayed, furthest, axis=0)[0]
    floor = np.take_along_axis(np.stack([member.floor for member in members]), furthest, axis=0)[0]
    np.put_along_axis(strayed, furthest, 0.0, axis=0)
    others = strayed.max(axis=0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        needed = np.where(largest > floor, largest / others, 0.0)
    needed[~np.isfinite(largest)] = np.inf
    needed[np.any([member.uncountable for member in members], axis=0)] = np.inf
    most = float(needed.max(initial=0.0))
    factor = next((factor for factor in FACTORS if most <= factor), None)
    if factor is not None:
        return HeldOut(factor)
    bad = np.argwhere(needed > FACTORS[-1]).tolist()
    bad.sort(key=lambda cell: (-needed[tuple(cell)], -largest[tuple(cell)]))
    keys = members[0].keys
    return HeldOut(
        None,
        tuple(
            Sensitive(keys[row], MEASURABLE[column], float(largest[row, column]), float(others[row, column]))
            for row, column in bad
        ),
    )
