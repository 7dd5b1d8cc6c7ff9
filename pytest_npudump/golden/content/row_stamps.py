"""When a tensor's line last changed, at the end of that line: `` # 2026-11-23 1f3a5c7e9b2d``.

What two branches approve of different tensors then stands in different lines, which git joins by itself; in
one line for the whole file each approval would be in conflict with every other.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_npudump.golden.content.rows import RowError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_SIGN = " # "
_LINE_END = re.compile(rf"{_SIGN}([^\n]*)$", re.MULTILINE)
STAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?: [0-9a-f]{7,64})?")
"""The day, and the commit that was checked out, where there was one."""


def without_stamps(block: str) -> tuple[str, dict[str, str]]:
    """Return the lines of a table without their stamps, and these by the tensors' keys.

    Raises:
        RowError: what stands behind the cells of a line is no stamp.
    """
    if _SIGN not in block:
        return block, {}
    found: dict[str, str] = {}

    def keep(match: re.Match[str]) -> str:
        first = block.rfind("\n", 0, match.start()) + 1
        if not STAMP.fullmatch(match[1]):
            reason = f"{match[1][:120]!r} is no day and commit, expected such as # 2026-11-23 1f3a5c7e9b2d"
            raise RowError(block.count("\n", 0, first), reason)
        found[block[first : match.start()].partition(" ")[0]] = match[1]
        return ""

    return _LINE_END.sub(keep, block), found


def stamped_lines(lines: Iterable[str], keys: Sequence[str], stamps: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a table with their stamps.

    Args:
        lines: without.
        keys: the tensors, in their order.
        stamps: by key; those of other tensors are not written.

    Raises:
        RowError: a stamp would not be read back as it is.
    """
    for row, (key, line) in enumerate(zip(keys, lines, strict=True)):
        stamp = stamps.get(key, "")
        if stamp and not STAMP.fullmatch(stamp):
            raise RowError(row, f"{stamp!r} is no day and commit")
        yield f"{line}{_SIGN}{stamp}" if stamp else line
