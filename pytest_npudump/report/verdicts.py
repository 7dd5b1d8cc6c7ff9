"""Verdicts in words: what differs, by how much against which allowance, and whose rule that is."""

from __future__ import annotations

import math
import re
from collections import Counter
from os.path import commonprefix
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.errors import joined
from pytest_npudump.language import mark
from pytest_npudump.language.text import inert, padded, width, wrapped
from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_npudump.compare.stats.verdict import Comparison, Reason, Verdict


PROJECTIONS = "projections"
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
_STRUCTURE = ("dtype", "shape", "count")
_DISTANCES = ("max_abs", "relative_l2")
"""Reasons of a comparison element by element: the golden's side is a distance of 0."""
_WIDTH = 120
"""Characters of a cell in a file."""
_NAME = 24
"""Characters that a name keeps, however narrow a terminal is."""
_PREFIX = 8
"""Characters of a common prefix that is worth a line of its own."""
_PARTS = 3
"""Parts of a name that stay at least, where whole parts go."""
_PLACE = 12
"""Characters of a line that a name leaves to its tensor's place, as ``:output.0``, and a sign behind."""
_INDENT = 12
"""Columns of a label, and of what lines behind the first begin with."""
_STATISTIC_WORDS = {"nan": mark("NaN count"), "neg_inf": mark("-inf count"), "pos_inf": mark("+inf count")}


def number(value: object) -> str:
    """Return a statistic as people read it: 6 significant digits, integers in full, ``-`` for unknown."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def numbers(one: object, other: object) -> tuple[str, str]:
    """Return two values as :func:`number` does, or with all digits where these would look equal."""
    texts = number(one), number(other)
    if texts[0] == texts[1] and isinstance(one, float) and isinstance(other, float) and one != other:
        texts = repr(float(one)), repr(float(other))
    return texts


def excess(reason: Reason) -> float:
    """Return the difference in units of the tolerance; infinite without a tolerance or a number."""
    if not reason.allowed or not _is_number(reason.golden) or not _is_number(reason.actual):
        return math.inf
    return float(abs(reason.actual - reason.golden) / reason.allowed)  # type: ignore[operator]


def times(ratio: float) -> str:
    """Return a ratio with 3 digits: ``1.07``, ``4450``, ``1.2e+09``; ``inf`` where it is infinite."""
    rounded = float(f"{ratio:.3g}")
    return f"{rounded:.0f}" if 1e3 <= rounded < 1e6 else f"{rounded:.3g}"  # noqa: PLR2004 - as people write


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def worst(verdict: Verdict) -> Reason | None:
    """Return the most telling reason: a changed dtype or shape, else the largest excess.

    Projections, which estimate, count where nothing that people read is out of tolerance.
    """
    for reason in verdict.reasons:
        if reason.statistic in _STRUCTURE:
            return reason
    read = [reason for reason in verdict.reasons if reason.statistic != PROJECTIONS]
    return max(read or verdict.reasons, key=excess, default=None)


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
    allowed, ratio = "", ""
    if reason.allowed is not None:
        allowed = f"{float(reason.allowed):.3g}"
        comparable = _is_number(reason.golden) and _is_number(reason.actual)
        ratio = times(excess(reason)) if comparable else ""
    values = numbers(reason.golden, reason.actual)
    if reason.statistic == PROJECTIONS and reason.golden == 0:
        values = (
            "-",
            f"Δ≈{reason.actual:.2g}",
        )  # an estimate of how far off the elements are, no value of either
    return (*head, statistic(reason) + more, *values, allowed, ratio)


def sentence(verdict: Verdict, *, against: str = "golden") -> str:
    """Return one failing verdict as a sentence, the tensor first."""
    key = str(verdict.key)
    if verdict.status == "missing":
        return _("{key} is missing: the golden has it, the dump does not").format(key=key)
    if verdict.status == "extra":
        return _("{key} is new: the dump has it, the golden does not").format(key=key)
    reason = worst(verdict)
    if reason is None:
        return _("{key} is out of tolerance").format(key=key)
    ratio = excess(reason)
    far = _(" ({times}x tolerance)").format(times=times(ratio)) if math.isfinite(ratio) else ""
    if reason.statistic == PROJECTIONS and reason.golden == 0:
        words = _("differs by an l2norm of about {actual:.2g}, as projections estimate it").format(
            actual=reason.actual
        )
    elif reason.statistic in _DISTANCES:
        words = _("{statistic} {actual} from the {against} tensor").format(
            statistic=reason.statistic, against=_(against), actual=number(reason.actual)
        )
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


def common_prefix(names: Iterable[str]) -> str:
    """Return the prefix of all names, up to a ``/`` (without one, a dot); "" where that is short."""
    first, last = min(every := {*names}, default=""), max(every, default="")
    shared = commonprefix([first, last])  # noqa: RUF071 - of characters, then of parts
    prefix = shared[: shared.rfind("/" if "/" in shared else ".") + 1]
    return prefix if _PREFIX <= len(prefix) < len(first) and first != last else ""


def prefix_of_model(comparison: Comparison) -> str:
    """Return the prefix of a model's names, apart from those of its inputs and outputs."""
    return prefix_of_keys(comparison.golden.keys)


def prefix_of_keys(keys: Sequence[str]) -> str:
    """Return the prefix of tensors' names, apart from those of inputs and outputs."""
    return common_prefix([key for key in keys if key.count("/") > 1] or keys)


def shortened(text: str, room: int, head: int | None = None) -> str:
    """Return a text of at most so many characters, of which a longer one loses the middle.

    Args:
        text: a name, which loses whole parts where enough of it is left.
        room: how many.
        head: how many of the first ones stay; None for half of all.
    """
    if len(text) <= room:
        return text
    parts = text.split("/")
    if head is None and len(parts) > _PARTS:
        for left in range(len(parts) - 1, _PARTS - 1, -1):  # of them the first third and the last ones stay
            begin = left // 3 + (parts[0] in {"", "..."} and left > _PARTS)
            found = "/".join((*parts[:begin], "...", *parts[len(parts) - left + begin :]))
            if room // 2 < len(found) <= room:
                return _numbered(parts, room, found) or found
        if found := _numbered(parts, room):
            return found
    head = (room - 3) // 2 if head is None else head
    return f"{text[:head]}...{text[head + 3 - room :]}"


def _numbered(parts: list[str], room: int, found: str = "") -> str:
    """Return a name with its last numbered scope, such as ``layers.2``, in it; "" where ``found`` has it."""
    last = max((at for at, part in enumerate(parts[:-1]) if any(map(str.isdigit, part))), default=-1)
    if last < 0 or parts[last] in found.split("/"):
        return ""
    names = (
        "/".join((*parts[:begin], "...", *parts[end:]))
        for begin in range(last + 1, len(parts) - 1)
        for end in range(begin + 1, len(parts))
    )
    return max((name for name in names if len(name) <= room), key=len, default="")


def _told_apart(names: list[str], room: int) -> list[str]:
    """Return names without their middle, so that as many as can be still differ."""
    half = (room - 3) // 2
    heads = (None, half, half // 2, half // 4, room - 3 - half // 2)
    found = ([shortened(name, room, head) for name in names] for head in heads)
    return max(found, key=lambda cut: len({*cut}))


def tail(name: str, room: int) -> str:
    """Return the last parts of a name that take so many characters, with three dots for the others."""
    parts = name.split("/")
    while len(name) > room and "/" in name.removeprefix(".../"):
        name = f".../{name.removeprefix('.../').partition('/')[2]}"
    return _numbered(parts, room, name) or shortened(name, room)


_FILE = re.compile(r"/[^/]*\.(?:yaml|onnx|om|json|txt|safetensors)$")
"""A path, which is to be copied."""


def folded(line: str, columns: int | None, prefix: str = "") -> list[str]:
    """Return a line for a terminal: broken at blanks, names without what they all begin with.

    Args:
        line: which may begin with a label of 12 columns.
        columns: of the terminal; None for a file, which has whole lines and names.
        prefix: what the names of a model begin with.
    """
    if columns is None or width(line) <= columns:
        return [line]
    text = re.sub(rf"(?<![\w./-]){re.escape(prefix)}", ".../", line) if prefix else line
    room = columns - _INDENT - _PLACE  # wherever it stands, so that a name looks the same in all lines
    text = re.sub(
        r"[!-~]+?(?=:(?:input|output)\.|[,;:)]*(?:[^!-~]|$))",
        lambda found: found[0] if _FILE.search(found[0]) else shortened(found[0], room),
        text,
    )
    found = re.match(r"[^:：]*[:：] *", text)
    label = found[0] if found and width(found[0]) == _INDENT else ""
    first, *rest = wrapped(text[len(label) :], columns - width(label))
    if rest:
        rest = wrapped(" ".join(rest), columns - _INDENT)
    return [f"{label}{first}", *(" " * _INDENT + one for one in rest)]


def table(
    rows: Iterable[tuple[str, ...]],
    columns: tuple[str, ...] = COLUMNS,
    most: int | None = None,
    prefix: str = "",
) -> list[str]:
    """Lay rows out as plain text lines, a header first, and above it what all names begin with.

    In a terminal that is too narrow the column of types goes first, then the number of further statistics,
    then that of tensors where they all are the same, that of tolerances, and last the middle of names; a name
    that would look like another's has a line of its own above its row.

    Not by rich's tables, which take 18 s for 10,000 rows.

    Args:
        rows: the cells of each.
        columns: their names.
        most: columns of the terminal; None for a file.
        prefix: what names begin with that three dots may stand for.
    """
    grid = [[plain(cell) for cell in cells] for cells in rows]
    head = [*map(_, columns)]
    shared = common_prefix(cells[0] for cells in grid)
    for cells in grid:
        cells[0] = cells[0].removeprefix(shared)
        if most is not None and prefix and not shared and cells[0].startswith(prefix):
            cells[0] = f".../{cells[0].removeprefix(prefix)}"

    def taken() -> int:
        return sum(max(map(width, column)) + 2 for column in zip(head, *grid, strict=True))

    if most is not None and taken() > most:
        head, grid = head[:1] + head[2:], [cells[:1] + cells[2:] for cells in grid]
        if taken() > most:
            grid = [[*cells[:2], re.sub(r" ?[(\uff08].*", "", cells[2]), *cells[3:]] for cells in grid]
        if taken() > most and len({cells[1] for cells in grid}) == 1:
            head = [f"{head[0]} ({grid[0][1]})", *head[2:]]
            grid = [cells[:1] + cells[2:] for cells in grid]
        longest = max((width(cells[0]) for cells in grid), default=0)
        if (at := head.index(_("tolerance")) if _("tolerance") in head else 0) and taken() - most > max(
            0, longest - _NAME
        ):
            grid, head = [cells[:at] + cells[at + 1 :] for cells in grid], head[:at] + head[at + 1 :]
        room = max(_NAME, longest - max(0, taken() - most)) if longest > width(head[0]) else longest
    else:
        room = _WIDTH
    whole = [cells[0] for cells in grid]
    names = _told_apart(whole, room)
    above = [""] * (len(grid) + 1)
    if most is not None:  # names that look alike stand on lines of their own
        alike = Counter(cut for cut, _name in {*zip(names, whole, strict=True)})
        above[1:] = [
            tail(name, most - 2) if alike[cut] > 1 else "" for cut, name in zip(names, whole, strict=True)
        ]
        names = ["" if line else name for line, name in zip(above[1:], names, strict=True)]
    grid = [head, *([name, *cells[1:]] for name, cells in zip(names, grid, strict=True))]
    sizes = [max(map(width, column)) for column in zip(*grid, strict=True)]
    lines = (
        "  ".join([padded(cell, size) for cell, size in zip(cells, sizes, strict=True)]) for cells in grid
    )
    lines = (one for pair in zip(above, lines, strict=True) for one in pair if one)
    return [*(begun(shared, most) if shared else []), *(f"  {line.rstrip()}" for line in lines)]


def begun(prefix: str, columns: int | None = None, *, dots: bool = False) -> list[str]:
    """Return the lines on the prefix of a table's names, or with ``dots`` the names that begin with it."""
    words = _("  .../ at the start of a name: {prefix}") if dots else _("  these names begin with {prefix}")
    line = words.format(prefix=prefix)
    if columns is None or width(line) <= columns:
        return [line]
    lines = [words.format(prefix="").rstrip()]
    for part in re.findall(r"[^/]*/|[^/]+$", prefix):
        if len(lines) == 1 or width(lines[-1]) + width(part) > columns:
            lines.append("    ")
        lines[-1] += part
    return lines
