"""The lines of a golden file's block of edges: ``consumer < producer:output.0 producer2:output.1``.

Each layer of the table has one. Inputs stand in the order of their slots, each with what feeds it, if need
be through operators that were not dumped. ``-`` is one that nothing feeds (a constant), ``?`` one of which
that is not known, ``*`` one that several feed, which come behind the last slot.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_npudump.golden.rows import RowError

if TYPE_CHECKING:
    from collections.abc import Iterable

SIGN = "<"
_LINE = re.compile(r"[^\s#]+ <(?: (?:[-?*]|[^\s#]+:output\.\d{1,9}))*")


def check_edge_lines(block: str, keys: Iterable[str]) -> None:
    """Refuse lines that are no edges, or not one for each layer: what took one away may have taken more.

    Args:
        block: the lines; "" where the golden has none, which is good.
        keys: of the table.

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
    layers = dict.fromkeys(key.rpartition(":")[0].partition("#")[0] for key in keys) if found else {}
    lost = [layer for layer in layers.keys() - set(names) if layer.isprintable()]
    if lost:
        raise RowError(len(found), f"no line says what feeds {min(lost)!r}")
