"""Tensors of a store: their bytes are those that were kept, from cache or store, or it is said."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pytest_npudump.errors import GoldenError, StoreError
from pytest_npudump.golden.objects import ObjectStore
from pytest_npudump.golden.stored_tensors import TensorStore
from pytest_npudump.record.rows import Pointer

VALUES = np.linspace(-1, 1, 600, dtype=np.float32).reshape(2, 3, 100)


@pytest.fixture
def store(tmp_path: Path) -> TensorStore:
    (tmp_path / "store").mkdir()
    return TensorStore(f"file://{tmp_path}/store", str(tmp_path / "cache"))


def pointer(array: np.ndarray) -> Pointer:
    """What a golden says of an array: computed here, not by the module."""
    digest = sha256(array.tobytes()).hexdigest()
    return Pointer("fc:output.0", array.dtype.name, array.shape, digest, array.nbytes, "00000000")


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


ARRAYS = [
    *(VALUES.astype(kind) for kind in (np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn)),
    *(VALUES > 0, (VALUES * 100).astype(np.int8), VALUES + 1j, np.float64(3.5).reshape(())),
    np.array([np.nan, -0.0, np.inf], np.float32),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_a_tensor_comes_back_bit_for_bit(array: np.ndarray, store: TensorStore) -> None:
    """One of another order is kept as it reads."""
    assert store.keep(array) == (pointer(array).digest, array.nbytes)
    back = store.array(pointer(array))
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())
    if array.dtype.isbuiltin == 1:
        assert store.keep(np.asfortranarray(array).astype(array.dtype.newbyteorder(">"))) == (
            pointer(array).digest,
            array.nbytes,
        )


def test_an_empty_tensor_takes_no_object(store: TensorStore, tmp_path: Path) -> None:
    empty = np.empty((0, 3), np.float32)
    store.keep(empty)
    assert files(tmp_path) == []
    assert not store.fetch(pointer(empty))
    assert store.array(pointer(empty)).shape == (0, 3)


def test_the_same_content_is_kept_once(store: TensorStore, tmp_path: Path) -> None:
    store.keep(VALUES)
    (kept,) = files(tmp_path / "store")
    before = kept.stat().st_mtime_ns
    store.keep(VALUES.reshape(-1))
    store.keep(VALUES.view(np.int32))
    assert files(tmp_path / "store") == [kept]
    assert kept.stat().st_mtime_ns == before


def test_what_is_cached_needs_no_store(store: TensorStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.keep(VALUES)
    monkeypatch.setattr(ObjectStore, "_ask", None)
    assert store.array(pointer(VALUES)).tobytes() == VALUES.tobytes()
    assert replace(store, url="").array(pointer(VALUES)).tobytes() == VALUES.tobytes()


def test_a_damaged_cache_is_mended_from_the_store_and_not_put_into_it(
    store: TensorStore, tmp_path: Path
) -> None:
    wanted, zeros = pointer(VALUES), b"\0" * VALUES.nbytes
    store.keep(VALUES)
    path = store.cache.path(wanted.digest)
    for mend in (lambda: store.array(wanted), lambda: store.keep(VALUES)):
        path.write_bytes(zeros)
        with pytest.raises(StoreError, match="is not cached here, or damaged"):
            store.push(wanted.digest, VALUES.nbytes, replace=True)
        (kept,) = files(tmp_path / "store")
        assert kept.read_bytes() == VALUES.tobytes()
        mend()
        assert path.read_bytes() == VALUES.tobytes()
    path.write_bytes(zeros)
    assert store.array(wanted).tobytes() == VALUES.tobytes()


def test_a_damaged_store_is_said_and_not_cached_and_mended_by_a_push(
    store: TensorStore, tmp_path: Path
) -> None:
    wanted, size = pointer(VALUES), VALUES.nbytes
    store.keep(VALUES)
    (kept,) = files(tmp_path / "store")
    elsewhere = replace(store, folder=str(tmp_path / "other"))
    kept.write_bytes(b"\0" * size)
    with pytest.raises(StoreError, match=r"file:.*: is damaged, its bytes have the SHA-256"):
        elsewhere.array(wanted)
    assert files(tmp_path / "other") == []
    assert store.push(wanted.digest, size, replace=True)
    kept.write_bytes(VALUES.tobytes()[:100])
    with pytest.raises(StoreError, match=r"has 100 bytes in the store: .*remote push"):
        elsewhere.fetch(wanted)
    assert [store.push(wanted.digest, size, replace=False) for _ in range(2)] == [True, False]
    assert elsewhere.fetch(wanted)
    assert elsewhere.array(wanted).tobytes() == VALUES.tobytes()


LACKING = {
    "": "no store is named: set npudump_tensor_store in pytest's ini file",
    "file:///nowhere/at/all": "its store is not at hand: .*'npudump golden remote pull'.*no such folder",
    "memory://empty": "is not in the store: .*'npudump golden remote push'.*; memory://empty/sha256/",
}


@pytest.mark.each("url", LACKING)
def test_what_is_lacking_is_said_with_the_way_out(url: str, tmp_path: Path) -> None:
    store, wanted = TensorStore(url, str(tmp_path)), pointer(VALUES)
    for ask in (store.fetch, store.array):
        with pytest.raises(StoreError) as raised:
            ask(wanted)
        assert str(raised.value).startswith("golden tensor fc:output.0 is not cached, and ")
        assert str(raised.value).endswith(f"(sha256 {wanted.digest}, 2400 bytes, cache {tmp_path})")
        raised.match(LACKING[url])


def test_a_pointer_that_does_not_fit_its_bytes_is_refused(store: TensorStore) -> None:
    store.keep(VALUES)
    wrong: list[dict[str, Any]] = [{"dtype": "object"}, {"dtype": "float64"}, {"shape": (7,)}]
    for change in wrong:
        with pytest.raises(GoldenError, match=r"tensor fc:output\.0 has 2400 bytes.*do not go together"):
            store.array(replace(pointer(VALUES), **change))


def test_many_writers_of_one_content_leave_it_whole(store: TensorStore, tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(store.keep, [VALUES] * 40))
    assert found == {(pointer(VALUES).digest, VALUES.nbytes)}
    assert [path.read_bytes() for path in files(tmp_path)] == [VALUES.tobytes()] * 2  # cached, and stored
