"""Verdict of indices that differ, by the values that they are of: a tie may be broken either way.

The operator's axis is not in a dump. Where golden and run have both tensors, it is the one along which the
golden's indices are those of its largest or smallest values; in the golden's numerics, these must be equal.
Where only the run has them, and its values match the golden's, its indices are right if they are of the very
extremes that its operator looks for; they may then be others than the golden's only if some of these are
within tolerance of other values. Without a tensor of the values, indices stay as exact as other integers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.stats.verdict import FAIL, Comparison, Verdict
from pytest_npudump.compare.tensors.element_verdict import with_failing
from pytest_npudump.compare.tolerances.presets import SAME
from pytest_npudump.compare.tolerances.upstream import CHOOSING, WIDENED
from pytest_npudump.dump.dtypes import is_exact
from pytest_npudump.dump.records import TensorKey, TensorRecord
from pytest_npudump.errors import said
from pytest_npudump.record.edges import edges_of_lines
from pytest_npudump.record.record import EDGES, Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_npudump.compare.tensors.tensor_pair import Pair
    from pytest_npudump.compare.tolerances.tolerance import Tolerances

    Array = np.ndarray[Any, np.dtype[Any]]

_STRUCTURE = frozenset({"dtype", "shape", "count"})


def without_ties(
    comparison: Comparison,
    golden: Record,
    run: Sequence[Any],
    pairs: Mapping[int, Pair],
    tolerances: Tolerances,
) -> Comparison:
    """Return a comparison in which indices pass that are of values within tolerance of each other.

    Args:
        comparison: statistics and elements.
        golden: whose edges tell what indices are of.
        run: its tensors, by row.
        pairs: tensors of both, by position in the alignment.
        tolerances: of a preset under which a tie may be broken either way, or else nothing passes.
    """
    failing = {verdict.key: verdict for verdict in comparison.failing if verdict.status == FAIL}
    chosen = [key for key, verdict in failing.items() if _chooses(verdict)]
    if not chosen or tolerances.preset not in {SAME, *WIDENED} or EDGES not in golden.blocks:
        return comparison
    table, alignment = comparison.golden, comparison.alignment
    rows = alignment.golden.tolist(), alignment.actual.tolist()
    named = [*comparison.aligned_keys()]
    places = {key: at for at, (key, _) in enumerate(named)}
    of_row = {row: at for at, row in enumerate(rows[0]) if row >= 0}
    edges = edges_of_lines(golden.blocks[EDGES], golden.path.name)
    parents = edges.parents_of([TensorKey.parse(key) for key in table.keys])
    tied = set()
    for key in chosen:
        at = places[key]
        row = rows[0][at]
        read = parents[row][0]
        if not read or not is_exact(table.dtypes[row]):
            continue
        of = of_row[read[0]]
        layer, op_type = named[of][0].layer, named[of][1]
        rule = tolerances.element_rule(layer, table.dtypes[read[0]], table.keys[read[0]], op_type)
        if all(one in pairs and pairs[one].golden and pairs[one].actual for one in (at, of)):
            bounds = (0.0, 0.0) if tolerances.preset == SAME else (rule.rtol, rule.atol)
            found = _is_tied(pairs[at], pairs[of], *bounds)
        else:
            values = places.get(replace(key, slot=0)) if key.slot else None
            sides = [run[rows[1][one]] for one in (at, of, *(() if values is None else (values,)))]
            matching = failing.keys().isdisjoint(named[one][0] for one in (of, values) if one is not None)
            found = matching and _are_extremes(failing[key].op_type, sides, rule.rtol, rule.atol)
        if found:
            tied.add(key)
    if not tied:
        return comparison
    left = tuple(verdict for verdict in comparison.failing if verdict.key not in tied)
    note = said(
        "indices differ where the values at them are within tolerance of each other: {keys}",
        keys=", ".join(map(str, sorted(tied, key=str))),
    )
    without = with_failing(comparison, left, -len(tied))
    return replace(without, remarks=(*without.remarks, note))


def _chooses(verdict: Verdict) -> bool:
    structure = _STRUCTURE.intersection(reason.statistic for reason in verdict.reasons)
    return CHOOSING.fullmatch(verdict.op_type) is not None and not structure


def _is_tied(indices: Pair, values: Pair, rtol: float, atol: float) -> bool:
    """Return whether both sides' indices are of the same values, or of values near each other."""
    from pytest_npudump.compare.tensors.tensor_pair import pair_values  # noqa: PLC0415 - reads files

    chosen, of = pair_values(indices), pair_values(values)
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


def _are_extremes(op_type: str, tensors: Sequence[Any], rtol: float, atol: float) -> bool:
    """Return whether a run's indices are right, of values among which others may be as right.

    Args:
        op_type: the operator that chose them.
        tensors: of the run: indices, what they are of, and where the operator has them the values at them.
        rtol: for the values.
        atol: the same.
    """
    from pytest_npudump.compare.tensors.tensor_pair import Pair, pair_values  # noqa: PLC0415 - as above

    read = [
        pair_values(Pair(one, one, "ND"))
        for one in tensors
        if isinstance(one, TensorRecord) and one.payload is not None
    ]
    arrays = [np.asarray(one[1]) for one in read if one is not None]
    if len(arrays) < len(tensors) or not np.isfinite(arrays[1]).all():
        return False
    indices, values = arrays[0].astype(np.int64), arrays[1].astype(np.float64)
    places = [*_axes(indices, values)]
    if len(places) != 1:  # which axis is not known
        return False
    ((axis, expand),) = places
    indices = np.expand_dims(indices, axis) if expand else indices
    if indices.min() < 0 or indices.max() >= values.shape[axis]:
        return False
    if len(arrays) > 2:  # noqa: PLR2004 - with the values
        wanted = arrays[2].astype(np.float64)
    elif "arg" in op_type.lower() and "sort" not in op_type.lower():
        wanted = (values.min if "min" in op_type.lower() else values.max)(axis, keepdims=True)
    else:
        return False
    mask: Array = np.zeros(values.shape, np.bool_)
    np.put_along_axis(mask, indices, values=True, axis=axis)
    found = np.take_along_axis(values, indices, axis)
    if not np.array_equal(found, wanted) or np.count_nonzero(mask) != indices.size:
        return False
    order = np.argsort(values, axis)
    ranked, mask = (np.moveaxis(np.take_along_axis(one, order, axis), axis, 0) for one in (values, mask))
    near = np.diff(ranked, axis=0) <= 2 * (atol + rtol * float(np.abs(values).max()))
    return bool((near & (mask[1:] | mask[:-1])).any())


def _axes(indices: Array, values: Array) -> Iterator[tuple[int, bool]]:
    """Yield axes of the values that indices may be along, and whether the indices lack it."""
    for axis in range(values.ndim if indices.size else 0):
        others = values.shape[:axis] + values.shape[axis + 1 :]
        if indices.shape == others:
            yield axis, True
        elif indices.ndim == values.ndim and indices.shape[:axis] + indices.shape[axis + 1 :] == others:
            yield axis, False


def _extreme(indices: Array, values: Array, axis: int) -> bool:
    """Return whether indices are those of the largest or the smallest values along an axis, all different."""
    chosen = np.sort(np.take_along_axis(values, indices, axis), axis)
    every, count = np.moveaxis(np.sort(values, axis), axis, 0), indices.shape[axis]
    chosen = np.moveaxis(chosen, axis, 0)
    return np.array_equal(chosen, every[:count]) or np.array_equal(chosen, every[-count:])
