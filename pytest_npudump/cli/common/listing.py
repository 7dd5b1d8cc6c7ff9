"""The tensors of a dump, one a line: what ``npudump ls`` and ``npudump stats`` have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.output import emit, write_json
from pytest_npudump.cli.common.source import report_problems
from pytest_npudump.dump.dtypes import UNKNOWN
from pytest_npudump.dump.table import shape_text
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import mark, spoken

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from pytest_npudump.dump.records import Dump, TensorRecord

COLUMNS = (mark("layer"), mark("type"), mark("tensor"), "dtype", "shape")
"""Of :func:`cells`."""


def write_listing(
    dump: Dump,
    arguments: argparse.Namespace,
    as_json: Callable[[TensorRecord], dict[str, Any]],
    as_lines: Callable[[Sequence[TensorRecord]], Sequence[str]],
) -> int:
    """Write JSON where it is asked for, and lines and notes unless that went to standard output.

    Args:
        dump: what is listed.
        arguments: the command's, with ``json``.
        as_json: a tensor as plain data.
        as_lines: all tensors as lines.

    Returns:
        The exit code: 2 where a file of the dump could not be read.
    """
    if arguments.json:
        write_json([as_json(record) for record in dump.records], arguments.json)
    if arguments.json != "-":
        emit(as_lines(dump.records))
        emit(_("note: {note}").format(note=spoken(note)) for note in dump.notes)
    report_problems(dump.problems)
    return 2 if dump.problems else 0


def identity(record: TensorRecord) -> dict[str, Any]:
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


def _place(record: TensorRecord) -> str:
    """Return ``output.0`` with whatever else tells a tensor from others of its layer."""
    head, _sign, slot = str(record.key).rpartition(":")
    qualifiers = head.partition("#")[2]
    return f"{slot} ({qualifiers})" if qualifiers else slot


def cells(record: TensorRecord) -> tuple[str, ...]:
    """Return which tensor a record is, as cells of a table: see :data:`COLUMNS`."""
    return record.key.layer, record.op_type, _place(record), record.dtype, shape_text(record.shape)
