"""Correspondence between layers of a run and a golden: other names, and tensors split over ranks.

A file in YAML, for two sides of any kind: GPU and NPU, training and inference, HuggingFace and vLLM, one rank
and several::

    model.layers.*.self_attn.qkv_proj: layers.*.q_proj + layers.*.k_proj + layers.*.v_proj
    model.layers.*.mlp: layers.{1}.ffn
    layouts:
      model.layers.*.mlp.down_proj: t h[tp:partial]
      "*.attn": b s[cp:zigzag] h[tp]
    ranks: cp=2 tp=4

A key names layers of the run, its value those of the golden. An asterisk matches any text; the n-th one of
the value stands for what the n-th one of the key matched, as ``{n}`` does. Names with `` + `` between them
are tensors of one side which the other has joined along their last axis. A layer that no key names is called
alike on both sides.

A layout has a word an axis; brackets name the group of ranks that it is split over, after SGLang's ``dims``:
``h[tp]`` in parts that follow each other, ``s[cp:zigzag]`` each rank two of 2n parts, the r-th and the r-th
from the end, ``h[tp:2+1+1]`` each rank its part of each of three tensors of such shares, ``h[tp:partial]``
values that ranks have yet to add. ``{2}[ep]`` as the first word is no axis: the number that the second
asterisk matched counts on from rank to rank, as that of experts does. Each rank has a copy of what its group
does not split. ``ranks`` are the sizes of groups, the last one varying fastest, where there are several.

Without a layout, the class of a layer tells, as ``pytest_npudump.runtime.modules.shards`` notes it in its
type, and where it does not, shapes: equal ones are copies, and one axis in which the parts add up is split,
each part on one rank or on as many in a row as it takes. Where nothing tells, each rank's tensor is compared
as if it were a copy, and fails by its shape.

Statistics of parts make those of the whole, whatever the axis; elements do where all parts have them. Of
tensors that a side has joined each rank has its part of each, as many times shorter as all together. A
further copy that one run alone has is compared with its first. A layout cannot hide a change: what is joined
is compared.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.dump.dtypes import BY_NAME
from pytest_npudump.dump.records import Payload, Stats, TensorKey, TensorRecord, key_name, sanitise
from pytest_npudump.dump.stats.tensor import payload_stats
from pytest_npudump.dump.table import PROJECTIONS, STATISTICS, StatsTable, layer_of, shape_of
from pytest_npudump.errors import RequestError, said
from pytest_npudump.language.text import first_of
from pytest_npudump.record.edges import SEVERAL, UNKNOWN, edge_lines_under
from pytest_npudump.record.model_lines import FILE, TYPED, implied_type, is_typed, model_lines_under
from pytest_npudump.record.record import EDGES, MODELS, Record, rows_of, shards_of
from pytest_npudump.record.rows import by_name
from pytest_npudump.storage import safeyaml
from pytest_npudump.storage.archive import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_npudump.compare.tensors.tensor_pair import Pair
    from pytest_npudump.record.edges import Edges, Port

    Shape = tuple[int, ...]

LAYOUTS, RANKS = "layouts", "ranks"
_JOINED = re.compile(r"\s\+\s")
_AXIS = re.compile(r"(?P<name>[\w*]+)(?:\[(?P<split>[\w:,+]+)\])?")
_UNORDERED = "unordered"
"""Of parts whose elements follow each other in an order that is not known: statistics tell."""
_SPLITS = ("", "zigzag", "partial", _UNORDERED)
_SHARES = re.compile(r"[1-9]\d*(\+[1-9]\d*)+")
_COUNTED = re.compile(r"\{(\d+)\}\[(\w+)\]")
_TYPED = re.compile(r"\[(?=[^]]*tp=)(?:(?P<input>[^>]*)>)?(?P<output>[^]]*)\]$")
_OF_CLASS = re.compile(r"(?:(?P<axis>\d+):)?tp=(?P<ranks>\d+)(?::(?P<how>[\w+/]+))?")
_SHARED = re.compile(r"tp=(\d+)")
_JOINING = re.compile(r"(Column|QKV)ParallelLinear")
"""Classes whose parts are joined of parts, in types that say no more."""
_BYTE = 8


@dataclass(frozen=True, slots=True)
class NameRule:
    """One line of the file: names or patterns of layers of a run, and what the golden calls them."""

    run: tuple[str, ...]
    golden: tuple[str, ...]
    line: int


class Split(NamedTuple):
    """Split of an axis over a group of ranks: in parts in order (""), ``zigzag`` or ``partial``.

    ``2+1+1`` where each rank has its parts of tensors of such shares, one behind another.
    """

    group: str
    axis: int
    how: str


@dataclass(frozen=True, slots=True)
class RankLayout:
    """Layout of some layers' tensors over ranks.

    Attributes:
        layers: pattern of their names.
        axes: how many there are; 0 for any number.
        splits: what is split.
        counted: which asterisk of the pattern stands for a number that counts on, and over which group.
    """

    layers: str
    axes: int
    splits: tuple[Split, ...]
    counted: tuple[int, str] = (0, "")

    @property
    def groups(self) -> set[str]:
        """The groups of ranks that it names."""
        return {split.group for split in self.splits} | {*self.counted[1:]} - {""}


class Parts(NamedTuple):
    """A tensor in parts along an axis: rows of a table, or parts of parts.

    With ``pieces`` each part is joined of pieces of these sizes, of which so many ranks in a row hold the
    same; of those the one with the number ``copy`` is taken.
    """

    axis: int
    how: str
    parts: tuple[Parts | int, ...]
    pieces: tuple[tuple[int, int], ...] = ()
    copy: int = 0

    @property
    def rows(self) -> tuple[int, ...]:
        """The rows, in order."""
        return tuple(row for part in self.parts for row in _rows(part))


@dataclass(frozen=True, slots=True)
class TensorOfParts(TensorRecord):
    """A tensor whose elements were joined.

    Attributes:
        parts: of what; None for what was not joined.
        held: rank and shape of each row of the parts.
    """

    parts: Parts | None = None
    held: Mapping[int, tuple[int, Shape | None]] = field(default_factory=dict, compare=False)


class _Row(NamedTuple):
    """A tensor to be compared: its key, and the row or the parts of it."""

    key: TensorKey
    made_of: Parts | int

    @property
    def first(self) -> int:
        return min(_rows(self.made_of))


@dataclass(frozen=True, slots=True)
class Correspondence:
    """A file of names and layouts.

    Attributes:
        path: the file.
        names: which layers are which.
        layouts: in the order of the file; the first one that names a layer counts.
        groups: sizes of the groups of ranks, the last one varying fastest.
    """

    path: Path = Path()
    names: tuple[NameRule, ...] = ()
    layouts: tuple[RankLayout, ...] = ()
    groups: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Correspondence:
        """Read a file.

        Raises:
            RequestError: it cannot be read, or something in it makes no sense: names the line.
        """
        document = safeyaml.read_mapping(path, f"map: {path}")
        names, layouts, groups = [], list[RankLayout](), dict[str, int]()
        for key, value in document.data.items():
            place = f"{path}, line {document.lines[key]}"
            if key == LAYOUTS:
                if not isinstance(value, dict):
                    raise RequestError(f"{place}: layouts is {value!r}, expected layers and their layouts")
                layouts = [_layout(str(layers), text, place) for layers, text in value.items()]
            elif key == RANKS:
                groups = _groups(str(value), place)
            elif isinstance(value, str) and value and key:
                names.append(_name_rule(key, value, document.lines[key], place))
            else:
                raise RequestError(
                    f"{place}: {key!r} is mapped to {value!r}, expected names of layers of the "
                    f"golden (in quotes, if it is a number)"
                )
        unknown = {group for one in layouts for group in one.groups} - groups.keys()
        if groups and unknown:
            raise RequestError(f"{path}: layouts name the group {min(unknown)!r}, which ranks gives no size")
        return cls(path, tuple(names), tuple(layouts), groups)

    def matched(self, golden: Record, run: Record) -> tuple[Record, Record, tuple[str, ...]]:
        """Return both records under the run's names, each tensor whole, and notes on what was done.

        A tensor that the run has in parts has the golden's name. Copies that ranks have are compared one by
        one, under keys that name the rank.

        Args:
            golden: what counts.
            run: what is judged.

        Raises:
            RequestError: a layout does not fit a tensor, or the ranks.
        """
        renamed, joined = self._by_names(golden, run)
        golden = _with_names(golden, renamed)
        sides = (
            _joined_rows(golden, renamed, joined[0]),
            _joined_rows(run, {}, joined[1]),
        )
        idle = [
            words or said("{path}, line {line}: it pairs no layers", path=self.path, line=rule.line)
            for rule in self.names
            if (words := joined[2].get(rule.line)) or rule.line not in joined[2]
        ]
        layers = {row.key.layer for rows in sides for row in rows}
        unused = [one.layers for one in self.layouts if not any(_names(one.layers, name) for name in layers)]
        ranks = [{_rank_of(row.key) for row in rows} for rows in sides]
        if unused:
            words = said(
                "{path}: layouts of no layer: {names} (joined layers have the name of the other side)",
                path=self.path,
                names=first_of(unused),
            )
            idle.append(words)
        elif self.layouts and max(map(len, ranks)) == 1:
            idle.append(
                said("{path}: its layouts split nothing, as no side has several ranks", path=self.path)
            )
        notes: list[str] = []
        if ranks[0] != ranks[1] or self.layouts:
            rows, notes = self._whole(sides, (golden, run), [len(place) for place in ranks])
            sides = rows[0], rows[1]
        of_golden = {str(row.key) for row in sides[0]}
        names = {key: row.key.layer for row in sides[1] if (key := str(row.key)) in of_golden}
        unordered = {str(row.key) for side in sides for row in side if _is_unordered(row.made_of)}
        unordered &= names.keys()
        made = {str(row.key) for side in sides for row in side if isinstance(row.made_of, Parts)}
        made &= names.keys()
        told = _telling_order(golden, sides[0], made) | _telling_order(run, sides[1], made)
        (golden, apart), (run, also) = _applied(golden, sides[0]), _applied(run, sides[1])
        if made:  # projections of parts are not those of the whole; elements give these
            here, there = (_telling_order(one, _joined_rows(one, {}, {}), made) for one in (golden, run))
            made -= here & there
        golden, run = (replace(one, table=one.table.without_projections_of(made)) for one in (golden, run))
        if unseen := made & told - unordered:
            note = said(
                "the order of elements is not compared in tensors joined from statistics of parts ({count}): "
                "{names}; tensors of both sides show it",
                count=len(unseen),
                names=first_of(dict.fromkeys(name for key, name in names.items() if key in unseen)),
            )
            notes = [*notes, note]
        if unordered:
            note = said(
                "the order of elements is not compared, as the order of parts on ranks is not known "
                "({count}): {names}",
                count=len(unordered),
                names=first_of(dict.fromkeys(name for key, name in names.items() if key in unordered)),
            )
            notes = [*notes, note]
        if places := {_place(key) for key in (*apart, *also)}:
            golden, run = _with_last(golden, places), _with_last(run, places)
            note = said(
                "not compared, as partial sums and shared parts of ranks need tensors, and a side has only "
                "statistics: {names}; dump with acl_json={{'dump_data': 'tensor'}}, or leave these layers "
                "out",
                names=first_of(dict.fromkeys(key.layer for key in (*apart, *also))),
            )
            notes = [*notes, note]
        return golden, run, (*notes, *idle)

    def renamed(self, golden: Record, run: Record) -> tuple[Record, Record]:
        """Return both, with the run's names in the golden's blocks, and models without what it joins."""
        renamed, (here, there, _) = self._by_names(golden, run)
        layers = {*here, *there, *chain.from_iterable((*here.values(), *there.values()))}
        joined = {key_name(layer) for layer in layers}

        def alone(side: Record) -> Record:
            lines = by_name(side.blocks[MODELS]).items()
            text = "".join(f"{line}\n" for name, line in lines if name.partition(FILE)[0] not in joined)
            return replace(side, blocks={**side.blocks, MODELS: text})

        golden = _with_names(golden, renamed)
        return (alone(golden), alone(run)) if joined else (golden, run)

    def weights(self, golden: Record, run: Record) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
        """Return the digests of a golden's weights, and by rank those of a run, under the run's names."""
        renamed = self._by_names(golden, run)[0]
        (whole,) = (_flat(layers, renamed) for layers in shards_of(golden).values())
        ranks = sorted(shards_of(run).items(), key=lambda one: int(one[0]))
        held = {rank: _flat(layers, {}) for rank, layers in ranks}
        counted = [one for one in self.layouts if one.counted[0]]
        if not counted:
            return whole, held
        layers = [(rank, name, self._counted(name)) for rank, some in held.items() for name in some]
        rows = [
            _Row(TensorKey(layer, "output", 0, rank=int(rank)), at)
            for at, (rank, _, layer) in enumerate(layers)
        ]
        for one in counted:
            rows = self._counted_on(one, rows, len(held))
        parts: dict[str, dict[str, str]] = {rank: {} for rank in held}
        for row, (rank, name, layer) in zip(rows, layers, strict=True):
            parts[rank][row.key.layer + name.removeprefix(layer)] = held[rank][name]
        return whole, parts

    def _counted(self, name: str) -> str:
        """Return the layer around a parameter whose number counts on from rank to rank; else its name."""
        around = (name[: dot.start()] for dot in re.finditer(r"\.", name))
        return next(
            (
                layer
                for layer in around
                for one in self.layouts
                if one.counted[0] and (found := _groups_of(one.layers, layer))
                if found[one.counted[0] - 1].isdigit()
            ),
            name,
        )

    def _by_names(
        self, golden: Record, run: Record
    ) -> tuple[dict[str, str], tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]], dict[int, str]]]:
        """Return the golden's layers under other names, and what each side has in parts, by the new name.

        Behind them, by line, what the layers lack that it would pair; "" of one that pairs some.
        """
        ours = {name: layer for layer in _layers(golden.table) for name in (sanitise(layer), layer)}
        theirs = {name: layer for layer in _layers(run.table) for name in (sanitise(layer), layer)}
        renamed: dict[str, str] = {}
        parts: tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]] = ({}, {})
        used, taken, given = dict[int, str](), set[str](), dict[str, str]()
        for rule in sorted(self.names, key=lambda rule: "*" in rule.run[0]):  # exact names first
            for layer in _layers(run.table):
                groups = _groups_of(rule.run[0], layer)
                if groups is None or layer in taken:
                    continue
                here = [ours.get(_filled(name, groups)) for name in rule.golden]
                there = [theirs.get(_filled(name, groups)) for name in rule.run]
                found = [name for name in here if name], [name for name in there if name]
                if None in (*here, *there):
                    whole, names = (here, rule.golden) if None in here else (there, rule.run)
                    words = said(
                        "{path}, line {line}: it pairs no layers, as {side} has no {name}",
                        path=self.path,
                        line=rule.line,
                        side=said("the golden") if None in here else said("the run"),
                        name=_filled(names[whole.index(None)], groups),
                    )
                    used.setdefault(rule.line, words)
                    continue
                used[rule.line] = ""
                taken.update(found[1])
                for name in found[0]:
                    if (other := given.setdefault(name, layer)) != layer:
                        raise RequestError(
                            f"{self.path}, line {rule.line}: {other} and {layer} are both mapped to {name} "
                            f"of the golden: name each of its layers once"
                        )
                if len(there) > 1:
                    parts[1][found[0][0]] = tuple(found[1])
                elif len(here) > 1:
                    parts[0][layer] = tuple(found[0])
                else:
                    renamed[found[0][0]] = layer
        return renamed, (*parts, used)

    def _whole(
        self, sides: Sequence[Sequence[_Row]], records: Sequence[Record], ranks: Sequence[int]
    ) -> tuple[tuple[list[_Row], list[_Row]], list[str]]:
        """Return the rows of both sides without ranks, and the copies of each."""
        for one in self.layouts:
            if one.counted[0]:
                both = zip(sides, ranks, strict=True)
                sides = [self._counted_on(one, rows, some) for rows, some in both]
        grouped = [_by_place(rows) for rows in sides]
        tables = [record.table for record in records]
        out: tuple[list[_Row], list[_Row]] = ([], [])
        guessed: list[str] = []
        lost, notes = _lost(grouped)
        for place in {**grouped[0], **grouped[1]}:
            held = [side.get(place, []) for side in grouped]
            layout = next((one for one in self.layouts if _names(one.layers, place.layer)), None)
            shapes = [
                [_shape(table, row.made_of) for row in rows] for table, rows in zip(tables, held, strict=True)
            ]
            types = {
                table.op_types[row.first] for table, rows in zip(tables, held, strict=True) for row in rows
            }
            joining = any(map(_JOINING.search, types))
            joined = next((some for each in zip(tables, held, strict=True) if (some := _joined(*each))), ())
            told = list[list[_Row] | None]()
            self._refuse_unfit(layout, place.layer, chain(*shapes))
            for side, rows in enumerate(held):
                if len(rows) < 2:  # noqa: PLR2004 - nothing is in parts
                    told.append(rows)
                elif layout is not None:
                    sizes = {**self._sizes(ranks[side])}
                    sizes.pop(layout.counted[1], None)
                    told.append(_by_layout(rows, tables[side], layout, sizes, joined))
                else:
                    told.append(_by_class(rows, shapes[side], tables[side], joined))
            wholes = [
                {_shape(table, row.made_of) for row in rows} if rows is not None else _wholes(some)
                for table, rows, some in zip(tables, told, shapes, strict=True)
                if None in told
            ]
            for side, rows in enumerate(held):
                found = told[side]
                if found is None:
                    how = _UNORDERED if joining and not joined else ""
                    found = _by_shapes(rows, tables[side], wholes[0] & wholes[1], how, joined) or rows
                    told[side] = found
                    if len(found) < len(rows) and not joining:
                        guessed.append(place.layer)
            _with_copies(place, [rows or [] for rows in told], out, lost.get(place, ()))
        for places, rows in zip(grouped, out, strict=True):
            began = {at: min(row.first for row in held) for at, held in places.items()}
            rows.sort(key=lambda row: began[_place(row.key)])  # copies stand together
        if guessed and self.path.name:
            note = said(
                "joined by shape: ranks hold parts of {layers}; state the layout in {path}",
                layers=first_of(dict.fromkeys(guessed)),
                path=self.path.name,
            )
            notes.append(note)
        return out, notes

    def _refuse_unfit(self, layout: RankLayout | None, layer: str, shapes: Iterable[Shape | None]) -> None:
        for shape in shapes:
            if layout is not None and shape is not None and layout.axes not in {0, len(shape)}:
                unlike = f"has {layout.axes} axes, and {layer} {list(shape)}"
                raise RequestError(f"{self.path}: the layout of {layout.layers!r} {unlike}")

    def _counted_on(self, layout: RankLayout, rows: Sequence[_Row], ranks: int) -> list[_Row]:
        """Return rows under names whose number counts on from rank to rank of a group."""
        (asterisk, group), sizes = layout.counted, self._sizes(ranks)
        found = [_groups_of(layout.layers, row.key.layer) for row in rows]
        own = [int(one[asterisk - 1]) if one and one[asterisk - 1].isdigit() else -1 for one in found]
        place = {rank: at for at, rank in enumerate(sorted({_rank_of(row.key) for row in rows}))}
        later = math.prod([*sizes.values()][[*sizes, group].index(group) + 1 :])
        out = []
        for row, one, number in zip(rows, found, own, strict=True):
            if one and number >= 0:
                before = place[_rank_of(row.key)] // later % sizes.get(group, 1) * (max(own) + 1)
                names = (*one[: asterisk - 1], str(before + number), *one[asterisk:])
                row = row._replace(key=replace(row.key, layer=_filled(layout.layers, names)))  # noqa: PLW2901
            out.append(row)
        return out

    def _sizes(self, ranks: int) -> Mapping[str, int]:
        """Return the sizes of the groups that a number of ranks makes."""
        named = {group for one in self.layouts for group in one.groups}
        if self.groups and math.prod(self.groups.values()) == ranks:
            return self.groups
        if ranks > 1 and len(named) == 1 and not self.groups:
            return {next(iter(named)): ranks}
        if ranks > 1 and (named or self.groups):
            told = "no line 'ranks:' gives the sizes of its groups of ranks"
            if self.groups:
                sizes = " ".join(f"{name}={size}" for name, size in self.groups.items())
                told = f"'ranks: {sizes}' makes {math.prod(self.groups.values())}"
            raise RequestError(
                f"{self.path}: this side has {ranks} ranks, and {told}: name the size of each group, such as "
                f"'ranks: cp=2 tp={max(ranks // 2, 1)}'"
            )
        return {"copies": ranks}  # as no layout splits anything


def _name_rule(key: str, value: str, line: int, place: str) -> NameRule:
    run, golden = tuple(_JOINED.split(key.strip())), tuple(_JOINED.split(value.strip()))
    if len(run) > 1 and len(golden) > 1:
        raise RequestError(f"{place}: only one side may have several names with ' + ' between them")
    for name in (*run[1:], *golden):
        count = run[0].count("*")
        if name.count("*") > count:
            raise RequestError(f"{place}: {name!r} has more asterisks than {run[0]!r} has")
        for number in re.findall(r"\{(\d+)\}", name):
            if not 0 < int(number) <= count:
                told = f"{{{number}}} is no asterisk of {run[0]!r}, which has {count}"
                raise RequestError(f"{place}: {name!r}: {told}")
    return NameRule(run, golden, line)


def _layout(layers: str, text: object, place: str) -> RankLayout:
    words = text.split() if isinstance(text, str) else []
    splits, counted = [], (0, "")
    if words and (found := _COUNTED.fullmatch(words[0])) and 0 < int(found[1]) <= layers.count("*"):
        counted = int(found[1]), found[2]
        words = words[1:]
    for axis, word in enumerate(words):
        found = _AXIS.fullmatch(word)
        for one in (found["split"] or "").split(",") if found else ["?:?"]:
            group, _, how = one.partition(":")
            if how not in _SPLITS and not _SHARES.fullmatch(how):
                words = []
            elif group:
                splits.append(Split(group, axis, how))
    if not words and not counted[0]:
        raise RequestError(
            f"{place}: the layout {text!r} of {layers!r}: expected one word per axis, such as 't h[tp]', "
            f"'b s[cp:zigzag] h' or 't h[tp:partial]'"
        )
    return RankLayout(layers, len(words), tuple(splits), counted)


def _groups(text: str, place: str) -> dict[str, int]:
    found = [re.fullmatch(r"(\w+)=([1-9]\d*)", word) for word in text.split()]
    groups = {one[1]: int(one[2]) for one in found if one}
    if len(groups) != len(found) or not groups:
        raise RequestError(f"{place}: ranks is {text!r}, expected sizes of groups such as 'cp=2 tp=4'")
    return groups


def implied(golden: Record, run: Record) -> Correspondence | None:
    """Return the correspondence of sides with other ranks each, where their parts can be told; else None.

    Types tell. So do keys where each tensor is on one rank alone, of requests that ranks serve, or of layers.
    """
    tables = golden.table, run.table
    keys = [[TensorKey.parse(key) for key in table.keys] for table in tables]
    ranks = [*map(ranks_of, tables)]
    typed = any(_TYPED.search(kind) for table in tables for kind in {*table.op_types})
    alone = all(len({replace(key, rank=-1, device=-1) for key in side}) == len(side) for side in keys)
    return Correspondence() if ranks[0] != ranks[1] and (typed or alone) else None


def ranks_of(table: StatsTable) -> set[int]:
    """Return the ranks that have tensors of a table; -1 for one process."""
    return {_rank_of(TensorKey.parse(key)) for key in table.keys}


def lost_ranks(golden: Record, run: Record) -> tuple[str, ...]:
    """Say in words that ranks of a run left nothing, by the types of its layers; nothing without any.

    A golden may have been recorded so: then its ranks are the run's, with the same weights.
    """
    held, kinds = ranks_of(run.table), filter(_TYPED.search, {*run.table.op_types})
    shared = max((int(size) for kind in kinds for size in _SHARED.findall(kind)), default=1)
    recorded = held == ranks_of(golden.table) and shards_of(run) == shards_of(golden)
    words = said(
        "not all ranks were recorded: {shared} share layers, and the run has {held}",
        shared=shared,
        held=len(held),
    )
    return () if recorded or not len(held) % shared else (words,)


def with_names(golden: Record, renamed: Mapping[str, str]) -> Record:
    """Return a golden under other names of layers, given by its own."""
    return _applied(_with_names(golden, renamed), _joined_rows(golden, renamed, {}))[0]


def renamed_layers(golden: Record, run: Record, edges: tuple[Edges, Edges]) -> dict[str, str]:
    """Return the layers of which a run's model has nothing but the name otherwise, by the golden's.

    Their type, digests, inputs, readers, and types and shapes of tensors are the same, and no other layer
    that only one side has is like them. None of models whose types are unknown, nor of several models.

    Args:
        golden: what counts.
        run: what is judged.
        edges: of both.
    """
    blocks = [side.blocks.get(MODELS, "") for side in (golden, run)]
    if not all(map(is_typed, blocks)) or any(f"{FILE}model=" in block for block in blocks):
        return {}
    here, there = (_placed(*side) for side in zip((golden, run), edges, strict=True))
    lost, new = [name for name in here if name not in there], [name for name in there if name not in here]
    alike, others = Counter(here[name] for name in lost), Counter(there[name] for name in new)
    by_place = {there[name]: name for name in new}
    found: dict[str, str] = {}

    def renamed(place: _Place) -> _Place:
        ports = (port and replace(port, layer=found.get(port.layer, port.layer)) for port in place.ports)
        return place._replace(ports=tuple(ports))

    for name in lost:
        place = renamed(here[name])
        if place.known and alike[here[name]] == others[place] == 1:
            found[name] = by_place[place]
    read_otherwise = {
        port.layer
        for name, place in here.items()
        if (now := there.get(found.get(name, name))) is not None and now.ports != renamed(place).ports
        for port in place.ports
        if port
    }
    raw = [{sanitise(layer): layer for layer in _layers(side.table)} for side in (golden, run)]
    return {raw[0][was]: raw[1][now] for was, now in found.items() if was not in read_otherwise}


class _Place(NamedTuple):
    """A layer without its name: the operator's type and digests, its tensors, and what feeds it."""

    op_type: str
    digests: tuple[str, ...]
    tensors: tuple[tuple[str, str, str], ...]
    ports: tuple[Port | None, ...]

    @property
    def known(self) -> bool:
        return bool(self.op_type) and not {UNKNOWN, SEVERAL}.intersection(self.ports)


def _placed(record: Record, edges: Edges) -> dict[str, _Place]:
    """Return the layers by their names in file names."""
    tensors: defaultdict[str, list[tuple[str, str, str]]] = defaultdict(list)
    table = record.table
    for text, dtype, shape in zip(table.keys, table.dtypes, table.shapes, strict=True):
        key = TensorKey.parse(text)
        tensors[key.layer].append((str(replace(key, layer="")), dtype, shape))
    feeds, lines, found = edges.restricted(tensors).feeds, by_name(record.blocks[MODELS]), dict[str, _Place]()
    for layer, held in tensors.items():
        words = lines.get(key_name(layer), "").split(" ")[1:]
        op_type = words.pop(0)[1:] if words and words[0][0] == TYPED else implied_type(key_name(layer))
        ports = feeds.get(sanitise(layer), (UNKNOWN,))
        own = (port and replace(port, layer=sanitise(port.layer)) for port in ports)
        found[sanitise(layer)] = _Place(op_type, tuple(words), tuple(held), tuple(own))
    return found


def with_own_copies(golden: Record, run: Record) -> tuple[Record, frozenset[str]]:
    """Return a golden with the run's first copy in place of those that only the run has, and their keys.

    Ranks that hold the same compute the same, whatever the golden was computed by.

    Args:
        golden: under the run's names, as :meth:`Correspondence.matched` returns it.
        run: what is judged.
    """
    here, there = ({key: row for row, key in enumerate(side.table.keys)} for side in (golden, run))
    pairs = [
        (key, first)
        for key in here
        if "rank=" in key and key in there
        for first in [str(replace(TensorKey.parse(key), rank=-1))]
        if first in here and first in there
        if golden.table.shapes[here[first]] == run.table.shapes[there[first]]
    ]
    if not pairs:
        return golden, frozenset()
    one, other = (rows_of((golden.table,) * 2, [(0, here[pair[at]]) for pair in pairs]) for at in (0, 1))
    first_of_copy = {key: first for (key, first), own in zip(pairs, one.same_rows(other), strict=True) if own}
    rows = [(1, there[first_of_copy[key]]) if key in first_of_copy else (0, row) for key, row in here.items()]
    table = replace(rows_of((golden.table, run.table), rows), keys=golden.table.keys)
    tensors = golden.tensors
    if tensors and run.tensors:
        tensors = [
            _under(run.tensors[row], TensorKey.parse(key)) if side else tensors[row]
            for key, (side, row) in zip(here, rows, strict=True)
        ]
    return replace(golden, table=table, tensors=tensors), frozenset(first_of_copy)


@cache
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile("(.*?)".join(map(re.escape, pattern.split("*"))), re.DOTALL)


def _groups_of(pattern: str, layer: str) -> tuple[str, ...] | None:
    """Return the matches of a pattern's asterisks in a name, raw or as in files; None for no match."""
    found = _pattern(pattern).fullmatch(layer)
    if found is None and sanitise(layer) == layer:
        found = _pattern(sanitise(pattern.replace("*", "\0")).replace("\0", "*")).fullmatch(layer)
    return found.groups() if found else None


def _filled(pattern: str, groups: Sequence[str]) -> str:
    following = iter(groups)
    return re.sub(
        r"\*|\{(\d+)\}", lambda found: groups[int(found[1]) - 1] if found[1] else next(following), pattern
    )


def _flat(layers: Mapping[str, Mapping[str, str]], renamed: Mapping[str, str]) -> dict[str, str]:
    """Return the digests of parameters by their paths."""
    return {
        f"{renamed.get(layer, layer)}.{name}".removeprefix("."): text
        for layer, texts in layers.items()
        for name, text in texts.items()
    }


def _names(pattern: str, layer: str) -> bool:
    return _groups_of(pattern, layer) is not None


def _with_names(golden: Record, renamed: Mapping[str, str]) -> Record:
    names = {key_name(old): key_name(new) for old, new in renamed.items()}
    under = {EDGES: edge_lines_under, MODELS: model_lines_under}
    found = {block: under[block](names, golden.blocks[block]) for block in under if block in golden.blocks}
    return replace(golden, blocks={**golden.blocks, **found}) if names else golden


def _layers(table: StatsTable) -> dict[str, None]:
    return dict.fromkeys(map(layer_of, table.keys))


def _joined_rows(
    record: Record, renamed: Mapping[str, str], parts: Mapping[str, tuple[str, ...]]
) -> list[_Row]:
    """Return the rows of a side under new names, parts of one tensor in one."""
    named = {layer: name for name, layers in parts.items() for layer in layers}
    gathered: defaultdict[TensorKey, dict[str, int]] = defaultdict(dict)
    rows = []
    for at, text in enumerate(record.table.keys):
        key = TensorKey.parse(text)
        if key.layer in named:
            gathered[replace(key, layer=named[key.layer])][key.layer] = at
        else:
            rows.append(_Row(replace(key, layer=renamed.get(key.layer, key.layer)), at))
    for key, held in gathered.items():
        order = [held[layer] for layer in parts[key.layer] if layer in held]
        if len(order) == len(parts[key.layer]):
            rows.append(_Row(key, Parts(-1, "", tuple(order))))
        else:
            rows += [_Row(TensorKey.parse(record.table.keys[at]), at) for at in order]
    return sorted(rows, key=lambda row: row.first)


def _rank_of(key: TensorKey) -> int:
    return key.rank if key.rank >= 0 else key.device


def _place(key: TensorKey) -> TensorKey:
    return replace(key, rank=-1, device=-1)


def _by_place(rows: Iterable[_Row]) -> dict[TensorKey, list[_Row]]:
    found: defaultdict[TensorKey, list[_Row]] = defaultdict(list)
    for row in rows:
        found[_place(row.key)].append(row)
    return {place: sorted(held, key=lambda row: _rank_of(row.key)) for place, held in found.items()}


def _rows(made_of: Parts | int) -> tuple[int, ...]:
    return (made_of,) if isinstance(made_of, int) else made_of.rows


def _shape(table: StatsTable, made_of: Parts | int) -> Shape | None:
    """Return the shape of a tensor, of one in parts that of the whole."""
    if isinstance(made_of, int):
        return shape_of(table.shapes[made_of])
    shapes = [_shape(table, part) for part in made_of.parts]
    found = _shape_of_parts(shapes, made_of.axis, made_of.how)
    if found is None or not made_of.pieces:
        return found
    at = made_of.axis % len(found)
    length = sum(size * len(shapes) // shared for size, shared in made_of.pieces)
    return (*found[:at], length, *found[at + 1 :])


def _shape_of_parts(shapes: Sequence[Shape | None], axis: int, how: str = "") -> Shape | None:
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes) or not known:
        return None
    if how == "partial":
        return known[0] if len(set(known)) == 1 else None
    if not known[0]:
        return None
    at = axis % len(known[0])
    others = {(*shape[:at], *shape[at + 1 :]) for shape in known}
    if len(others) > 1 or {len(shape) for shape in known} != {len(known[0])}:
        return None
    return (*known[0][:at], sum(shape[at] for shape in known), *known[0][at + 1 :])


def _joined(table: StatsTable, rows: Sequence[_Row]) -> tuple[int, ...]:
    """Return the lengths of the tensors that a side has joined along their last axis; none without any."""
    parts = next((row.made_of.parts for row in rows if isinstance(row.made_of, Parts)), ())
    return tuple(shape[-1] if (shape := _shape(table, part)) else 0 for part in parts)


def _of_ranks(
    parts: tuple[Parts | int, ...], table: StatsTable, axis: int, how: str, joined: Sequence[int]
) -> Parts:
    """Return a tensor in parts on ranks: each has its part of each of the tensors that a side has joined."""
    lengths = {(len(shape), shape[axis]) for part in parts if (shape := _shape(table, part))}
    if _SHARES.fullmatch(how):
        joined = [*map(int, how.split("+"))]
    elif how or not joined or any(axis not in {-1, axes - 1} for axes, _ in lengths):
        return Parts(axis, how, parts)
    if len(lengths) == 1 and 0 not in joined:
        ((_, length),) = lengths
        sizes = [divmod(length * size, sum(joined)) for size in joined]
        if not any(rest for _, rest in sizes):
            return Parts(axis, "", parts, tuple((size, 1) for size, _ in sizes))
    return Parts(axis, _UNORDERED, parts)


def _by_class(
    rows: Sequence[_Row], shapes: Sequence[Shape | None], table: StatsTable, joined: Sequence[int]
) -> list[_Row] | None:
    """Return the copies that the type of a layer implies; None without any."""
    typed, key = _TYPED.search(table.op_types[rows[0].first]), rows[0].key
    found = _OF_CLASS.fullmatch((typed and typed[key.io]) or "")
    if found is not None and key.slot and (found["axis"] or found["how"] == "partial"):
        return None  # a bias beside what ranks share otherwise
    if found is None or len(rows) % int(found["ranks"]) or not all(shapes):
        return None
    ranks, axis, how = int(found["ranks"]), int(found["axis"] or -1), found["how"] or ""
    words = [word.partition("/") for word in how.split("+")] if how[:1].isdigit() else []
    pieces = tuple((int(size), int(shared or 1)) for size, _, shared in words)
    if pieces and {sum(size for size, _ in pieces)} != {shape[axis] for shape in shapes if shape}:
        pieces, how = (), _UNORDERED
    elif how == _UNORDERED and joined:
        how = ""
    copies = max((shared for _, shared in pieces), default=1)
    return [
        _Row(
            rows[first + copy].key,
            Parts(axis, "", held, pieces, copy) if pieces else _of_ranks(held, table, axis, how, joined),
        )
        for first in range(0, len(rows), ranks)
        for held in [tuple(row.made_of for row in rows[first : first + ranks])]
        for copy in range(copies)
    ]


def _splits(shapes: Sequence[Shape | None]) -> Iterator[tuple[Shape, int, int]]:
    """Yield possible splits over ranks: the whole, the axis, and how many in a row hold the same part."""
    for shared in (one for one in range(1, len(shapes)) if not len(shapes) % one):
        if all(shape == shapes[at - at % shared] for at, shape in enumerate(shapes)):
            for axis in range(len(shapes[0] or ())):
                whole = _shape_of_parts(shapes[::shared], axis)
                if whole is not None:
                    yield whole, axis, shared


def _wholes(shapes: Sequence[Shape | None]) -> set[Shape | None]:
    """Return the shapes that a tensor may have of which ranks have copies or parts of these."""
    return {*(set(shapes) if len(set(shapes)) == 1 else ()), *(whole for whole, _, _ in _splits(shapes))}


def _by_shapes(
    rows: Sequence[_Row],
    table: StatsTable,
    wholes: Collection[Shape | None],
    how: str,
    joined: Sequence[int],
) -> list[_Row] | None:
    """Return the copies of a tensor on ranks, or its parts in one; None where shapes imply neither.

    Args:
        rows: what the ranks have, by rank.
        table: where they are.
        wholes: shapes that the other side may have, too.
        how: parts follow each other.
        joined: lengths of the tensors that a side has joined in it.
    """
    shapes = [_shape(table, row.made_of) for row in rows]
    if None in shapes:
        return None
    if len({*shapes}) == 1 and shapes[0] in wholes:
        return list(rows)
    found = [one for one in _splits(shapes) if one[0] in wholes]
    if len(found) != 1:
        return None
    _, axis, shared = found[0]
    return [
        _Row(rows[copy].key, _of_ranks(held, table, axis, how, joined))
        for copy in range(shared)
        for held in [tuple(row.made_of for row in rows[copy::shared])]
    ]


def _by_layout(
    rows: Sequence[_Row],
    table: StatsTable,
    layout: RankLayout,
    sizes: Mapping[str, int],
    joined: Sequence[int],
) -> list[_Row]:
    """Return the copies by a layout: one for each place in the groups that split nothing."""
    layer, ranks = rows[0].key.layer, math.prod(sizes.values())
    shapes = dict.fromkeys(_shape(table, row.made_of) for row in rows)
    told = f"and {layer} has {', '.join(str(list(one)) for one in shapes if one is not None)}"
    if len(rows) != ranks:
        raise RequestError(f"the layout of {layout.layers!r} is for {ranks} ranks, {layer} is on {len(rows)}")

    def number(at: Mapping[str, int]) -> int:
        return reduce(lambda found, name: found * sizes[name] + at[name], sizes, 0)

    def parts(splits: Sequence[Split], at: Mapping[str, int]) -> Parts | int:
        if not splits:
            return rows[number(at)].made_of
        (group, axis, how), *others = splits
        held = tuple(parts(others, {**at, group: one}) for one in range(sizes[group]))
        made = _of_ranks(held, table, axis, how, joined)
        if made.how == _UNORDERED and _SHARES.fullmatch(how):
            raise RequestError(f"the layout of {layout.layers!r} cuts axis {axis} by {how}, {told}")
        return made

    splits = [split for split in layout.splits if sizes.get(split.group, 1) > 1]
    names = {split.group for split in splits}
    copies = []
    for place in product(*(range(1 if name in names else size) for name, size in sizes.items())):
        at = dict(zip(sizes, place, strict=True))
        copies.append(_Row(rows[number(at)].key, parts(splits, at)))
    return copies


def _with_copies(
    place: TensorKey,
    found: Sequence[list[_Row]],
    out: tuple[list[_Row], list[_Row]],
    lost: Collection[int] = (),
) -> None:
    """Add a tensor of both sides: the first copies under a key without a rank, others under their ranks'.

    Ranks of the run that have lost theirs have none in place of it.
    """
    ranks = [[_rank_of(row.key) for row in rows] for rows in found]
    if ranks[0] == ranks[1] and not lost:
        for side, rows in zip(out, found, strict=True):
            side += [row._replace(key=place) if len(rows) == 1 else row for row in rows]
        return
    others = dict.fromkeys([*ranks[0][1:], *ranks[1][1:], *lost])
    for side, rows, gone in zip(out, found, ((), lost), strict=True):
        if not rows:
            continue
        side.append(rows[0]._replace(key=place))
        by_rank = {_rank_of(row.key): row for row in rows}
        side += [
            by_rank.get(rank, rows[0])._replace(key=replace(place, rank=rank))
            for rank in others
            if rank not in gone
        ]


_folder = cache(temporary_folder)
"""Returns the folder of whole tensors."""
_EXPERT = re.compile(r"experts?[._]\d")
"""Layers that run where a token needs them."""


def _lost(
    grouped: Sequence[Mapping[TensorKey, Sequence[_Row]]],
) -> tuple[dict[TensorKey, list[int]], list[str]]:
    """Return the ranks of the run that lack a tensor that others of it have, and notes on what is not told.

    A rank that has tensors of the same kind in exchange, by their names but for numbers, has other layers,
    experts or requests. One that has nothing that the other rank has not, or has others of that kind as
    copies, has lost it, unless the golden's ranks lack it, too.

    Args:
        grouped: of the golden and of the run, the rows of each tensor, by rank.
    """
    on = [{place: {_rank_of(row.key) for row in rows} for place, rows in side.items()} for side in grouped]
    every = [set[int]().union(*side.values()) for side in on]
    if every[0] == every[1]:
        return {place: sorted(on[0].get(place, set()) - ranks) for place, ranks in on[1].items()}, []
    partly = [
        {place: sorted(all_of - ranks) for place, ranks in side.items() if ranks < all_of}
        for side, all_of in zip(on, every, strict=True)
    ]
    lost, untold = defaultdict[TensorKey, list[int]](list), dict[str, None]()
    for side, own, theirs in zip(on, partly, reversed(partly), strict=True):
        held = {rank: defaultdict[TensorKey, set[TensorKey]](set) for rank in {*chain(*side.values())}}
        for place, ranks in side.items() if own else ():
            for rank in ranks:
                held[rank][_kind(place)].add(place)
        nothing_else = {
            (one, other): all(places <= held[other].get(kind, set()) for kind, places in held[one].items())
            for one, other in product(held, repeat=2)
        }
        for place, rank in ((one, rank) for one in own if one not in theirs for rank in own[one]):
            kind = _kind(place)
            alike, others = held[rank].get(kind, set()), side[place]
            if any(alike - held[other][kind] for other in others):
                continue
            told = alike or any(nothing_else[rank, other] for other in others)
            if side is on[1] and told and not _EXPERT.search(place.layer):
                lost[place].append(rank)
            else:
                untold[f"{place.layer} (rank {rank})"] = None
    notes = []
    if untold:
        notes.append(said("on some ranks only, expected ranks unknown: {names}", names=first_of(untold)))
    if lost:
        names = first_of(f"{place.layer} (rank {rank})" for place, ranks in lost.items() for rank in ranks)
        notes.append(said("missing on some ranks of the run only: {names}", names=names))
    return lost, notes


def _kind(place: TensorKey) -> TensorKey:
    return replace(place, layer=re.sub(r"\d+", "0", place.layer), step=0, turn=0)


def _applied(record: Record, rows: Sequence[_Row]) -> tuple[Record, list[TensorKey]]:
    """Return a record of these tensors, and those whose parts make none: each is what its rank has."""
    table, tensors = record.table, record.tensors
    if [(str(row.key), row.made_of) for row in rows] == [*zip(table.keys, range(len(table)), strict=True)]:
        return record, []
    whole, apart, made, taken = list[_Row](), list[TensorKey](), dict[int, TensorRecord](), set[int]()
    for row in rows:
        found = _made(record, row.key, row.made_of) if isinstance(row.made_of, Parts) else None
        if found is not None:
            made[len(whole)] = found
        elif isinstance(row.made_of, Parts):
            apart.append(row.key)
            own = {at: TensorKey.parse(table.keys[at]) for at in row.made_of.rows}
            if len({*map(_rank_of, own.values())}) == len(own):  # else joined of other layers, too
                own = {at: replace(row.key, rank=one.rank, device=one.device) for at, one in own.items()}
            whole += [_Row(one, at) for at, one in own.items() if at not in taken]
            taken.update(own)  # which copies may share
            continue
        whole.append(row)
    computed = StatsTable.from_records(made.values())
    place = {at: number for number, at in enumerate(made)}
    order = [(1, place[at]) if at in made else (0, row.first) for at, row in enumerate(whole)]
    joined = replace(
        rows_of((table, computed), order) if whole else table, keys=tuple(str(row.key) for row in whole)
    )
    kept = (
        [made.get(at) or _under(tensors[row.first], row.key) for at, row in enumerate(whole)]
        if tensors
        else ()
    )
    return replace(record, table=joined, tensors=kept), apart


def _with_last(record: Record, places: Collection[TensorKey]) -> Record:
    """Return a record with some tensors behind all others, so that none of them is the first mismatch."""
    keys = map(TensorKey.parse, record.table.keys)
    late = [_place(key) in places for key in keys]
    order = sorted(range(len(late)), key=late.__getitem__)
    table = rows_of((record.table, record.table), [(0, row) for row in order])
    return replace(
        record, table=table, tensors=[record.tensors[row] for row in order] if record.tensors else ()
    )


def _telling_order(record: Record, rows: Iterable[_Row], keys: Collection[str]) -> set[str]:
    """Return those of some keys of which a record has the projections or elements of all rows."""
    if not keys:
        return set()
    tells, tensors = record.table.tells(PROJECTIONS), record.tensors or [None] * len(record.table)

    def told(at: int) -> bool:
        tensor = tensors[at]
        return bool(tells[at]) or getattr(tensor, "payload", tensor) is not None

    return {key for row in rows if (key := str(row.key)) in keys and all(map(told, _rows(row.made_of)))}


def _under(tensor: Any, key: TensorKey) -> Any:
    return replace(tensor, key=key) if isinstance(tensor, TensorRecord) else tensor


def _made(record: Record, key: TensorKey, parts: Parts) -> TensorRecord | None:
    """Return the tensor that parts make: with elements where all have them, else with statistics alone.

    None where statistics do not make any.
    """
    table, first = record.table, parts.rows[0]
    if len(dtypes := dict.fromkeys(table.dtypes[row] for row in parts.rows)) > 1:
        raise RequestError(f"{key}: parts of different types: {', '.join(dtypes)}")
    kind = table.op_types[first].partition("[")[0]
    found = TensorOfParts(key, kind, table.dtypes[first], _shape(table, parts), path=record.path)
    try:
        elements = elements_of(parts, record.tensors) if record.tensors else None
    except RequestError as error:
        path = getattr(record.tensors[first], "path", record.path)
        raise RequestError(f"{key} of {path}: {error}") from error
    if elements is not None and elements.itemsize * _BYTE == BY_NAME[found.dtype].bits:
        path = _folder() / f"{len([*_folder().iterdir()])}.bin"
        path.write_bytes(np.ascontiguousarray(elements).tobytes())
        keys = {at: TensorKey.parse(table.keys[at]) for at in parts.rows}
        held = {at: (_rank_of(one), _shape(table, at)) for at, one in keys.items()}
        payload = Payload(path, 0, elements.nbytes)
        return replace(found, payload=payload, shape=elements.shape, path=path, parts=parts, held=held)
    if _needs_elements(parts):
        return None
    told = [
        _told(table, at) or _computed(record.tensors[at] if record.tensors else None) for at in parts.rows
    ]
    return found if None in told else replace(found, stats=Stats.of_parts([one for one in told if one]))


def _told(table: StatsTable, row: int) -> Stats | None:
    """Return a tensor's statistics in a table; None without any."""
    if not table.known[row].any():
        return None
    told = dict(zip(STATISTICS, table.statistics(row), strict=True))
    return Stats(count=table.counts[row], **told, digits=int(table.digits[row]) or None)  # type: ignore[arg-type]


def _computed(tensor: Any) -> Stats | None:
    if not isinstance(tensor, TensorRecord) or tensor.payload is None or tensor.shape is None:
        return None
    return payload_stats(tensor.payload, tensor.dtype, math.prod(tensor.shape))


def _needs_elements(parts: Parts | int) -> bool:
    if isinstance(parts, int):
        return False
    shared = any(ranks > 1 for _, ranks in parts.pieces)
    return parts.how == "partial" or shared or any(map(_needs_elements, parts.parts))


def notes_on_ranks(pairs: Iterable[tuple[TensorKey, Pair]]) -> Iterator[str]:
    """Yield notes on tensors joined from ranks of which only some are out of tolerance."""
    found: defaultdict[tuple[int, ...], dict[str, None]] = defaultdict(dict)
    for key, pair in pairs:
        both = pair.golden, pair.actual
        joined = [
            (one.parts, one.held)
            for one in both
            if isinstance(one, TensorOfParts)
            and one.parts
            and len({rank for rank, _ in one.held.values()}) > 1
        ]
        if len(joined) != 1 or _has_sums(joined[0][0]):
            continue
        parts, held = joined[0]
        sides = [
            elements_of(0, [one]) if isinstance(one, TensorRecord) else one.array() for one in both if one
        ]
        owners = elements_of(parts, {at: np.full(shape or (), rank) for at, (rank, shape) in held.items()})
        wide = [np.asarray(one).astype(np.complex128) for one in (*sides, owners) if one is not None]
        if len(wide) < 3 or len({one.shape for one in wide}) > 1:  # noqa: PLR2004 - one is missing
            continue
        golden, actual, owner = wide
        with np.errstate(invalid="ignore"):
            equal = (actual == golden) | (np.isnan(actual) & np.isnan(golden))
            apart = np.where(equal, 0.0, np.abs(actual - golden))
        apart[np.isnan(apart)] = np.inf
        sizes = np.where(np.isfinite(golden), np.abs(golden), 0.0)
        most = pair.atol + pair.rtol * sizes.max(initial=0.0)
        every, off = {rank for rank, _ in held.values()}, []
        for rank in sorted(every):  # as with_elements judges the whole
            own = owner.real == rank
            far = pair.atol * math.sqrt(own.sum()) + pair.rtol * np.linalg.norm(sizes[own])
            if apart[own].max(initial=0.0) > most or np.linalg.norm(apart[own]) > far:
                off.append(rank)
        if 0 < len(off) < len(every):
            found[tuple(off)][key.layer] = None
    for ranks, layers in found.items():
        yield said(
            "out of tolerance only in the parts of rank {ranks}: {names}",
            ranks=", ".join(map(str, ranks)),
            names=first_of(layers),
        )


def _is_unordered(made_of: Parts | int) -> bool:
    return isinstance(made_of, Parts) and (
        made_of.how == _UNORDERED or any(map(_is_unordered, made_of.parts))
    )


def _has_sums(parts: Parts | int) -> bool:
    return isinstance(parts, Parts) and (parts.how == "partial" or any(map(_has_sums, parts.parts)))


def elements_of(made_of: Parts | int, tensors: Sequence[Any] | Mapping[int, Any]) -> np.ndarray | None:
    """Return the elements of a whole tensor; None where a part has none of a byte or more, or no order."""
    if isinstance(made_of, int):
        tensor = tensors[made_of]
        if isinstance(tensor, np.ndarray):
            return tensor
        if not isinstance(tensor, TensorRecord):
            return None if tensor is None else np.asarray(tensor.array())  # a golden's own
        known = BY_NAME.get(tensor.dtype)
        if tensor.payload is None or known is None or known.bits < _BYTE:
            return None
        return np.asarray(load(tensor.payload, tensor.dtype, tensor.shape))
    axis, how, parts, pieces, copy = made_of
    held = [one for part in parts if (one := elements_of(part, tensors)) is not None]
    if len(held) < len(parts) or how == _UNORDERED:
        return None
    if how == "partial":
        return np.asarray(sum(one.astype(np.float64) for one in held)).astype(held[0].dtype)
    shapes = ", ".join(str(list(one.shape)) for one in held)
    try:
        if how == "zigzag":
            halves = [np.split(one, 2, axis) for one in held]
            held = [one for one, _ in halves] + [other for _, other in reversed(halves)]
        elif pieces:
            ends = np.cumsum([size for size, _ in pieces])[:-1]
            cut = zip(pieces, zip(*(np.split(one, ends, axis) for one in held), strict=True), strict=True)
            held = [one for (_, shared), some in cut for one in some[copy % shared :: shared]]
        return np.asarray(np.concatenate(held, axis))
    except ValueError as error:
        raise RequestError(
            f"parts of {shapes} make no whole along axis {axis}{how and f' in {how} order'}"
        ) from error
