"""Text of which a CI service's runner takes nothing for a command.

GitHub's runner reads each line of a log. ``::error::`` counts at the beginning of a line, behind white
space, and ``##[error]`` wherever it stands. Names in a dump may be either.

https://github.com/actions/runner/blob/main/src/Runner.Common/ActionCommand.cs
"""

from __future__ import annotations

import re

_BEGIN = re.compile(r"^([^\S\n]*):(?=:)", re.MULTILINE)
_WITHIN = re.compile(r"(?<=#)#(?=\w*\[)")


def inert(text: str) -> str:
    r"""Return text in which a sign of each command stands as an escape, such as ``#\x23[error]``.

    Args:
        text: one line, or several.
    """
    if "##" in text:
        text = _WITHIN.sub(r"\\x23", text)
    return _BEGIN.sub(r"\1\\x3a", text) if "::" in text else text
