"""What a comparison with the reference found, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.compare.stats.verdict import Comparison
    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.reference.rounding import Blame


@dataclass(frozen=True, slots=True)
class ReferenceResult:
    """A dump judged against the ONNX model it was converted from.

    Attributes:
        model: the ONNX model.
        comparison: verdicts of the tensors that have a counterpart, the reference on the golden's side; None
            where it never came to one.
        layers: layers of the dump.
        compared: those of them of which a tensor was compared.
        problems: what went wrong besides verdicts, in words; any of them fails the test.
        notes: what is to be known of a test that passes, too.
        remarks: how layers were matched and judged, for who looks into a failure.
        blames: whose error each difference is, the device's or its number format's, where that is known.
        tolerances: what decided, beside what rounding explains; None where it never came to a comparison.
    """

    model: Path
    comparison: Comparison | None = None
    layers: int = 0
    compared: int = 0
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    blames: tuple[Blame, ...] = ()
    tolerances: Tolerances | None = None

    @property
    def good(self) -> bool:
        """Whether something was compared, and all of it agrees."""
        return self.comparison is not None and not self.comparison.failing and not self.problems

    @property
    def failing(self) -> bool:
        """Whether a tensor differs from its counterpart."""
        return self.comparison is not None and bool(self.comparison.failing)

    def summary(self) -> dict[str, Any]:
        """Return what reaches JUnit: small, whatever the number of layers."""
        found = self.comparison
        first = found.first if found else None
        return {
            "model": str(self.model),
            "good": self.good,
            "layers": self.layers,
            "compared": self.compared,
            "failed": len(found.failing) if found else 0,
            "unjudged": found.unjudged if found else 0,
            "first": str(first.key) if first else None,
        }

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON data."""
        return {
            **self.summary(),
            "problems": list(self.problems),
            "notes": list(self.notes),
            "remarks": list(self.remarks),
            "blames": [blame.to_json() for blame in self.blames],
            "comparison": self.comparison.to_json() if self.comparison else None,
        }
