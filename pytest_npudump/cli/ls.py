"""``npudump ls``: what a dump holds, without reading the values of its tensors."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.executors import open_workers
from pytest_npudump.cli.common.listing import COLUMNS, cells, identity, write_listing
from pytest_npudump.cli.common.output import columns
from pytest_npudump.cli.common.source import read_source
from pytest_npudump.language.text import byte_size
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import mark, spoken

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_npudump.dump.records import TensorRecord

_COLUMNS = (*COLUMNS, mark("layout"), mark("bytes"), mark("holds"), mark("file"))


def run(arguments: argparse.Namespace) -> int:
    """Print the table and a summary, or write JSON; 0, or 2 where something could not be read."""
    with open_workers(arguments.executor) as workers:
        dump = read_source(arguments.dump, workers, stats=False, latest=arguments.latest, overflow=True)
    return write_listing(dump, arguments, partial(_as_json, dump.root), partial(_lines, dump.root))


def _as_json(root: Path, record: TensorRecord) -> dict[str, Any]:
    original = record.original_shape
    return identity(record) | {
        "layout": record.format or None,
        "original_shape": None if original is None else list(original),
        "bytes": _bytes(record),
        "holds": "+".join(_held(record)),
        "file": _file(record, root),
        "time": record.time or None,
        "note": record.note,
    }


def _lines(root: Path, records: Sequence[TensorRecord]) -> list[str]:
    table = [*columns([_row(record, root) for record in records], _COLUMNS), ""] if records else []
    return [*table, _summary(records)]


def _row(record: TensorRecord, root: Path) -> tuple[str, ...]:
    nbytes = _bytes(record)
    return (
        *cells(record),
        record.format or "-",
        "-" if nbytes is None else str(nbytes),
        "+".join(map(_, _held(record))) + (f" ({spoken(record.note)})" if record.note else ""),
        _file(record, root),
    )


def _bytes(record: TensorRecord) -> int | None:
    return record.payload.nbytes if record.payload is not None else record.size


def _held(record: TensorRecord) -> list[str]:
    held = [
        name for name, what in ((mark("tensor"), record.payload), (mark("statistics"), record.stats)) if what
    ]
    return held or [mark("nothing")]


def _file(record: TensorRecord, root: Path) -> str:
    return os.path.relpath(record.path, root if root.is_dir() else root.parent)


def _summary(records: Sequence[TensorRecord]) -> str:
    data = sum(record.payload.nbytes for record in records if record.payload is not None)
    counted = _(
        "{tensors} tensors, {layers} layers, {files} files, {statistics} with statistics, {full} with data"
    ).format(
        tensors=len(records),
        layers=len({record.key.layer for record in records}),
        files=len({record.path for record in records}),
        statistics=sum(record.stats is not None for record in records),
        full=sum(record.payload is not None for record in records),
    )
    steps = {(r.key.step, r.key.model, r.key.load, r.key.device, r.key.rank) for r in records}
    if len(steps) > 1:
        counted += _(", {count} executions of models").format(count=len(steps))
    return f"{counted} ({byte_size(data)})"
