"""How many tensors have bounds by measurement: where what was measured is wider than the preset."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.stats.order import ABSENT
from pytest_npudump.compare.stats.pairs import Pairs
from pytest_npudump.compare.stats.projection_distances import told
from pytest_npudump.dump.table import MEASURED
from pytest_npudump.record.noise import MEASURABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.compare.stats.verdict import Comparison
    from pytest_npudump.compare.tolerances.tolerance import Tolerances


def bounds_by_measurement(comparison: Comparison, tolerances: Tolerances) -> int:
    """Count the compared tensors of which a measured bound decides about a statistic that the golden tells.

    Few tensors are wider than their preset: one look at each finds these, and the rules are asked for them
    alone.

    Args:
        comparison: of a run with the golden.
        tolerances: what it was judged by.
    """
    measured = tolerances.measured
    if measured is None or not measured.noise:
        return 0
    here, there = comparison.alignment.golden, comparison.alignment.actual
    both = (here != ABSENT) & (there != ABSENT)
    pairs = Pairs(comparison.golden, comparison.actual, here[both], there[both])
    every = np.arange(len(pairs.here), dtype=np.intp)
    dtypes = pairs.types(every)
    presets = tolerances.having(lambda _rule: False)
    lowest = {dtype: min(_floors(presets, "", dtype, "")) for dtype in set(dtypes)}
    keys, noise, factor = comparison.golden.keys, measured.noise, measured.factor
    wide = []
    for row, (at, dtype) in enumerate(zip(pairs.here.tolist(), dtypes, strict=True)):
        if (key := keys[at]) in noise:
            found, least = noise[key], lowest[dtype]
            if factor * max(found.largest) > least or factor * found.projections > least:
                wide.append(row)
    tolerances = tolerances.for_layers_of(keys, comparison.actual.keys)
    return sum(_decides(pairs, wide, dtypes, tolerances))


def _decides(
    pairs: Pairs, rows: Sequence[int], dtypes: Sequence[str], tolerances: Tolerances
) -> Sequence[bool]:
    measured = tolerances.measured
    assert measured is not None  # noqa: S101 - checked by the caller
    by_layer, by_type = tolerances.names_layers, tolerances.names_op_types
    at = pairs.here[rows]
    finite = pairs.golden.known[at, :MEASURED] & np.isfinite(pairs.golden.values[at, :MEASURED])
    tells = np.column_stack([finite, told(pairs.golden)[at]]).tolist()
    floors: dict[tuple[str, str, str], Sequence[float]] = {}
    found = []
    for row, cells in zip(rows, tells, strict=True):
        own = (pairs.layer(row) if by_layer else "", dtypes[row], pairs.op_type(row) if by_type else "")
        if own not in floors:
            floors[own] = _floors(tolerances, *own)
        noise = measured.noise[pairs.key(row)]
        values = (*noise.largest, noise.projections)
        of_row = zip(cells, values, floors[own], strict=True)
        found.append(any(tell and floor < measured.factor * value < inf for tell, value, floor in of_row))
    return found


def _floors(tolerances: Tolerances, layer: str, dtype: str, op_type: str) -> Sequence[float]:
    return [tolerances.unmeasured_rtol(layer, dtype, statistic, op_type) for statistic in MEASURABLE]
