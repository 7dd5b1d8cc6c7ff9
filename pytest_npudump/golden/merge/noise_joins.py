"""What a joined golden may say of noise: only what was measured under the calibration that it names.

A row's noise is a bound by the factor of the calibration beside it. Where two sides name different ones, the
result takes one of them, and a row that stands in that side's file keeps its noise; any other has none, so
that its bounds are the preset's. What is known of repetition is what both sides know.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_npudump.dump.table import layer_of
from pytest_npudump.record.noise import CALIBRATION, Repeats, repeats_of
from pytest_npudump.record.rows import common_columns, lines_by_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_npudump.record.record import Record

_NOTHING = "-"


def under_one_calibration(base: Record, ours: Record, theirs: Record) -> tuple[Record, Record, Record]:
    """Return the three files with one calibration, and only the noise that was measured under it.

    The calibration is that of the side that has changed it; of ours, where both have.
    """
    found = [one.extra.get(CALIBRATION) for one in (base, ours, theirs)]
    if found[1] == found[2]:
        return base, ours, theirs
    leading = theirs if found[1] == found[0] else ours
    first, second, third = (
        one if one is leading else _measured_as(one, leading) for one in (base, ours, theirs)
    )
    return first, second, third


def joined_repeats(
    sides: Sequence[tuple[Record, Mapping[str, str]]], rows: Mapping[str, object]
) -> dict[str, Any] | None:
    """Return the key ``repeats`` of the joined golden: the fewest runs, and of how many rows they tell.

    Args:
        sides: ours and theirs, each with its lines by key.
        rows: the lines of the result by key; a row in conflict has something else.

    Raises:
        GoldenError: what a side says is not as it is written.
    """
    told = [(repeats_of(golden.extra, golden.path), lines) for golden, lines in sides]
    for repeats, lines in told:
        if lines == rows:  # the result is that side's
            return None if repeats is None else repeats.to_head()
    if all(repeats is None for repeats, _ in told):
        return None
    known = [(repeats, lines) for repeats, lines in told if repeats is not None and repeats.runs > 1]
    compared = sum(_is_known(key, row, known) for key, row in rows.items())
    unknown = sum(len(lines) - repeats.compared for repeats, lines in known if repeats.compared is not None)
    if compared <= unknown:
        return Repeats(1).to_head()
    layers = set(map(layer_of, rows))
    named = dict.fromkeys(layer for repeats, _ in known for layer in repeats.not_deterministic)
    count = compared - unknown
    return Repeats(
        min(repeats.runs for repeats, _ in known),
        tuple(layer for layer in named if layer in layers),
        None if count == len(rows) else count,
    ).to_head()


def _is_known(key: str, row: object, known: Sequence[tuple[Repeats, Mapping[str, str]]]) -> bool:
    return any(lines.get(key) == row for _, lines in known)


def _measured_as(golden: Record, leading: Record) -> Record:
    """Return a golden with the calibration of another one, and noise in the rows that are that one's too."""
    columns = common_columns([golden.table, leading.table])
    kept = lines_by_key(leading.table, columns)
    own = golden.table.noise or (_NOTHING,) * len(golden.table)
    lines = lines_by_key(golden.table, columns)
    cells = tuple(
        [
            cell if kept.get(key) == line else _NOTHING
            for (key, line), cell in zip(lines.items(), own, strict=True)
        ]
    )
    head = {name: value for name, value in golden.extra.items() if name != CALIBRATION}
    if CALIBRATION in leading.extra:
        head[CALIBRATION] = leading.extra[CALIBRATION]
    noise = cells if set(cells) - {_NOTHING} else ()
    return replace(golden, table=replace(golden.table, noise=noise), extra=head)
