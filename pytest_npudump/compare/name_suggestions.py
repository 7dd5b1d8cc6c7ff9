"""Suggestions of a golden's names for a run's layers, where neither side has the other's names.

Layers that only one side has are laid side by side in the order in which they ran, by the types and shapes of
their tensors. What is found is shown, with the number of pairs whose values agree; nothing is compared by it
until a person has put it into a file of names.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from pytest_npudump.compare.stats.alignment import ABSENT, longest_common
from pytest_npudump.dump.records import sanitise
from pytest_npudump.dump.table import MEASURED, StatsTable, layer_of, shape_of, squeezed

_CLOSE = 1e-2
_NUMBER = re.compile(r"\d+")


class Suggestion(NamedTuple):
    """A line for a file of names.

    Attributes:
        run: name or pattern of layers of the run.
        golden: the same of the golden.
        layers: how many it pairs.
        alike: of how many of these the values agree within 1 % of their size, too.
    """

    run: str
    golden: str
    layers: int
    alike: int


def suggested_names(golden: StatsTable, run: StatsTable) -> list[Suggestion]:
    """Return pairs of layers that each side calls otherwise, surest first; those of one pattern in one line.

    Args:
        golden: statistics of one side.
        run: of the other.
    """
    ours, theirs = _rows_by_layer(golden), _rows_by_layer(run)
    spelt = [{sanitise(layer) for layer in side} for side in (ours, theirs)]
    here = [layer for layer in ours if sanitise(layer) not in spelt[1]]
    there = [layer for layer in theirs if sanitise(layer) not in spelt[0]]
    partners = longest_common(
        [_token(golden, ours[layer]) for layer in here], [_token(run, theirs[layer]) for layer in there]
    )
    pairs = [(here[at], there[partner]) for at, partner in enumerate(partners or ()) if partner != ABSENT]
    agree = {
        one: all(
            _values_agree(golden, left, run, right)
            for left, right in zip(ours[one], theirs[other], strict=True)
        )
        for one, other in pairs
    }
    groups: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for one, other in pairs:
        same = _NUMBER.findall(one) == _NUMBER.findall(other)
        names = (_NUMBER.sub("*", other), _NUMBER.sub("*", one)) if same else (other, one)
        groups[names].append(one)
    found = []
    for (name, target), layers in groups.items():
        alike = sum(agree[layer] for layer in layers)
        if len(layers) == 1 and "*" in name:
            name, target = _filled(name, _NUMBER.findall(layers[0])), layers[0]  # noqa: PLW2901
        found.append(Suggestion(name, target, len(layers), alike))
    return sorted(found, key=lambda one: -one.alike / one.layers)


def _filled(pattern: str, numbers: list[str]) -> str:
    first, *others = pattern.split("*")
    return first + "".join(number + text for number, text in zip(numbers, others, strict=True))


def _rows_by_layer(table: StatsTable) -> dict[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for row, key in enumerate(table.keys):
        found[layer_of(key)].append(row)
    return found


def _token(table: StatsTable, rows: list[int]) -> tuple[object, ...]:
    ends = [table.keys[row].rpartition(":")[2] for row in rows]
    shapes = [squeezed(shape_of(table.shapes[row]) or ()) for row in rows]
    return tuple(zip(ends, shapes, strict=True))


def _values_agree(golden: StatsTable, row: int, run: StatsTable, other: int) -> bool:
    known = golden.known[row, :MEASURED] & run.known[other, :MEASURED]
    one, two = golden.values[row, :MEASURED][known], run.values[other, :MEASURED][known]
    return bool(known.any() and np.allclose(one, two, rtol=_CLOSE, atol=_CLOSE * np.abs(one[:2]).max()))
