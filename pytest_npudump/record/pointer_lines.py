"""The lines of a golden file's block of stored tensors: ``key dtype shape sha256:DIGEST bytes row``.

The tensor itself lies in a store, under the SHA-256 of its bytes. ``row`` is a hash of the statistics that
the tensor's line has in the table: a tensor beside statistics of another recording is told.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from pytest_npudump.dump.table import shape_of, shape_text
from pytest_npudump.record.rows import RowError

if TYPE_CHECKING:
    from pytest_npudump.dump.table import StatsTable


EXPECTED = "key dtype shape sha256:DIGEST bytes row"
_LINE = re.compile(
    r"(?P<key>\S+) (?P<dtype>[a-z][a-z0-9_]*) (?P<shape>-|[0-9]{1,19}(?:x[0-9]{1,19}){0,63}) "
    r"sha256:(?P<digest>[0-9a-f]{64}) (?P<size>[0-9]{1,19}) (?P<row>[0-9a-f]{8})"
)
_ROW_BYTES = 4


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where a golden tensor is that lies in a store.

    Attributes:
        key: the tensor's, as the golden's table spells it.
        dtype: numpy's or ml_dtypes' name of the type that its bytes are of, little-endian.
        shape: of the array.
        digest: SHA-256 of its bytes, in hexadecimal.
        size: how many bytes these are.
        row: hash of the statistics that it was recorded with.
    """

    key: str
    dtype: str
    shape: tuple[int, ...]
    digest: str
    size: int
    row: str

    def line(self) -> str:
        """Return the line of the block, with its newline."""
        shape = shape_text(self.shape)
        return f"{self.key} {self.dtype} {shape} sha256:{self.digest} {self.size} {self.row}\n"


def read_pointers(block: str) -> dict[str, Pointer]:
    """Return the pointers of a block's lines by key.

    Raises:
        RowError: a line is none, is of a tensor that stands there twice, or is cut; names the line.
    """
    found: dict[str, Pointer] = {}
    lines = block.splitlines()
    for number, line in enumerate(lines):
        pointer = _pointer(line, number)
        if pointer.key in found:
            raise RowError(
                number, f"the stored tensor {pointer.key} stands here a second time, remove one line"
            )
        found[pointer.key] = pointer
    if block and not block.endswith("\n"):
        raise RowError(len(lines) - 1, "the file ends within this line")
    return found


def _pointer(line: str, number: int) -> Pointer:
    told = _LINE.fullmatch(line)
    if told is None:
        raise RowError(number, f"{line[:120]!r} is no stored tensor, expected: {EXPECTED}")
    shape = shape_of(told["shape"]) or ()
    size = int(told["size"])
    if math.prod(shape) and size % math.prod(shape):
        raise RowError(number, f"{size} bytes are no tensor of shape {told['shape']}: {line[:120]!r}")
    return Pointer(told["key"], told["dtype"], shape, told["digest"], size, told["row"])


def row_hash(table: StatsTable, row: int) -> str:
    """Return what tells the statistics of one row from others."""
    return blake2b(f"{table.keys[row]} {table.statistics(row)}".encode(), digest_size=_ROW_BYTES).hexdigest()
