"""One test's golden tensors: written by an update's second run, read to compare element by element."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.dump.records import TensorKey, sanitise
from pytest_npudump.dump.selection import layers_meant
from pytest_npudump.dump.table import sanitised_key
from pytest_npudump.errors import GoldenError
from pytest_npudump.golden.objects.stored_golden import fetch_tensors, pointed_tensors
from pytest_npudump.golden.objects.tensor_store import TensorStore
from pytest_npudump.golden.pair import is_stored, left_out, other_recording, recorded_tensors
from pytest_npudump.golden.tensor_content import copies_of
from pytest_npudump.golden.tensors import StoredTensor, load_tensors, read_metadata
from pytest_npudump.language.excerpt import first_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import numpy as np

    from pytest_npudump.dump.records import TensorRecord
    from pytest_npudump.dump.table import StatsTable
    from pytest_npudump.golden.tensors import GoldenTensor
    from pytest_npudump.record.record import Record

_GOLDEN = "golden"


@dataclass(frozen=True, slots=True, eq=False)
class KeptTensors:
    """Tensors that a recording keeps.

    Attributes:
        tensors: values by key text, with the name of the type they had on the device.
        left_out: layers whose tensors cannot be told apart, as file names spell them.
        sources: layers that are kept as sources of past failures, the latest first.
    """

    tensors: Mapping[str, tuple[np.ndarray, str]]
    left_out: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, records: Iterable[TensorRecord], left_out: Iterable[str] = (), sources: Iterable[str] = ()
    ) -> KeptTensors:
        """Read the tensors of ``records``.

        Raises:
            DumpError: a tensor's bytes have no values that could be kept.
        """
        tensors = {
            str(record.key): (load(record.payload, record.dtype, record.shape), record.dtype)
            for record in records
            if record.payload is not None
        }
        return cls(tensors, tuple(left_out), tuple(sources))

    def refuse_beyond(self, budget: int) -> None:
        """Refuse tensors of more than ``budget`` bytes; those of the same values count once.

        Raises:
            GoldenError: says which layers are the largest.
        """
        sizes = {key: array.nbytes for key, (array, _) in self.tensors.items()}
        alike = copies_of(self.tensors)
        total = sum(size for key, size in sizes.items() if key not in alike)
        if total > budget:
            largest = sorted(sizes, key=lambda key: -sizes[key])
            words = first_of((f"{key} ({sizes[key]} bytes)" for key in largest), 3)
            raise GoldenError(
                f"golden_tensors: the tensors have {total} bytes, more than --npudump-tensor-budget "
                f"({budget} bytes): {words}; name fewer layers, or raise the budget"
            )

    def metadata(self, golden: Record) -> dict[str, str]:
        """Return what is kept with the tensors beside ``golden``."""
        return {"test": golden.test, _GOLDEN: _fingerprint(golden.table, self.tensors)}


def _fingerprint(table: StatsTable, keys: Iterable[str]) -> str:
    """Return what tells whether tensors were recorded with these statistics."""
    rows = {sanitised_key(key): row for row, key in enumerate(table.keys)}
    digest = blake2b(digest_size=16)
    for key in sorted(map(sanitised_key, keys)):
        row = rows.get(key)
        facts = None if row is None else table.statistics(row)
        digest.update(f"{key} {facts}\n".encode())
    return digest.hexdigest()


def stored_tensors(
    golden: Record, *, foreign: bool = False, store: TensorStore | None = None
) -> Mapping[str, GoldenTensor]:
    """Return the tensors kept with a golden file by sanitised key; nothing where there are none.

    Args:
        golden: the golden file.
        foreign: whether tensors are taken that do not tell of which golden they are, as others write them.
        store: where those are that do not lie beside it; None for the cache alone.

    Raises:
        GoldenError: the file cannot be read, or was recorded with other statistics than the golden file.
    """
    if is_stored(golden):
        return pointed_tensors(golden, store or TensorStore())
    path = recorded_tensors(golden)
    if path is None:
        return {}
    stored = {sanitised_key(key): StoredTensor(path, key) for key in load_tensors(path)}
    told = read_metadata(path).get(_GOLDEN)
    if told != _fingerprint(golden.table, stored) and not (foreign and told is None):
        raise other_recording(golden)
    return stored


def read_tensors(golden: Record, store: TensorStore | None = None) -> dict[str, np.ndarray]:
    """Map the tensors kept with a golden file by sanitised key.

    Raises:
        GoldenError: as :func:`stored_tensors`, or a tensor cannot be had.
    """
    stored = stored_tensors(golden, store=store)
    fetch_tensors(stored.values())
    return {sanitised: tensor.array() for sanitised, tensor in stored.items()}


def missing_tensors(golden: Record, stored: Collection[str], patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the keys of the golden whose layers ``patterns`` name and whose tensors are not ``stored``.

    Layers that the recording left out are none of them.

    Raises:
        GoldenError: the golden does not tell rightly which these are.
    """
    alike = left_out(golden)
    keys = [TensorKey.parse(key) for key in golden.table.keys]
    wanted = layers_meant(patterns, (key.layer for key in keys))
    return tuple(
        str(key)
        for key in keys
        if key.layer in wanted and str(key.sanitised) not in stored and sanitise(key.layer) not in alike
    )
