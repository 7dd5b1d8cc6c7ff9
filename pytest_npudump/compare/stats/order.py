"""Which tensor of a golden is which of a dump, and in which order they were computed.

Names agree as they are or as CANN writes them into file names: a golden may hold raw names where a
statistics dump has sanitised ones. Where several raw names share one sanitised form, tensors are paired by
order of execution if there are as many on both sides, else not at all: a doubtful pair could pass.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.records import TensorKey, sanitise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

ABSENT = -1
_GUESSED = "they were told apart by their order of execution"
_GIVEN_UP = "the dump has more or fewer of them than the golden, so none was compared"


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
        notes = _pair_sanitised(golden, actual, pairs)
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


def _pair_sanitised(golden: Sequence[str], actual: Sequence[str], pairs: dict[int, int]) -> tuple[str, ...]:
    """Add pairs of a raw and a sanitised name to ``pairs``, and undo those that only look alike."""
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
    return tuple(
        f"several layers share the file name {', '.join(map(repr, dict.fromkeys(names)))}: {outcome}"
        for names, outcome in ((guessed, _GUESSED), (given_up, _GIVEN_UP))
        if names
    )


def _group(key: str) -> TensorKey:
    parsed = TensorKey.parse(key)
    return replace(parsed, layer=sanitise(parsed.layer), turn=0)


def _members(keys: Sequence[str], groups: set[TensorKey]) -> defaultdict[TensorKey, dict[int, TensorKey]]:
    members: defaultdict[TensorKey, dict[int, TensorKey]] = defaultdict(dict)
    for row, key in enumerate(keys):
        group = _group(key)
        if group in groups:
            members[group][row] = TensorKey.parse(key)
    return members


def _pair_group(
    golden: Mapping[int, TensorKey], actual: Mapping[int, TensorKey]
) -> tuple[dict[int, int] | None, bool]:
    """Pairs among tensors whose sanitised names agree, or None to leave them; and whether it is a guess."""
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
