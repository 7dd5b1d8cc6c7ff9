"""What a golden says of its tensors in a store: a block with a line each, and the key that tells of it.

The tensors are in the store before the golden names them, so that the golden file alone is what an update
replaces, and what two approvals are merged in.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_npudump.dump.selection import layers_meant
from pytest_npudump.dump.table import layer_of, sanitised_key
from pytest_npudump.errors import GoldenError
from pytest_npudump.golden.pair import HASH, KEY, STORED, Recording, facts_of, is_stored
from pytest_npudump.golden.store import stage_golden
from pytest_npudump.record.pointer_lines import Pointer, read_pointers, row_hash
from pytest_npudump.record.record import POINTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_npudump.golden.objects.tensor_store import TensorStore
    from pytest_npudump.golden.tensors import Tensor
    from pytest_npudump.record.record import Record

_NO_ROW = "00000000"
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class PointedTensor:
    """A golden tensor that lies in a store.

    Attributes:
        pointer: what the golden says of it.
        store: where it is.
    """

    pointer: Pointer
    store: TensorStore

    @property
    def path(self) -> Path:
        """Its file in the cache of this machine."""
        return self.store.cache.path(self.pointer.digest)

    def array(self) -> Tensor:
        """Map it, read-only, once the hash of its bytes was found right.

        Raises:
            StoreError: it cannot be had.
            GoldenError: what the golden says of it does not go together.
        """
        return self.store.array(self.pointer)


def stage_stored(
    golden: Record,
    tensors: Mapping[str, tuple[Tensor, str]],
    left_out: Sequence[str],
    store: TensorStore,
    sources: Sequence[str] = (),
) -> Recording:
    """Put tensors into a store, and write what is to replace the golden file.

    Args:
        golden: its path is that of the golden file.
        tensors: by key text, the values and the name of the type they had on the device.
        left_out: layers whose tensors could not be told apart, as file names spell them.
        store: where they are put.
        sources: layers that are kept as sources of past failures.

    Raises:
        NpudumpError: they are not all safely there, or the golden cannot be written; it is as it was.
    """
    arrays = {key: array for key, (array, _) in tensors.items()}
    golden = naming(golden, arrays, facts_of({STORED: HASH}, left_out, sources), store.keep)
    staged = stage_golden(golden.path, golden)
    return Recording(golden.path, staged.file, staged.digest)


def naming(
    golden: Record,
    tensors: Mapping[str, Tensor],
    facts: Mapping[str, Any],
    keep: Callable[[Tensor], tuple[str, int]],
) -> Record:
    """Return a golden that names tensors in a store.

    Args:
        golden: without.
        tensors: by key text.
        facts: what its key ``golden_tensors`` says.
        keep: called with each tensor; returns the SHA-256 of its bytes, and how many these are.
    """
    rows = {sanitised_key(key): row for row, key in enumerate(golden.table.keys)}
    lines = []
    for key in sorted(tensors, key=lambda key: (rows.get(sanitised_key(key), len(rows)), key)):
        array, row = tensors[key], rows.get(sanitised_key(key))
        digest, size = keep(array)
        name, told = (key, _NO_ROW) if row is None else (golden.table.keys[row], row_hash(golden.table, row))
        lines.append(Pointer(name, array.dtype.name, array.shape, digest, size, told).line())
    blocks = {**golden.blocks, POINTERS: "".join(lines)}
    return replace(golden, extra={**golden.extra, KEY: dict(facts)}, blocks=blocks)


def pointed_tensors(golden: Record, store: TensorStore) -> dict[str, PointedTensor]:
    """Return the tensors of a golden that lie in a store, by sanitised key.

    Raises:
        GoldenError: a line of them is none, or was recorded with other statistics than the tensor's line.
    """
    rows = {key: row for row, key in enumerate(golden.table.keys)}
    found = {}
    for key, pointer in pointers_of(golden).items():
        told = row_hash(golden.table, rows[key]) if key in rows else _NO_ROW
        if told != pointer.row:
            raise GoldenError(
                f"{golden.path}: the stored tensor {key} was recorded with other statistics than it has in "
                f"this file: restore the file from version control, or approve anew with "
                f"--npudump-update-golden"
            )
        found[sanitised_key(key)] = PointedTensor(pointer, store)
    return found


def pointers_of(golden: Record) -> dict[str, Pointer]:
    """Return what a golden says of its tensors in a store, by key; nothing of one that has none there.

    Raises:
        GoldenError: its key does not tell rightly that there are some.
    """
    block = golden.blocks.get(POINTERS, "")
    if is_stored(golden) != bool(block):
        raise GoldenError(
            f"{golden.path}: the key {KEY!r} and the block {POINTERS!r} do not go together, expected both or "
            f"neither: restore the file from version control, or approve anew with --npudump-update-golden"
        )
    return read_pointers(block)


def fetch_tensors(tensors: Iterable[object], patterns: Sequence[str] = ("*",)) -> int:
    """Have the tensors that lie in a store, of the layers named, in the cache; return how many were fetched.

    Raises:
        StoreError: one is not cached, and cannot be had.
    """
    pointed = [tensor for tensor in tensors if isinstance(tensor, PointedTensor)]
    wanted = layers_meant(patterns, (layer_of(one.pointer.key) for one in pointed))
    once = {one.pointer.digest: one for one in pointed if layer_of(one.pointer.key) in wanted}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return sum(pool.map(lambda one: one.store.fetch(one.pointer), once.values()))
