"""The cells of a golden's column ``noise``: how far each statistic strayed where nothing was wrong.

``1.2e-6,3e-7,-,4e-8`` are the largest deviations of max, min, avg and l2norm that were measured, each in its
own scale, ``-`` where none was; a fifth number behind them is that of the projections; ``~`` before them: two
runs alike did not give the same digits. A cell of ``-`` is a tensor that never strayed. ``repeats`` and
``calibration`` in the head say what was measured.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_npudump.dump.table import MEASURED, PROJECTIONS, STATISTICS
from pytest_npudump.errors import GoldenError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


REPEATS = "repeats"
"""Key of a golden file: how many runs alike were recorded, and what of them is not deterministic."""
CALIBRATION = "calibration"
"""Key of a golden file: by how many members the column was measured, and the factor on top of it."""
FACTOR = 5.0
"""What a measured deviation is multiplied by, unless a calibration had to take more; probtest's factor."""
LARGEST_FACTOR = 4 * FACTOR
"""The most that a calibration takes: a golden that says more was not written by one."""

MEASURABLE = (*STATISTICS[:MEASURED], PROJECTIONS)
"""The statistics that have noise, in the order of a cell."""

_NUMBER = r"(?:-|[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]{1,3})?|inf)"
CELL = re.compile(rf"-|~?{_NUMBER}(?:,{_NUMBER}){{3,4}}")
EXPECTED_CELL = "noise, expected such as 1.2e-6,3e-7,-,4e-8"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Noise:
    """What was measured of one tensor.

    Attributes:
        largest: deviations of max, min, avg and l2norm in their scales; 0 where none was measured, infinite
            where the scale is 0.
        varies: whether runs alike gave other digits.
        projections: that of the projections, the distance that they tell by the l2norm.
    """

    largest: tuple[float, float, float, float]
    varies: bool = False
    projections: float = 0.0

    @property
    def by_statistic(self) -> dict[str, float]:
        """The deviations by the names of :data:`MEASURABLE`."""
        return dict(zip(MEASURABLE, (*self.largest, self.projections), strict=True))


@dataclass(frozen=True, slots=True)
class Repeats:
    """What a golden says of runs alike.

    Attributes:
        runs: how many there were; 1 where the test ran once, so that nothing is known.
        not_deterministic: layers at which they came apart.
        compared: tensors that were compared; None for all of the golden.
    """

    runs: int
    not_deterministic: tuple[str, ...] = ()
    compared: int | None = None

    def to_head(self) -> dict[str, Any]:
        """The value of the key :data:`REPEATS`."""
        part = {} if self.compared is None else {"compared": self.compared}
        named = {"not_deterministic": list(self.not_deterministic)} if self.not_deterministic else {}
        return {"runs": self.runs, **part, **named}


@dataclass(frozen=True, slots=True)
class Calibration:
    """How the noise of a golden was measured.

    Attributes:
        members: runs that it is of.
        factor: what the largest deviation is multiplied by.
        varied: what differed between the members: ``repeats``, ``inputs``, ``threads``, ``optimisation``.
    """

    members: int
    factor: float
    varied: tuple[str, ...] = field(default=("repeats",))

    def to_head(self) -> dict[str, Any]:
        """The value of the key :data:`CALIBRATION`."""
        whole = int(self.factor) if self.factor == int(self.factor) else self.factor
        return {"members": self.members, "factor": whole, "varied": list(self.varied)}


def render_noise(noise: Noise) -> str:
    """Return the cell; each deviation with two digits, rounded up."""
    told = (*noise.largest, noise.projections) if noise.projections else noise.largest
    cells = [_rounded_up(value) for value in told]
    if not noise.varies and set(cells) == {"-"}:
        return "-"
    return ("~" if noise.varies else "") + ",".join(cells)


def parse_noise(cell: str) -> Noise:
    """Read a cell that :data:`CELL` matches."""
    if cell == "-":
        return Noise((0.0, 0.0, 0.0, 0.0))
    values = [0.0 if text == "-" else float(text) for text in cell.removeprefix("~").split(",")]
    largest, smallest, avg, l2norm, *rest = values
    return Noise((largest, smallest, avg, l2norm), cell.startswith("~"), rest[0] if rest else 0.0)


def _rounded_up(value: float) -> str:
    if not value:
        return "-"
    if value == float("inf"):
        return "inf"
    from decimal import ROUND_CEILING, Context, Decimal  # noqa: PLC0415 - only where noise is recorded

    rounded = Context(prec=2, rounding=ROUND_CEILING).create_decimal(Decimal(repr(value)))
    text = repr(float(rounded)).removesuffix(".0")
    return re.sub(r"e([+-])0*", lambda found: f"e{found[1].removeprefix('+')}", text)


def repeats_of(extra: Mapping[str, Any], path: Path) -> Repeats | None:
    """Return what a golden's head says of repetition; None where it says nothing.

    Args:
        extra: further keys of the head.
        path: the golden, for the error.

    Raises:
        GoldenError: the key is not as it is written.
    """
    expected = "a mapping with runs (1 or more) and not_deterministic (layers)"
    return _from_head(extra, path, REPEATS, _repeats, expected)


def _repeats(found: dict[str, Any]) -> Repeats | None:
    runs, named, compared = (found.get(key) for key in ("runs", "not_deterministic", "compared"))
    known = not found.keys() - {"runs", "not_deterministic", "compared"}
    if known and _counts(runs) and (compared is None or _counts(compared)) and _texts(named or []):
        return Repeats(int(runs or 1), tuple(named or ()), compared)
    return None


def calibration_of(extra: Mapping[str, Any], path: Path) -> Calibration | None:
    """Return what a golden's head says of its calibration; None without one.

    Args:
        extra: further keys of the head.
        path: the golden, for the error.

    Raises:
        GoldenError: the key is not as it is written.
    """
    expected = f"a mapping with members, factor (1 to {LARGEST_FACTOR:g}) and varied (words)"
    return _from_head(extra, path, CALIBRATION, _calibration, expected)


def _calibration(found: dict[str, Any]) -> Calibration | None:
    if found.keys() != {"members", "factor", "varied"}:
        return None
    members, factor, varied = found["members"], found["factor"], found["varied"]
    number = (
        isinstance(factor, int | float) and not isinstance(factor, bool) and 1 <= factor <= LARGEST_FACTOR
    )
    if _counts(members) and number and _texts(varied):
        return Calibration(members, float(factor), tuple(varied))
    return None


def _counts(value: object) -> bool:
    return type(value) is int and value > 0


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _from_head(
    extra: Mapping[str, Any], path: Path, key: str, read: Callable[[dict[str, Any]], _T | None], expected: str
) -> _T | None:
    found = extra.get(key)
    if found is None:
        return None
    value = read(found) if isinstance(found, dict) else None
    if value is None:
        raise GoldenError(
            f"{path}: {key} is {found!r}, expected {expected}. Restore the file from version control, or "
            f"approve anew with --npudump-update-golden"
        )
    return value


def columns_text(cells: Sequence[Noise]) -> tuple[str, ...]:
    """Return the column; empty where no tensor has noise, so that the golden has no such column."""
    texts = tuple(map(render_noise, cells))
    return texts if any(text != "-" for text in texts) else ()
