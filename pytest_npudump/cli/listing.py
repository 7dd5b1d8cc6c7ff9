"""The tensors of a dump, one a line: ``npudump ls`` reads no values, ``npudump stats`` prints statistics."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.executors import open_workers
from pytest_npudump.cli.common.output import columns, present
from pytest_npudump.cli.common.source import read_source, report_problems
from pytest_npudump.dump.dtypes import UNKNOWN
from pytest_npudump.dump.table import shape_text
from pytest_npudump.language import mark
from pytest_npudump.language.text import byte_size
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import spoken
from pytest_npudump.report.verdicts import number

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_npudump.dump.records import Dump, TensorRecord

_COLUMNS = (mark("layer"), mark("type"), mark("tensor"), "dtype", "shape")
_STORED = (mark("layout"), mark("bytes"), mark("holds"), mark("file"))
_STATISTICS = ("count", "max", "min", "avg", "l2norm", "nan", "neg_inf", "pos_inf")
_ZERO = "zero"
_PROJECTIONS = tuple(f"p{place}" for place in range(8))


def ls(arguments: argparse.Namespace) -> int:
    """Print the table and a summary, or write JSON; 0, or 2 where something could not be read."""
    with open_workers(arguments.executor) as workers:
        dump = read_source(arguments.dump, workers, stats=False, latest=arguments.latest, overflow=True)
    folder = dump.root if dump.root.is_dir() else dump.root.parent
    rows = [(*_cells(record), *_stored_cells(record, folder)) for record in dump.records]
    table = [*columns(rows, (*_COLUMNS, *_STORED)), ""] if rows else []
    lines = [*table, _summary(dump.records)]
    return _listed(dump, arguments, lambda record: _stored_json(record, folder), lines)


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
    counted = _(
        "{tensors} tensors, {layers} layers, {files} files, {statistics} with statistics, {full} with data"
    ).format(
        tensors=len(records),
        layers=len({record.key.layer for record in records}),
        files=len({record.path for record in records}),
        statistics=sum(record.stats is not None for record in records),
        full=len(data),
    )
    steps = {(r.key.step, r.key.model, r.key.load, r.key.device, r.key.rank) for r in records}
    if len(steps) > 1:
        counted += _(", {count} executions of models").format(count=len(steps))
    return f"{counted} ({byte_size(sum(data))})"


def stats(arguments: argparse.Namespace) -> int:
    """Print the table, or write JSON; 0, or 2 where something could not be read."""
    with open_workers(arguments.executor) as workers:
        dump = read_source(
            arguments.dump,
            workers,
            stats=True,
            acl=arguments.acl,
            projections=arguments.projections,
            latest=arguments.latest,
        )
    sums = _PROJECTIONS if arguments.projections else ()
    # Zeros only where some tensor's are known, as ACL's files never tell them.
    zeros = any(getattr(record.stats, _ZERO, None) is not None for record in dump.records)
    names = (*_STATISTICS, *([_ZERO] if zeros else []))
    rows = [
        (
            *_cells(record),
            *(number(getattr(record.stats, name, None)) for name in names),
            *_sums(record, sums),
        )
        for record in dump.records
    ]
    lines = columns(rows, (*_COLUMNS, *names, *sums)) if rows else []
    return _listed(dump, arguments, lambda record: _stats_json(record, projections=bool(sums)), lines)


def _sums(record: TensorRecord, sums: Sequence[str]) -> Sequence[str]:
    return [*map(number, getattr(record.stats, "projections", None) or (None,) * len(sums))][: len(sums)]


def _stats_json(record: TensorRecord, *, projections: bool) -> dict[str, Any]:
    data = {name: getattr(record.stats, name, None) for name in (*_STATISTICS, _ZERO)}
    if data[_ZERO] is None:
        del data[_ZERO]
    if projections:
        found = getattr(record.stats, "projections", None)
        data["projections"] = None if found is None else list(found)
    return data | {"note": record.note} if record.note else data


def _listed(
    dump: Dump,
    arguments: argparse.Namespace,
    as_json: Callable[[TensorRecord], dict[str, Any]],
    lines: Sequence[str],
) -> int:
    """Write JSON where it is asked for, or lines and notes; 2 where a file of the dump could not be read."""
    notes = (_("note: {note}").format(note=spoken(note)) for note in dump.notes)
    present(
        arguments, lambda: [_identity(record) | as_json(record) for record in dump.records], [*lines, *notes]
    )
    report_problems(dump.problems)
    return 2 if dump.problems else 0


def _identity(record: TensorRecord) -> dict[str, Any]:
    """Which tensor a record is, as plain JSON data; ``key`` only where layer, io and slot do not tell it."""
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
    """Return which tensor a record is: ``output.0`` with whatever else tells it from others of its layer."""
    head, _sign, slot = str(record.key).rpartition(":")
    qualifiers = head.partition("#")[2]
    place = f"{slot} ({qualifiers})" if qualifiers else slot
    return record.key.layer, record.op_type, place, record.dtype, shape_text(record.shape)
