"""The pattern of two tensors that lie in files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.patterns.pattern_search import find_pattern
from pytest_npudump.compare.tensors.difference import value_chunks
from pytest_npudump.compare.tensors.tensor_pair import pair_values
from pytest_npudump.errors import NpudumpError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_npudump.compare.patterns.pattern_search import Pattern
    from pytest_npudump.compare.tensors.difference import TensorDifference, Values
    from pytest_npudump.compare.tensors.tensor_pair import Elements, Pair

SEARCHED = 20
"""Tensors of one report that are searched: as many as it shows."""

_DECODED = 1 << 22
"""Elements of the largest tensor that is decoded, or put together from blocks, for it."""


def find_patterns(pairs: Iterable[tuple[int, Pair, Elements]]) -> Mapping[int, Pattern]:
    """Return the patterns of the first :data:`SEARCHED` pairs that differ in their elements, by position."""
    found: dict[int, Pattern] = {}
    searched = 0
    for position, pair, elements in pairs:
        if elements.difference is None or not elements.difference.outside:
            continue
        searched += 1
        if searched > SEARCHED:
            break
        pattern = _pattern(pair, elements.difference)
        if pattern is not None:
            found[position] = pattern
    return found


def _pattern(pair: Pair, difference: TensorDifference) -> Pattern | None:
    try:
        values = pair_values(pair)
    except NpudumpError:
        return None  # what cannot be read was a problem of the comparison before
    if values is None:
        return None
    golden, actual = map(_whole, values[:2])
    if golden is None or actual is None or golden.shape != actual.shape:
        return None
    return find_pattern(golden, actual, difference, layout=values[2])


def _whole(values: Values) -> np.ndarray[Any, np.dtype[Any]] | None:
    if isinstance(values, np.ndarray) and (values.flags.c_contiguous or values.size <= _DECODED):
        return values
    if values.size > _DECODED:
        return None
    pieces = [piece.copy() for piece in value_chunks(values)]
    return np.concatenate(pieces).reshape(values.shape) if pieces else None
