"""What a message shows of much: the first of many names, the beginning of a long line, a size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    from collections.abc import Iterable


def first_of(names: Iterable[object], most: int | None = 5, separator: str = ", ") -> str:
    """Return ``a, b and 3 more``: the first names, and how many there are beside them.

    Args:
        names: what is named, in the order in which it is shown.
        most: how many are named; None for all of them.
        separator: what stands between two.
    """
    every = [*names]
    shown = every[:most]
    left = len(every) - len(shown)
    return separator.join(map(str, shown)) + (_(" and {left} more").format(left=left) if left else "")


def cut(text: str, width: int) -> str:
    """Return a text of at most ``width`` characters; one that is longer ends in three dots."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def byte_size(nbytes: int) -> str:
    """Return a size as people read it: ``4.0 MiB``."""
    size, unit = float(nbytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:  # noqa: PLR2004 - the step between two binary units
            break
        size, unit = size / 1024, larger
    return f"{nbytes} B" if unit == "B" else f"{size:.1f} {unit}"
