"""Stored tensors of a test: from the cache of this machine, else from the store that all share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import blake2b, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.dump.records import TensorKey, TensorRecord, sanitise
from pytest_npudump.dump.selection import layers_meant
from pytest_npudump.dump.table import StatsTable, layer_of, sanitised_key
from pytest_npudump.errors import GoldenError, StoreError
from pytest_npudump.golden.objects import (
    ObjectCache,
    ObjectStore,
    UnreachableError,
    default_folder,
    object_store,
)
from pytest_npudump.golden.store import (
    HASH,
    KEY,
    STORED,
    Recording,
    facts_of,
    is_stored,
    left_out,
    other_recording,
    recorded_tensors,
    stage_golden,
)
from pytest_npudump.golden.tensors import (
    StoredTensor,
    TensorFile,
    chunks,
    copies_of,
    portable,
    read_metadata,
    viewed,
)
from pytest_npudump.language.text import first_of
from pytest_npudump.record.record import POINTERS, Record
from pytest_npudump.record.rows import Pointer, read_pointers, row_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pytest_npudump.golden.tensors import Tensor
    from pytest_npudump.settings import Settings


def store_of(settings: Settings, root: Path) -> TensorStore:
    """Return the store of tensors by the options of a run.

    Args:
        settings: the options.
        root: what a relative folder is relative to.
    """
    folder = settings.tensor_cache
    return TensorStore(settings.tensor_store, str(root / Path(folder).expanduser()) if folder else "")


def content_of(array: Tensor) -> tuple[str, int]:
    """Return the SHA-256 of a tensor's bytes in hexadecimal, and how many these are."""
    little = portable(array)
    found = sha256()
    for chunk in chunks(little):
        found.update(chunk)
    return found.hexdigest(), little.nbytes


@dataclass(frozen=True, slots=True)
class TensorStore:
    """Store of tensors, and its cache.

    Attributes:
        url: of the store; "" for none: what is cached is there all the same.
        folder: of the cache; "" for the one below the user's cache directory.
    """

    url: str = ""
    folder: str = ""

    @property
    def cache(self) -> ObjectCache:
        """The objects of this machine."""
        return ObjectCache(Path(self.folder).expanduser() if self.folder else default_folder())

    @property
    def objects(self) -> ObjectStore:
        """The objects that all machines share.

        Raises:
            RequestError: the address is none.
            MissingExtraError: what reaches it is not installed.
        """
        return object_store(self.url)

    def keep(self, array: Tensor) -> tuple[str, int]:
        """Put the bytes of a tensor into the cache and the store; those that are there stay.

        Returns:
            Their SHA-256 in hexadecimal, and how many these are.

        Raises:
            StoreError: they are not safely there.
            NpudumpError: the store cannot be used at all.
        """
        little = portable(array)
        digest, size = content_of(little)
        if size:
            if self.cache.read(digest, size) is None:
                self.cache.write(digest, chunks(little), "the tensor")
            if self.objects.size(digest) != size:
                self.objects.write(digest, self.cache.path(digest), size)
        return digest, size

    def push(self, digest: str, size: int, *, replace: bool) -> bool:
        """Put a cached object into the store where it is not there, or with another size; whether it was put.

        Raises:
            StoreError: it is not there behind this.
        """
        if not replace and self.objects.size(digest) == size:
            return False
        if self.cache.read(digest, size) is None:
            raise StoreError(
                f"{self.cache.path(digest)}: is not cached here, or damaged, and cannot be put there"
            )
        self.objects.write(digest, self.cache.path(digest), size)
        return True

    def fetch(self, pointer: Pointer) -> bool:
        """Fetch the bytes of a tensor to the cache; return whether they were not there before.

        Raises:
            StoreError: they are not cached, and cannot be had.
        """
        if not pointer.size or self.cache.has(pointer.digest, pointer.size):
            return False
        self._fetch(pointer)
        return True

    def array(self, pointer: Pointer) -> Tensor:
        """Map a tensor, read-only, once the hash of its bytes was found right.

        Raises:
            StoreError: the bytes are not cached, or damaged there, and cannot be had.
            GoldenError: what the golden says of the tensor does not go together.
        """
        found = self.cache.read(pointer.digest, pointer.size) if pointer.size else np.empty(0, np.uint8)
        if found is None:
            self._fetch(pointer)
            found = self.cache.read(pointer.digest, pointer.size)
        if found is None:
            raise StoreError(
                f"{self.cache.path(pointer.digest)}: is damaged as soon as it is written: look at the disk"
            )
        return viewed(found, pointer.dtype, pointer.shape, f"the stored tensor {pointer.key}")

    def _fetch(self, pointer: Pointer) -> None:
        what = f"golden tensor {pointer.key} is not cached"
        facts = f"sha256 {pointer.digest}, {pointer.size} bytes, cache {self.cache.folder}"
        if not self.url:
            raise StoreError(
                f"{what}, and no store is named: set npudump_tensor_store in pytest's ini file, or give "
                f"-o npudump_tensor_store=URL ({facts})"
            )
        place = self.objects.place(pointer.digest)
        try:
            size = self.objects.size(pointer.digest)
            if size == pointer.size:
                self.cache.write(pointer.digest, self.objects.read(pointer.digest), place)
                return
        except UnreachableError as error:
            raise StoreError(
                f"{what}, and its store is not at hand: run again when it is, or cache what goldens "
                f"name beforehand with 'npudump golden remote pull'; {error} ({facts})"
            ) from error
        state = "is not in the store" if size is None else f"has {size} bytes in the store"
        raise StoreError(
            f"{what}, and {state}: where it is cached 'npudump golden remote push' puts it there again, else "
            f"record it anew with --npudump-update-golden; {place} ({facts})"
        )


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


GoldenTensor = StoredTensor | PointedTensor
"""A tensor that a golden keeps, wherever it lies: its file, and how it is mapped."""


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
    return stage_golden(golden)


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
                f"this file: restore the file from version control, or accept anew with "
                f"--npudump-update-golden"
            )
        found[sanitised_key(key)] = PointedTensor(pointer, store)
    return found


def pointers_of(golden: Record) -> dict[str, Pointer]:
    """Return a golden's pointers into the store, by key; none where it has no tensors there.

    Raises:
        GoldenError: its key does not tell rightly that there are some.
    """
    block = golden.blocks.get(POINTERS, "")
    if is_stored(golden) != bool(block):
        raise GoldenError(
            f"{golden.path}: the key {KEY!r} and the block {POINTERS!r} do not go together, expected both or "
            f"neither: restore the file from version control, or accept anew with --npudump-update-golden"
        )
    return read_pointers(block)


def fetch_tensors(tensors: Iterable[object], patterns: Sequence[str] = ("*",)) -> int:
    """Fetch the stored tensors of the named layers to the cache; return how many were fetched.

    Raises:
        StoreError: one is not cached, and cannot be had.
    """
    pointed = [tensor for tensor in tensors if isinstance(tensor, PointedTensor)]
    wanted = layers_meant(patterns, (layer_of(one.pointer.key) for one in pointed))
    once = {one.pointer.digest: one for one in pointed if layer_of(one.pointer.key) in wanted}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return sum(pool.map(lambda one: one.store.fetch(one.pointer), once.values()))


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
        from pytest_npudump.dump.arrays.decode import load  # noqa: PLC0415 - where tensors are kept

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
        if (total := sum(size for key, size in sizes.items() if key not in alike)) > budget:
            largest = sorted(sizes, key=lambda key: -sizes[key])
            words = first_of(f"{key} ({sizes[key]} bytes)" for key in largest)
            raise GoldenError(
                f"golden_tensors: the tensors have {total} bytes, more than npudump_tensor_budget "
                f"({budget} bytes): {words}; name fewer layers, or raise the budget"
            )

    def metadata(self, golden: Record) -> dict[str, str]:
        """Return the metadata of the tensors beside ``golden``."""
        return {"test": golden.test, _GOLDEN: _fingerprint(golden.table, self.tensors)}


def _fingerprint(table: StatsTable, keys: Iterable[str]) -> str:
    """Return the fingerprint by which tensors are known to be recorded with these statistics."""
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
    stored = {sanitised_key(key): StoredTensor(path, key) for key in TensorFile.read(path).entries}
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
