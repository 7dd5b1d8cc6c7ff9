"""Records of statistics files in columns: a hundred thousand tensors are a few lists, not as many objects.

A record is made where one is looked at.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from pytest_npudump.dump.execution import TensorPart
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_npudump.dump.names import Place

_FIELDS = ("count", "max", "min", "avg", "l2norm", "nan", "neg_inf", "pos_inf", "zero")
"""The fields of ``Stats`` but ``digits``, in their order."""

Column = Sequence[Any]
"""A list, or an ``array`` of type ``d`` where all of its values are floats."""


@dataclass(slots=True)
class TensorColumns:
    """What files of statistics say of n tensors.

    Attributes:
        digits: significant decimal digits of the statistics.
        file: the number of each tensor's file; those of one file stand in its order.
        io, slot, dtype, shape, format, size, note, digest: n values each, as ``TensorPart`` has them.
        told: n times whether the tensor has statistics.
        stats: a column for each of :data:`_FIELDS`; None for one that has no value of any tensor.
    """

    digits: int
    file: array[int] = field(default_factory=partial(array, "q"))
    io: list[str] = field(default_factory=list)
    slot: list[int] = field(default_factory=list)
    dtype: list[str] = field(default_factory=list)
    shape: list[tuple[int, ...] | None] = field(default_factory=list)
    format: list[str] = field(default_factory=list)
    size: list[int | None] = field(default_factory=list)
    note: list[str] = field(default_factory=list)
    digest: list[str] = field(default_factory=list)
    told: list[bool] = field(default_factory=list)
    stats: tuple[Column | None, ...] = (None,) * len(_FIELDS)

    def __len__(self) -> int:
        return len(self.io)

    def append(self, other: TensorColumns, first: int) -> None:
        """Put others of the same ``digits`` behind these, their files numbered from ``first`` on."""
        lengths = len(self), len(other)
        self.stats = tuple(map(partial(_joined, lengths), self.stats, other.stats))
        self.file.extend(at + first for at in other.file)
        for mine, others in zip(self._lists, other._lists, strict=True):
            mine.extend(others)

    @property
    def _lists(self) -> tuple[list[Any], ...]:
        named = (self.io, self.slot, self.dtype, self.shape, self.format, self.size)
        return (*named, self.note, self.digest, self.told)

    def parts(self) -> dict[int, list[TensorPart]]:
        """Return the tensors of each file that has any."""
        found: defaultdict[int, list[TensorPart]] = defaultdict(list)
        known = (self.io, self.slot, self.dtype, self.shape, self.format, self.size)
        stats = map(self.stats_of, range(len(self)))
        for file, *tensor, digest in zip(self.file, *known, stats, self.note, self.digest, strict=True):
            found[file].append(TensorPart._make((*tensor, None, None, 0, digest)))
        return found

    def stats_of(self, at: int) -> Stats | None:
        """Return the statistics of one tensor."""
        if not self.told[at]:
            return None
        count, high, low, avg, norm, nan, neg_inf, pos_inf, zero = (
            None if column is None else column[at] for column in self.stats
        )
        return Stats(count, high, low, avg, norm, nan, neg_inf, pos_inf, zero, self.digits)


def _joined(lengths: tuple[int, int], one: Column | None, other: Column | None) -> Column | None:
    if one is None and other is None:
        return None
    if isinstance(one, array) and (isinstance(other, array) or not lengths[1]):
        one.extend(other or ())
        return one
    if isinstance(other, array) and not lengths[0]:
        return other
    cells: list[Any] = one if isinstance(one, list) else list(one or repeat(None, lengths[0]))
    cells.extend(other or repeat(None, lengths[1]))
    return cells


class Qualifiers(NamedTuple):
    """The part of a key that a directory decides, in the order in which ``TensorKey`` has it."""

    step: int
    model: str
    load: int
    device: int
    rank: int


@dataclass(slots=True)
class FileColumns:
    """The files of a dump (or records in them) in columns: executions of operators, or parts of one.

    Attributes:
        places: what directories say.
        folder: which of ``places`` (and of ``directories``) a file is in.
        op_type, layer, task, stream, time: as ``Execution`` has them.
        raw: files whose layer is known by its raw name.
        single: files with one tensor of several that make up the execution.
        thread: slices of an operator, by file.
        call: the process's counter of eager calls, by file.
        name: of the file, where records are made of columns.
        directories: paths as text; the same.
        qualifiers: what each directory adds to the keys of its tensors.
        turn: of the files that are not the first execution of their layer, which one they are.
    """

    places: list[Place] = field(default_factory=list)
    folder: list[int] = field(default_factory=list)
    op_type: list[str] = field(default_factory=list)
    layer: list[str] = field(default_factory=list)
    task: list[int | None] = field(default_factory=list)
    stream: list[int | None] = field(default_factory=list)
    time: list[int] = field(default_factory=list)
    raw: set[int] = field(default_factory=set)
    single: set[int] = field(default_factory=set)
    thread: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    call: dict[int, int] = field(default_factory=dict)
    name: list[str] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    qualifiers: list[Qualifiers] = field(default_factory=list)
    turn: dict[int, int] = field(default_factory=dict)


class ColumnRecords(Sequence[TensorRecord]):
    """Records of a dump of nothing but statistics files: as a tuple of them, made where one is looked at."""

    def __init__(self, files: FileColumns, tensors: TensorColumns, rows: Sequence[int]) -> None:
        """Take columns.

        Args:
            files: where the tensors come from.
            tensors: what is known of them.
            rows: which tensor of ``tensors`` is which record.
        """
        self._files = files
        self._tensors = tensors
        self._rows = rows
        self._file = tensors.file

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> TensorRecord: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[TensorRecord]: ...

    def __getitem__(self, index: int | slice) -> TensorRecord | Sequence[TensorRecord]:
        rows = self._rows[index]
        return self._record(rows) if isinstance(rows, int) else tuple(map(self._record, rows))

    def __iter__(self) -> Iterator[TensorRecord]:
        return map(self._record, self._rows)

    def __eq__(self, other: object) -> bool:
        """Whether ``other`` is a sequence of the same records."""
        if not isinstance(other, (tuple, ColumnRecords)):
            return NotImplemented
        return len(self) == len(other) and all(map(TensorRecord.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Texts of the keys."""
        tensors, file_of, heads = self._tensors, self._file, self._heads()
        tails: dict[tuple[str, int], str] = {}
        texts = []
        for row in self._rows:
            tensor = tensors.io[row], tensors.slot[row]
            tail = tails.get(tensor)
            if tail is None:
                tail = tails[tensor] = f":{tensor[0]}.{tensor[1]}"
            texts.append(heads[file_of[row]] + tail)
        return tuple(texts)

    def _heads(self) -> list[str]:
        """Texts of the keys without direction and slot, a text a file."""
        files = self._files
        names: dict[str, str] = {}
        qualifiers: dict[tuple[int, int], str] = {}
        heads = []
        for at, (layer, folder) in enumerate(zip(files.layer, files.folder, strict=True)):
            turn = files.turn.get(at, 0)
            name, where = names.get(layer), qualifiers.get((folder, turn))
            if name is None or where is None:
                key = TensorKey(layer, "input", 0, turn, *files.qualifiers[folder])
                name = names[layer] = key.name_text
                where = qualifiers[folder, turn] = key.qualifiers_text
            heads.append(name + where)
        return heads

    @property
    def layers(self) -> Sequence[str]:
        """Names of the layers, those of further tensors of one file left out, in no order."""
        return self._files.layer

    def column(self, name: str) -> list[Any]:
        """Return ``dtype``, ``shape``, ``format``, ``note``, ``digest`` or ``told`` of all records."""
        return self._taken(getattr(self._tensors, name))

    @property
    def op_types(self) -> list[str]:
        """Operator types of all records."""
        found = self._files.op_type
        return [found[self._file[row]] for row in self._rows]

    def statistic(self, field: str) -> Column | None:
        """Return one of :data:`_FIELDS` of all records; None where none of them has a value."""
        column = self._tensors.stats[_FIELDS.index(field)]
        if isinstance(column, array):
            return column if self._in_order else array("d", map(column.__getitem__, self._rows))
        return None if column is None else self._taken(column)

    @property
    def digits(self) -> int:
        """Significant decimal digits of the statistics."""
        return self._tensors.digits

    @property
    def _in_order(self) -> bool:
        return isinstance(self._rows, range)

    def _taken(self, column: Column) -> list[Any]:
        return list(column if self._in_order else map(column.__getitem__, self._rows))

    def _key(self, row: int) -> TensorKey:
        files, at = self._files, self._file[row]
        return TensorKey(
            files.layer[at],
            self._tensors.io[row],
            self._tensors.slot[row],
            files.turn.get(at, 0),
            *files.qualifiers[files.folder[at]],
        )

    def _record(self, row: int) -> TensorRecord:
        files, tensors, at = self._files, self._tensors, self._file[row]
        return TensorRecord(
            self._key(row),
            files.op_type[at],
            tensors.dtype[row],
            tensors.shape[row],
            Path(files.directories[files.folder[at]], files.name[at]),
            tensors.format[row],
            tensors.size[row],
            tensors.stats_of(row),
            files.time[at],
            files.task[at],
            files.stream[at],
            note=tensors.note[row],
            digest=tensors.digest[row],
        )
