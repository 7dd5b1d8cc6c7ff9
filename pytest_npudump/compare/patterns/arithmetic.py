"""Elements that are the golden's with one operation on top: another sign, a factor, an offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.patterns.change import Change, Predicted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_npudump.compare.patterns.evidence import Evidence, Wide
    from pytest_npudump.compare.patterns.likely_places import Place

_FEW = 8
"""Fewer elements, or different values, than this may fit a factor or an offset by accident."""
_NEAR = 0.3


def arithmetic(evidence: Evidence, place: Place) -> Iterator[Change]:
    """The sign, then a factor, then an offset."""
    inside = place.holds(evidence.at)
    golden, actual = evidence.golden[inside], evidence.actual[inside]
    usable = np.isfinite(golden) & np.isfinite(actual)
    golden, actual = golden[usable], actual[usable]
    if evidence.tensors.golden.dtype.kind == "b":
        if golden.size >= _FEW and np.unique(golden).size > 1:
            yield Predicted("sign", "is inverted", lambda _, values: 1 - values)
        return
    if np.unique(golden).size < _FEW:
        return
    yield Predicted("sign", "the sign is flipped", lambda _, values: -values)
    large = np.abs(golden) >= np.median(np.abs(golden))
    if (golden[large] != 0).all():
        factor = _middle(actual[large] / golden[large])
        if factor not in (0.0, 1.0):
            yield Predicted("factor", f"multiplied by {factor:.6g}", lambda _, values: factor * values)
    offset = _middle(actual - golden)
    if offset:
        yield Predicted("offset", f"{offset:+.6g} was added", lambda _, values: values + offset)


def _middle(values: Wide) -> float:
    """Return the mean of what is near the median: rounding to few bits makes steps of the values."""
    median = float(np.median(values))
    near = values[np.abs(values - median) <= _NEAR * abs(median)]
    return float(near.mean()) if near.size else median
