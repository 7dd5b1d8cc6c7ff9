"""Eager calls of a dump numbered as those of a golden, where a call was inserted or lost.

Calls of one API are told apart by their occurrence, so one call more would rename all that follow. Here the
sequences of calls are aligned, by name, dtype and shape, and the dump's calls take their partners' numbers:
just the inserted or lost call is extra or missing, and all others are compared as usual.

This cannot make a comparison pass: it is done only where the two sides hold different calls, and then at
least one is extra or missing in any case.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from pytest_npudump.compare.stats.alignment import ALONE, LIMIT, gaps, inverse, longest_common, slide
from pytest_npudump.dump.records import TensorKey
from pytest_npudump.dump.tree.keys import is_eager
from pytest_npudump.language.text import first_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_npudump.dump.records import TensorRecord
    from pytest_npudump.dump.table import StatsTable

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


@dataclass(frozen=True, slots=True)
class Numbered:
    """A dump whose eager calls are numbered as the golden's.

    Attributes:
        table: the dump's table under the keys of its partners; calls only the dump has have numbers that the
            golden has not.
        own: the dump's own key of each tensor that got another one.
        notes: which calls were inserted or lost.
    """

    table: StatsTable
    own: Mapping[TensorKey, TensorKey]
    notes: tuple[str, ...] = ()


def number_calls(golden: StatsTable, actual: StatsTable) -> Numbered:
    """Number the eager calls of ``actual`` as those of ``golden``; other tensors keep their keys."""
    if golden.keys == actual.keys or not may_hold_calls(golden.keys) or not may_hold_calls(actual.keys):
        return Numbered(actual, {})
    here, there = _calls(golden), _calls(actual)
    keys = list(actual.keys)
    notes = []
    for group in [group for group in here if group in there]:
        if _tensors(here[group]) == _tensors(there[group]):
            continue
        partners = _partners(_Sequence.of(golden, here[group]), _Sequence.of(actual, there[group]))
        if partners is None:
            notes.append(
                f"eager calls were paired by their number: their sequences differ in more than {LIMIT} calls"
            )
        elif _renumber(keys, here[group], there[group], partners):
            notes.append(_describe(here[group], there[group], partners))
    own = {
        TensorKey.parse(new): TensorKey.parse(old)
        for new, old in zip(keys, actual.keys, strict=True)
        if new != old
    }
    return Numbered(replace(actual, keys=tuple(keys)) if own else actual, own, tuple(dict.fromkeys(notes)))


def under_golden_keys(
    records: Iterable[TensorRecord], own: Mapping[TensorKey, TensorKey]
) -> tuple[TensorRecord, ...]:
    """Return records of a run under the keys that a numbering gave them; ``own`` is what it says."""
    given = {before: key for key, before in own.items()}
    return tuple(
        replace(record, key=given[record.key]) if record.key in given else record for record in records
    )


def may_hold_calls(keys: Iterable[str]) -> bool:
    """Whether eager calls may be among tensors of these keys: a quick look."""
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
        call = calls[name]
        if call is not None:
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
            partners[at] = ALONE if partner == ALONE else right[partner]
    return partners


def _place_gaps(golden: _Sequence, actual: _Sequence, partners: list[int]) -> None:
    """Have the values decide which of several calls alike was inserted or lost."""

    def agree(left: int, right: int) -> bool:
        return _agree(golden, left, actual, right)

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


def _agree(golden: _Sequence, left: int, actual: _Sequence, right: int) -> bool:
    """Whether two calls look alike in value: a hint where to look, no judgement."""
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
        if origin[at] != ALONE:
            moved.append(call._replace(turn=here[origin[at]].turn))
        else:
            moved.append(call._replace(turn=following[call.layer]))
            following[call.layer] += 1
    if moved == list(there) or _tensors(moved) == _tensors(here):
        return False
    for call in moved:
        if call.turn != call.key.turn:
            for name, row in call.rows.items():
                keys[row] = str(_tensor(call.key, call.turn, name))
    return True


def _tensor(call: TensorKey, turn: int, name: str) -> TensorKey:
    io, _, slot = name.rpartition(".")
    return replace(call, turn=turn, io=io, slot=int(slot))


def _describe(here: Sequence[_Call], there: Sequence[_Call], partners: Sequence[int]) -> str:
    lost = [f"{call.layer} (call {at})" for at, call in enumerate(here, 1) if partners[at - 1] == ALONE]
    origin = inverse(partners, len(there))
    new = [f"{call.layer} (call {at})" for at, call in enumerate(there, 1) if origin[at - 1] == ALONE]
    sides = ((f"only in the dump, of {len(there)}", new), (f"only in the golden, of {len(here)}", lost))
    found = "; ".join(f"{len(names)} {side}: {first_of(names)}" for side, names in sides if names)
    return f"the sequence of eager calls has changed; {found}. The others are numbered as in the golden"
