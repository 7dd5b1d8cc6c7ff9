"""The tensors that both sides of a comparison of statistics have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npudump.dump.dtypes import UNKNOWN
from pytest_npudump.dump.records import sanitise
from pytest_npudump.dump.table import layer_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
    from pytest_npudump.dump.table import StatsTable


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """The tensors both sides have.

    Attributes:
        golden, actual: the two tables.
        here, there: (m,) their rows, in execution order.
    """

    golden: StatsTable
    actual: StatsTable
    here: NDArray[np.intp]
    there: NDArray[np.intp]

    def known(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which statistics either side tells, (m, 7) each."""
        return self.golden.known[self.here], self.actual.known[self.there]

    def key(self, row: int) -> str:
        """The golden's key of the pair at position ``row``."""
        return self.golden.keys[int(self.here[row])]

    def dtype(self, row: int) -> str:
        """The type of a pair: the golden's, or the actual's where the golden does not know it."""
        found = self.golden.dtypes[int(self.here[row])]
        return self.actual.dtypes[int(self.there[row])] if found == UNKNOWN else found

    def types(self, rows: NDArray[np.intp]) -> list[str]:
        """The types of the k pairs at positions ``rows``, (k,), as :meth:`dtype` tells them."""
        golden, actual = self.golden.dtypes, self.actual.dtypes
        found = [golden[row] for row in self.here[rows].tolist()]
        if UNKNOWN in found:
            there = self.there[rows].tolist()
            return [actual[at] if name == UNKNOWN else name for name, at in zip(found, there, strict=True)]
        return found

    def layer(self, row: int) -> str:
        """The name of a pair's layer, raw where either side knows that."""
        golden = layer_of(self.golden.keys[int(self.here[row])])
        actual = layer_of(self.actual.keys[int(self.there[row])])
        return golden if golden == actual or sanitise(golden) != golden else actual

    def op_type(self, row: int) -> str:
        """The type of a pair's operator, "" where neither side knows it: goldens do not."""
        return self.actual.op_types[int(self.there[row])] or self.golden.op_types[int(self.here[row])]

    def rule(self, row: int, statistic: str, tolerances: Tolerances) -> Rule:
        """The rule that decides about one statistic of the pair at position ``row``."""
        own = self.key(row), self.op_type(row)
        return tolerances.decide(self.layer(row), self.dtype(row), statistic, *own)

    def values(self, row: int, column: int) -> tuple[float | int | None, float | int | None]:
        """One statistic of the pair at position ``row``, on either side."""
        golden = self.golden.value(int(self.here[row]), column)
        return golden, self.actual.value(int(self.there[row]), column)
