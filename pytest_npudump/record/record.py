"""The record: what is known of the tensors of one test, of a golden, a kept run or a dump alike."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from pytest_npudump.dump.records import TensorKey
from pytest_npudump.dump.table import PROJECTIONS, StatsTable
from pytest_npudump.errors import GoldenError, RequestError

UNTOLD = "-"
"""Text of a fact that one side does not tell."""
COMPILED = "compiled"
"""Fact of a producer that ran compiled code: by what."""
EMPTY = "empty"
"""Key of a golden file: operators that ran and left no file, and the shapes of their outputs."""
OVERFLOW = "overflow"
"""Key of a golden file: operators that are known to overflow."""
UNWRITTEN = "unwritten"
"""Key of a golden file: layers with tensors that nothing wrote."""
REASON = "reason"
"""Key of a golden file: why it was last changed, as the person who accepted it says."""
RECORDED = "recorded"
"""Key of a golden file: when its producer recorded it, and from which revision."""
SHARDS = "shards"
"""Key of a golden file: by rank, digests of the parameters that it holds; see ``runtime.modules.shards``."""
OF_A_RUN = (EMPTY, OVERFLOW, RECORDED, SHARDS, UNWRITTEN)
"""Keys of a golden file that each recording says anew."""
MODELS = "models"
"""Key of a block with digests of the models that ran, and of what their operators compute with."""
OP_TYPES = "op_types"
"""Key of a block with the operator type of each row, or ``-``: of records of runs, not of goldens."""
EDGES = "edges"
"""Key of a block with which tensors feed which operators."""
OUTPUTS = "outputs"
"""Key of a block with rows of outputs of models that the test does not have dumped, for a note."""
POINTERS = "stored_tensors"
"""Key of a block with the tensors that lie in a store, of goldens that keep some there."""
BLOCKS = (PROJECTIONS, EDGES, MODELS, OUTPUTS, OP_TYPES, POINTERS)
"""Keys of blocks of lines that may stand behind the table, in this order."""


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """Statistics of one test, with what is known of them: a golden, a kept run, one side of a comparison.

    Attributes:
        test: the test as a person would name it, ``tests/test_ocr.py::test_classifier[fp16]``; "" for a dump
            that no test made.
        producer: what made the values: ``runtime``, ``soc``, ``cann``, ``scene``, ``dump_mode`` ...; the
            number of digits is kept in the table.
        table: the statistics in execution order.
        path: the file it was read from or is to be written to.
        extra: further top-level keys (measured noise, tolerances), plain data, kept on a rewrite.
        changed: by key text, day and commit of tensors that changed after the golden was recorded; keys of no
            tensor are not written.
        blocks: the lines of the blocks behind the table that the file has, each line ending in a newline;
            those of projections come from the table.
        digest: SHA-256 of the file it was read from, in hexadecimal; "" where it was not read from one. Of a
            variant it is of both files.
        base: of a variant that is written as what differs, the golden that it differs from; None for others.
        own_digest: of such a variant, the digest of its own file; "" for others.
        tensors: row by row where the elements lie, a ``TensorRecord`` or ``GoldenTensor``, None for a row
            without any; nothing where none has any.
        file_names: whether layers were known by the names of their files: raw names are then what the model,
            the marker or an earlier golden had for these.
        problems: what could not be read of it: errors of files, or words.
        notes: what its reader decided.
        fed: of a saved run, the first mismatch's key if all that feeds it is known, with whether it was
            compared, None for inputs of the graph alone; edges of a run tell of what was dumped only. None
            where the graph is at hand.
    """

    test: str
    producer: Mapping[str, Any]
    table: StatsTable
    path: Path
    extra: Mapping[str, Any] = field(default_factory=dict)
    changed: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    blocks: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""
    base: Record | None = None
    own_digest: str = ""
    tensors: Sequence[Any] = ()
    file_names: bool = False
    problems: tuple[Any, ...] = ()
    notes: tuple[str, ...] = ()
    fed: Mapping[str, bool | None] | None = None

    @classmethod
    def of(cls, table: StatsTable) -> Record:
        """Return the record of statistics of which nothing else is known."""
        return cls("", {}, table, Path())

    @property
    def facts(self) -> dict[str, str]:
        """Facts of the values' producer as text, to be compared with a run's."""
        return {name: str(value) for name, value in self.producer.items()}

    @property
    def file_digest(self) -> str:
        """The digest of the file at :attr:`path`."""
        return self.own_digest or self.digest

    def differences(self, run: Record) -> dict[str, tuple[str, str]]:
        """Return the facts of origin in which this record and a run differ, as ``name: (this, the run)``."""
        before, now = self.facts, run.facts
        pairs = {name: (before.get(name, UNTOLD), now.get(name, UNTOLD)) for name in {**before, **now}}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def rows_of(tables: tuple[StatsTable, StatsTable], rows: Sequence[tuple[int, int]]) -> StatsTable:
    """Return a table of rows of two others.

    Args:
        tables: the two.
        rows: each row as which of the tables it is of, and its number there.
    """
    columns: dict[str, Any] = {}
    for one in fields(StatsTable):
        both = [getattr(table, one.name) for table in tables]
        if one.name == "wide":
            columns[one.name] = {
                (at, column): both[which][row, column]
                for at, (which, row) in enumerate(rows)
                for column in range(tables[which].values.shape[1])
                if (row, column) in both[which]
            }
        elif one.name == "summed":
            columns[one.name] = any(both)  # what is rounded once is not to be taken for exact
        elif isinstance(both[0], np.ndarray) or isinstance(both[1], np.ndarray):
            columns[one.name] = np.array([_cells(both, which, row) for which, row in rows])
        elif None in both:
            columns[one.name] = None
        elif any(both):  # an optional column is empty where a table has none
            columns[one.name] = tuple([both[which][row] if both[which] else "" for which, row in rows])
        else:
            columns[one.name] = ()
    return StatsTable(**columns)


def _cells(both: Sequence[Any], which: int, row: int) -> Any:
    """Return a row of an array that one of two tables may lack: then nothing is known of it."""
    if both[which] is not None:
        return both[which][row]
    other = both[1 - which]
    return np.full(other.shape[1:], np.nan if other.dtype.kind == "f" else 0, other.dtype)


LEFT_OUT = "left out"
JUDGED = "judged"
_MEASURED_ON: dict[str, str | None] = {"runtime": "mindspore", "device_target": "CPU"}


def entries_of(golden: Record | None) -> dict[str, str]:
    """Return the tensors that a golden names as unwritten, each with its word.

    Raises:
        GoldenError: what stands there is no such list.
    """
    entries = golden.extra.get(UNWRITTEN, {}) if golden is not None else {}
    if golden is None or not entries:
        return {}
    try:
        words = {f"{layer}:{slot}": word for layer, slots in entries.items() for slot, word in slots.items()}
        good = all(TensorKey.parse(key) and word in {LEFT_OUT, JUDGED} for key, word in words.items())
    except (AttributeError, TypeError, RequestError):
        good = False
    if not good:
        raise GoldenError(
            f"{golden.path}: {UNWRITTEN!r} is to hold layers, each with tensors such as output.1 and for "
            f"these {LEFT_OUT!r} or {JUDGED!r}. Restore the file from version control, or accept anew with "
            f"--npudump-update-golden"
        )
    return words


_SHARD = re.compile(r"(\w+ [1-9]\d*(x[1-9]\d*)*( [A-Za-z0-9_-]{8,36})+)?")


def shards_of(record: Record) -> dict[str, dict[str, dict[str, str]]]:
    """Return the digests of parameters by rank, layer and name; "" for one that is not to be compared.

    Raises:
        GoldenError: they are not as they are written.
    """
    held: Any = record.extra.get(SHARDS, {})
    try:
        texts = [text for some in held.values() for one in some.values() for text in one.values()]
        damaged = not all(map(_SHARD.fullmatch, texts))
    except (AttributeError, TypeError):
        damaged = True
    if damaged:
        raise GoldenError(f"{record.path}: {SHARDS} is damaged: accept anew with --npudump-update-golden")
    return dict(held)


def left_out_of(golden: Record | None, facts: Mapping[str, str]) -> dict[str, str]:
    """Return the :func:`entries_of` that a run is compared without.

    Args:
        golden: its golden.
        facts: of the run's origin, as a golden records them.

    Raises:
        GoldenError: as :func:`entries_of`.
    """
    if golden is None:
        return {}
    found = {key: word for key, word in entries_of(golden).items() if word == LEFT_OUT}
    measured = _MEASURED_ON | {"mindspore": golden.facts.get("mindspore")}
    same = all(measured.items() <= origin.items() for origin in (golden.facts, facts))
    return found if same else {}
