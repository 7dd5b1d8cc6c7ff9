"""Verdicts in words: what differs, by how much against which allowance, and whose rule that is."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.errors import joined
from pytest_npudump.language import mark
from pytest_npudump.language.text import inert, padded, width
from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_npudump.compare.stats.verdict import Reason, Verdict
    from pytest_npudump.report.layer_names import LayerNames


PROJECTIONS, CHECKSUM = "projections", "checksum"
COLUMNS = (
    mark("layer"),
    mark("type"),
    mark("tensor"),
    mark("statistic"),
    mark("golden"),
    mark("actual"),
    mark("tolerance"),
    mark("x tol"),
)
SIDES = mark("golden"), mark("dump")
"""Names of the side that counts and of the one that is judged, where these are no others."""
_STRUCTURE = ("dtype", "shape", "count")
_DISTANCES = ("max_abs", "relative_l2")
"""Reasons of a comparison element by element: the golden's side is a distance of 0."""
_STATISTIC_WORDS = {"nan": mark("NaN count"), "neg_inf": mark("-inf count"), "pos_inf": mark("+inf count")}


def number(value: object) -> str:
    """Return a statistic as people read it: 6 significant digits, integers in full, ``-`` for unknown."""
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def numbers(one: object, other: object) -> tuple[str, str]:
    """Return two values as :func:`number` does, or with all digits where these would look equal."""
    texts = number(one), number(other)
    if texts[0] == texts[1] and isinstance(one, float) and isinstance(other, float) and one != other:
        texts = repr(float(one)), repr(float(other))
    return texts


def times(ratio: float) -> str:
    """Return a ratio with 3 digits: ``1.07``, ``4450``, ``1.2e+09``; ``inf`` where it is infinite."""
    return f"{float(f'{ratio:.3g}'):.6g}"


def worst(verdict: Verdict) -> Reason | None:
    """Return the most telling reason: a changed dtype or shape, else the largest excess.

    Projections, which estimate, count where nothing that people read is out of tolerance.
    """
    for reason in verdict.reasons:
        if reason.statistic in _STRUCTURE:
            return reason
    read = [reason for reason in verdict.reasons if reason.statistic != PROJECTIONS]
    return max(read or verdict.reasons, key=lambda one: one.excess, default=None)


def deciding_rule(verdict: Verdict | None) -> str:
    """Return the rule of the reason that a row and a sentence show, else the first there is; "" for none."""
    if verdict is None:
        return ""
    shown = worst(verdict)
    rules = [reason.rule for reason in (*filter(None, [shown]), *verdict.reasons) if reason.rule]
    return rules[0] if rules else ""


def statistic(reason: Reason) -> str:
    """Return the statistic's name as a column of text."""
    return _(_STATISTIC_WORDS.get(reason.statistic, reason.statistic))


def tensor(verdict: Verdict) -> str:
    """Return ``output.0`` with whatever else tells this tensor from others of the layer."""
    head, _, place = str(verdict.key).rpartition(":")
    _, sign, qualifiers = head.partition("#")
    return f"{place} ({qualifiers})" if sign else place


def row(verdict: Verdict, sides: tuple[str, str] = SIDES) -> tuple[str, ...]:
    """Return one failing verdict as the cells of :data:`COLUMNS`, of two sides."""
    head = (verdict.key.layer, verdict.op_type, tensor(verdict))
    if verdict.status in {"missing", "extra"}:
        there = [_("in the {side}").format(side=_(side)) for side in sides]
        absent = [_("not in the {side}").format(side=_(side)) for side in sides]
        if verdict.status == "missing":
            return (*head, _("missing"), there[0], absent[1], "", "")
        return (*head, _("new"), absent[0], there[1], "", "")
    reason = worst(verdict)
    if reason is None:
        return (*head, "", "", "", "", "")
    more = _(" (+{left} more)").format(left=len(verdict.reasons) - 1) if len(verdict.reasons) > 1 else ""
    allowed, ratio = "", ""
    if reason.allowed is not None:
        allowed = f"{float(reason.allowed):.3g}"
        ratio = times(reason.excess) if reason.difference is not None else ""
    values = numbers(reason.golden, reason.actual)
    name = statistic(reason)
    if reason.statistic == PROJECTIONS and reason.golden == 0:  # how far off the elements are, estimated
        name, values = _("difference"), ("0", f"~{reason.actual:.2g}")
    return (*head, name + more, *values, allowed, ratio)


def sentence(verdict: Verdict, *, sides: tuple[str, str] = SIDES, short: bool = False) -> str:
    """Return one failing verdict as a sentence, the tensor first; a ``short`` one is without values."""
    key, (against, other) = str(verdict.key), map(_, sides)
    if verdict.status == "missing":
        return _("{key} is missing: the {against} has it, the {other} does not").format(
            key=key, against=against, other=other
        )
    if verdict.status == "extra":
        return _("{key} is new: the {other} has it, the {against} does not").format(
            key=key, against=against, other=other
        )
    reason = worst(verdict)
    if reason is None:
        return _("{key} is out of tolerance").format(key=key)
    ratio = reason.excess
    far = _(" ({times}x tolerance)").format(times=times(ratio)) if math.isfinite(ratio) else ""
    if short and far:
        return f"{key}{far}"
    if reason.statistic == PROJECTIONS and reason.golden == 0:
        words = _("l2norm of the difference about {actual:.2g}, estimated from projections").format(
            actual=reason.actual
        )
    elif reason.statistic in _DISTANCES:
        words = _("{statistic} {actual} from the {against} tensor").format(
            statistic=reason.statistic, against=against, actual=number(reason.actual)
        )
    elif reason.statistic == CHECKSUM:
        words = _("elements differ, as their checksums do")
    elif isinstance(reason.actual, str) and reason.statistic not in _STRUCTURE:
        words = f"{reason.statistic}: {reason.actual}"
    else:
        golden, actual = numbers(reason.golden, reason.actual)
        words = _("{statistic} {actual}, expected {golden}").format(
            statistic=statistic(reason), actual=actual, golden=golden
        )
    return joined("", (f"{key} ", words, far))


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


def table(
    rows: Iterable[tuple[str, ...]], columns: tuple[str, ...] = COLUMNS, names: LayerNames | None = None
) -> list[str]:
    """Lay rows out as plain text lines, a header first.

    In a terminal that is too narrow the column of types goes first, then the number of further statistics,
    then that of tensors where they all are the same, and that of tolerances; a name that is too long all the
    same has a line of its own above its row.

    Not by rich's tables, which take 18 s for 10,000 rows.

    Args:
        rows: the cells of each, a layer's name first.
        columns: their names.
        names: of the test's layers, which get the room that there is; None for a file.
    """
    grid = [[plain(cell) for cell in cells] for cells in rows]
    head = [*map(_, columns)]
    above = [""] * (len(grid) + 1)

    def taken() -> int:
        return sum(max(map(width, column)) + 2 for column in zip(head, *grid, strict=True))

    if names is not None and names.columns is not None:
        names.fit(names.layers, names.room)
        grid = [[names.short(cells[0]), *cells[1:]] for cells in grid]
    if names is not None and names.columns is not None and taken() > names.columns:
        most = names.columns
        head, grid = head[:1] + head[2:], [cells[:1] + cells[2:] for cells in grid]
        if taken() > most:
            grid = [[*cells[:2], re.sub(r" ?[(\uff08].*", "", cells[2]), *cells[3:]] for cells in grid]
        if taken() > most and len({cells[1] for cells in grid}) == 1:
            head = [f"{head[0]} ({grid[0][1]})", *head[2:]]
            grid = [cells[:1] + cells[2:] for cells in grid]
        if taken() > most and _("tolerance") in head:
            at = head.index(_("tolerance"))
            grid, head = [cells[:at] + cells[at + 1 :] for cells in grid], head[:at] + head[at + 1 :]
        longest = max((width(cells[0]) for cells in grid), default=0)
        room = max(longest - max(0, taken() - most), width(head[0]))
        for at, cells in enumerate(grid, 1):
            if width(cells[0]) > room:
                above[at], cells[0] = f"  {cells[0]}\n", ""
    grid = [head, *grid]
    sizes = [max(map(width, column)) for column in zip(*grid, strict=True)]
    lines = (
        "  ".join([padded(cell, size) for cell, size in zip(cells, sizes, strict=True)]) for cells in grid
    )
    return [
        one for name, line in zip(above, lines, strict=True) for one in f"{name}  {line.rstrip()}".split("\n")
    ]
