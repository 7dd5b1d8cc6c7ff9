"""The operators that one run of a test has checked, each against a reference of its own: data only."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.compare.ulps import OutputFault

KEPT = 32
"""Wrong examples whose dumps are kept: the last ones, of which hypothesis' smallest is the very last."""


@dataclass(frozen=True, slots=True)
class GivenTensor:
    """An input of an operator.

    Attributes:
        dtype: its type.
        shape: its dimensions.
        there: the value where the output is farthest off, if their shapes are the same; else None.
    """

    dtype: str
    shape: tuple[int, ...]
    there: float | int | None = None


@dataclass(frozen=True, slots=True)
class WrongOperator:
    """An operator that does not give what its reference does.

    Attributes:
        operator: its type.
        example: which check of the test it was, from 1 on.
        inputs: what it was given.
        dump: the example's directory.
        output: which of its outputs it is about; None where it is about none.
        dtype: of that output; "" without one.
        shape: of it; None without one.
        fault: what is wrong with its values; None where it never came to these.
        problem: what is wrong besides values, in words; "" for nothing.
    """

    operator: str
    example: int
    inputs: tuple[GivenTensor, ...]
    dump: Path
    output: int | None = None
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    fault: OutputFault | None = None
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the operator as plain JSON data; numbers that are not finite as text."""
        found = asdict(self) | {
            "dump": str(self.dump),
            "shape": None if self.shape is None else [*self.shape],
        }
        values = [*found["inputs"], *([found["fault"]] if found["fault"] else [])]
        for value in values:
            for name in ("there", "got", "expected"):
                if isinstance(value.get(name), float):
                    value[name] = _plain(value[name])
        return found


def _plain(value: float) -> float | str:
    return value if value - value == 0 else str(value)


@dataclass(slots=True)
class OperatorChecks:
    """What became of the checks of a run.

    Attributes:
        begun: how many were begun.
        ended: how many came to a verdict, good or bad.
        failures: how many of them were bad.
        wrong: the last bad ones, whose dumps are kept.
    """

    begun: int = 0
    ended: int = 0
    failures: int = 0
    wrong: list[WrongOperator] = field(default_factory=list)

    def begin(self) -> int:
        """Count a check, and return its number."""
        self.begun += 1
        return self.begun

    def end(self, wrong: WrongOperator | None) -> Path | None:
        """Count a verdict, and return the dump of a bad one that is to be deleted, as there are enough."""
        self.ended += 1
        if wrong is None:
            return None
        self.failures += 1
        self.wrong.append(wrong)
        return self.wrong.pop(0).dump if len(self.wrong) > KEPT else None
