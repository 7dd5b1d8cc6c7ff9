"""What changed from one revision of a golden file to the next, tensor by tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npudump.dump.table import PROJECTIONS, STATISTICS
from pytest_npudump.golden.store import KEY
from pytest_npudump.record.noise import CALIBRATION, REPEATS
from pytest_npudump.record.record import POINTERS, REASON, RECORDED
from pytest_npudump.record.rows import render_projections

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_npudump.dump.table import StatsTable
    from pytest_npudump.record.record import Record

_BY_TENSOR = (PROJECTIONS, POINTERS)
"""Blocks with a line each tensor, which are told with it."""
_QUIET = (REASON, REPEATS, CALIBRATION, KEY)
"""Keys whose values say nothing in a line: they are named."""
_UNTOLD = (REASON, RECORDED)
"""Keys that are told with the revision itself."""


@dataclass(frozen=True, slots=True)
class Change:
    """One difference of two revisions.

    Attributes:
        key: the tensor; "" for what concerns the whole file.
        words: what changed.
    """

    key: str
    words: str


def changes(before: Record | None, after: Record) -> tuple[Change, ...]:
    """Return what changed, the head first, then tensors in the order of execution, then those that have gone.

    Args:
        before: the earlier revision; None where there is none.
        after: the later one.
    """
    if before is None:
        return (Change("", f"recorded, {len(after.table)} tensors"),)
    rows = {key: row for row, key in enumerate(before.table.keys)}
    found = [*_head(before, after)]
    summed = _named(*(render_projections(golden.table) for golden in (before, after)))
    pointed = _named(*(golden.blocks.get(POINTERS, "") for golden in (before, after)))
    for row, key in enumerate(after.table.keys):
        if key not in rows:
            found.append(Change(key, "new"))
            continue
        words = [
            *_row(before.table, rows[key], after.table, row),
            *(["projections"] if key in summed else []),
            *(["stored tensor"] if key in pointed else []),
        ]
        found += [Change(key, ", ".join(words))] if words else []
    gone = rows.keys() - set(after.table.keys)
    found += [Change(key, "gone") for key in rows if key in gone]
    kept = [
        [key for key in golden.table.keys if key in rows and key not in gone] for golden in (before, after)
    ]
    return (*found, *([Change("", "another order of execution")] if kept[0] != kept[1] else []))


def _head(before: Record, after: Record) -> Iterator[Change]:
    if before.test != after.test:
        yield Change("", f"test {before.test} -> {after.test}")
    for name in dict.fromkeys([*before.producer, *after.producer]):
        old, new = (golden.producer.get(name, "-") for golden in (before, after))
        if old != new:
            yield Change("", f"{name} {old} -> {new}")
    for name in dict.fromkeys([*before.extra, *after.extra]):
        if before.extra.get(name) != after.extra.get(name) and name not in _UNTOLD:
            values = (golden.extra.get(name, "-") for golden in (before, after))
            yield Change("", name if name in _QUIET else f"{name} {' -> '.join(map(str, values))}")
    for name in dict.fromkeys([*before.blocks, *after.blocks]):
        told = name in before.blocks, name in after.blocks
        if before.blocks.get(name) != after.blocks.get(name) and name not in _BY_TENSOR:
            yield Change("", name if all(told) else f"{name} {'new' if told[1] else 'gone'}")


def _named(before: str, after: str) -> set[str]:
    """Return the names of which two blocks say different things."""
    sides = [dict.fromkeys(text.splitlines()) for text in (before, after)]
    return {line.partition(" ")[0] for line in sides[0].keys() ^ sides[1].keys()}


def _row(before: StatsTable, old: int, after: StatsTable, new: int) -> Iterator[str]:
    """Yield in what one tensor's line differs."""
    facts = (("dtype", "dtypes"), ("shape", "shapes"), ("count", "counts"), ("digest", "digests"))
    for name, column in (*facts, ("noise", "noise")):
        cells = [
            str(getattr(table, column)[row] or "-") if getattr(table, column) else "-"
            for table, row in ((before, old), (after, new))
        ]
        if cells[0] != cells[1]:
            yield f"{name} {cells[0]} -> {cells[1]}"
    for at, name in enumerate(STATISTICS):
        values = (before.value(old, at), after.value(new, at))
        if values[0] != values[1] and not all(value != value for value in values):  # noqa: PLR0124 - NaN
            yield f"{name} {' -> '.join('-' if value is None else f'{value:g}' for value in values)}"
