"""What rounding to the device's types does to the reference, which is what it does to a healthy device.

The device may be a few times as far off, as it adds up in another order: the elements :data:`FARTHEST` times
as far as the farthest one of the rounded reference, the tensor as a vector :data:`FURTHER` times. These are
bounds of AWS Neuron's accuracy checks (worst L-inf ratio under 5, worst L2 ratio under 3). The second is also
PyTorch's multiplier for 16-bit types (``torch._dynamo.utils.same``), whose larger ones for tensors of few
elements are :data:`SMALL`.

By the triangle inequality bounds of elements hold for statistics: max and min differ by no more than the
farthest element does, the norm by no more than the norm of the difference, and the mean by no more than its
root mean square.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.tensors.element_verdict import MAX_ABS, RELATIVE_L2

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]

FARTHEST = 5.0
FURTHER = 3.0
SMALL = ((10, 10.0), (500, 8.0))
"""Elements up to which a tensor is small, and the factor that it has at least."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """What rounding after every operator does to a tensor of the reference.

    Attributes:
        largest: of the distances of its elements.
        norm: l2norm of the difference.
        count: of its elements.
        reference: l2norm of the tensor in float32.
        magnitude: largest magnitude of an element of it.
        special: elements that are NaN or infinite when rounded, and are not in float32.
    """

    largest: float
    norm: float
    count: int
    reference: float
    magnitude: float
    special: int = 0

    @classmethod
    def of(cls, reference: Array, rounded: Array) -> Rounding:
        """Compare two arrays of one shape; pairs that are not finite count for nothing."""
        exact = reference.astype(np.float64).reshape(-1)
        with np.errstate(invalid="ignore", over="ignore"):
            apart = rounded.astype(np.float64).reshape(-1) - exact
        finite = np.isfinite(apart)
        special = int(np.count_nonzero(np.isfinite(exact) & ~finite))
        exact, apart = exact[finite], apart[finite]
        return cls(
            largest=float(np.abs(apart).max(initial=0.0)),
            norm=float(np.linalg.norm(apart)),
            count=exact.size,
            reference=float(np.linalg.norm(exact)),
            magnitude=float(np.abs(exact).max(initial=0.0)),
            special=special,
        )

    @property
    def relative(self) -> float:
        """The relative L2 distance."""
        return self.norm / self.reference if self.reference else math.inf if self.norm else 0.0

    def of_statistic(self, statistic: str) -> tuple[float, float] | None:
        """Return what rounding may do to a statistic, and its scale; None for what it does not change."""
        root = math.sqrt(max(self.count, 1))
        return {
            "max": (self.largest, self.magnitude),
            "min": (self.largest, self.magnitude),
            MAX_ABS: (self.largest, self.magnitude),
            "avg": (self.norm / root, self.reference / root),
            "l2norm": (self.norm, self.reference),
            RELATIVE_L2: (self.relative, 1.0),
        }.get(statistic)

    def factor(self, statistic: str) -> float:
        """Return how many times as far off as the rounded reference a device may be."""
        small = next((factor for size, factor in SMALL if self.count <= size), 0.0)
        return max(FARTHEST if statistic in {"max", "min", MAX_ABS} else FURTHER, small)
