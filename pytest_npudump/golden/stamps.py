"""When a golden was recorded and its tensors changed, and from which revision of the repository.

The key ``recorded`` goes with the producer: it changes where that does, or no tensor stayed. A tensor that
changed otherwise says so at the end of its line. What an update leaves as it was keeps what it says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from pytest_npudump.record.record import RECORDED
from pytest_npudump.record.rows import by_name, common_columns, lines_by_key, render_projections

if TYPE_CHECKING:
    from pytest_npudump.dump.table import StatsTable
    from pytest_npudump.record.record import Record

_SHORT = 12
"""Digits of a commit's name that git itself shows of repositories of a million commits."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """The day of an approval, and what was checked out where the values were computed.

    Attributes:
        day: as ``2026-11-23``, UTC.
        revision: git's name of the commit; "" where there is none.
    """

    day: str
    revision: str = ""

    @classmethod
    def today(cls, revision: str | None) -> Stamp:
        """Return that of an approval now."""
        return cls(datetime.now(timezone.utc).date().isoformat(), (revision or "")[:_SHORT])

    def __str__(self) -> str:
        """Return what stands at the end of a tensor's line, and under the key ``recorded``."""
        return f"{self.day} {self.revision}".rstrip()


def stamped(golden: Record, previous: Record | None, stamp: Stamp) -> Record:
    """Return what an approval writes, with when and from which revision.

    Args:
        golden: what it writes.
        previous: what the same file was before; None where it is a new one.
        stamp: that of the approval.

    Raises:
        RowError: a line of either cannot be written.
    """
    rest = {name: value for name, value in golden.extra.items() if name != RECORDED}
    if previous is None:
        return replace(golden, changed={}, extra={RECORDED: str(stamp), **rest})
    before = previous.extra.get(RECORDED)
    changed = changed_tensors(golden.table, previous.table)
    whole = changed and len(changed) == len(golden.table)
    if whole or golden.facts != previous.facts or (not golden.table.keys and _differs(rest, previous)):
        before = str(stamp)
    told = {} if whole else {**previous.changed, **dict.fromkeys(changed, str(stamp))}
    extra = rest if before is None else {RECORDED: before, **rest}
    kept = {
        name: extra[name] for name in (RECORDED, *previous.extra) if name in extra
    }  # what stays is not moved
    return replace(golden, changed=told, extra={**kept, **extra})


def in_words(stamp: object) -> str:
    """Return a day and commit as they are said; "" where there is no day."""
    return str(stamp or "").replace(" ", " at ")


def changed_tensors(table: StatsTable, previous: StatsTable) -> list[str]:
    """Return the tensors whose values are not those of before, noise apart."""
    tables = [replace(one, noise=()) for one in (previous, table)]
    columns = common_columns(tables)
    before, now = (lines_by_key(table, columns) for table in tables)
    sums, summed = (by_name(render_projections(table)) for table in tables)
    return [
        key
        for key, line in now.items()
        if before.get(key) != line or (key in sums and key in summed and sums[key] != summed[key])
    ]


def _differs(rest: dict[str, Any], previous: Record) -> bool:
    return rest != {name: value for name, value in previous.extra.items() if name != RECORDED}
