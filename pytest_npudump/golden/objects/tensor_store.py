"""Stored tensors as a test sees them: from the cache of this machine, else from the store that all share."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.errors import StoreError
from pytest_npudump.golden.objects.object_cache import ObjectCache, default_folder
from pytest_npudump.golden.objects.object_store import UnreachableError, object_store
from pytest_npudump.golden.tensor_content import chunks, portable, viewed

if TYPE_CHECKING:
    from pytest_npudump.golden.objects.object_store import ObjectStore
    from pytest_npudump.golden.tensors import Tensor
    from pytest_npudump.record.pointer_lines import Pointer
    from pytest_npudump.settings import Settings


def store_of(settings: Settings, root: Path) -> TensorStore:
    """Return where stored tensors are by the options of a run.

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
    """Where stored tensors are.

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

    def push(self, digest: str, size: int, *, replace: bool = False) -> bool:
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
        """Have the bytes of a tensor in the cache; whether they had to be fetched.

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
                f"--npudump-tensor-store ({facts})"
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
