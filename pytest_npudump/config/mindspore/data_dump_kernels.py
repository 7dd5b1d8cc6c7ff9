"""The key ``kernels`` of data_dump.json, from operator names and globs.

A member with ``/`` is one operator's full name, character by character. One without ``/`` and ``-op`` is a
type, and matches part of the last component of any name. ``name-regex(...)`` (MindSpore 2.3 and later) is a
``std::regex`` that has to match all of a full name, that of a parameter too. No member is a name as files
carry it, with ``_`` for ``/`` and ``.``: such a name becomes an expression in which they match anything.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_npudump.request import is_glob

if TYPE_CHECKING:
    from collections.abc import Sequence

_WITH_REGEX = (2, 3)
_PLAIN = re.compile(r"[A-Za-z0-9_./-]*/[A-Za-z0-9_./-]*")
_NOT_LITERAL = re.compile(r"[^A-Za-z0-9-]")


def kernels_of(layers: Sequence[str], *, version: tuple[int, int]) -> list[str]:
    """Return the members of ``kernels`` that select at least ``layers``; none where all has to be dumped.

    What they select beyond ``layers`` is filtered afterwards: MindSpore's files tell operators apart.

    Args:
        layers: names, raw or as in file names, and globs.
        version: of MindSpore, major and minor.
    """
    if version < _WITH_REGEX:
        exact = all(_PLAIN.fullmatch(name) or "-op" in name for name in layers)
        return list(layers) if exact and not any(map(is_glob, layers)) else []
    if any("[" in name for name in layers):
        return []
    return list(dict.fromkeys(map(_kernel, layers)))


def _kernel(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return name
    # A backslash is read as two, so nothing can be escaped: whatever is not literal matches anything.
    wildcards = {"*": ".*"}
    return f"name-regex({_NOT_LITERAL.sub(lambda found: wildcards.get(found[0], '.'), name)})"
