"""Commands that a person copies into a shell."""

from __future__ import annotations

import shlex

_ESCAPED = "##"
"""Begins what no message shows as it is, see :mod:`pytest_npudump.language.inert`."""


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
