"""What ran: an operator's tensors as one file (or one record in it) has them, before keys are given."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from pytest_npudump.dump.dtypes import ALL, UNKNOWN

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.dump.names import DumpFile, DumpName, Place
    from pytest_npudump.dump.records import Payload, Stats

COMPUTED_IN_FLOAT32 = "computed and stored as float32"
"""How the note on a tensor begins that MindSpore's CPU kernels wrote under the header of another type."""

_ALIASES = {"bf16": "bfloat16", "float": "float32", "double": "float64", "half": "float16", "unknow": UNKNOWN}
_SPELLINGS = (
    {UNKNOWN: UNKNOWN}
    | {found.name: found.name for found in ALL}
    | {found.cann.lower(): found.name for found in ALL}
    | _ALIASES
)


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
    """Return what a producer told, with the projections among the statistics that were computed here."""
    if own is None or own.projections is None:
        return told
    return replace(told, projections=own.projections)


@lru_cache(maxsize=1024)
def dtype_name(text: str) -> str:
    """Return this package's name of the type a producer calls ``text``.

    CANN writes ``DT_FLOAT16`` (``-`` or ``UNKNOW`` where it has no name), MindSpore ``float16`` on
    Ascend and ``Float16`` on CPU, msprobe ``FLOAT16`` and ``BF16``.
    """
    lower = text.lower().removeprefix("dt_")
    return _SPELLINGS.get(lower, lower)


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


def named_execution(file: DumpFile, name: DumpName, parts: tuple[TensorPart, ...]) -> Execution:
    """Return the execution that a file's name tells of."""
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
