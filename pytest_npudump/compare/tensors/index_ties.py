"""Indices that differ, judged by the values that they are of: other numerics may break a tie otherwise.

The operator's axis is not in a dump. It is the one along which the golden's indices are those of its largest
or smallest values; where there is none, indices stay as exact as other integers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.stats.verdict import FAIL, Comparison, aligned_keys
from pytest_npudump.compare.tensors.element_verdict import with_failing
from pytest_npudump.compare.tensors.tensor_pair import Pair, pair_values
from pytest_npudump.errors import NpudumpError, said

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_npudump.compare.tolerances.tolerance import Tolerances

    Array = np.ndarray[Any, np.dtype[Any]]

_STRUCTURE = frozenset({"dtype", "shape", "count"})


def without_ties(comparison: Comparison, pairs: Mapping[int, Pair], tolerances: Tolerances) -> Comparison:
    """Return a comparison in which indices pass that are of values within tolerance of each other.

    Args:
        comparison: statistics and elements.
        pairs: the tensors, by position in its alignment.
        tolerances: which know what indices are of, under numerics where they may differ.
    """
    if not tolerances.upstream.indexed or not comparison.count(FAIL):
        return comparison
    golden, rows = comparison.golden, comparison.alignment.golden.tolist()
    places = {golden.keys[row]: position for position, row in enumerate(rows) if row >= 0}
    named = [*aligned_keys(golden, comparison.actual, comparison.alignment)]
    known = {verdict.key: verdict for verdict in comparison.failing if verdict.status == FAIL}
    tied = set()
    for text, of in tolerances.upstream.indexed.items():
        at, values = places[text], places[of]
        verdict = known.get(named[at][0])
        if verdict is None or _STRUCTURE.intersection(reason.statistic for reason in verdict.reasons):
            continue
        if {at, values} <= pairs.keys():
            key, op_type = named[values]
            dtype = golden.dtypes[rows[values]]
            rule = tolerances.element_rule(key.layer, dtype, of, op_type)
            if _is_tied(pairs[at], pairs[values], rule.rtol, rule.atol):
                tied.add(verdict.key)
    if not tied:
        return comparison
    failing = tuple(verdict for verdict in comparison.failing if verdict.key not in tied)
    note = said(
        "indices differ where the values at them are within tolerance of each other: {keys}",
        keys=", ".join(map(str, sorted(tied, key=str))),
    )
    found = with_failing(comparison, failing, -len(tied))
    return replace(found, remarks=(*found.remarks, note))


def _is_tied(indices: Pair, values: Pair, rtol: float, atol: float) -> bool:
    try:
        chosen, of = pair_values(indices), pair_values(values)
    except NpudumpError:
        return False
    if chosen is None or of is None:
        return False
    before, now = (np.asarray(array).astype(np.int64) for array in chosen[:2])
    sides = [np.asarray(array).astype(np.float64) for array in of[:2]]
    if before.shape != now.shape or sides[0].shape != sides[1].shape or not np.isfinite(sides).all():
        return False
    for axis, expand in _axes(before, sides[0]):
        one, other = (np.expand_dims(array, axis) if expand else array for array in (before, now))
        size = sides[0].shape[axis]
        both = np.concatenate([one.ravel(), other.ravel()])
        if both.min() < 0 or both.max() >= size or not _extreme(one, sides[0], axis):
            continue
        allowed = 2 * (atol + rtol * float(np.abs(sides[0]).max()))
        apart = (
            np.take_along_axis(side, one, axis) - np.take_along_axis(side, other, axis) for side in sides
        )
        return all(np.abs(difference).max() <= allowed for difference in apart)
    return False


def _axes(indices: Array, values: Array) -> Iterator[tuple[int, bool]]:
    """Yield axes of the values that indices may be along, and whether the indices lack it."""
    for axis in range(values.ndim if indices.size else 0):
        others = values.shape[:axis] + values.shape[axis + 1 :]
        if indices.shape == others:
            yield axis, True
        elif indices.ndim == values.ndim and indices.shape[:axis] + indices.shape[axis + 1 :] == others:
            yield axis, False


def _extreme(indices: Array, values: Array, axis: int) -> bool:
    """Whether indices are those of the largest or the smallest values along an axis, all different ones."""
    chosen = np.sort(np.take_along_axis(values, indices, axis), axis)
    every, count = np.moveaxis(np.sort(values, axis), axis, 0), indices.shape[axis]
    chosen = np.moveaxis(chosen, axis, 0)
    return np.array_equal(chosen, every[:count]) or np.array_equal(chosen, every[-count:])
