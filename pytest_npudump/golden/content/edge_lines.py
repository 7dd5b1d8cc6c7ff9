"""The lines of a golden file's block of edges: ``consumer < producer:output.0 producer2:output.1``.

Inputs stand in the order of their slots, each with what feeds it, if need
be through operators that were not dumped. ``-`` is one that nothing feeds (a constant), ``?`` one of which
that is not known, ``*`` one that several feed, which come behind the last slot.
"""

from __future__ import annotations

import re

from pytest_npudump.golden.content.rows import RowError

SIGN = "<"
_LINE = re.compile(r"[^\s#]+ <(?: (?:[-?*]|[^\s#]+:output\.\d{1,9}))*")


def check_edge_lines(block: str) -> None:
    """Refuse lines that are no edges, two of one layer, and a last one that is cut: more may be lost with it.

    Raises:
        RowError: names the line.
    """
    found = block.splitlines()
    for row, line in enumerate(found):
        if not _LINE.fullmatch(line):
            raise RowError(row, f"{line[:120]!r} is no edge, expected such as: relu1 < conv1:output.0")
    names = [line.partition(" ")[0] for line in found]
    if len(set(names)) < len(names):
        row = next(row for row, name in enumerate(names) if name in names[:row])
        raise RowError(row, f"what feeds {names[row]!r} stands here a second time, remove one of the lines")
    if block and not block.endswith("\n"):
        raise RowError(len(found) - 1, "the file ends within this line")
