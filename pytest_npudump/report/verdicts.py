"""Verdicts in words: what differs, by how much against which allowance, and whose rule that is."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.language import mark
from pytest_npudump.language.text import inert, padded, width
from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_npudump.compare.stats.verdict import Reason, Verdict

PROJECTIONS = "projections"
COLUMNS = (
    mark("layer"),
    mark("type"),
    mark("tensor"),
    mark("statistic"),
    mark("golden"),
    mark("actual"),
    mark("allowed"),
    mark("off by"),
)
_STRUCTURE = ("dtype", "shape", "count")
_DISTANCES = ("max_abs", "relative_l2")
"""Reasons of a comparison element by element: the golden's side is a distance of 0."""
_WIDTH = 60
"""Characters of a cell."""
_STATISTIC_WORDS = {"nan": mark("NaN count"), "neg_inf": mark("-inf count"), "pos_inf": mark("+inf count")}


def number(value: object) -> str:
    """Return a statistic as people read it: 6 significant digits, integers in full, ``-`` for unknown."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def numbers(one: object, other: object) -> tuple[str, str]:
    """Return two values as :func:`number` does, or with all digits where these would not tell them apart."""
    texts = number(one), number(other)
    if texts[0] == texts[1] and isinstance(one, float) and isinstance(other, float) and one != other:
        texts = repr(float(one)), repr(float(other))
    return texts


def excess(reason: Reason) -> float:
    """How many times the allowance a reason is off; infinite where nothing is allowed or comparable."""
    if not reason.allowed or not _is_number(reason.golden) or not _is_number(reason.actual):
        return math.inf
    return float(abs(reason.actual - reason.golden) / reason.allowed)  # type: ignore[operator]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def worst(verdict: Verdict) -> Reason | None:
    """Return the reason that says most: a changed dtype or shape, else the largest excess."""
    for reason in verdict.reasons:
        if reason.statistic in _STRUCTURE:
            return reason
    return max(verdict.reasons, key=excess, default=None)


def deciding_rule(verdict: Verdict | None) -> str:
    """Return the rule of the reason that a row and a sentence show, else the first there is; "" for none."""
    if verdict is None:
        return ""
    shown = worst(verdict)
    rules = [reason.rule for reason in (*filter(None, [shown]), *verdict.reasons) if reason.rule]
    return rules[0] if rules else ""


def off_by(reason: Reason) -> str:
    """Say by how much: in allowances where there is one, else as a difference."""
    times = excess(reason)
    if math.isfinite(times):
        return f"{times:.3g}x"
    if _is_number(reason.golden) and _is_number(reason.actual):
        return number(reason.actual - reason.golden)  # type: ignore[operator]
    return ""


def statistic(reason: Reason) -> str:
    """Return the statistic's name as a column of text."""
    return _(_STATISTIC_WORDS.get(reason.statistic, reason.statistic))


def tensor(verdict: Verdict) -> str:
    """Return ``output.0`` with whatever else tells this tensor from others of the layer."""
    text = str(verdict.key)
    head, _, place = text.rpartition(":")
    _, sign, qualifiers = head.partition("#")
    return f"{place} ({qualifiers})" if sign else place


def row(verdict: Verdict) -> tuple[str, ...]:
    """Return one failing verdict as the cells of :data:`COLUMNS`."""
    head = (verdict.key.layer, verdict.op_type, tensor(verdict))
    if verdict.status == "missing":
        return (*head, _("missing"), _("in the golden"), _("not in the dump"), "", "")
    if verdict.status == "extra":
        return (*head, _("new"), _("not in the golden"), _("in the dump"), "", "")
    reason = worst(verdict)
    if reason is None:
        return (*head, "", "", "", "", "")
    more = _(" (+{left} more)").format(left=len(verdict.reasons) - 1) if len(verdict.reasons) > 1 else ""
    allowed = "" if reason.allowed is None else f"± {number(float(reason.allowed))}"
    values = numbers(reason.golden, reason.actual)
    if reason.statistic == PROJECTIONS and reason.golden == 0:
        values = (
            "-",
            f"Δ≈{reason.actual:.2g}",
        )  # an estimate of how far off the elements are, no value of either
    cells = (*values, allowed, off_by(reason))
    return (*head, statistic(reason) + more, *cells)


def place(verdict: Verdict) -> str:
    """Return which tensor a verdict is about, the layer first."""
    return f"{verdict.key.layer} ({f'{verdict.op_type} {tensor(verdict)}'.strip()})"


def sentence(verdict: Verdict, *, against: str = "golden") -> str:
    """Return one failing verdict as a sentence, the layer first; ``against`` is what it was compared with."""
    where = place(verdict)
    if verdict.status == "missing":
        return _("{place} is missing: the golden has it, the dump does not").format(place=where)
    if verdict.status == "extra":
        return _("{place} is new: the dump has it, the golden does not").format(place=where)
    reason = worst(verdict)
    if reason is None:
        return _("{place} differs").format(place=where)
    times = excess(reason)
    far = _(", {times:.3g} times the allowed difference").format(times=times) if math.isfinite(times) else ""
    if reason.statistic == PROJECTIONS and reason.golden == 0:
        words = _("its elements are off by an l2norm of roughly {actual:.2g} (projections)").format(
            actual=reason.actual
        )
    elif reason.statistic in _DISTANCES:
        words = _("{statistic} from the {against} tensor is {actual}").format(
            statistic=reason.statistic, against=_(against), actual=number(reason.actual)
        )
    elif isinstance(reason.actual, str) and reason.statistic not in _STRUCTURE:
        words = f"{reason.statistic}: {reason.actual}"
    else:
        golden, actual = numbers(reason.golden, reason.actual)
        words = _("{statistic} is {actual} instead of {golden}").format(
            statistic=statistic(reason), actual=actual, golden=golden
        )
    return _("{place} differs: {words}{far}").format(place=where, words=words, far=far)


def plain(text: str) -> str:
    """Return one line in which what would steer a terminal, or a CI service, is there as escapes."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return inert(text)


def shown(path: Path | None, here: Path | None = None) -> str:
    """Return a path as short as it can be typed in the folder ``here``, by default the current one."""
    if path is None:
        return "-"
    here = here or Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def table(rows: Iterable[tuple[str, ...]], columns: tuple[str, ...] = COLUMNS) -> list[str]:
    """Lay rows out as plain text lines, a header first; names too long for 60 columns lose their middle.

    Not by rich's tables, which take 18 s for 10,000 rows.
    """
    grid = [tuple(map(_, columns)), *(tuple([_shorten(plain(cell)) for cell in cells]) for cells in rows)]
    sizes = [max(map(width, column)) for column in zip(*grid, strict=True)]
    lines = (
        "  ".join([padded(cell, size) for cell, size in zip(cells, sizes, strict=True)]) for cells in grid
    )
    return [f"  {line.rstrip()}" for line in lines]


def _shorten(text: str) -> str:
    if len(text) <= _WIDTH:
        return text
    half = (_WIDTH - 3) // 2
    return f"{text[:half]}...{text[-half:]}"
