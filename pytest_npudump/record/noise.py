"""The cells of a golden's column ``noise``: how far each statistic strayed where nothing was wrong.

``1.2e-6,3e-7,-,4e-8`` are the largest deviations of max, min, avg and l2norm that were measured, each in its
own scale, ``-`` where none was; a fifth number behind them is that of the projections; ``~`` before them: two
runs alike did not give the same digits. A cell of ``-`` is a tensor that never strayed. ``repeats`` and
``calibration`` in the head say what was measured.

A bound that was measured is a deviation of that column times a factor.

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
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeGuard

from pytest_npudump.dump.table import MEASURED, PROJECTIONS, STATISTICS
from pytest_npudump.errors import GoldenError, said
from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_npudump.record.record import Record


REPEATS = "repeats"
"""Key of a golden file: how many runs alike were recorded, and what of them is not deterministic."""
CALIBRATION = "calibration"
"""Key of a golden file: by how many members the column was measured, and the factor on top of it."""
FACTOR = 5.0
"""Factor on a measured deviation, unless a calibration had to take more; probtest's."""
LARGEST_FACTOR = 4 * FACTOR
"""The most that a calibration takes: a golden that says more was not written by one."""

MEASURABLE = (*STATISTICS[:MEASURED], PROJECTIONS)
"""The statistics that have noise, in the order of a cell."""

_NUMBER = r"(?:-|[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]{1,3})?|inf)"
CELL = re.compile(rf"-|~?{_NUMBER}(?:,{_NUMBER}){{3,4}}")
EXPECTED_CELL = "noise, expected such as 1.2e-6,3e-7,-,4e-8"


@dataclass(frozen=True, slots=True)
class Noise:
    """Measured noise of one tensor.

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
    """Facts of a golden on equal runs.

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
    """Calibration of a golden's noise.

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
    """Return the repeats in a golden's head; None without any.

    Args:
        extra: further keys of the head.
        path: the golden, for the error.

    Raises:
        GoldenError: the key is not as it is written.
    """
    if (found := extra.get(REPEATS)) is None:
        return None
    told = found if isinstance(found, dict) else {}
    runs, named, compared = (told.get(key) for key in ("runs", "not_deterministic", "compared"))
    known = not told.keys() - {"runs", "not_deterministic", "compared"}
    if known and _counts(runs) and (compared is None or _counts(compared)) and are_texts(named or []):
        return Repeats(runs, tuple(named or ()), compared)
    raise _unreadable(path, REPEATS, found, "a mapping with runs (1 or more) and not_deterministic (layers)")


def calibration_of(extra: Mapping[str, Any], path: Path) -> Calibration | None:
    """Return the calibration in a golden's head; None without one.

    Args:
        extra: further keys of the head.
        path: the golden, for the error.

    Raises:
        GoldenError: the key is not as it is written.
    """
    if (found := extra.get(CALIBRATION)) is None:
        return None
    told: dict[str, Any] = found if isinstance(found, dict) else {}
    if told.keys() == {"members", "factor", "varied"}:
        members, factor, varied = told["members"], told["factor"], told["varied"]
        number = type(factor) in {int, float} and 1 <= factor <= LARGEST_FACTOR
        if _counts(members) and number and are_texts(varied):
            return Calibration(members, float(factor), tuple(varied))
    expected = f"a mapping with members, factor (1 to {LARGEST_FACTOR:g}) and varied (words)"
    raise _unreadable(path, CALIBRATION, found, expected)


def _counts(value: object) -> TypeGuard[int]:
    return type(value) is int and value > 0


def are_texts(value: object) -> bool:
    """Return whether a value of a head is a list of texts."""
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _unreadable(path: Path, key: str, found: object, expected: str) -> GoldenError:
    return GoldenError(
        f"{path}: {key} is {found!r}, expected {expected}. Restore the file from version control, or "
        f"accept anew with --npudump-update-golden"
    )


def columns_text(cells: Sequence[Noise]) -> tuple[str, ...]:
    """Return the column; empty where no tensor has noise, so that the golden has no such column."""
    texts = tuple(map(render_noise, cells))
    return texts if any(text != "-" for text in texts) else ()


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Measurements of a golden.

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
        """Parse a column of noise; it has a cell for each key, or none at all."""
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
        """Count the tensors with noise, and those with a tolerance of it, with its source, in one line.

        Args:
            bounds: number of tensors of which a measured bound decides.
        """
        if not self.widens:
            words = _("tensors with noise that is not a change: {count} ({source})")
            return words.format(count=len(self.noise), source=self.source)
        return _(
            "{bounds} of {count} tensors with noise have measured tolerances wider than the preset's "
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
        """Return whether equal runs gave other digits of this tensor."""
        found = self.noise.get(key)
        return found is not None and found.varies


def calibrated_of(golden: Record) -> Calibrated | None:
    """Return the measurements of a golden; None where it has neither repeats nor noise.

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
