"""What ran: an operator's tensors as one file (or one record in it) has them, before keys are given."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.dump.names import DumpName
    from pytest_npudump.dump.parts import TensorPart
    from pytest_npudump.dump.places import DumpFile, Place

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
