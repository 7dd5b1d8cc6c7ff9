"""Statistics and projections of one tensor, from one pass over its pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.dump.stats.accumulators import Ordered
from pytest_npudump.dump.stats.float import Kernel
from pytest_npudump.dump.unguarded import replace

if TYPE_CHECKING:
    import numpy as np

    from pytest_npudump.dump.records import Stats
    from pytest_npudump.dump.stats.accumulators import Accumulator
    from pytest_npudump.dump.stats.projections import Projector


class Projected:
    """What the statistics and the projections of one tensor add up to.

    Args:
        accumulator: of the statistics.
        projector: of the projections; None leaves them out.
    """

    def __init__(self, accumulator: Accumulator, projector: Projector | None) -> None:
        self.dtype = accumulator.dtype
        self._accumulator = accumulator
        self._projector = projector
        kernel = accumulator.kernel if isinstance(accumulator, Ordered) else None
        self._kernel = kernel if isinstance(kernel, Kernel) else None

    def add(self, piece: np.ndarray) -> None:
        """Add a piece, as :meth:`~pytest_npudump.dump.stats.accumulators.Accumulator.add` takes them."""
        if self._projector is None:
            self._accumulator.add(piece)
        elif self._kernel is None:
            self._accumulator.add(piece)
            self._projector.add(piece)
        else:  # types of 16 bits are converted once for both
            found = self._kernel.measure(piece)
            self._kernel.take(found)
            self._projector.add(piece, found.values)

    def stats(self) -> Stats:
        """The statistics of all pieces."""
        found = self._accumulator.totals().stats()
        return found if self._projector is None else replace(found, projections=self._projector.sums())
