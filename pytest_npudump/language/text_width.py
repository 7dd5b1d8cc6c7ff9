"""Text by the columns that it takes on a terminal, where a letter of Chinese is as wide as two others."""

from __future__ import annotations

import re

_PIECE = r"[（“]*(?:[!-~]+|[^\s!-~])[，。；：、）”？！]*|\s+"  # noqa: RUF001 - the signs of Chinese
"""What a line is not broken in: a word, or a letter of Chinese, with the signs that belong to it."""


def width(text: str) -> int:
    """Return how many columns a line of text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - only for other scripts than ASCII

    return cell_len(text)


def padded(text: str, columns: int) -> str:
    """Return text with blanks behind it, so that it takes that many columns."""
    return text + " " * (columns - width(text))


def wrapped(text: str, columns: int) -> list[str]:
    """Return text as lines that take at most that many columns, but for longer words."""
    lines = [""]
    for piece in re.findall(_PIECE, " ".join(text.split())):
        if width(lines[-1]) + width(piece.rstrip()) > columns and lines[-1]:
            lines[-1] = lines[-1].rstrip()
            lines.append("")
        lines[-1] += piece if lines[-1] else piece.lstrip()
    return lines
