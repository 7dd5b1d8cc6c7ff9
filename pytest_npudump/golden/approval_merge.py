"""Joining two approvals of one golden that touch different layers: by tensor, not by the lines around it.

Lines are compared in the columns of all three files. A tensor's projections, and what is said of
its place in a store, are those of the side whose statistics it has. Where a line is in conflict the text has
the markers of git around that line, and around nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pytest_npudump.dump.table import PROJECTIONS, StatsTable, layer_of
from pytest_npudump.errors import GoldenError
from pytest_npudump.golden.store import KEY, SOURCES
from pytest_npudump.golden.variants import VARIANTS
from pytest_npudump.record import rows
from pytest_npudump.record.model_lines import FILE
from pytest_npudump.record.noise import CALIBRATION, REPEATS, Repeats, repeats_of
from pytest_npudump.record.record import (
    BLOCKS,
    EDGES,
    LEFT_OUT,
    MODELS,
    OP_TYPES,
    POINTERS,
    REASON,
    RECORDED,
    UNWRITTEN,
    Record,
    entries_of,
)
from pytest_npudump.record.rows import (
    by_name,
    common_columns,
    lines_by_key,
    render_projections,
    stamped_lines,
)
from pytest_npudump.record.text import parse, render
from pytest_npudump.storage import safeyaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_npudump.record.record import Record


_VERSION = "npudump-golden"
_NO_KEY = "'': []\n"
T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge has come to.

    Attributes:
        text: of the golden file; with markers where there are conflicts.
        conflicts: what is in conflict: keys of the head, tensors, layers of edges, models.
    """

    text: str
    conflicts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Sides(Generic[T]):
    """Something of the base, of ours and of theirs."""

    base: T
    ours: T
    theirs: T

    def map(self, function: Callable[[T], U]) -> _Sides[U]:
        return _Sides(function(self.base), function(self.ours), function(self.theirs))

    def __iter__(self) -> Iterator[T]:
        return iter((self.base, self.ours, self.theirs))


def merge(path: Path, base: str, ours: str, theirs: str) -> Merged:
    """Join two golden files that were made of one.

    Args:
        path: named in errors.
        base: text of the file that both were; "" where both made it.
        ours: text of the side that is merged into.
        theirs: text of the other side.

    Raises:
        GoldenError: one of them is no golden file.
    """
    theirs_read = parse(theirs, path)
    ours_read = parse(ours, path)
    nothing = replace(ours_read, test="", producer={}, table=StatsTable.from_records([]), extra={}, blocks={})
    was = parse(base, path) if base.strip() else nothing
    sides = _Sides(*under_one_calibration(was, ours_read, theirs_read))
    if any(OP_TYPES in golden.blocks for golden in sides):
        raise GoldenError(f"{path}: the record of a run, expected a golden file, which people approve")
    try:
        return _Merge(sides).result(path)
    except ValueError as error:
        raise GoldenError(f"{path}: the two sides cannot be written as one golden: {error}") from error


class _Merge:
    def __init__(self, sides: _Sides[Record]) -> None:
        self._sides = sides
        self._columns = common_columns([golden.table for golden in sides])
        self._lines = sides.map(lambda golden: lines_by_key(golden.table, self._columns))
        self._conflicts: list[str] = []

    def result(self, path: Path) -> Merged:
        head = "".join(self._head())
        order = self._order()
        table = self._block(self._rows(order))
        names = _flat(order)
        blocks = {
            PROJECTIONS: self._block(self._of_rows(names, lambda golden: render_projections(golden.table))),
            EDGES: self._block(self._edges(names)),
            MODELS: self._block(self._models()),
            POINTERS: self._block(self._of_rows(names, lambda golden: golden.blocks.get(POINTERS, ""))),
        }
        texts = [f"{name}: |\n{blocks[name]}" for name in BLOCKS if blocks.get(name)]
        text = "".join((head, "tensors: |\n", table, *texts))
        if self._conflicts:
            return Merged(text, tuple(dict.fromkeys(self._conflicts)))
        return Merged(render(parse(text, path)), ())

    def _head(self) -> Iterator[str]:
        heads = self._sides.map(lambda golden: _head(golden, self._columns))
        for key in dict.fromkeys([*heads.ours, *heads.theirs]):
            found = self._repeats() if key == REPEATS else joined(*_at(heads, key))
            if key == REASON and isinstance(found, Conflict):
                found = "; ".join(dict.fromkeys(str(one) for one in (found.ours, found.theirs) if one))
            if key == KEY and isinstance(found, Conflict):
                found = _with_all_sources(_at(heads, key))
            if key == RECORDED and isinstance(found, Conflict):
                found = max(str(found.ours or ""), str(found.theirs or ""))
            if key == VARIANTS and isinstance(found, Conflict):
                found = _by_variant(_at(heads, key))
            if key == UNWRITTEN and self._leaves_out_more():
                found = Conflict(heads.ours.get(key), heads.theirs.get(key))
            yield from self._told(key, _mapped(found, partial(_yaml, key)))
        yield _yaml("columns", " ".join(self._columns))

    def _leaves_out_more(self) -> bool:
        """Whether a side, which may never have seen it, would leave a tensor out for the other one's sake."""
        base, ours, theirs = self._sides.map(lambda golden: set(entries_of(golden).items()))
        return bool({word for word in (ours ^ theirs) - base if word[1] == LEFT_OUT})

    def _repeats(self) -> dict[str, Any] | None:
        rows = {key: joined(*_at(self._lines, key)) for key in [*self._lines.ours, *self._lines.theirs]}
        there = {key: row for key, row in rows.items() if row is not None}
        ours, theirs = (self._sides.ours, self._lines.ours), (self._sides.theirs, self._lines.theirs)
        return joined_repeats((ours, theirs), there)

    def _told(self, name: str, found: str | Conflict[str]) -> Iterator[str]:
        if not isinstance(found, Conflict):
            yield found
            return
        self._conflicts.append(name)
        yield f"<<<<<<< ours\n{found.ours}=======\n{found.theirs}>>>>>>> theirs\n"

    def _order(self) -> list[list[str] | Conflict[list[str]]]:
        """Return the tensors in the order of execution, without those that a side has removed in peace."""
        base, ours, theirs = self._lines
        gone = {key for key in base if key not in ours or key not in theirs}
        peace = {key for key in gone if joined(base[key], ours.get(key), theirs.get(key)) is None}
        kept = [[key for key in side if key not in peace] for side in (ours, theirs)]
        return joined_order([key for key in base if key not in gone], *kept)

    def _rows(self, order: Sequence[list[str] | Conflict[list[str]]]) -> Iterator[tuple[str, Any]]:
        rows_of = {key: self._stamped(key, joined(*_at(self._lines, key))) for key in _flat(order)}
        for chunk in order:
            if not isinstance(chunk, Conflict):
                yield from ((key, rows_of[key]) for key in chunk)
                continue
            texts = [
                "".join(f"  {_side(rows_of[key], is_ours=is_ours)}\n" for key in keys)
                for keys, is_ours in ((chunk.ours, True), (chunk.theirs, False))
            ]
            yield " ".join((chunk.ours + chunk.theirs)[:1]), Conflict(*texts)

    def _stamped(self, key: str, row: Any) -> Any:
        """Return a tensor's line with its stamp: of a line that both sides have, the later one."""
        if isinstance(row, Conflict):
            return Conflict(*(self._stamped(key, line) for line in (row.ours, row.theirs)))
        sides = zip(list(self._sides)[1:], list(self._lines)[1:], strict=True)
        stamps = [golden.changed.get(key, "") for golden, lines in sides if lines.get(key) == row]
        return row and next(stamped_lines([row], [key], {key: max(stamps, default="")}))

    def _of_rows(
        self, names: Iterable[str], block: Callable[[Record], str]
    ) -> Iterator[tuple[str, str | Conflict[str | None] | None]]:
        """Yield what a block says of each tensor: that of the side whose statistics it has."""
        blocks = self._sides.map(lambda golden: by_name(block(golden)))
        for key in names:
            before, ours, theirs = _at(blocks, key)
            row = _at(self._lines, key)
            if row.ours == row.theirs:
                yield key, joined(before, ours, theirs)
            elif row.base in {row.ours, row.theirs}:
                yield key, theirs if row.ours == row.base else ours
            else:
                yield key, ours if ours == theirs else Conflict(ours, theirs)

    def _edges(self, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """Yield what feeds the layers of the result; nothing of a layer that is fed by one that has gone."""
        blocks = self._sides.map(lambda golden: by_name(golden.blocks.get(EDGES, "")))
        kept = dict.fromkeys(map(_layer, names))
        gone = {_layer(key) for side in self._lines for key in side} - kept.keys()
        for layer in dict.fromkeys([*kept, *blocks.ours, *blocks.theirs]):
            line = joined(*_at(blocks, layer))
            told = f"{line.ours} {line.theirs}" if isinstance(line, Conflict) else line or ""
            if layer not in gone and gone.isdisjoint(map(_layer, told.split())):
                yield layer, line

    def _models(self) -> Iterator[tuple[str, Any]]:
        """Yield the lines of the files of models, then of operators."""
        blocks = self._sides.map(lambda golden: by_name(golden.blocks.get(MODELS, "")))
        for name in sorted({**blocks.ours, **blocks.theirs}, key=lambda name: name[0] != FILE):
            yield name, joined(*_at(blocks, name))

    def _block(self, lines: Iterable[tuple[str, Any]]) -> str:
        """Return a block's text; lines without a value are left out, and those in conflict have markers."""
        shown = ((name, _mapped(line, _indented)) for name, line in lines)
        return "".join(text for name, line in shown for text in self._told(name, line))


def _with_all_sources(sides: _Sides[Any]) -> Any:
    """Join what both sides say of golden tensors: sources of failures are those of both."""
    plain = sides.map(lambda one: {**one, SOURCES: []} if isinstance(one, dict) else one)
    found = joined(plain.base, plain.ours, plain.theirs)
    if isinstance(found, Conflict) or not isinstance(found, dict):
        return Conflict(sides.ours, sides.theirs)
    told = [one.get(SOURCES, []) for one in (sides.ours, sides.theirs)]
    return {**found, SOURCES: [*dict.fromkeys([*told[0], *told[1]])]}


def _by_variant(sides: _Sides[Any]) -> Any:
    """Join what both sides say of variants name by name."""
    base, ours, theirs = (one if isinstance(one, dict) else {} for one in sides)
    told = {name: joined(base.get(name), ours.get(name), theirs.get(name)) for name in {**ours, **theirs}}
    if any(isinstance(facts, Conflict) for facts in told.values()):
        return Conflict(ours, theirs)
    return {name: facts for name, facts in told.items() if facts is not None} or None


def _at(sides: _Sides[Any], key: str) -> _Sides[Any]:
    return sides.map(lambda side: side.get(key))


def _mapped(found: Any, function: Callable[[Any], str]) -> str | Conflict[str]:
    """Return the text of a value, or of both sides of a conflict; "" for None."""
    if isinstance(found, Conflict):
        ours, theirs = (_mapped(side, function) for side in (found.ours, found.theirs))
        return Conflict(ours, theirs)  # type: ignore[arg-type]
    return "" if found is None else function(found)


def _indented(text: str) -> str:
    return text if text.startswith("  ") or not text else f"  {text}\n"


def _yaml(key: str, value: Any) -> str:
    """Return the lines of one key, as they are among others: alone, a scalar's would be in braces."""
    return safeyaml.dump_mapping({key: value, "": []}).removesuffix(_NO_KEY)


def _head(golden: Record, columns: Sequence[str]) -> dict[str, Any]:
    if not golden.test:
        return {}
    digits = rows.common_digits(golden.table)
    told = {"digits": digits} if digits and "digits" not in columns else {}
    return {_VERSION: 1, "test": golden.test, "producer": {**golden.producer, **told}, **golden.extra}


def _layer(key: str) -> str:
    """Return the layer's name in a tensor's key, as edges spell it."""
    return key.rpartition(":")[0].partition("#")[0]


def _flat(order: Iterable[list[str] | Conflict[list[str]]]) -> list[str]:
    chunks = ([*chunk.ours, *chunk.theirs] if isinstance(chunk, Conflict) else chunk for chunk in order)
    return [*dict.fromkeys(name for chunk in chunks for name in chunk)]


def _side(row: Any, *, is_ours: bool) -> str:
    return str((row.ours if is_ours else row.theirs) if isinstance(row, Conflict) else row)


Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Conflict(Generic[Value]):
    """What both sides have, where neither is the base's.

    Attributes:
        ours: of the side that is merged into.
        theirs: of the other one.
    """

    ours: Value
    theirs: Value


def joined(base: Value, ours: Value, theirs: Value) -> Value | Conflict[Value]:
    """Return what becomes of one value; None may stand for its absence."""
    if ours in (base, theirs):
        return theirs
    return ours if theirs == base else Conflict(ours, theirs)


def joined_order(
    base: Sequence[str], ours: Sequence[str], theirs: Sequence[str]
) -> list[list[str] | Conflict[list[str]]]:
    """Return names in runs, whose order is known, and conflicts, where both sides put others at one place.

    No name stands twice in a sequence. Names that both sides have are in the result once, or once a side.
    """
    chunks = [joined(*chunk) for chunk in _chunks(base, ours, theirs)]
    placed = [name for chunk in chunks if isinstance(chunk, list) for name in chunk]
    placed += [
        name for chunk in chunks if isinstance(chunk, Conflict) for name in {*chunk.ours, *chunk.theirs}
    ]
    expected = {*ours, *theirs} - ({*base} - ({*ours} & {*theirs}))
    if len(placed) > len(set(placed)) or not expected <= {*placed}:
        return [Conflict([*ours], [*theirs])]  # a name that both have moved, each to another place
    return chunks


def _chunks(
    base: Sequence[str], ours: Sequence[str], theirs: Sequence[str]
) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """Yield what lies between names that all three have in the same order, and these names."""
    in_ours, in_theirs = _matches(base, ours), _matches(base, theirs)
    common = [row for row in range(len(base)) if row in in_ours and row in in_theirs]
    ends = [(row, in_ours[row], in_theirs[row]) for row in common]
    for (b0, o0, t0), (b1, o1, t1) in pairwise([(-1, -1, -1), *ends, (len(base), len(ours), len(theirs))]):
        if b0 >= 0:
            yield [base[b0]], [ours[o0]], [theirs[t0]]
        yield [*base[b0 + 1 : b1]], [*ours[o0 + 1 : o1]], [*theirs[t0 + 1 : t1]]


def _matches(base: Sequence[str], side: Sequence[str]) -> dict[int, int]:
    """Return the positions in ``side`` of names of ``base``, of as many as keep their order."""
    blocks = SequenceMatcher(None, base, side, autojunk=False).get_matching_blocks()
    return {at + i: to + i for at, to, size in blocks for i in range(size)}


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
    compared = sum(any(lines.get(key) == row for _, lines in known) for key, row in rows.items())
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
