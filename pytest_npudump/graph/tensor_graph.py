"""The tensors of a comparison as a graph: which of its rows feed which."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.stats.alignment import ABSENT
from pytest_npudump.compare.stats.verdict import GRAPH_INPUT, aligned_keys
from pytest_npudump.dump.records import sanitise
from pytest_npudump.graph.edges import SEVERAL, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_npudump.compare.stats.verdict import Comparison
    from pytest_npudump.dump.records import TensorKey
    from pytest_npudump.graph.edges import Edges, Port

_LAYOUT = re.compile(
    r"(?:aclnn)?(?:inplace)?(?:reshape|transposed?|permute|(?:un)?squeeze(?:v[23])?|expanddims|flatten(?:v2)?"
    r"|identity|cast|copy|contiguous|view(?:copy)?|transdata|transshape|reformat|load|depend)",
    re.IGNORECASE,
)
"""Types of operators that move or convert values and compute none: of ONNX, GE, MindSpore and torch_npu.
coremltools looks through the same kinds where it walks back (``debugging_utils.py``)."""


@dataclass(frozen=True, slots=True)
class TensorGraph:
    """Tensors by their positions in a comparison's alignment.

    Attributes:
        keys: which tensors.
        op_types: types of their operators; "" where unknown.
        parents: positions of what feeds each: an output has the dumped inputs of its operator, or else the
            outputs that these come from; an input has the output it comes from.
        known: whether these are all.
    """

    keys: Sequence[TensorKey]
    op_types: Sequence[str]
    parents: Sequence[tuple[int, ...]]
    known: Sequence[bool]

    @classmethod
    def of(cls, comparison: Comparison, edges: Edges) -> TensorGraph:
        """Join the tensors of both sides of a comparison by edges."""
        rows = aligned_keys(comparison.golden, comparison.actual, comparison.alignment)
        keys, op_types = zip(*rows, strict=True) if len(comparison.alignment.golden) else ((), ())
        within = edges.restricted({key.layer for key in keys})
        places = _Places(keys)
        found = [_fed_by(key, within.feeds.get(sanitise(key.layer)), places) for key in keys]
        for position, first in _dumped_again(keys, op_types, comparison):
            found[position] = (first,), True
        return cls(keys, op_types, [parents for parents, _ in found], [known for _, known in found])

    def moves_only(self, position: int) -> bool:
        """Whether the operator of a tensor computes nothing."""
        return _LAYOUT.fullmatch(self.op_types[position]) is not None


class _Places:
    """Positions by execution and direction, and executions by layer."""

    def __init__(self, keys: Iterable[TensorKey]) -> None:
        self._slots: defaultdict[TensorKey, dict[int, int]] = defaultdict(dict)
        self._turns: defaultdict[TensorKey, list[TensorKey]] = defaultdict(list)
        for position, key in enumerate(keys):
            place = replace(key.sanitised, slot=0)
            if place not in self._slots:
                self._turns[replace(place, turn=0)].append(place)
            self._slots[place][key.slot] = position

    def inputs(self, key: TensorKey) -> dict[int, int]:
        """Positions of the inputs of the execution that ``key`` belongs to, by slot."""
        return self._slots.get(replace(key.sanitised, io="input", slot=0), {})

    def output(self, port: Port, consumer: TensorKey) -> int | None:
        """Position of what a port put out for a consumer: in the same turn, or in the only one there was."""
        place = replace(consumer, layer=sanitise(port.layer), io="output", slot=0)
        if place not in self._slots:
            turns = self._turns.get(replace(place, turn=0), ())
            if len(turns) != 1:
                return None
            place = turns[0]
        return self._slots[place].get(port.slot)


def _dumped_again(
    keys: Sequence[TensorKey], op_types: Sequence[str], comparison: Comparison
) -> Iterator[tuple[int, int]]:
    """Yield positions of inputs of a graph that stand there before, and where.

    GE dumps such an input once for each operator that reads it, as one more turn of the same values.
    """
    firsts: dict[TensorKey, int] = {}
    values, rows = comparison.actual.values, comparison.alignment.actual
    for position, (key, op_type) in enumerate(zip(keys, op_types, strict=True)):
        if op_type != GRAPH_INPUT or rows[position] == ABSENT:
            continue
        first = firsts.setdefault(replace(key.sanitised, turn=0), position)
        if first != position and np.array_equal(values[rows[first]], values[rows[position]], equal_nan=True):
            yield position, first


def _fed_by(
    key: TensorKey, ports: Sequence[Port | None] | None, places: _Places
) -> tuple[tuple[int, ...], bool]:
    """Return the positions of what feeds a tensor, and whether they are all."""
    if key.io != "input" and (inputs := places.inputs(key)):
        return tuple(inputs[slot] for slot in sorted(inputs)), True
    if ports is None:
        return (), False
    if key.io == "input" and key.slot < len(ports) and ports[key.slot] not in (UNKNOWN, SEVERAL):
        ports = (ports[key.slot],)
    named = [port for port in ports if port not in (None, UNKNOWN, SEVERAL)]
    found = [places.output(port, key) for port in named if port is not None]
    known = UNKNOWN not in ports and None not in found
    return tuple(dict.fromkeys(position for position in found if position is not None)), known
