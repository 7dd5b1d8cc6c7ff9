"""Joining two acceptances of one golden that touch different layers: by tensor, not by the lines around it.

Where no tensor has moved, a line that is the same in all three files is taken as it is, and the rest is
merged as three small files. Lines are compared in the columns of all three files. A
tensor's projections, and what is said of its place in a store, are those of the side whose statistics it has.
Where a line is in conflict the text has the markers of git around that line, and around nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import partial
from itertools import pairwise
from pathlib import Path
from sys import intern
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from pytest_npudump.dump.table import PROJECTIONS, StatsTable, layer_of
from pytest_npudump.errors import GoldenError
from pytest_npudump.golden.store import KEY, SOURCES
from pytest_npudump.golden.variants import VARIANTS
from pytest_npudump.record import rows
from pytest_npudump.record.edges import key_of_port
from pytest_npudump.record.model_lines import FILE, with_digests
from pytest_npudump.record.noise import CALIBRATION, REPEATS, Repeats, repeats_of
from pytest_npudump.record.record import (
    BLOCKS,
    EDGES,
    LEFT_OUT,
    MODELS,
    OP_TYPES,
    OUTPUTS,
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

_VERSION = "npudump-golden"
_TABLE = "tensors"
_NO_KEY = "'': []\n"
T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Merged:
    """Result of a merge.

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
    with suppress(ValueError, GoldenError):  # what is wrong is told of the whole files
        return _in_part(path, _Sides(base, ours, theirs))
    theirs_read = parse(theirs, path)
    ours_read = parse(ours, path)
    nothing = replace(ours_read, test="", producer={}, table=StatsTable.from_records([]), extra={}, blocks={})
    was = parse(base, path) if base.strip() else nothing
    if ours_read.table.summed or theirs_read.table.summed:  # exact projections have no column
        was, ours_read, theirs_read = map(_as_summed, (was, ours_read, theirs_read))
    sides = _Sides(*under_one_calibration(was, ours_read, theirs_read))
    if any(OP_TYPES in golden.blocks for golden in sides):
        raise GoldenError(f"{path}: the record of a run, expected a golden file, which people accept")
    try:
        return _Merge(sides).result(path)
    except ValueError as error:
        raise GoldenError(f"{path}: the two sides cannot be written as one golden: {error}") from error


def _in_part(path: Path, texts: _Sides[str]) -> Merged:
    """Merge the lines that are not the same in all, and leave the others as they are.

    Raises:
        ValueError: lines tell something of others: something has moved, both sides put tensors at one place,
            columns or a calibration differ, rows have counts or digits of their own, or a file is laid out
            otherwise than it is written; or what differs cannot be merged.
        GoldenError: one of them is no golden file.
    """
    places = texts.map(_places)
    names = [*places.ours]
    if not names or OP_TYPES in names or any([*found] != names for found in places):
        raise ValueError("other blocks")
    heads = _Sides(*(text[: found[_TABLE][0]] for text, found in zip(texts, places, strict=True)))
    columns = heads.map(lambda head: tuple(head.partition("\ncolumns: ")[2].partition("\n")[0].split()))
    if columns.ours not in rows.LAYOUTS or {"count", "digits"} & {*columns.ours} or len({*columns}) > 1:
        raise ValueError("other columns")
    parse(texts.ours, path)  # what is the same in all is right in all
    lines = _Sides(*map(_lines, texts, places))
    blocks = {name: _Block.of(_at(lines, name)) for name in names}
    _merge_dependent(blocks)
    small = heads.map(lambda head: [head])
    for name, block in blocks.items():
        for text, own in zip(small, block.lines, strict=True):
            text.append("" if name == _TABLE else f"{name}: |\n")
            text += [line for key, line in own.items() if key in block.merged]
    sides = small.map(lambda text: parse("".join(text), path))
    if len({(str(golden.extra.get(CALIBRATION)), rows.common_digits(golden.table)) for golden in sides}) > 1:
        raise ValueError("other noise or digits")
    table = blocks[_TABLE]
    merging = _Merge(sides, [key for key in table.lines.ours if key not in table.merged])
    found = merging.result(path)
    head, written = merging.told
    if not found.conflicts:
        ends = _places(found.text)
        head, written = found.text[: ends[_TABLE][0]], _lines(found.text, ends)
    if merging.parted or f"\ncolumns: {' '.join(columns.ours)}\n" not in head:
        raise ValueError("other columns, or tensors of both sides at one place")
    return Merged(f"{head}{_put_back(blocks, written)}", found.conflicts)


def _places(text: str) -> dict[str, tuple[int, int]]:
    """Return the beginning and end of each block's lines in a golden's text; none of other text."""
    begins: dict[str, int] = {}
    last = 1
    for name in (_TABLE, *BLOCKS):
        if (found := text.find(f"\n{name}: |\n", last - 1)) >= 0:
            begins[name] = last = found + len(name) + 5
    if _TABLE not in begins or not text.endswith("\n") or "\r" in text:
        return {}
    ends = [begin - len(name) - 4 for name, begin in [*begins.items()][1:]]
    return dict(zip(begins, zip(begins.values(), [*ends, len(text)], strict=True), strict=True))


def _lines(text: str, places: Mapping[str, tuple[int, int]]) -> dict[str, dict[str, str]]:
    """Return the lines of blocks by name.

    Raises:
        ValueError: a line is no line of a block, or two have one name.
    """
    found = {}
    for name, (begin, end) in places.items():
        lines = text[begin:end].splitlines(keepends=True)
        key = rows.whole if name == _TABLE else str
        # What is the same in all three files is in memory once.
        found[name] = {intern(key(line[2 : line.find(" ", 2)])): intern(line) for line in lines}
        if len(found[name]) < len(lines) or {line[:2] for line in lines} - {"  "}:
            raise ValueError(f"{name}: lines that are laid out otherwise")
    return found


@dataclass(frozen=True, slots=True)
class _Block:
    """A block whose common names have one order in all three files.

    Attributes:
        lines: of each file by name.
        merged: names of lines that are merged: those that are not the same in all, behind one that some lack
            the next name that all have, and the first.
        before: by a name that some lack that next one; "" for none.
    """

    lines: _Sides[dict[str, str]]
    merged: set[str]
    before: dict[str, str]

    @classmethod
    def of(cls, lines: _Sides[dict[str, str]]) -> _Block:
        """Hold the lines against each other.

        Raises:
            ValueError: one has moved.
        """
        base, ours, theirs = lines
        common = [name for name in ours if name in base and name in theirs]
        shared, before = {*common}, dict[str, str]()
        for side in lines:
            following = ""
            for name in reversed(side):
                if name in shared:
                    following = name
                elif before.setdefault(name, following) != following:
                    raise ValueError(f"{name} has moved")
            if [name for name in side if name in shared] != common:
                raise ValueError("lines have moved")
        unlike = {name for name in common if not base[name] == ours[name] == theirs[name]}
        return cls(lines, unlike.union(before, filter(None, before.values()), common[:1]), before)


_NO_LINES = _Block(_Sides({}, {}, {}), set(), {})


def _merge_dependent(blocks: Mapping[str, _Block]) -> None:
    """Have lines merged that depend on those that are.

    Raises:
        ValueError: digests may have to stand behind edges, or models or outputs of one side have gone.
    """
    table, edges, models, outputs = (blocks.get(name, _NO_LINES) for name in (_TABLE, EDGES, MODELS, OUTPUTS))
    going = {*map(_layer, table.before)}
    for layer, line in edges.lines.ours.items() if going else ():
        if not going.isdisjoint(_layer(key_of_port(word)) for word in line.split()):
            edges.merged.add(layer)
    digests = models.lines.ours if going or edges.before else models.merged
    if models.before or outputs.before or any(name in side for name in digests for side in edges.lines):
        raise ValueError("other models or outputs")
    layers = going | edges.merged  # edges stand in the order of tensors
    of_rows = (blocks.get(name, _NO_LINES).merged for name in (_TABLE, PROJECTIONS, POINTERS))
    changed = set[str]().union(*of_rows)
    table.merged.update(key for key in table.lines.ours if key in changed or _layer(key) in layers)


def _put_back(blocks: Mapping[str, _Block], written: Mapping[str, Mapping[str, str]]) -> str:
    """Return blocks with the lines that were written in the place of those that were merged.

    Args:
        blocks: by name, the table first.
        written: lines by block and name.

    Raises:
        ValueError: these do not fit, as digests that stand behind edges no more.
    """
    parts: list[str] = []
    table: list[str] = []
    fit = all(name in blocks for name, lines in written.items() if lines)
    for name, block in blocks.items():
        new, ahead = written.get(name, {}), defaultdict[str, list[str]](list)
        for key in new:
            if key in block.before:
                ahead[block.before[key]].append(key)
        own: list[str] = []
        for key in (*block.lines.ours, ""):
            if key not in block.before:
                own += [*ahead[key], *([key] if key in new or (key and key not in block.merged) else [])]
        table = table or own
        fit = fit and block.merged.issuperset(new) and _in_order(name, own, table)
        parts.append(f"{name}: |\n" if own and name != _TABLE else "")
        parts += [new.get(key) or block.lines.ours[key] for key in own]
    if not fit:
        raise ValueError("lines that do not fit")
    return "".join(parts)


def _in_order(name: str, lines: Sequence[str], table: Iterable[str]) -> bool:
    """Return whether the lines of a block stand as its tensors do; edges of other layers stand behind.

    Models have an order of their own, and outputs no row.
    """
    if name in {MODELS, OUTPUTS}:
        return True
    known = dict.fromkeys(map(_layer, table) if name == EDGES else table)
    rest = [each for each in lines if each not in known]
    return [*filter({*lines}.__contains__, known), *rest] == lines and (not rest or name == EDGES)


class _Merge:
    """The merge of three goldens.

    Attributes:
        told: the head, and by block and name the lines that were written.
        parted: both sides put others at one place.
    """

    def __init__(self, sides: _Sides[Record], same: Sequence[str] = ()) -> None:
        self._sides = sides
        self._same = same
        self._columns = common_columns([golden.table for golden in sides])
        self._lines = sides.map(lambda golden: lines_by_key(golden.table, self._columns))
        self._conflicts: list[str] = []

    def result(self, path: Path) -> Merged:
        head = "".join(self._head())
        order = self._order()
        self.parted = any(isinstance(chunk, Conflict) for chunk in order)
        table = self._block(self._rows(order))
        names = _flat(order)
        edges, models = _with_digests(*self._edges_and_models(names))
        blocks = {
            _TABLE: table,
            PROJECTIONS: self._block(self._of_rows(names, lambda golden: render_projections(golden.table))),
            EDGES: self._block(edges.items()),
            MODELS: self._block(models.items()),
            OUTPUTS: self._block(self._of_block(OUTPUTS)),
            POINTERS: self._block(self._of_rows(names, lambda golden: golden.blocks.get(POINTERS, ""))),
        }
        self.told = f"{head}{_TABLE}: |\n", {name: dict(lines) for name, lines in blocks.items()}
        whole = {name: "".join(line for _, line in lines) for name, lines in blocks.items()}
        texts = [f"{name}: |\n{whole[name]}" for name in BLOCKS if whole.get(name)]
        text = "".join((head, f"{_TABLE}: |\n", whole[_TABLE], *texts))
        if self._conflicts:
            return Merged(text, tuple(dict.fromkeys(self._conflicts)))
        return Merged(render(parse(text, path)), ())

    def _head(self) -> Iterator[str]:
        heads = self._sides.map(lambda golden: _head(golden, self._columns))
        for key in dict.fromkeys([*heads.ours, *heads.theirs]):
            found = self._repeats() if key == REPEATS else joined(*_at(heads, key))
            if key in _SETTLED and isinstance(found, Conflict):
                found = _SETTLED[key](_at(heads, key))
            if key == UNWRITTEN:
                base, ours, theirs = self._sides.map(lambda golden: set(entries_of(golden).items()))
                # one side would leave out a tensor for the other's sake, perhaps unseen
                loses = any(word[1] == LEFT_OUT for word in (ours ^ theirs) - base)
                found = found if not loses else Conflict(heads.ours.get(key), heads.theirs.get(key))
            yield from self._told(key, _mapped(found, partial(_yaml, key)))
        yield _yaml("columns", " ".join(self._columns))

    def _repeats(self) -> dict[str, Any] | None:
        rows = {key: joined(*_at(self._lines, key)) for key in [*self._lines.ours, *self._lines.theirs]}
        there = {key: row for key, row in rows.items() if row is not None}
        ours, theirs = (self._sides.ours, self._lines.ours), (self._sides.theirs, self._lines.theirs)
        return joined_repeats((ours, theirs), there, self._same)

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
        ours, theirs = self._sides.ours.changed, self._sides.theirs.changed
        if key not in ours and key not in theirs:
            return row
        sides = zip(list(self._sides)[1:], list(self._lines)[1:], strict=True)
        stamps = [golden.changed.get(key, "") for golden, lines in sides if lines.get(key) == row]
        return row and next(stamped_lines([row], [key], {key: max(stamps, default="")}))

    def _of_rows(
        self, names: Iterable[str], block: Callable[[Record], str]
    ) -> Iterator[tuple[str, str | Conflict[str | None] | None]]:
        """Yield a block's entry of each tensor: that of the side whose statistics it has."""
        blocks = self._sides.map(lambda golden: by_name(block(golden)))
        for key in names if any(blocks) else ():
            before, ours, theirs = _at(blocks, key)
            row = _at(self._lines, key)
            if row.ours == row.theirs:
                yield key, joined(before, ours, theirs)
            elif row.base in {row.ours, row.theirs}:
                yield key, theirs if row.ours == row.base else ours
            else:
                yield key, ours if ours == theirs else Conflict(ours, theirs)

    def _edges_and_models(self, names: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the lines of both blocks; digests stay in the order of edges where both sides have it."""
        edges, models = dict(self._edges(names)), dict(self._of_block(MODELS))
        for golden in list(self._sides)[1:]:
            fed, known = (by_name(golden.blocks.get(block, "")) for block in (EDGES, MODELS))
            if not with_digests(fed, known)[1].keys().isdisjoint(fed):
                return edges, models
        last = dict.fromkeys(name for name, line in edges.items() if line and name in models)
        order = [*(name for name in models if name not in last), *last]
        return edges, {name: models[name] for name in order}

    def _edges(self, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """Yield the inputs of the result's layers; none of a layer with an input that has gone."""
        blocks = self._sides.map(lambda golden: by_name(golden.blocks.get(EDGES, "")))
        if not any(blocks):
            return
        kept = dict.fromkeys(map(_layer, names))
        gone = {_layer(key) for side in self._lines for key in side} - kept.keys()
        for layer in dict.fromkeys([*kept, *blocks.ours, *blocks.theirs]):
            line = joined(*_at(blocks, layer))
            told = f"{line.ours} {line.theirs}" if isinstance(line, Conflict) else line or ""
            if gone.isdisjoint(map(_layer, (f"{layer}:", *map(key_of_port, told.split())))):
                yield layer, line

    def _of_block(self, block: str) -> Iterator[tuple[str, Any]]:
        """Yield the lines of a block, those of files of models first."""
        blocks = self._sides.map(lambda golden: by_name(golden.blocks.get(block, "")))
        for name in sorted({**blocks.ours, **blocks.theirs}, key=lambda name: name[0] != FILE):
            yield name, joined(*_at(blocks, name))

    def _block(self, lines: Iterable[tuple[str, Any]]) -> list[tuple[str, str]]:
        """Return a block's text by name; lines without a value are left out, conflicts have markers."""
        return [
            (
                name,
                _indented(line)
                if isinstance(line, str)
                else "".join(self._told(name, _mapped(line, _indented))),
            )
            for name, line in lines
            if line
        ]


def _with_all_sources(sides: _Sides[Any]) -> Any:
    """Join both sides' facts of golden tensors: the sources of failures of both."""
    plain = sides.map(lambda one: {**one, SOURCES: []} if isinstance(one, dict) else one)
    found = joined(plain.base, plain.ours, plain.theirs)
    if isinstance(found, Conflict) or not isinstance(found, dict):
        return Conflict(sides.ours, sides.theirs)
    told = [one.get(SOURCES, []) for one in (sides.ours, sides.theirs)]
    return {**found, SOURCES: [*dict.fromkeys([*told[0], *told[1]])]}


def _by_variant(sides: _Sides[Any]) -> Any:
    """Join both sides' facts of variants name by name."""
    base, ours, theirs = (one if isinstance(one, dict) else {} for one in sides)
    told = {name: joined(base.get(name), ours.get(name), theirs.get(name)) for name in {**ours, **theirs}}
    if any(isinstance(facts, Conflict) for facts in told.values()):
        return Conflict(ours, theirs)
    return {name: facts for name, facts in told.items() if facts is not None} or None


_SETTLED: Mapping[str, Callable[[_Sides[Any]], Any]] = MappingProxyType(
    {
        REASON: lambda sides: "; ".join(dict.fromkeys(str(one) for one in (sides.ours, sides.theirs) if one)),
        KEY: _with_all_sources,
        RECORDED: lambda sides: max(str(sides.ours or ""), str(sides.theirs or "")),
        VARIANTS: _by_variant,
    }
)
"""Merges of keys of the head that both sides have changed."""


def _at(sides: _Sides[Any], key: str) -> _Sides[Any]:
    return _Sides(sides.base.get(key), sides.ours.get(key), sides.theirs.get(key))


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


def _with_digests(edges: dict[str, Any], models: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Put digests behind edges, on both sides of conflicts; as they are where a side of one lacks a line."""
    both = [each for each in (*edges.values(), *models.values()) if isinstance(each, Conflict)]
    if any(None in (each.ours, each.theirs) for each in both):
        return edges, models
    told = [
        with_digests(
            *(
                {name: _side(line, is_ours=is_ours) for name, line in block.items() if line}
                for block in (edges, models)
            )
        )
        for is_ours in (True, False)
    ]
    found = [
        {
            name: line if line == other else Conflict(line, other)
            for (name, line), other in zip(ours.items(), theirs.values(), strict=True)
        }
        for ours, theirs in zip(*told, strict=True)
    ]
    return found[0], found[1]


def _side(row: Any, *, is_ours: bool) -> str:
    return str((row.ours if is_ours else row.theirs) if isinstance(row, Conflict) else row)


Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Conflict(Generic[Value]):
    """Conflict of both sides' values, where neither is the base's.

    Attributes:
        ours: of the side that is merged into.
        theirs: of the other one.
    """

    ours: Value
    theirs: Value


def joined(base: Value, ours: Value, theirs: Value) -> Value | Conflict[Value]:
    """Merge one value; None may stand for its absence."""
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
    """Yield the parts between names that all three have in the same order, and these names."""
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


def _as_summed(golden: Record) -> Record:
    """Return a golden with the column of rounded projections, without any if its own are exact."""
    if golden.table.summed:
        return golden
    return replace(golden, table=replace(golden.table, projections=None, projected=None, summed=True))


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
    sides: Sequence[tuple[Record, Mapping[str, str]]], rows: Mapping[str, object], same: Sequence[str] = ()
) -> dict[str, Any] | None:
    """Return the key ``repeats`` of the merged golden: the fewest runs, and the number of rows.

    Args:
        sides: ours and theirs, each with its lines by key.
        rows: the lines of the result by key; a row in conflict has something else.
        same: keys of further lines, which are the same in both and in the result.

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
    compared += len(same) if known else 0
    unknown = sum(
        len(lines) + len(same) - repeats.compared for repeats, lines in known if repeats.compared is not None
    )
    if compared <= unknown:
        return Repeats(1).to_head()
    layers = {*map(layer_of, rows), *map(layer_of, same)}
    named = dict.fromkeys(layer for repeats, _ in known for layer in repeats.not_deterministic)
    count = compared - unknown
    return Repeats(
        min(repeats.runs for repeats, _ in known),
        tuple(layer for layer in named if layer in layers),
        None if count == len(rows) + len(same) else count,
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
