"""Text for people: cut, laid out for a terminal, spelled for a shell, and never a command of a CI service."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterable

from pytest_npudump.errors import Said, joined
from pytest_npudump.language.translation import gettext as _


def first_of(names: Iterable[object], most: int | None = 5, separator: str = "") -> str:
    """Return ``a, b and 3 more``: the first names, and how many there are beside them.

    Args:
        names: what is named, in the order in which it is shown.
        most: how many are named; None for all of them.
        separator: what stands between two; "" for a comma.
    """
    every = [*names]
    shown = every[:most]
    left = len(every) - len(shown)
    between = separator or _(", ")
    told = joined("", [piece for name in map(str, shown) for piece in (between, name)][1:])
    return told + (_(" and {left} more").format(left=left) if left else "")


def cut(text: str, width: int) -> str:
    """Return a text of at most ``width`` characters; one that is longer ends in three dots."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def number_of(count: int, noun: str) -> str:
    """Return ``1 file`` or ``2 files``, in English."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def byte_size(nbytes: int) -> str:
    """Return a size as people read it: ``4.0 MiB``."""
    size, unit = float(nbytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:  # noqa: PLR2004 - the step between two binary units
            break
        size, unit = size / 1024, larger
    return f"{nbytes} B" if unit == "B" else f"{size:.1f} {unit}"


_DOUBTFUL = re.compile(r"[^\n\t -~\xa0\u1680\u2000-\u200a\u202f\u205f\u3000]+")
_BEGIN = re.compile(r"^([^\S\n]*):(?=:)", re.MULTILINE)
_WITHIN = re.compile(r"(?<=#)#(?=\w*\[)")


def inert(text: str) -> str:
    r"""Return text in which what is not printable, and a sign of each command, is there as an escape.

    Such as ``\x1b``, ``\u202e`` and ``#\x23[error]``; tabs, spaces of any width and ends of lines stay.
    """
    if isinstance(text, Said):
        return text.mapped(inert)
    text = _DOUBTFUL.sub(_escaped, text)
    if "##" in text:
        text = _WITHIN.sub(r"\\x23", text)
    return _BEGIN.sub(r"\1\\x3a", text) if "::" in text else text


def _escaped(match: re.Match[str]) -> str:
    found = match.group()
    if found.isprintable():
        return found
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in found)


_ESCAPED = "##"
"""Begins what no message shows as it is, see :mod:`pytest_npudump.language.text`."""


def typed(*words: object) -> str:
    r"""Return words of a command as they are typed in a shell, on one line of printable characters.

    What is not printable is there as bash's ``$'\x1b'``.
    """
    return " ".join(map(_word, map(str, words)))


def _word(word: str) -> str:
    if word.isprintable() and _ESCAPED not in word:
        return shlex.quote(word)
    return "$'" + "".join(map(_sign, word)).replace(_ESCAPED, "#\\x23") + "'"


def _sign(sign: str) -> str:
    if sign in "\\'":
        return f"\\{sign}"
    if sign.isprintable():
        return sign
    escaped = "surrogateescape" if "\udc80" <= sign <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in sign.encode("utf-8", escaped))


_PIECE = (
    r"[（“]*(?:[!-~]+::[^\s\[]*\[[^]]*\][!-~]*|"
    r"[!-~]+|[^\s!-~])[，。；：、）”？！]*|\s+"  # noqa: RUF001 - the signs of Chinese
)
"""Part that a line is not broken in: a test with its parameters, a word, or a letter of Chinese, with the
signs that belong to it."""


def width(text: str) -> int:
    """Return the columns that a line of text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - only for other scripts than ASCII

    return cell_len(text)


def padded(text: str, columns: int) -> str:
    """Return text with blanks behind it, so that it takes that many columns."""
    return text + " " * (columns - width(text))


HANG = " " * 12
"""What the lines of a report begin with behind the first, which has a label there."""
_NARROWEST = 60
"""Columns that a terminal is taken to have at least."""


def terminal_columns() -> int:
    """Return the width of the terminal's lines, as pytest measures it."""
    return max(_NARROWEST, shutil.get_terminal_size().columns)


_LABEL = re.compile(r" *(?:-> |[^\W\d][\w ]{0,12}(?:: +|： *))?")
_WHOLE = re.compile(r"(?:pytest|npudump|git|pip|python|cd|cp) \S|.*\S  +\S")
"""Commands, which are to be copied, and rows of tables."""


def hung(line: str, columns: int | None) -> list[str]:
    """Return a line for a terminal: broken at blanks, what follows below the words behind its label.

    Args:
        line: a sentence, maybe indented, maybe with a label.
        columns: of the terminal; None for a file or a pipe, which have whole lines.
    """
    if columns is None or width(line) <= columns:
        return [line]
    found = _LABEL.match(line)
    label = found[0] if found else ""
    text = line[len(label) :]
    if _WHOLE.match(text):
        return [line]
    hang = width(label) if label.strip() else len(label) + 2
    first, *rest = wrapped(text, columns - width(label), columns - hang)
    return [label + first, *(" " * hang + one for one in rest)]


def wrapped(text: str, columns: int, later: int | None = None) -> list[str]:
    """Return text as lines of at most so many columns, but for longer words; a longer path stays in its line.

    Args:
        text: without ends of lines.
        columns: of the first line.
        later: of all others; None for as many.
    """
    lines, later = [""], columns if later is None else later
    columns_of = len if text.isascii() else width  # of thousands of words
    for piece in re.findall(_PIECE, " ".join(text.split())):
        room, needed = columns if len(lines) == 1 else later, columns_of(piece.rstrip())
        if lines[-1] and columns_of(lines[-1]) + needed > room and (needed <= later or piece[0] != "/"):
            lines[-1] = lines[-1].rstrip()
            lines.append("")
        lines[-1] += piece if lines[-1] else piece.lstrip()
    return lines
