"""Every element is looked at before anything is claimed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.patterns.change import LEAST
from pytest_npudump.compare.patterns.evidence import squares

if TYPE_CHECKING:
    from pytest_npudump.compare.patterns.change import Change
    from pytest_npudump.compare.patterns.evidence import Evidence
    from pytest_npudump.compare.patterns.likely_places import Place


def likely(evidence: Evidence, place: Place, change: Change) -> bool:
    """Whether a change explains enough of the sample of failing elements to be worth a look at all."""
    inside = place.holds(evidence.at)
    golden, actual = evidence.golden[inside], evidence.actual[inside]
    found = change.explain(evidence.tensors, evidence.at[inside], golden, actual)
    return bool(np.count_nonzero(found.hit) >= LEAST * evidence.at.size)


def explained(evidence: Evidence, place: Place, change: Change) -> float:
    """Return the share of the difference that a change of a place explains; 0 where the claim is refused.

    It is refused unless it explains :data:`LEAST` of the failing elements and of the sum of squares, and
    unless as large a share of the elements that it says have changed have done so, in the way it says.
    """
    hits = claimed = wrong = 0
    left = 0.0
    for flat, golden, actual in evidence.tensors.chunks():
        inside = place.holds(flat)
        left += squares((actual - golden)[~inside])
        pair = golden[inside], actual[inside]
        found = change.explain(evidence.tensors, flat[inside], *pair)
        left += squares(found.left)
        hits += int(np.count_nonzero(found.hit & evidence.tensors.fails(*pair)))
        claimed += int(np.count_nonzero(found.claimed))
        wrong += int(np.count_nonzero(found.claimed & ~found.hit))
    if wrong > (1 - LEAST) * claimed:
        return 0.0
    share = hits / evidence.failing
    if evidence.squared:
        share = min(share, 1 - left / evidence.squared)
    return share if share >= LEAST else 0.0
