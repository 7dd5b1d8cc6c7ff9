"""``npudump overflow``: what the overflow records of a dump say, and which layer they are about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.executors import Workers, open_workers, run_tasks
from pytest_npudump.cli.common.output import columns, present
from pytest_npudump.cli.common.progress import progress
from pytest_npudump.cli.common.source import report_problems
from pytest_npudump.dump.files.container import read_container
from pytest_npudump.dump.files.overflow import Candidates, DumpedOperators, read_overflow
from pytest_npudump.dump.tree.find import find_files
from pytest_npudump.errors import DumpError, FormatError
from pytest_npudump.language import mark
from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pytest_npudump.dump.files.overflow import OverflowRecord, OverflowUnit

_COLUMNS = (
    mark("unit"),
    mark("overflow"),
    mark("layer"),
    mark("model"),
    mark("stream"),
    mark("task"),
    mark("file"),
)
_RECORD_BYTES = 1 << 16
"""What reading a record, of some 2 KiB, costs, in bytes read of a large file."""


@dataclass(frozen=True, slots=True)
class FoundOverflows:
    """One overflow record.

    Attributes:
        path: its file.
        record: what it says.
        layers: for each unit, the dumped layers that it may mean.
    """

    path: Path
    record: OverflowRecord
    layers: tuple[Candidates, ...]

    @property
    def untold(self) -> tuple[str, ...]:
        """Which of device and model the dump does not tell of a layer of a unit that overflowed."""
        units = zip(self.record.units, self.layers, strict=True)
        return tuple(dict.fromkeys(what for unit, found in units if unit.overflowed for what in found.untold))

    def to_json(self) -> dict[str, Any]:
        """Return the file, the units that overflowed in words, and the object CANN's tool writes.

        ``layers_without`` is what the dump does not tell of the layers, where it does not.
        """
        units = [
            {"unit": unit.name, "reasons": list(unit.describe()), "layers": list(layers.names)}
            for unit, layers in zip(self.record.units, self.layers, strict=True)
            if unit.overflowed
        ]
        untold = {"layers_without": list(self.untold)} if self.untold else {}
        return {"file": str(self.path), "overflowed": units, **untold, "record": self.record.to_json()}


def run(arguments: argparse.Namespace) -> int:
    """Print the records, or write JSON; 1 where an overflow is reported."""
    with (
        open_workers(arguments.executor) as workers,
        progress(_("reading {path}").format(path=arguments.dump)) as report,
    ):
        found, problems = _read_records(arguments.dump, workers, report)
    present(arguments, lambda: [record.to_json() for record in found], _lines(found))
    report_problems(problems)
    if problems:
        return 2
    return 1 if any(record.record.overflowed for record in found) else 0


def _read_records(
    path: Path, workers: Workers, report: Callable[[int, int], None]
) -> tuple[list[FoundOverflows], list[FormatError]]:
    """Read the overflow records of a dump's directory, or one file; and what cannot be read.

    Args:
        path: the directory or file.
        workers: who reads; other processes only, as threads would wait for Python's lock.
        report: called with (records read, records in all).

    Raises:
        DumpError: there is no such path, or nothing of a dump in it.
    """
    path = path.absolute() if workers.remote else path
    if path.is_file():
        paths, operators, problems = [path], DumpedOperators.of(path.parent, ()), []
    else:
        tree = find_files(path)
        paths, problems = [file.path for file in tree.overflow], list(tree.problems)
        operators = DumpedOperators.of(path, tree.files)
        if not (paths or tree.files or tree.statistics or problems):
            raise DumpError(
                _("{path} holds no dump file: was the dump switched on, and is this its dump_path?").format(
                    path=path
                )
            )
    found: list[FoundOverflows] = []
    readers = Workers() if workers.here else workers
    work = run_tasks(_read, paths, readers, weight=lambda _path: _RECORD_BYTES, progress=report)
    for file, (records, problem) in zip(paths, work, strict=True):
        for record in records:
            layers = tuple(operators.meant_by(unit, file) for unit in record.units)
            found.append(FoundOverflows(file, record, layers))
        problems += [problem] if problem is not None else []
    return found, problems


def _read(path: Path) -> tuple[list[OverflowRecord], FormatError | None]:
    """Read the overflow records of a file up to the first that cannot be read; a task for any worker."""
    found: list[OverflowRecord] = []
    try:
        for container in read_container(path):
            payloads = [tensor.payload for tensor in container.tensors if tensor.payload is not None]
            found += map(read_overflow, payloads)
    except FormatError as error:
        return found, error
    if not found:
        return [], FormatError(path, "an overflow record without data: collect the dump again")
    return found, None


def _lines(found: Sequence[FoundOverflows]) -> Iterator[str]:
    rows = [
        (unit.name, text, ", ".join(layers.names) or "-", *_ids(unit), str(record.path))
        for record in found
        for unit, layers in zip(record.record.units, record.layers, strict=True)
        for text in unit.describe()
    ]
    quiet = sum(not record.record.overflowed for record in found)
    if rows:
        yield from columns(rows, _COLUMNS)
        yield _("CANN records only the first overflow of a step; later ones are not listed")
    yield from _notes(found)
    if quiet or not found:
        yield (
            _("{count} overflow records report no overflow").format(count=quiet)
            if quiet
            else _("no overflow records")
        )


def _notes(found: Sequence[FoundOverflows]) -> Iterator[str]:
    """Say which layers may be another device's or model's."""
    for untold in dict.fromkeys(record.untold for record in found if record.untold):
        files = [record.path for record in found if record.untold == untold]
        what = _(" and the ").join(map(_, untold))
        yield (
            _(
                "note: the dump's directories do not tell the {what} for {count} records (first: "
                "{first}): their layers share stream and task, and may be another one's"
            ).format(what=what, count=len(files), first=files[0])
        )


def _ids(unit: OverflowUnit) -> tuple[str, str, str]:
    return (str(unit.fields["model_id"]), str(unit.fields["stream_id"]), str(unit.fields["task_id"]))
