"""Alignment of a golden's tensors with a dump's, and their order of execution.

Names agree as they are or as CANN writes them into file names: a golden may hold raw names where a
statistics dump has sanitised ones. Where several raw names share one sanitised form, tensors are paired by
order of execution if there are as many on both sides, else not at all: a doubtful pair could pass.

Eager calls of one API are told apart by their occurrence, so one call more would rename all that follow. The
sequences of calls are aligned, by name, dtype and shape, and the dump's calls take their partners' numbers:
just the inserted or lost call is extra or missing, and all others are compared as usual. This cannot make a
comparison pass: it is done only where the two sides hold different calls, and then at least one is extra or
missing in any case. The method is E. W. Myers' "An O(ND) Difference Algorithm and Its Variations" (1986):
exact, and quick where little differs, however often elements repeat.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pytest_npudump.dump.records import TensorKey, TensorRecord, sanitise
from pytest_npudump.dump.tree.keys import is_eager
from pytest_npudump.errors import joined, said
from pytest_npudump.language.text import first_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from pytest_npudump.dump.table import StatsTable


ABSENT = -1
_GUESSED = said("they were paired by their order of execution")
_GIVEN_UP = said("the dump has more or fewer of them than the golden, so none was compared")


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """Tensors of both sides in execution order.

    Attributes:
        golden: row of each tensor in the golden, -1 for a tensor only the dump has.
        actual: row of each tensor in the dump, -1 for a tensor only the golden has.
        notes: what a user should know about the pairing.
    """

    golden: NDArray[np.intp]
    actual: NDArray[np.intp]
    notes: tuple[str, ...] = ()

    @property
    def both(self) -> NDArray[np.bool_]:
        """Mask of the tensors, (n,), that both sides have."""
        return np.asarray((self.golden != ABSENT) & (self.actual != ABSENT))


def align(golden: Sequence[str], actual: Sequence[str]) -> Alignment:
    """Pair the keys of a golden with those of a dump.

    The dump's own order counts; a tensor it lacks stands behind its predecessor in the golden.

    Args:
        golden: texts of keys in execution order, no two alike.
        actual: the same of the dump.
    """
    if golden == actual:
        rows = np.arange(len(golden), dtype=np.intp)
        return Alignment(rows, rows)
    position = {key: row for row, key in enumerate(actual)}
    pairs = {row: position[key] for row, key in enumerate(golden) if key in position}
    notes: tuple[str, ...] = ()
    if len(pairs) < min(len(golden), len(actual)):
        taken = set(pairs.values())
        open_groups = {_group(key) for row, key in enumerate(golden) if row not in pairs}
        open_groups &= {_group(key) for row, key in enumerate(actual) if row not in taken}
        here, there = _members(golden, open_groups), _members(actual, open_groups)
        guessed: list[str] = []
        given_up: list[str] = []
        for group in sorted(open_groups):
            found, doubt = _pair_group(here[group], there[group])
            if found is not None:
                for row in here[group]:
                    pairs.pop(row, None)
                pairs.update(found)
            if doubt:
                (guessed if found else given_up).append(group.layer)
        notes = tuple(
            said(
                "several layers share the file name {names}: {outcome}",
                names=", ".join(map(repr, dict.fromkeys(names))),
                outcome=outcome,
            )
            for names, outcome in ((guessed, _GUESSED), (given_up, _GIVEN_UP))
            if names
        )
    return Alignment(*_merge(len(golden), len(actual), pairs), notes)


def _merge(golden: int, actual: int, pairs: Mapping[int, int]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    missing: defaultdict[int, list[int]] = defaultdict(list)
    anchor = ABSENT
    for row in range(golden):
        if row in pairs:
            anchor = pairs[row]
        else:
            missing[anchor].append(row)
    partner = {there: here for here, there in pairs.items()}
    order = [(row, ABSENT) for row in missing[ABSENT]]
    for there in range(actual):
        order.append((partner.get(there, ABSENT), there))
        if there in missing:
            order.extend((row, ABSENT) for row in missing[there])
    both = np.array(order, dtype=np.intp).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _group(key: str) -> TensorKey:
    parsed = TensorKey.parse(key)
    return replace(parsed, layer=sanitise(parsed.layer), turn=0)


def _members(keys: Sequence[str], groups: set[TensorKey]) -> defaultdict[TensorKey, dict[int, TensorKey]]:
    members: defaultdict[TensorKey, dict[int, TensorKey]] = defaultdict(dict)
    for row, key in enumerate(keys):
        if (group := _group(key)) in groups:
            members[group][row] = TensorKey.parse(key)
    return members


def _pair_group(
    golden: Mapping[int, TensorKey], actual: Mapping[int, TensorKey]
) -> tuple[dict[int, int] | None, bool]:
    """Return pairs among tensors of equal sanitised names, or None to leave them; and if it is a guess."""
    raw_golden = {key.layer for key in golden.values()}
    raw_actual = {key.layer for key in actual.values()}
    plain = [all(sanitise(name) == name for name in names) for names in (raw_golden, raw_actual)]
    if plain[0] == plain[1]:
        return None, False
    names = raw_actual if plain[0] else raw_golden
    if len(names) == 1:
        turns = {key.turn: row for row, key in actual.items()}
        return {row: turns[key.turn] for row, key in golden.items() if key.turn in turns}, False
    if len(golden) == len(actual):
        return dict(zip(golden, actual, strict=True)), True
    return {}, True


LIMIT = 1000
"""Elements on one side only, in all, up to which sequences are aligned: 0.5 s and 8 MB at most."""


def longest_common(one: Sequence[Hashable], other: Sequence[Hashable]) -> list[int] | None:
    """Return for each element of ``one`` its partner in ``other``, -1 where it has none.

    Partners are equal, in order, and as many as there can be. None where more than :data:`LIMIT` elements
    would be without a partner.
    """
    shorter = min(len(one), len(other))
    head = 0
    while head < shorter and one[head] == other[head]:
        head += 1
    tail = 0
    while tail < shorter - head and one[-1 - tail] == other[-1 - tail]:
        tail += 1
    inner = _myers(one[head : len(one) - tail], other[head : len(other) - tail])
    if inner is None:
        return None
    middle = [ABSENT if at == ABSENT else at + head for at in inner]
    return [*range(head), *middle, *range(len(other) - tail, len(other))]


def _myers(one: Sequence[Hashable], other: Sequence[Hashable]) -> list[int] | None:
    # By diagonal: how far into ``one`` it is followed, and the equal runs on the way there.
    reach: dict[int, tuple[int, Any]] = {1: (0, None)}
    for edits in range(min(LIMIT, len(one) + len(other)) + 1):
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and reach[k - 1][0] < reach[k + 1][0])
            x, runs = reach[k + 1] if down else (reach[k - 1][0] + 1, reach[k - 1][1])
            start = x
            while x < len(one) and x - k < len(other) and one[x] == other[x - k]:
                x += 1
            reach[k] = x, (start, x, k, runs) if x > start else runs
        x, runs = reach.get(len(one) - len(other), (0, None))
        if x >= len(one) and (len(one) - len(other) - edits) % 2 == 0:
            partners = [ABSENT] * len(one)
            while runs is not None:
                start, x, k, runs = runs
                partners[start:x] = range(start - k, x - k)
            return partners
    return None


def inverse(partners: Sequence[int], length: int) -> list[int]:
    """Return the partners of the other sequence, which has ``length`` elements."""
    found = [ABSENT] * length
    for here, there in enumerate(partners):
        if there != ABSENT:
            found[there] = here
    return found


def gaps(partners: Sequence[int], length: int) -> list[tuple[range, range]]:
    """Return the runs without partners on either side, between two pairs or an end."""
    found = []
    here = there = 0
    for at, partner in [*enumerate(partners), (len(partners), length)]:
        if partner == ABSENT:
            continue
        if at > here or partner > there:
            found.append((range(here, at), range(there, partner)))
        here, there = at + 1, partner + 1
    return found


def slide(
    elements: Sequence[Hashable], partners: list[int], run: range, agree: Callable[[int, int], bool]
) -> None:
    """Move a run of ``elements`` without partners to where most of its neighbours match theirs.

    Where equal elements lie beside each other, any of them may be the one that was lost; ``agree(here,
    there)`` tells which pairs look right. ``partners`` is changed in place.
    """
    best, shift = 0, 0
    for direction in (-1, 1):
        score = 0
        for steps, (old, new, there) in enumerate(_moves(elements, partners, run, direction), start=1):
            score += agree(new, there) - agree(old, there)
            if score > best:
                best, shift = score, direction * steps
    direction = 1 if shift > 0 else -1
    moves = _moves(elements, partners, run, direction)
    for old, new, there in [move for _, move in zip(range(abs(shift)), moves, strict=False)]:
        partners[old], partners[new] = ABSENT, there


def _moves(
    elements: Sequence[Hashable], partners: Sequence[int], run: range, direction: int
) -> list[tuple[int, int, int]]:
    """Return the changes of each further step of ``run``: (loses its partner, gains it, that partner)."""
    moves = []
    last = ABSENT
    old, new = (run.stop, run.start) if direction > 0 else (run.start - 1, run.stop - 1)
    while 0 <= old < len(elements) and partners[old] != ABSENT and elements[old] == elements[new]:
        there = partners[old]
        if last not in (ABSENT, there - direction):
            break
        moves.append((old, new, there))
        last = there
        old, new = old + direction, new + direction
    return moves


_Group = tuple[int, str, int, int, int, str]
_EXTREMES_AND_MEAN = 3
_LIKELY = 1e-3


class _Call(NamedTuple):
    """One call: the key of its first tensor, and the rows of all by direction and slot."""

    layer: str
    turn: int
    key: TensorKey
    rows: dict[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class _Sequence:
    """Calls of one rank, device and capture in execution order.

    Attributes:
        table: holds them.
        calls: the calls.
        tokens: what tells them apart before their values do: name, and dtype and shape of each tensor.
    """

    table: StatsTable
    calls: Sequence[_Call]
    tokens: Sequence[tuple[object, ...]]

    @classmethod
    def of(cls, table: StatsTable, calls: Sequence[_Call]) -> _Sequence:
        return cls(table, calls, [_token(table, call) for call in calls])

    @property
    def names(self) -> list[str]:
        return [call.layer for call in self.calls]


def number_calls(
    golden: StatsTable, actual: StatsTable
) -> tuple[StatsTable, Mapping[TensorKey, TensorKey], tuple[str, ...]]:
    """Number the eager calls of ``actual`` as those of ``golden``; other tensors keep their keys.

    Returns:
        The dump's table under the keys of its partners, where calls only the dump has have numbers that the
        golden has not; the dump's own key of each tensor that got another one; and which calls were inserted
        or lost.
    """
    if golden.keys == actual.keys or not may_hold_calls(golden.keys) or not may_hold_calls(actual.keys):
        return actual, {}, ()
    here, there = _calls(golden), _calls(actual)
    keys = list(actual.keys)
    notes = []
    for group in [group for group in here if group in there]:
        if _tensors(here[group]) == _tensors(there[group]):
            continue
        partners = _partners(_Sequence.of(golden, here[group]), _Sequence.of(actual, there[group]))
        if partners is None:
            notes.append(
                said(
                    "eager calls were paired by their number: their sequences differ in more than "
                    "{limit} calls",
                    limit=LIMIT,
                )
            )
        elif _renumber(keys, here[group], there[group], partners):
            notes.append(_describe(here[group], there[group], partners))
    own = {
        TensorKey.parse(new): TensorKey.parse(old)
        for new, old in zip(keys, actual.keys, strict=True)
        if new != old
    }
    return replace(actual, keys=tuple(keys)) if own else actual, own, tuple(dict.fromkeys(notes))


def under_golden_keys(
    records: Iterable[TensorRecord], own: Mapping[TensorKey, TensorKey]
) -> tuple[TensorRecord, ...]:
    """Return records of a run under the keys of a numbering; ``own`` has its names."""
    given = {before: key for key, before in own.items()}
    return tuple(
        replace(record, key=given[record.key]) if record.key in given else record for record in records
    )


def may_hold_calls(keys: Iterable[str]) -> bool:
    """Return whether eager calls may be among tensors of these keys: a quick look."""
    return any(key.startswith(("aclnn", "L2Dfx")) or ">" in key for key in keys)


def _calls(table: StatsTable) -> dict[_Group, list[_Call]]:
    """Return the eager calls of each sequence (a rank, device, capture ...), in execution order."""
    calls: dict[str, _Call | None] = {}
    sequences: defaultdict[_Group, list[_Call]] = defaultdict(list)
    for row, text in enumerate(table.keys):
        name, _, tensor = text.rpartition(":")
        if name not in calls:
            key = TensorKey.parse(text)
            calls[name] = _Call(key.layer, key.turn, key, {}) if is_eager(key.layer) else None
            if (new := calls[name]) is not None:
                group = (key.step, key.model, key.load, key.device, key.rank, key.capture)
                sequences[group].append(new)
        if (call := calls[name]) is not None:
            call.rows[tensor] = row
    return sequences


def _tensors(calls: Sequence[_Call]) -> set[tuple[str, int, str]]:
    return {(call.layer, call.turn, name) for call in calls for name in call.rows}


def _partners(golden: _Sequence, actual: _Sequence) -> list[int] | None:
    """Return the partner of each call of the golden; None where the sequences have too little in common."""
    names = golden.names, actual.names
    if names[0] == names[1]:
        return list(range(len(names[0])))
    partners = longest_common(golden.tokens, actual.tokens)
    if partners is None:
        return longest_common(*names)
    _place_gaps(golden, actual, partners)
    for left, right in gaps(partners, len(names[1])):
        inner = longest_common([names[0][at] for at in left], [names[1][at] for at in right]) or ()
        for at, partner in zip(left, inner, strict=False):
            partners[at] = ABSENT if partner == ABSENT else right[partner]
    return partners


def _place_gaps(golden: _Sequence, actual: _Sequence, partners: list[int]) -> None:
    """Have the values decide which of several calls alike was inserted or lost."""

    def agree(left: int, right: int) -> bool:
        here, there = golden.calls[left].rows, actual.calls[right].rows
        return all(
            math.isclose(before, now, rel_tol=_LIKELY) or before != before  # noqa: PLR0124 - NaN: not known
            for name in here.keys() & there.keys()
            for before, now in zip(
                golden.table.values[here[name], :_EXTREMES_AND_MEAN].tolist(),
                actual.table.values[there[name], :_EXTREMES_AND_MEAN].tolist(),
                strict=True,
            )
        )

    for left, right in gaps(partners, len(actual.calls)):
        if left and not right:
            slide(golden.tokens, partners, left, agree)
        elif right and not left:
            turned = inverse(partners, len(actual.calls))
            slide(actual.tokens, turned, right, lambda right, left: agree(left, right))
            partners[:] = inverse(turned, len(golden.calls))


def _token(table: StatsTable, call: _Call) -> tuple[object, ...]:
    tensors = tuple((name, table.dtypes[row], table.shapes[row]) for name, row in sorted(call.rows.items()))
    return (call.layer, tensors)


def _renumber(
    keys: list[str], here: Sequence[_Call], there: Sequence[_Call], partners: Sequence[int]
) -> bool:
    """Give the dump's calls their partners' turns in ``keys``; False where all keep their own."""
    origin = inverse(partners, len(there))
    following: defaultdict[str, int] = defaultdict(int)
    for call in here:
        following[call.layer] = max(following[call.layer], call.turn + 1)
    moved = []
    for at, call in enumerate(there):
        if origin[at] != ABSENT:
            moved.append(call._replace(turn=here[origin[at]].turn))
        else:
            moved.append(call._replace(turn=following[call.layer]))
            following[call.layer] += 1
    if moved == list(there) or _tensors(moved) == _tensors(here):
        return False
    for call in moved:
        for name, row in call.rows.items():
            keys[row] = str(_tensor(call.key, call.turn, name))
    return True


def _tensor(call: TensorKey, turn: int, name: str) -> TensorKey:
    io, _, slot = name.rpartition(".")
    return replace(call, turn=turn, io=io, slot=int(slot))


def _describe(here: Sequence[_Call], there: Sequence[_Call], partners: Sequence[int]) -> str:
    lost = [f"{call.layer} (call {at})" for at, call in enumerate(here, 1) if partners[at - 1] == ABSENT]
    origin = inverse(partners, len(there))
    new = [f"{call.layer} (call {at})" for at, call in enumerate(there, 1) if origin[at - 1] == ABSENT]
    sides = ((f"only in the dump, of {len(there)}", new), (f"only in the golden, of {len(here)}", lost))
    return said(
        "the sequence of eager calls has changed; {found}. The others are numbered as in the golden",
        found=joined("; ", (f"{len(names)} {side}: {first_of(names)}" for side, names in sides if names)),
    )
