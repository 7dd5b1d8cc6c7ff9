"""A run's statistics as the text of the golden that they would be, with the types of its operators."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.tolerances.numerics import UNKNOWN
from pytest_npudump.dump.table import sanitised_key
from pytest_npudump.errors import GoldenError
from pytest_npudump.golden.content.text import render
from pytest_npudump.golden.store import content_digest
from pytest_npudump.record.record import EMPTY, OP_TYPES
from pytest_npudump.regression.run.snapshot import as_golden
from pytest_npudump.storage.regular_file import read_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from pytest_npudump.dump.records import TensorRecord
    from pytest_npudump.golden.content.text import Golden
    from pytest_npudump.record.record import Record
    from pytest_npudump.regression.case import Case
    from pytest_npudump.regression.outcome import FirstRun

_COLUMNS = ("keys", "dtypes", "shapes", "counts", "wide", "digests")
_ARRAYS = ("values", "known", "digits", "projections", "projected")


def record_text(
    case: Case, first: FirstRun, name_tensors: Callable[[Golden], Golden] | None = None
) -> tuple[bytes | None, tuple[str, ...]]:
    """Return the text of what a run left, and why there is none.

    Args:
        case: the test.
        first: its run.
        name_tensors: returns the record with the tensors that are kept with it; None where none are.
    """
    snapshot, before = first.snapshot, first.judged_with
    if snapshot is None:
        return None, ()
    types = snapshot.table.op_types
    alike = name_tensors is None and before is not None and _is_alike(snapshot, before)
    if alike and before is not None and (text := _content(before)):
        return text + _block_of(types), ()
    golden = as_golden(case, snapshot, before)
    golden = golden if name_tensors is None else name_tensors(golden)
    lines = "".join([f"{_line(name)}\n" for name in types])
    try:
        return render(replace(golden, blocks={**golden.blocks, OP_TYPES: lines})).encode(), ()
    except GoldenError as error:
        return None, (str(error),)


def types_by_key(records: Iterable[TensorRecord]) -> dict[str, str]:
    """Return the types of operators by sanitised key, of those that are known."""
    return {str(record.key.sanitised): record.op_type for record in records if record.op_type}


def types_block(golden: Golden, types: Mapping[str, str]) -> bytes:
    """Return the block of types for the end of a golden's file.

    Args:
        golden: as it is in the file.
        types: as :func:`types_by_key` has them.
    """
    return _block_of(types.get(sanitised_key(key), "") for key in golden.table.keys)


def _block_of(names: Iterable[str]) -> bytes:
    lines = "".join([f"  {_line(name)}\n" for name in names])
    return f"{OP_TYPES}: |\n{lines}".encode()


def _is_alike(snapshot: Record, golden: Golden) -> bool:
    """Whether a run would be its golden once more: most runs are, and a text that is there costs least."""
    one, other = snapshot.table, golden.table
    return (
        dict(snapshot.facts) == dict(golden.producer)
        and snapshot.extra.get(EMPTY) == golden.extra.get(EMPTY)
        and all(getattr(one, name) == getattr(other, name) for name in _COLUMNS)
        and all(_is_equal(getattr(one, name), getattr(other, name)) for name in _ARRAYS)
    )


def _is_equal(one: NDArray[Any] | None, other: NDArray[Any] | None) -> bool:
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def _content(golden: Golden) -> bytes:
    """Return the golden's file, where it is as it was read and a block may stand behind it; else nothing."""
    try:
        content = read_regular(golden.path)
    except OSError:
        return b""
    whole = content.endswith(b"\n") and b"\r" not in content and b"\ntensors: |\n" in content
    return content if whole and content_digest(content) == golden.digest else b""


def _line(name: str) -> str:
    return name if name.isprintable() and name[:1] not in {"", " "} else UNKNOWN
