"""A pattern that was found: data for every report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Pattern:
    """What explains a difference between two tensors.

    Attributes:
        kind: ``stuck``, ``sign``, ``factor``, ``offset``, ``other tensor``, ``moved``, ``unwritten`` or
            ``place``, where only the place is known.
        where: the elements that differ, in words.
        what: what became of them, in words.
        share: of the difference that it explains, 0.9 to 1: the smaller one of the share of failing elements
            and the share of the sum of squared differences.
    """

    kind: str
    where: str
    what: str
    share: float

    def __str__(self) -> str:
        share = "all" if self.share == 1 else f"{min(100 * self.share, 99.9):.3g} %"
        return f"{self.where}: {self.what} (explains {share} of the difference)"

    def to_json(self) -> dict[str, Any]:
        """Return the pattern as plain JSON data."""
        return {"kind": self.kind, "where": self.where, "what": self.what, "share": self.share}
