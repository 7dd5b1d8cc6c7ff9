"""Statistics of a whole dump in columns: ten thousand tensors are a few arrays, not ten thousand objects."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.dump.columns import FIELDS, Column, TensorColumns, TensorTable
from pytest_npudump.dump.dtypes import UNKNOWN, is_exact
from pytest_npudump.dump.records import TensorKey, TensorRecord
from pytest_npudump.dump.stats.compact_projections import CompactSums
from pytest_npudump.errors import DumpError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence, Set as AbstractSet

    from numpy.typing import NDArray


STATISTICS = ("max", "min", "avg", "l2norm", "nan", "neg_inf", "pos_inf")
"""Columns of :attr:`StatsTable.values`."""

PROJECTIONS = "projections"
"""Name of a tensor's projections in rules and verdicts, which judge them together as one statistic."""

JUDGED = (*STATISTICS, PROJECTIONS)
"""All that a rule of tolerances may be about."""

EXTREMES = 2
"""The first columns, max and min: integers in an integer tensor."""

MEASURED = 4
"""The first columns, max to l2norm, have tolerances; those behind them count elements."""

NEEDED = 3
"""The first columns, max, min and avg, that a producer must compute before it may leave out others, and that
a golden must have where the dump has them."""

UNKNOWN_SHAPE = "?"
_SCALAR_SHAPE = "-"
EXACT_LIMIT = 2**53
"""From here on float64 does not hold every integer."""


@dataclass(frozen=True, slots=True, eq=False)
class StatsTable:
    """Statistics of n tensors in execution order.

    Attributes:
        keys: text of each :class:`TensorKey`, no two alike.
        op_types: operator types; "" where unknown.
        dtypes: names after :mod:`pytest_npudump.dump.dtypes`; ``-`` where unknown.
        shapes: ``1x8x24x96``; ``-`` for a scalar, ``?`` where unknown.
        counts: numbers of elements; where the producer told none, the shape's product; None without either.
        values: float64 (n, 7), one column for each of :data:`STATISTICS`; NaN where not known.
        known: bool (n, 7), which of ``values`` the producer told.
        digits: int8 (n,), significant decimal digits the float values carry; 0 for full precision.
        wide: integers of 2**53 and beyond by (row, column), exact; ``values`` holds them rounded. Only
            cells that are integers by :func:`is_integral`.
        digests: hashes as :attr:`TensorRecord.digest` has them, n of them, or none where there is no hash.
        projections: float64 (n, 8), a row of NaN where a tensor has none; None where no tensor has any.
        projected: bool (n,), which tensors have projections; None as well.
        summed: whether projections are rounded, as :mod:`pytest_npudump.dump.stats.compact_projections` does.
        noise: cells of a golden's column of that name, n of them, or none where the golden has no such
            column; a dump has none.
    """

    keys: tuple[str, ...]
    op_types: tuple[str, ...]
    dtypes: tuple[str, ...]
    shapes: tuple[str, ...]
    counts: tuple[int | None, ...]
    values: NDArray[np.float64]
    known: NDArray[np.bool_]
    digits: NDArray[np.int8]
    wide: Mapping[tuple[int, int], int]
    digests: tuple[str, ...] = ()
    projections: NDArray[np.float64] | None = None
    projected: NDArray[np.bool_] | None = None
    summed: bool = False
    noise: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.keys)

    def value(self, row: int, column: int) -> float | int | None:
        """One statistic as Python has it: exact int where it is one, None where it is unknown."""
        if not self.known.item(row, column):
            return None
        exact = self.wide.get((row, column)) if self.wide else None
        if exact is not None:
            return exact
        number = self.values.item(row, column)
        return int(number) if is_integral(self.dtypes[row], column) and number.is_integer() else number

    def statistics(self, row: int) -> list[float | int | None]:
        """Return all statistics of one tensor, each as :meth:`value` returns it."""
        return [self.value(row, column) for column in range(len(STATISTICS))]

    def tells(self, statistic: str) -> NDArray[np.bool_]:
        """Return which tensors, (n,), have one of :data:`JUDGED`."""
        if statistic != PROJECTIONS:
            return np.asarray(self.known[:, STATISTICS.index(statistic)])
        return np.zeros(len(self), np.bool_) if self.projected is None else self.projected

    def same_rows(self, other: StatsTable) -> NDArray[np.bool_]:
        """Return which rows, (n,), are the same in another table of these tensors, digit for digit."""
        cells = self.dtypes, self.shapes, self.counts, self.digests or ("",) * len(self)
        others = other.dtypes, other.shapes, other.counts, other.digests or ("",) * len(self)
        rows = (zip(*columns, strict=True) for columns in (cells, others))
        found: NDArray[np.bool_] = np.fromiter(map(tuple.__eq__, *rows), np.bool_, len(self))
        found &= (self.known == other.known).all(axis=1) & (self.digits == other.digits)
        found &= ((self.values == other.values) | np.isnan(self.values) & np.isnan(other.values)).all(axis=1)
        if self.wide != other.wide:
            found[[cell[0] for cell, _ in self.wide.items() ^ other.wide.items()]] = False
        one, two = self.projections, other.projections
        if one is None or two is None:
            found &= one is two
        else:
            found &= ((one == two) | np.isnan(one) & np.isnan(two)).all(axis=1)
        return found

    def cells(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> list[float | int | None]:
        """Return k statistics, each as :meth:`value` returns it.

        Args:
            rows: (k,) rows.
            columns: (k,) columns.
        """
        found: list[float | int | None] = self.values[rows, columns].tolist()
        names = {dtype for dtype in set(self.dtypes) if is_exact(dtype)}
        exact = np.fromiter((self.dtypes[row] in names for row in rows.tolist()), np.bool_, len(rows))
        special = ~self.known[rows, columns] | (columns >= MEASURED) | (exact & (columns < EXTREMES))
        for at in np.flatnonzero(special).tolist():
            found[at] = self.value(int(rows[at]), int(columns[at]))
        return found

    @classmethod
    def from_records(cls, records: Iterable[TensorRecord]) -> StatsTable:
        """Put records into columns; their order is kept.

        Raises:
            DumpError: two records claim one key, or a value is beyond the range of float64.
        """
        if isinstance(records, TensorTable):
            keys, op_types, columns = records.texts, records.op_types, records.columns
        else:
            records = tuple(records)
            keys, op_types = tuple([str(record.key) for record in records]), [one.op_type for one in records]
            columns = TensorColumns.of(records)
        _refuse_duplicates(keys, records)
        shapes, dtypes = (
            tuple(map(shape_text, columns.shape)),
            tuple([one or UNKNOWN for one in columns.dtype]),
        )
        known, values, wide = _numbers([columns.stats[FIELDS.index(name)] for name in STATISTICS], dtypes)
        counts = list(map(shape_count, shapes))
        if (told := columns.stats[0]) is not None:
            counts = [other if one is None else one for one, other in zip(told, counts, strict=True)]
        digits = np.maximum(np.array(columns.digits, np.int8), 0)
        telling = known.any(axis=1)
        found = digits[telling]
        if found.size and (found == found[0]).all():
            digits[~telling] = found[0]
        return cls(
            keys=keys,
            op_types=tuple(op_types),
            dtypes=dtypes,
            shapes=shapes,
            counts=tuple(counts),
            values=values,
            known=known,
            digits=digits,
            wide=wide,
            digests=tuple(columns.digest) if any(columns.digest) else (),
            **_projection_columns(columns.projections, len(shapes)),
        )

    def without_projections_of(self, keys: AbstractSet[str]) -> StatsTable:
        """The same, where some tensors have no projections."""
        if self.projected is None or keys.isdisjoint(self.keys):
            return self
        projected = self.projected & np.array([key not in keys for key in self.keys], np.bool_)
        return replace(self, projected=projected)

    def under_names(self, names: Mapping[str, str]) -> StatsTable:
        """The same with other names of some layers."""
        told = [(key, names.get(layer_of(key))) for key in self.keys]
        keys = [str(replace(TensorKey.parse(key), layer=name)) if name else key for key, name in told]
        return replace(self, keys=tuple(keys))

    def with_projections(self, sums: Mapping[int, Sequence[float]]) -> StatsTable:
        """The same, with the projections of some rows in place of any there are."""
        return replace(self, **_projection_columns(sums, len(self)))


def _refuse_duplicates(keys: Sequence[str], records: Sequence[TensorRecord]) -> None:
    if len(frozenset(keys)) == len(keys):
        return
    seen: dict[str, int] = {}
    for row, key in enumerate(keys):
        if key in seen:
            one, other = records[row], records[seen[key]]
            raise DumpError(
                f"{one.path} and {other.path} both claim the tensor {key}: two runs may have dumped "
                "into one directory; give each run an empty one"
            )
        seen[key] = row


def is_count(statistic: str) -> bool:
    """Return whether a statistic counts elements, so that there is no tolerance for it."""
    return statistic in STATISTICS[MEASURED:]


def _projection_columns(sums: Mapping[int, Sequence[float]], count: int) -> dict[str, Any]:
    if not sums:
        return {"projections": None, "projected": None, "summed": False}
    rows = np.fromiter(sums, np.intp, len(sums))
    found = np.full((count, len(next(iter(sums.values())))), np.nan)
    found[rows] = list(sums.values())
    projected = np.zeros(count, np.bool_)
    projected[rows] = True
    summed = all(isinstance(one, CompactSums) for one in sums.values())
    return {"projections": found, "projected": projected, "summed": summed}


def is_integral(dtype: str, column: int) -> bool:
    """Return whether a statistic is an integer: a count, or an extreme of a tensor of integers."""
    return column >= MEASURED or (column < EXTREMES and is_exact(dtype))


@lru_cache(maxsize=4096)
def shape_text(shape: tuple[int, ...] | None) -> str:
    """``(1, 8)`` as ``1x8``, ``()`` as ``-``, None as ``?``."""
    return UNKNOWN_SHAPE if shape is None else "x".join(map(str, shape)) or _SCALAR_SHAPE


@lru_cache(maxsize=4096)
def shape_count(shape: str) -> int | None:
    """Elements of a tensor whose shape reads ``shape``; None where that is unknown."""
    dims = shape_of(shape)
    return None if dims is None or any(dim < 0 for dim in dims) else math.prod(dims)


def shape_of(shape: str) -> tuple[int, ...] | None:
    """Parse the text of :func:`shape_text`."""
    if shape == UNKNOWN_SHAPE:
        return None
    return () if shape == _SCALAR_SHAPE else tuple([int(dim) for dim in shape.split("x")])


def layer_of(key: str) -> str:
    """Name of the layer in the text of a :class:`TensorKey`."""
    head = key.rpartition(":")[0].partition("#")[0]
    return TensorKey.parse(key).layer if "%" in head else head


def sanitised_key(key: str) -> str:
    """Return the text of a key with the layer's name as file names carry it, from the text of any."""
    return str(TensorKey.parse(key).sanitised)


def squeezed(shape: Iterable[int]) -> tuple[int, ...]:
    """Return a shape without axes of one element, which devices add and take away."""
    return tuple(size for size in shape if size != 1)


def _numbers(
    stats: Sequence[Column | None], dtypes: Sequence[str]
) -> tuple[NDArray[np.bool_], NDArray[np.float64], dict[tuple[int, int], int]]:
    """Statistics in columns as :class:`StatsTable` has them: known, values, wide."""
    known = np.zeros((len(dtypes), len(stats)), np.bool_)
    values = np.full((len(dtypes), len(stats)), np.nan)
    wide = {}
    for at, column in enumerate(stats):
        if column is None:
            continue
        whole = isinstance(column, array) or None not in column
        known[:, at] = True if whole else [value is not None for value in column]
        try:
            # A signalling NaN makes every operation warn; the values are quiet behind this.
            with np.errstate(invalid="ignore"):
                values[:, at] = np.array(column, np.float64)
        except OverflowError:
            raise DumpError("a statistic of the dump is an integer beyond the range of float64") from None
        for row in np.flatnonzero(np.abs(values[:, at]) >= EXACT_LIMIT).tolist():
            if is_integral(dtypes[row], at) and isinstance(column[row], (int, np.integer)):
                wide[row, at] = int(column[row])
    values[np.isnan(values)] = np.nan
    return known, values, wide
