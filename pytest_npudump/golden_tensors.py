"""One test's golden tensors: written by an update's second run, read to compare element by element."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from safetensors import safe_open

from pytest_npudump.compare.pairs import StoredTensor
from pytest_npudump.compare.table import STATISTICS
from pytest_npudump.dump.decode import load
from pytest_npudump.dump.records import TensorKey
from pytest_npudump.errors import GoldenError
from pytest_npudump.golden.tensors import load_tensors, save_tensors
from pytest_npudump.layers import both_spellings
from pytest_npudump.request import matches_any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    import numpy as np

    from pytest_npudump.compare.table import StatsTable
    from pytest_npudump.dump.records import TensorRecord
    from pytest_npudump.golden.text import Golden
    from pytest_npudump.goldens import Goldens

_GOLDEN = "golden"


def write_tensors(goldens: Goldens, records: Iterable[TensorRecord], table: StatsTable) -> None:
    """Keep the tensors of ``records`` beside the golden file that ``table`` is about to become.

    Raises:
        DumpError: a tensor's bytes have no values that could be kept.
        GoldenError: the file cannot be written.
    """
    tensors = {
        str(record.key): (load(record.payload, record.dtype, record.shape), record.dtype)
        for record in records
        if record.payload is not None
    }
    metadata = {"test": goldens.test, _GOLDEN: _fingerprint(table, tensors)}
    save_tensors(goldens.tensors, tensors, metadata)


def _fingerprint(table: StatsTable, keys: Iterable[str]) -> str:
    """Return what tells whether tensors were recorded with these statistics."""
    rows = {_plain(key): row for row, key in enumerate(table.keys)}
    digest = blake2b(digest_size=16)
    for key in sorted(map(_plain, keys)):
        row = rows.get(key)
        facts = None if row is None else [table.value(row, column) for column in range(len(STATISTICS))]
        digest.update(f"{key} {facts}\n".encode())
    return digest.hexdigest()


def _plain(key: str) -> str:
    return str(TensorKey.parse(key).sanitised)


def stored_tensors(golden: Golden) -> dict[str, StoredTensor]:
    """Return the tensors kept beside a golden file by sanitised key; nothing where there is no such file.

    Raises:
        GoldenError: the file cannot be read, or was recorded with other statistics than the golden file.
    """
    path = golden.path.with_suffix(".safetensors")
    if not path.exists():
        return {}
    stored = {_plain(key): StoredTensor(path, key) for key in load_tensors(path)}
    if _metadata(path).get(_GOLDEN) != _fingerprint(golden.table, stored):
        raise GoldenError(
            f"{path} was recorded with other statistics than {golden.path.name} beside it: restore both "
            f"from version control, or approve anew with --npudump-update-golden"
        )
    return stored


def _metadata(path: Path) -> dict[str, str]:
    with safe_open(path, framework="np") as file:
        return dict(file.metadata() or {})


def read_tensors(golden: Golden) -> dict[str, np.ndarray]:
    """Map the tensors beside a golden file by sanitised key.

    Raises:
        GoldenError: as :func:`stored_tensors`.
    """
    stored = stored_tensors(golden)
    tensors = load_tensors(golden.path.with_suffix(".safetensors")) if stored else {}
    return {sanitised: tensors[tensor.key] for sanitised, tensor in stored.items()}


def missing_tensors(golden: Golden, stored: Collection[str], patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the keys of the golden whose layers ``patterns`` name and whose tensors are not ``stored``."""
    wanted = both_spellings(patterns)
    return tuple(
        key
        for key in golden.table.keys
        if matches_any(wanted, TensorKey.parse(key).layer) and _plain(key) not in stored
    )
