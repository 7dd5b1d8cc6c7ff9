"""Text of which a terminal obeys nothing, and a CI service's runner takes nothing for a command.

Names in files may steer a terminal: by control characters, or by marks that have the text behind them read
from right to left.

GitHub's runner reads each line of a log. ``::error::`` counts at the beginning of a line, behind white
space, and ``##[error]`` wherever it stands. Names in a dump may be either.

https://github.com/actions/runner/blob/main/src/Runner.Common/ActionCommand.cs
"""

from __future__ import annotations

import re

_DOUBTFUL = re.compile(r"[^\n\t -~\xa0\u1680\u2000-\u200a\u202f\u205f\u3000]+")
_BEGIN = re.compile(r"^([^\S\n]*):(?=:)", re.MULTILINE)
_WITHIN = re.compile(r"(?<=#)#(?=\w*\[)")


def inert(text: str) -> str:
    r"""Return text in which what is not printable, and a sign of each command, is there as an escape.

    Such as ``\x1b``, ``\u202e`` and ``#\x23[error]``; tabs, spaces of any width and ends of lines stay.

    Args:
        text: one line, or several.
    """
    text = _DOUBTFUL.sub(_escaped, text)
    if "##" in text:
        text = _WITHIN.sub(r"\\x23", text)
    return _BEGIN.sub(r"\1\\x3a", text) if "::" in text else text


def _escaped(match: re.Match[str]) -> str:
    found = match.group()
    if found.isprintable():
        return found
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in found)
