"""Facts of tensors from files: in rows as readers have them, and in columns for a dump.

An execution is an operator's tensors as one file (or one record in it) has them, before keys are given. A
hundred thousand tensors are a few lists, not as many objects: a record is a view of one row, made where one
is looked at.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from itertools import repeat
from operator import add, attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from pytest_npudump.dump.records import Payload, Stats, TensorKey, TensorRecord, key_name, with_peaks

if TYPE_CHECKING:
    from pytest_npudump.dump.names import DumpFile, DumpName, Place


COMPUTED_IN_FLOAT32 = "computed and stored as float32"
"""Beginning of the note on tensors that MindSpore's CPU kernels wrote under another type's header."""


class TensorPart(NamedTuple):
    """One tensor of one file; the attributes are those of ``TensorRecord``.

    A tuple, because it takes a quarter of the time of a frozen dataclass and there is one for each record.

    ``dtype`` is a name after :mod:`pytest_npudump.dump.dtypes`, or the producer's own word in lower
    case where that is none of them; ``shape`` is None where it is unknown, ``()`` for a scalar.
    """

    io: str
    slot: int
    dtype: str
    shape: tuple[int, ...] | None
    format: str = ""
    size: int | None = None
    stats: Stats | None = None
    note: str = ""
    payload: Payload | None = None
    original_shape: tuple[int, ...] | None = None
    sub_format: int = 0
    digest: str = ""


def with_projections_of(told: Stats, own: Stats | None) -> Stats:
    """Add projections computed here to a producer's statistics."""
    if own is None or own.projections is None:
        return told
    return replace(told, projections=own.projections, checksum=own.checksum)


IO_ORDER = {"input": 0, "output": 1, "buffer": 2, "workspace": 3}
_ONE_TENSOR_A_FILE = frozenset({"mindspore", "torchair"})
"""``DumpName.kind`` of files that hold one tensor of an execution."""


class Execution(NamedTuple):
    """One execution of an operator, or the part of it that one file holds.

    Attributes:
        place: what the directories say.
        path: the file; of a pair, the one with the tensors.
        op_type: operator type; "" where unknown.
        layer: operator name; ``raw`` tells whether from a header, else as sanitised in file names.
        time: microseconds since the epoch; 0 where unknown.
        task, stream: ids; None where unknown.
        parts: its tensors.
        thread: (context, thread, device) of an FFTS+ slice, or None.
        single: one tensor of several files or rows that make up the execution.
        turn: which execution of the layer in its step, where the file tells it.
    """

    place: Place
    path: Path
    op_type: str
    layer: str
    raw: bool
    time: int
    task: int | None
    stream: int | None
    parts: tuple[TensorPart, ...]
    thread: tuple[int, int, int] | None = None
    single: bool = False
    turn: int = 0


def named_execution(file: DumpFile, name: DumpName, parts: tuple[TensorPart, ...]) -> Execution:
    """Return the execution of a file's name."""
    return Execution(
        file.place,
        file.path,
        name.op_type,
        name.op_name,
        False,  # noqa: FBT003 - positional for speed: one for each of 10,000 files
        name.time,
        name.task,
        name.stream,
        parts,
        name.ffts,
        name.kind in _ONE_TENSOR_A_FILE,
    )


FIELDS = ("count", "max", "min", "avg", "l2norm", "nan", "neg_inf", "pos_inf", "zero")
"""The fields of ``Stats`` that are a column of :attr:`TensorColumns.stats`, in their order."""

Column = Sequence[Any]
"""A list, or an ``array`` of type ``d`` where all of its values are floats."""

UNTOLD = -1
"""In place of the digits of statistics where a tensor has none."""

_STATS_OF, _NO_STATS = attrgetter(*FIELDS), (None,) * len(FIELDS)
_NOWHERE = None, None, 0


@dataclass(slots=True)
class TensorColumns:
    """Facts of n tensors from files.

    Attributes:
        file: the number of each tensor's file; those of one file stand in its order.
        io, slot, dtype, shape, format, size, note, digest: n values each, as ``TensorPart`` has them.
        digits: significant decimal digits of the statistics, 0 for full precision; ``UNTOLD`` without any.
        stats: a column for each of :data:`FIELDS`; None for one that has no value of any tensor.
        places: payload, original shape and sub-format of the tensors whose bytes the dump has, by row.
        projections: of the tensors that have any, by row.
    """

    file: array[int] = field(default_factory=partial(array, "q"))
    io: list[str] = field(default_factory=list)
    slot: list[int] = field(default_factory=list)
    dtype: list[str] = field(default_factory=list)
    shape: list[tuple[int, ...] | None] = field(default_factory=list)
    format: list[str] = field(default_factory=list)
    size: list[int | None] = field(default_factory=list)
    note: list[str] = field(default_factory=list)
    digest: list[str] = field(default_factory=list)
    digits: list[int] = field(default_factory=list)
    stats: tuple[Column | None, ...] = _NO_STATS
    places: dict[int, tuple[Payload | None, tuple[int, ...] | None, int]] = field(default_factory=dict)
    projections: dict[int, tuple[float, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, tensors: Sequence[TensorPart | TensorRecord]) -> TensorColumns:
        """Put tensors into columns, but for files, directions and slots."""
        stats = [one.stats for one in tensors]
        cells = zip(*[_NO_STATS if one is None else _STATS_OF(one) for one in stats], strict=True)
        return cls(
            dtype=[one.dtype for one in tensors],
            shape=[one.shape for one in tensors],
            format=[one.format for one in tensors],
            size=[one.size for one in tensors],
            note=[one.note for one in tensors],
            digest=[
                with_peaks(one.digest, told.checksum) if told else one.digest
                for one, told in zip(tensors, stats, strict=True)
            ],
            digits=[UNTOLD if one is None else one.digits or 0 for one in stats],
            stats=tuple(None if column.count(None) == len(column) else column for column in cells)
            or _NO_STATS,
            places={
                at: (one.payload, one.original_shape, one.sub_format)
                for at, one in enumerate(tensors)
                if one.payload is not None or one.original_shape is not None or one.sub_format
            },
            projections={at: one.projections for at, one in enumerate(stats) if one and one.projections},
        )

    def __len__(self) -> int:
        return len(self.dtype)

    def append(self, other: TensorColumns, first: int) -> None:
        """Put others, whose bytes the dump lacks, behind these, their files numbered from ``first`` on."""
        lengths = len(self), len(other)
        self.stats = tuple(map(partial(_joined, lengths), self.stats, other.stats))
        self.file.extend(map(first.__add__, other.file))
        self.projections.update((lengths[0] + row, sums) for row, sums in other.projections.items())
        for name in _LISTS:
            getattr(self, name).extend(getattr(other, name))

    def taken(self, rows: Sequence[int]) -> TensorColumns:
        """Return some of these tensors, in any order."""
        lists = {name: [getattr(self, name)[row] for row in rows] for name in _LISTS}
        stats = (
            column and (array("d", cells) if isinstance(column, array) else [*cells])
            for column, cells in ((one, map(one.__getitem__, rows) if one else ()) for one in self.stats)
        )
        at = {row: place for place, row in enumerate(rows)}
        return TensorColumns(
            array("q", map(self.file.__getitem__, rows)),
            **lists,
            stats=tuple(stats),
            places={at[row]: found for row, found in self.places.items() if row in at},
            projections={at[row]: found for row, found in self.projections.items() if row in at},
        )

    def parts(self) -> dict[int, list[TensorPart]]:
        """Return the tensors of each file of statistics that has any."""
        found: defaultdict[int, list[TensorPart]] = defaultdict(list)
        known = (self.io, self.slot, self.dtype, self.shape, self.format, self.size)
        stats = map(self.stats_of, range(len(self)))
        for file, *tensor, digest in zip(self.file, *known, stats, self.note, self.digest, strict=True):
            found[file].append(TensorPart._make((*tensor, None, None, 0, digest)))
        return found

    def stats_of(self, at: int) -> Stats | None:
        """Return the statistics of one tensor."""
        digits = self.digits[at]
        if digits == UNTOLD:
            return None
        cells: list[Any] = [None if column is None else column[at] for column in self.stats]
        cells += digits or None, self.projections.get(at)
        return Stats(*cells)


_LISTS = tuple(one.name for one in fields(TensorColumns) if one.type.startswith("list"))


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
        directories: their paths; none where those of files are known.
        folder: which of ``places`` and of ``directories`` a file is in.
        name: of the file, or its path.
        op_type, layer, task, stream, time: as ``Execution`` has them.
        raw: files whose layer is known by its raw name.
        single: files with one tensor of several that make up the execution.
        thread: slices of an operator, by file.
        call: the process's counter of eager calls, by file.
        qualifiers: what each directory adds to the keys of its tensors.
        turn: of the files that are not the first execution of their layer, which one they are.
    """

    places: list[Place] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    folder: list[int] = field(default_factory=list)
    name: list[str | Path] = field(default_factory=list)
    op_type: list[str] = field(default_factory=list)
    layer: list[str] = field(default_factory=list)
    task: list[int | None] = field(default_factory=list)
    stream: list[int | None] = field(default_factory=list)
    time: list[int] = field(default_factory=list)
    raw: set[int] = field(default_factory=set)
    single: set[int] = field(default_factory=set)
    thread: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    call: dict[int, int] = field(default_factory=dict)
    qualifiers: list[Qualifiers] = field(default_factory=list)
    turn: dict[int, int] = field(default_factory=dict)

    def executions(self, tensors: TensorColumns) -> list[Execution]:
        """Return the executions of which files have the statistics in ``tensors``."""
        parts = tensors.parts()
        known = (self.folder, self.name, self.op_type, self.layer, self.time, self.task, self.stream)
        return [
            Execution(
                self.places[folder],
                Path(path),
                op_type,
                layer,
                at in self.raw,
                time,
                task,
                stream,
                tuple(parts[at]),
                None,
                at in self.single,
            )
            for at, (folder, path, op_type, layer, time, task, stream) in enumerate(zip(*known, strict=True))
        ]


class TensorTable(Sequence[TensorRecord]):
    """Tensors of a dump, in execution order: as a tuple of records, each made where it is used.

    Args:
        files: where the tensors come from.
        columns: what is known of them.
    """

    def __init__(self, files: FileColumns, columns: TensorColumns) -> None:
        self.files, self.columns = files, columns
        self._made: dict[int, TensorRecord] = {}

    def __len__(self) -> int:
        return len(self.columns)

    @overload
    def __getitem__(self, index: int) -> TensorRecord: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[TensorRecord]: ...

    def __getitem__(self, index: int | slice) -> TensorRecord | Sequence[TensorRecord]:
        found = self._made.get(index) if isinstance(index, int) else None
        if found is not None:
            return found
        rows = range(len(self))[index]
        return self._record(rows) if isinstance(rows, int) else tuple(map(self._record, rows))

    def __iter__(self) -> Iterator[TensorRecord]:
        return map(self._record, range(len(self)))

    def __eq__(self, other: object) -> bool:
        """Return whether ``other`` is a sequence of the same records."""
        if not isinstance(other, (tuple, TensorTable)):
            return NotImplemented
        return len(self) == len(other) and all(map(TensorRecord.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[type[TensorTable], tuple[FileColumns, TensorColumns]]:
        """Leave records that were made out of what is pickled."""
        return TensorTable, (self.files, self.columns)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Texts of the keys."""
        files, columns = self.files, self.columns
        places = [TensorKey("", "input", 0, 0, *found).qualifiers_text for found in files.qualifiers]
        # texts without direction and slot, a text a file
        heads = list(map(add, map(key_name, files.layer), map(places.__getitem__, files.folder)))
        for at, turn in files.turn.items():
            key = TensorKey(files.layer[at], "input", 0, turn, *files.qualifiers[files.folder[at]])
            heads[at] = key.name_text + key.qualifiers_text
        tensors = list(zip(columns.io, columns.slot, strict=True))
        tails = {tensor: f":{tensor[0]}.{tensor[1]}" for tensor in frozenset(tensors)}
        return tuple(map(add, map(heads.__getitem__, columns.file), map(tails.__getitem__, tensors)))

    @property
    def op_types(self) -> list[str]:
        """Operator types of all tensors."""
        return [*map(self.files.op_type.__getitem__, self.columns.file)]

    def _record(self, row: int) -> TensorRecord:
        found = self._made.get(row)
        if found is None:
            files, tensors = self.files, self.columns
            at = tensors.file[row]
            folder, path = files.folder[at], files.name[at]
            payload, original_shape, sub_format = tensors.places.get(row, _NOWHERE)
            if payload is not None:
                path = payload.path
            found = self._made[row] = TensorRecord(
                TensorKey(
                    files.layer[at],
                    tensors.io[row],
                    tensors.slot[row],
                    files.turn.get(at, 0),
                    *files.qualifiers[folder],
                ),
                files.op_type[at],
                tensors.dtype[row],
                tensors.shape[row],
                Path(files.directories[folder], path) if isinstance(path, str) else path,
                tensors.format[row],
                tensors.size[row],
                tensors.stats_of(row),
                files.time[at],
                files.task[at],
                files.stream[at],
                payload,
                original_shape,
                sub_format,
                tensors.note[row],
                tensors.digest[row],
            )
        return found
