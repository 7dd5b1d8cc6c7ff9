"""Numbers that stand for NaN and infinities in tensors whose finite elements are all 0.

Projections take such elements for 0. Of a mask of 0 and -Inf nothing would be left, and rows of it could
change places unseen: there +Inf stands for 1, -Inf for -1 and NaN for 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_npudump.dump.stats.float_elements import Elements

_NAN = 2.0
_FIRST = 16
"""Units that are looked at first: most tensors have a number there."""


def marks_of(elements: Elements, units: np.ndarray, count: int) -> NDArray[np.int8] | None:
    """The numbers for the elements of a piece, and 0 for each 0.

    Args:
        elements: how it is read.
        units: the piece.
        count: elements of it.

    Returns:
        int8 of shape (count,); None where a finite element is not 0.
    """
    first = units[:_FIRST]
    if _marked(elements, first, min(first.size * elements.per_unit, count)) is None:
        return None
    return _marked(elements, units, count)


def _marked(elements: Elements, units: np.ndarray, count: int) -> NDArray[np.int8] | None:
    values = elements.wide(units, count, count)
    finite = np.isfinite(values)
    if values[finite].any():
        return None
    return np.where(finite, 0.0, np.where(np.isnan(values), _NAN, np.sign(values))).astype(np.int8)
