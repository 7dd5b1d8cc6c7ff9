"""Elements that hold what nobody computed for them: one value, another tensor's values, or anything."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.patterns.change import LEAST, Change, Explained, Predicted
from pytest_npudump.compare.patterns.evidence import wide

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from pytest_npudump.compare.patterns.evidence import Evidence, Tensors, Wide
    from pytest_npudump.compare.patterns.likely_places import Place

_FEW = 8
"""Fewer elements than this may be another tensor's by accident."""
_HUGE, _TINY = 2.0**4, 2.0**-12
"""By the golden's magnitude: random bits of float32 are between the two in one case of 16."""


def stuck(evidence: Evidence, place: Place) -> Iterator[Change]:
    """One value in all elements."""
    inside = place.holds(evidence.at)
    values, counts = np.unique(evidence.actual[inside], return_counts=True)
    if not values.size or counts.max() < LEAST * inside.sum():
        return
    value = float(values[counts.argmax()])
    words = f"{_named(value)} instead of values{_unwritten_bits(evidence, inside)}"
    if place.count == 1:
        words = f"{_named(value)} instead of {_named(float(evidence.golden[inside][0]))}"
    yield Predicted("stuck", words, lambda flat, _: np.full(flat.shape, value))


def _named(value: float) -> str:
    text = f"{value:.6g}"
    return text if math.isfinite(value) else text.replace("nan", "NaN").replace("inf", "Inf")


def _unwritten_bits(evidence: Evidence, inside: NDArray[np.bool_]) -> str:
    """Say that the bytes of all failing elements are alike and make a NaN, as those of memory do; else ""."""
    actual = evidence.tensors.actual
    if actual.dtype.itemsize > 4 or not np.isnan(evidence.actual[inside]).all():  # noqa: PLR2004 - bytes
        return ""
    codes = np.unique(actual[evidence.at[inside]].view(f"u{actual.dtype.itemsize}"))
    if codes.size != 1:
        return ""
    return f", all of the bits 0x{int(codes[0]):0{2 * actual.dtype.itemsize}x}"


def of_other(evidence: Evidence, place: Place, others: Mapping[str, NDArray[Any]]) -> Iterator[Change]:
    """The values that another tensor of the type and size has at the same place in memory."""
    inside = place.holds(evidence.at)
    if np.unique(evidence.actual[inside]).size < _FEW:
        return
    tensors = evidence.tensors
    for name, other in others.items():
        if other.dtype == tensors.actual.dtype and other.size == tensors.actual.size:
            yield Predicted("other tensor", f"the values of {name}", _held(other.reshape(-1)))


def _held(values: NDArray[Any]) -> Callable[[NDArray[np.intp], Wide], Wide]:
    return lambda flat, _: wide(values[flat])


def unwritten(evidence: Evidence, place: Place) -> Iterator[Change]:
    """Bits that are no values of this tensor: NaN, infinities, and magnitudes far from all of its own."""
    magnitude = np.abs(evidence.golden[np.isfinite(evidence.golden)]).max(initial=0.0)
    if place.holds(evidence.at).sum() >= _FEW and magnitude:
        yield Unwritten(float(magnitude))


@dataclass(frozen=True, slots=True)
class Unwritten:
    """Elements that look like memory that nobody wrote.

    Attributes:
        magnitude: of the golden's elements there.
    """

    magnitude: float
    kind: str = "unwritten"
    words: str = "values that look like memory nobody wrote (NaN, Inf, or magnitudes far from any of its own)"

    def explain(self, tensors: Tensors, flat: NDArray[np.intp], golden: Wide, actual: Wide) -> Explained:
        """Explain elements that are implausible while the golden's are not."""
        del flat
        odd = self._odd(actual) & ~self._odd(golden) & tensors.apart(golden, actual)
        return Explained(np.where(odd, 0.0, actual - golden), odd, np.ones(odd.shape, bool))

    def _odd(self, values: Wide) -> NDArray[np.bool_]:
        size = np.abs(values)
        small = (size > 0) & (size < _TINY * self.magnitude)
        return np.asarray(~np.isfinite(values) | small | (size > _HUGE * self.magnitude))
