"""Bounds that were measured so wide that they see nothing of a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.stats.numbers import allowed_differences
from pytest_npudump.compare.stats.pairs import Pairs
from pytest_npudump.compare.stats.projection_distances import told
from pytest_npudump.dump.table import MEASURED, PROJECTIONS
from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.dump.table import StatsTable

BLIND = "measured bounds so wide that a tensor of zeros would pass"
BLIND_ADVICE = "; judge these layers by a rule, or leave them out"


def blind_bounds(
    pairs: Pairs, judged: NDArray[np.bool_], projected: NDArray[np.bool_], tolerances: Tolerances
) -> NDArray[np.bool_]:
    """Pairs, (m,), whose measured bounds see nothing: zeros would pass in all that is judged of the values.

    Counts of NaN and infinities are judged nevertheless. A tensor of zeros has nothing that could be lost.

    Args:
        pairs: the m tensors.
        judged: (m, 7), the statistics that are compared.
        projected: (m,), those whose projections are compared.
        tolerances: what they may differ by.
    """
    found = np.zeros(len(pairs.here), dtype=np.bool_)
    measured = tolerances.measured
    if measured is None or not measured.noise:
        return found
    golden = pairs.golden.values[pairs.here, :MEASURED]
    cells = judged[:, :MEASURED] & np.isfinite(golden) & (golden != 0)
    asked = np.flatnonzero(cells.any(axis=1)).tolist()
    cells[[row for row in asked if pairs.key(row) not in measured.noise]] = False
    rows, columns = np.nonzero(cells)
    allowed, rules = allowed_differences(pairs, rows, columns, tolerances)
    seen = np.abs(golden[rows, columns]) > allowed
    of_noise = [tolerances.is_measured(rule) for rule in rules]
    found[rows[of_noise]] = True
    found[rows[seen]] = False
    for row in np.flatnonzero(found & projected).tolist():
        found[row] = pairs.rule(row, PROJECTIONS, tolerances).rtol >= 1
    return found


def blind_keys(table: StatsTable, tolerances: Tolerances) -> Sequence[str]:
    """Return the keys of a golden's tensors of which :func:`blind_bounds` see nothing, in its order."""
    every = np.arange(len(table), dtype=np.intp)
    pairs = Pairs(table, table, every, every)
    found = blind_bounds(pairs, table.known, told(table), tolerances.for_layers_of(table.keys))
    return [table.keys[row] for row in np.flatnonzero(found).tolist()]


def describe_blind(keys: Sequence[str]) -> str:
    """Name the tensors of :func:`blind_keys` in one line; "" where there are none."""
    if not keys:
        return ""
    return _(
        "measured bounds so wide that a tensor of zeros would pass: {count} tensors (first: {first}); judge "
        "these layers by a rule, or leave them out"
    ).format(count=len(keys), first=keys[0])
