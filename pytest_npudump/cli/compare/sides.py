"""What ``npudump compare`` is given: a dump, one file of one, or a golden file with its tensors."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.source import read_source
from pytest_npudump.dump.columns import ColumnRecords
from pytest_npudump.dump.files.stats_cells import NOT_READ
from pytest_npudump.dump.table import StatsTable, sanitised_key
from pytest_npudump.errors import DumpError, GoldenError, RequestError, said
from pytest_npudump.language.text import typed
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.record.record import Record
from pytest_npudump.results.entry import LINES
from pytest_npudump.storage.regular_file import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pytest_npudump.cli.common.executors import Workers
    from pytest_npudump.dump.records import TensorRecord
    from pytest_npudump.golden.stored_tensors import TensorStore


_HEAD = 4096
_MARK = b"npudump-golden:"


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


def read_dump_side(path: Path, workers: Workers, *, latest: bool) -> Record:
    """Read a dump without the statistics of its tensors: those are computed with the comparison.

    Raises:
        DumpError: it is no dump, or holds no tensor.
    """
    dump = read_source(path, workers, stats=False, latest=latest)
    notes = (*dump.notes, *_unread(path, dump.records))
    if not dump.records:
        raise DumpError(
            "\n".join(_("unreadable: {problem}").format(problem=problem) for problem in dump.problems)
        )
    record = Record.of(StatsTable.from_records(dump.records))
    return replace(record, tensors=dump.records, problems=dump.problems, notes=notes)


def _unread(path: Path, records: Sequence[TensorRecord]) -> Iterator[str]:
    """Say which columns of statistics there is no place for in a record, once for all tensors."""
    notes = records.column("note") if isinstance(records, ColumnRecords) else [one.note for one in records]
    for note, count in Counter(note for note in notes if NOT_READ in note).items():
        yield said(
            "{path}: {note} ({count} of {all} tensors)", path=path, note=note, count=count, all=len(records)
        )


def read_golden_side(path: Path, workers: Workers, *, latest: bool) -> Record:
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


def _golden_side(path: Path) -> Record:
    from pytest_npudump.golden.store import read_golden  # noqa: PLC0415 - 70 ms that a dump needs not: yaml
    from pytest_npudump.golden.stored_tensors import stored_tensors  # noqa: PLC0415 - the same: safetensors

    golden = read_golden(path.absolute())
    if not golden.table.keys:
        raise DumpError(_("{path} holds no tensors").format(path=path))
    stored = stored_tensors(golden, foreign=True, store=_store_of(golden))
    keys = golden.table.keys
    # Where there are no tensors, the names of ten thousand rows need not be looked at.
    tensors = [stored.get(sanitised_key(key)) for key in keys] if stored else [None] * len(keys)
    return replace(golden, tensors=tuple(tensors))


def _store_of(golden: Record) -> TensorStore | None:
    from pytest_npudump.golden.store import is_stored  # noqa: PLC0415 - goldens only

    if not is_stored(golden):
        return None
    from pytest_npudump.cli.common.pytest_folder import tensor_place  # noqa: PLC0415 - only where there is one

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
