"""``npudump ls``: the tensors of a dump, their statistics, and what its overflow records report."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.output import columns, present
from pytest_npudump.cli.common.source import read_source, report_problems
from pytest_npudump.cli.common.work import Workers, open_workers, progress, run_tasks
from pytest_npudump.dump.dtypes import UNKNOWN
from pytest_npudump.dump.table import shape_text
from pytest_npudump.dump.tree.find import find_files
from pytest_npudump.errors import FormatError
from pytest_npudump.language import mark
from pytest_npudump.language.text import byte_size
from pytest_npudump.language.translation import counted, gettext as _, spoken
from pytest_npudump.report.verdicts import number

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pytest_npudump.dump.files.overflow import Candidates, OverflowRecord
    from pytest_npudump.dump.records import TensorRecord


_COLUMNS = (mark("layer"), mark("type"), mark("tensor"), "dtype", "shape")
_STORED = (mark("layout"), mark("bytes"), mark("holds"), mark("file"))
_STATISTICS = ("count", "max", "min", "avg", "l2norm", "nan", "neg_inf", "pos_inf")
_ZERO = "zero"
_PROJECTIONS = tuple(f"p{place}" for place in range(8))
_OVERFLOWS = (
    mark("unit"),
    mark("overflow"),
    mark("layer"),
    mark("model"),
    mark("stream"),
    mark("task"),
    mark("file"),
)
_RECORD_BYTES = 1 << 16
"""Cost of reading a record, of some 2 KiB, in bytes read of a large file."""


def run(arguments: argparse.Namespace) -> int:
    """Print tables and a summary, or write JSON; 2 where something could not be read, 1 for an overflow."""
    stats = arguments.stats or arguments.acl or arguments.projections
    with open_workers(arguments.executor) as workers:
        dump = read_source(
            arguments.dump,
            workers,
            stats=stats,
            acl=arguments.acl,
            projections=arguments.projections,
            latest=arguments.latest,
            overflow=True,
            raw=arguments.bin,
        )
        overflows, unread = _read_overflows(dump.root, dump.overflow, workers) if dump.overflow else ([], [])
    problems = [*dump.problems, *unread]
    notes = (_("note: {note}").format(note=spoken(note)) for note in dump.notes)
    folder = _folder(dump.root)
    if stats:
        lines = _statistics(dump.records, arguments)
    else:
        rows = [(*_cells(record), *_stored_cells(record, folder)) for record in dump.records]
        table = [*columns(rows, (*_COLUMNS, *_STORED)), ""] if rows else []
        lines = [*table, _summary(dump.records)]
    present(
        arguments,
        lambda: {
            "tensors": [
                _identity(record)
                | (
                    _stats_json(record, projections=arguments.projections)
                    if stats
                    else _stored_json(record, folder)
                )
                for record in dump.records
            ],
            "overflows": [one.to_json() for one in overflows],
        },
        [*lines, *notes, *_overflow_lines(overflows)],
    )
    report_problems(problems)
    if problems:
        return 2
    return 1 if any(one.record.overflowed for one in overflows) else 0


def _folder(root: Path) -> Path:
    return root if root.is_dir() else root.parent


def _statistics(records: Sequence[TensorRecord], arguments: argparse.Namespace) -> Sequence[str]:
    sums = _PROJECTIONS if arguments.projections else ()
    # Zeros only where some tensor's are known, as ACL's files never tell them.
    zeros = any(getattr(record.stats, _ZERO, None) is not None for record in records)
    names = (*_STATISTICS, *([_ZERO] if zeros else []))
    rows = [
        (
            *_cells(record),
            *(number(getattr(record.stats, name, None)) for name in names),
            *[*map(number, getattr(record.stats, "projections", None) or (None,) * len(sums))][: len(sums)],
        )
        for record in records
    ]
    return columns(rows, (*_COLUMNS, *names, *sums)) if rows else ()


def _stored_json(record: TensorRecord, folder: Path) -> dict[str, Any]:
    original = record.original_shape
    return {
        "layout": record.format or None,
        "original_shape": None if original is None else list(original),
        "bytes": _bytes(record),
        "holds": "+".join(_held(record)),
        "file": os.path.relpath(record.path, folder),
        "time": record.time or None,
        "note": record.note,
    }


def _stored_cells(record: TensorRecord, folder: Path) -> tuple[str, ...]:
    nbytes = _bytes(record)
    held = "+".join(map(_, _held(record))) + (f" ({spoken(record.note)})" if record.note else "")
    size = "-" if nbytes is None else str(nbytes)
    return (record.format or "-", size, held, os.path.relpath(record.path, folder))


def _bytes(record: TensorRecord) -> int | None:
    return record.payload.nbytes if record.payload is not None else record.size


def _held(record: TensorRecord) -> list[str]:
    held = ((mark("tensor"), record.payload), (mark("statistics"), record.stats))
    return [name for name, what in held if what] or [mark("nothing")]


def _summary(records: Sequence[TensorRecord]) -> str:
    data = [record.payload.nbytes for record in records if record.payload is not None]
    told = [
        counted(len(records), "{count} tensor", "{count} tensors"),
        counted(len({record.key.layer for record in records}), "{count} layer", "{count} layers"),
        counted(len({record.path for record in records}), "{count} file", "{count} files"),
        _("{count} with statistics").format(count=sum(record.stats is not None for record in records)),
        _("{count} with data").format(count=len(data)),
    ]
    steps = {(r.key.step, r.key.model, r.key.load, r.key.device, r.key.rank) for r in records}
    if len(steps) > 1:
        told.append(_("{count} executions of models").format(count=len(steps)))
    return f"{_(', ').join(told)} ({byte_size(sum(data))})"


def _stats_json(record: TensorRecord, *, projections: bool) -> dict[str, Any]:
    data = {name: getattr(record.stats, name, None) for name in (*_STATISTICS, _ZERO)}
    if data[_ZERO] is None:
        del data[_ZERO]
    if projections:
        found = getattr(record.stats, "projections", None)
        data["projections"] = None if found is None else list(found)
    return data | {"note": record.note} if record.note else data


def _identity(record: TensorRecord) -> dict[str, Any]:
    """Return a record's tensor as JSON data; ``key`` only where layer, io and slot do not identify it."""
    key = record.key
    data: dict[str, Any] = {
        "layer": key.layer,
        "op_type": record.op_type or None,
        "io": key.io,
        "slot": key.slot,
        "dtype": None if record.dtype == UNKNOWN else record.dtype,
        "shape": None if record.shape is None else list(record.shape),
    }
    return data if str(key) == f"{key.layer}:{key.io}.{key.slot}" else data | {"key": str(key)}


def _cells(record: TensorRecord) -> tuple[str, ...]:
    """Return a record's cells: ``output.0``, with the rest of its key where its layer has several."""
    head, _sign, slot = str(record.key).rpartition(":")
    qualifiers = head.partition("#")[2]
    place = f"{slot} ({qualifiers})" if qualifiers else slot
    return record.key.layer, record.op_type, place, record.dtype, shape_text(record.shape)


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
        """Device and model, where the dump lacks them for a layer whose unit overflowed."""
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


def _read_overflows(
    root: Path, paths: Sequence[Path], workers: Workers
) -> tuple[list[FoundOverflows], list[FormatError]]:
    """Read the overflow records of a dump, and find the layers that they mean; and what cannot be read."""
    from pytest_npudump.dump.files.overflow import DumpedOperators  # noqa: PLC0415 - only where there are records

    operators = DumpedOperators.of(_folder(root), find_files(root).files if root.is_dir() else ())
    found: list[FoundOverflows] = []
    problems: list[FormatError] = []
    readers = Workers() if workers.here else workers  # threads would wait for Python's lock
    with progress(_("reading {path}").format(path=root)) as report:
        work = run_tasks(_read, paths, readers, weight=lambda _path: _RECORD_BYTES, progress=report)
        for file, (records, problem) in zip(paths, work, strict=True):
            for record in records:
                layers = tuple(operators.meant_by(unit, file) for unit in record.units)
                found.append(FoundOverflows(file, record, layers))
            problems += [problem] if problem is not None else []
    return found, problems


def _read(path: Path) -> tuple[list[OverflowRecord], FormatError | None]:
    """Read the overflow records of a file up to the first that cannot be read; a task for any worker."""
    from pytest_npudump.dump.files.container import read_container  # noqa: PLC0415 - the same
    from pytest_npudump.dump.files.overflow import read_overflow  # noqa: PLC0415 - the same

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


def _overflow_lines(found: Sequence[FoundOverflows]) -> Iterator[str]:
    rows = [
        (
            *(unit.name, text, ", ".join(layers.names) or "-"),
            *(str(unit.fields[name]) for name in ("model_id", "stream_id", "task_id")),
            str(record.path),
        )
        for record in found
        for unit, layers in zip(record.record.units, record.layers, strict=True)
        for text in unit.describe()
    ]
    if rows:
        yield from columns(rows, _OVERFLOWS)
        yield _("CANN records only the first overflow of a step; later ones are not listed")
    for untold in dict.fromkeys(record.untold for record in found if record.untold):
        files = [record.path for record in found if record.untold == untold]
        what = _(" and the ").join(map(_, untold))
        yield (
            _(
                "note: the dump's directories lack the {what} of records ({count}, first: {first}): "
                "layers with the same stream and task may be mistaken for each other"
            ).format(what=what, count=len(files), first=files[0])
        )
    if quiet := sum(not record.record.overflowed for record in found):
        yield counted(
            quiet,
            "{count} overflow record reports no overflow",
            "{count} overflow records report no overflow",
        )
