"""What ``npudump compare`` is given: a dump, one file of one, or a golden file with its tensors."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.source import read_source
from pytest_npudump.compare.stats.eager_calls import may_hold_calls
from pytest_npudump.dump.columns import ColumnRecords
from pytest_npudump.dump.files.stats_cells import NOT_READ
from pytest_npudump.dump.records import TensorRecord
from pytest_npudump.dump.table import StatsTable, sanitised_key
from pytest_npudump.errors import DumpError, GoldenError, RequestError
from pytest_npudump.language.shell import typed
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import said
from pytest_npudump.results.entry import LINES
from pytest_npudump.storage.regular_file import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pytest_npudump.cli.common.executors import Workers
    from pytest_npudump.compare.tolerances.calibrated import Calibrated
    from pytest_npudump.errors import FormatError
    from pytest_npudump.golden.content.text import Golden
    from pytest_npudump.golden.objects.tensor_store import TensorStore
    from pytest_npudump.golden.tensors import GoldenTensor

_HEAD = 4096
_MARK = b"npudump-golden:"


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One side of a comparison.

    Attributes:
        tensors: in execution order the record, the tensor kept beside the golden file, or None.
        table: the statistics of a golden file; None for a dump, whose records have them.
        problems: files that could not be read.
        notes: what the reader decided.
        measured: bounds that were measured with a golden file; None without any.
    """

    tensors: Sequence[TensorRecord | GoldenTensor | None]
    table: StatsTable | None = None
    problems: tuple[FormatError, ...] = ()
    notes: tuple[str, ...] = ()
    measured: Calibrated | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """Texts of the keys, in execution order."""
        if self.table is not None:
            return self.table.keys
        if isinstance(self.tensors, ColumnRecords):
            return self.tensors.texts
        return tuple([str(record.key) for record in self.tensors if isinstance(record, TensorRecord)])

    @property
    def may_hold_calls(self) -> bool:
        """Whether eager calls may be among the tensors; without the texts of all keys where records tell."""
        if self.table is not None:
            return may_hold_calls(self.table.keys)
        if isinstance(self.tensors, ColumnRecords):
            return may_hold_calls(self.tensors.layers)
        return may_hold_calls(tensor.key.layer for tensor in self.tensors if isinstance(tensor, TensorRecord))

    @property
    def has_elements(self) -> bool:
        """Whether there are elements of any tensor, not just statistics."""
        return not isinstance(self.tensors, ColumnRecords) and any(
            tensor.payload is not None if isinstance(tensor, TensorRecord) else tensor is not None
            for tensor in self.tensors
        )

    def statistics(self, records: Sequence[TensorRecord | GoldenTensor | None]) -> StatsTable:
        """Return the table: of a golden file its own, of a dump that of ``records``."""
        if self.table is not None:
            return self.table
        if isinstance(records, ColumnRecords):
            return StatsTable.from_records(records)
        return StatsTable.from_records(record for record in records if isinstance(record, TensorRecord))


def are_kept_results(first: Path, second: Path) -> bool:
    """Whether two paths are folders of kept results.

    Raises:
        RequestError: one of them is, and the other is not.
    """
    kept = [(path / LINES).is_file() for path in (first, second)]
    if any(kept) and not all(kept):
        one, other = (first, second) if kept[0] else (second, first)
        raise RequestError(
            _(
                "{one} holds kept results, and {other} does not: they are compared with each other only; "
                "{command} judges them by goldens"
            ).format(one=one, other=other, command=typed("npudump", "check", one))
        )
    return all(kept)


def read_dump_side(path: Path, workers: Workers, *, latest: bool) -> Side:
    """Read a dump without the statistics of its tensors: those are computed with the comparison.

    Raises:
        DumpError: it is no dump, or holds no tensor.
    """
    dump = read_source(path, workers, stats=False, latest=latest)
    return Side(dump.records, problems=dump.problems, notes=(*dump.notes, *_unread(path, dump.records)))


def _unread(path: Path, records: Sequence[TensorRecord]) -> Iterator[str]:
    """Say which columns of statistics there is no place for in a record, once for all tensors."""
    notes = records.column("note") if isinstance(records, ColumnRecords) else [one.note for one in records]
    for note, count in Counter(note for note in notes if NOT_READ in note).items():
        yield said(
            "{path}: {note} ({count} of {all} tensors)", path=path, note=note, count=count, all=len(records)
        )


def read_golden_side(path: Path, workers: Workers, *, latest: bool) -> Side:
    """Read a golden file, with the tensors beside it where there are any, or a dump.

    Raises:
        DumpError: ``path`` is neither.
        GoldenError: it is a golden file, and damaged.
    """
    if path.is_dir():
        return read_dump_side(path, workers, latest=latest)
    if not path.exists():
        raise DumpError(
            _("{path} is neither a golden file nor a dump directory: it does not exist").format(path=path)
        )
    if not _is_golden(path):
        try:
            return read_dump_side(path, workers, latest=latest)
        except DumpError as error:
            raise DumpError(
                _("{path} is neither a golden file nor a dump directory: {error}").format(
                    path=path, error=error
                )
            ) from error
    return _golden_side(path)


def _golden_side(path: Path) -> Side:
    from pytest_npudump.compare.tolerances.calibrated import calibrated_of  # noqa: PLC0415 - goldens only
    from pytest_npudump.golden.kept_tensors import stored_tensors  # noqa: PLC0415 - the same: safetensors
    from pytest_npudump.golden.store import read_golden  # noqa: PLC0415 - 70 ms that a dump needs not: yaml

    golden = read_golden(path.absolute())
    if not golden.table.keys:
        raise DumpError(_("{path} holds no tensors").format(path=path))
    stored = stored_tensors(golden, foreign=True, store=_store_of(golden))
    keys = golden.table.keys
    # Where there are no tensors, the names of ten thousand rows need not be looked at.
    tensors = [stored.get(sanitised_key(key)) for key in keys] if stored else [None] * len(keys)
    return Side(tuple(tensors), golden.table, measured=calibrated_of(golden))


def _store_of(golden: Golden) -> TensorStore | None:
    from pytest_npudump.golden.pair import is_stored  # noqa: PLC0415 - goldens only

    if not is_stored(golden):
        return None
    from pytest_npudump.cli.common.tensor_place import tensor_place  # noqa: PLC0415 - only where there is one

    return tensor_place(golden.path.parent)


def _is_golden(path: Path) -> bool:
    """Whether the beginning of a file holds the key that every golden file has at the beginning of a line."""
    try:
        with open_regular(path) as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise GoldenError(
            _("{path} cannot be read: {error}").format(path=path, error=error.strerror or error)
        ) from error
    return any(line.startswith(_MARK) for line in head.removeprefix(b"\xef\xbb\xbf").splitlines())
