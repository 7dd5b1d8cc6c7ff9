"""What was measured with a golden: its column ``noise``, times a factor.

The spread of recording runs only says what is no change: two runs of an operator that draws random numbers
would otherwise let all that follows from it pass. Integers and booleans are the exception: a preset wants
them equal, and what two recording runs had differently is never judged as exact. A calibration, which
somebody asked for and whose members were held out, gives bounds where they are wider than a preset's.

A deviation is in the scale of its statistic (magnitude for max and min, root mean square or magnitude for
avg, the l2norm for itself and for projections), so a bound is a rule whose ``rtol`` is the factor times it.
A bound is never tighter than the preset's, and half a unit of what either side prints comes on top, as on
top of any rule.
A rule of a person stands: what was measured replaces presets only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npudump.errors import said
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.record.noise import FACTOR, calibration_of, parse_noise, repeats_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_npudump.record.noise import Noise
    from pytest_npudump.record.record import Record


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What was measured with a golden.

    Attributes:
        noise: by the key of a tensor; those without any are not in it.
        factor: what a deviation is multiplied by.
        source: what was measured, in words, which a verdict quotes.
        repeats: whether runs alike are known to give the same digits, but for tensors whose noise says no.
        widens: whether a bound replaces a preset's that is tighter: of calibrations.
    """

    noise: Mapping[str, Noise]
    factor: float
    source: str
    repeats: bool = False
    widens: bool = True

    @classmethod
    def of(
        cls,
        keys: Iterable[str],
        cells: Iterable[str],
        *,
        factor: float = FACTOR,
        source: str = "",
        repeats: bool = False,
        widens: bool = True,
    ) -> Calibrated:
        """Return what a column says; it has a cell for each key, or none at all."""
        noise = {key: parse_noise(cell) for key, cell in zip(keys, cells, strict=False) if cell != "-"}
        return cls(noise, factor, source, repeats, widens)

    def rtol(self, key: str, statistic: str) -> float:
        """Return the bound that was measured, in the scale of the statistic; 0 where none was.

        Args:
            key: the golden's key of the tensor.
            statistic: its name; counts have no such bound.
        """
        found = self.noise.get(key)
        rtol = self.factor * found.by_statistic.get(statistic, 0.0) if found is not None else 0.0
        return rtol if math.isfinite(rtol) else 0.0

    def describe(self, bounds: int) -> str:
        """How many tensors strayed, of how many that is a bound, and how it was measured, in one line.

        Args:
            bounds: number of tensors of which a measured bound decides.
        """
        if not self.widens:
            words = _("{count} tensors have a spread that is no change ({source})")
            return words.format(count=len(self.noise), source=self.source)
        return _(
            "{bounds} of the {count} tensors that strayed have measured bounds wider than the preset's "
            "({source})"
        ).format(bounds=bounds, count=len(self.noise), source=self.source)

    def to_json(self) -> dict[str, object]:
        """Plain JSON data."""
        return {
            "tensors": len(self.noise),
            "factor": self.factor,
            "repeats": self.repeats,
            "widens": self.widens,
            "source": self.source,
        }

    def varies(self, key: str) -> bool:
        """Whether runs alike gave other digits of this tensor."""
        found = self.noise.get(key)
        return found is not None and found.varies


def calibrated_of(golden: Record) -> Calibrated | None:
    """Return what was measured with a golden; None where it says nothing of repetition or noise.

    Raises:
        GoldenError: what its head says of them is not as it is written.
    """
    repeats = repeats_of(golden.extra, golden.path)
    calibration = calibration_of(golden.extra, golden.path)
    table = golden.table
    if repeats is None and calibration is None and not table.noise:
        return None
    factor = FACTOR if calibration is None else calibration.factor
    known = repeats is not None and repeats.runs > 1 and repeats.compared is None
    if calibration is not None:
        source = said(
            "calibrated: {members} members, factor {factor:g}",
            members=calibration.members,
            factor=calibration.factor,
        )
    else:
        runs = repeats.runs if repeats is not None else "several"
        source = f"spread of {runs} recording runs, factor {factor:g}"
    return Calibrated.of(
        table.keys, table.noise, factor=factor, source=source, repeats=known, widens=calibration is not None
    )
