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


@pytest.mark.parametrize(
    "array",
    [
        VALUES,
        VALUES.astype(np.float16),
        VALUES.astype(ml_dtypes.bfloat16),
        VALUES.astype(ml_dtypes.float8_e4m3fn),
        VALUES > 0,
        (VALUES * 100).astype(np.int8),
        VALUES + 1j,
        np.float64(3.5).reshape(()),
        np.array([np.nan, -0.0, np.inf], np.float32),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_a_tensor_comes_back_bit_for_bit(array: np.ndarray, store: TensorStore) -> None:
    assert store.keep(array) == (pointer(array).digest, array.nbytes)
    back = store.array(pointer(array))
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_an_array_of_another_order_is_kept_as_it_reads(store: TensorStore) -> None:
    strange = np.asfortranarray(VALUES).astype(">f4")
    assert store.keep(strange)[0] == pointer(VALUES).digest


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


def test_a_damaged_cache_is_mended_from_the_store(store: TensorStore) -> None:
    store.keep(VALUES)
    path = store.cache.path(pointer(VALUES).digest)
    path.write_bytes(b"\0" * VALUES.nbytes)
    assert store.array(pointer(VALUES)).tobytes() == VALUES.tobytes()
    assert path.read_bytes() == VALUES.tobytes()


def test_a_damaged_cache_is_not_put_into_the_store(store: TensorStore, tmp_path: Path) -> None:
    store.keep(VALUES)
    store.cache.path(pointer(VALUES).digest).write_bytes(b"\0" * VALUES.nbytes)
    with pytest.raises(StoreError, match="is not cached here, or damaged"):
        store.push(pointer(VALUES).digest, VALUES.nbytes, replace=True)
    (kept,) = files(tmp_path / "store")
    assert kept.read_bytes() == VALUES.tobytes()
    store.keep(VALUES)
    assert store.cache.path(pointer(VALUES).digest).read_bytes() == VALUES.tobytes()


def test_a_damaged_store_is_said_and_not_cached(store: TensorStore, tmp_path: Path) -> None:
    store.keep(VALUES)
    (kept,) = files(tmp_path / "store")
    kept.write_bytes(b"\0" * VALUES.nbytes)
    elsewhere = replace(store, folder=str(tmp_path / "other"))
    with pytest.raises(StoreError, match=r"file:.*: is damaged, its bytes have the SHA-256"):
        elsewhere.array(pointer(VALUES))
    assert files(tmp_path / "other") == []
    assert store.push(pointer(VALUES).digest, VALUES.nbytes, replace=True)
    assert elsewhere.array(pointer(VALUES)).tobytes() == VALUES.tobytes()


def test_store_that_holds_half_of_it_is_said_and_mended_by_a_push(store: TensorStore, tmp_path: Path) -> None:
    store.keep(VALUES)
    (kept,) = files(tmp_path / "store")
    kept.write_bytes(VALUES.tobytes()[:100])
    elsewhere = replace(store, folder=str(tmp_path / "other"))
    with pytest.raises(StoreError, match=r"has 100 bytes in the store: .*remote push"):
        elsewhere.fetch(pointer(VALUES))
    assert store.push(pointer(VALUES).digest, VALUES.nbytes, replace=False)
    assert not store.push(pointer(VALUES).digest, VALUES.nbytes, replace=False)
    assert elsewhere.fetch(pointer(VALUES))


@pytest.mark.each(
    ("url", "words"),
    [
        ("", "no store is named: set npudump_tensor_store in pytest's ini file"),
        (
            "file:///nowhere/at/all",
            "its store is not at hand: .*'npudump golden remote pull'.*no such folder",
        ),
        ("memory://empty", "is not in the store: .*'npudump golden remote push'.*; memory://empty/sha256/"),
    ],
)
def test_what_is_lacking_is_said_with_the_way_out(url: str, words: str, tmp_path: Path) -> None:
    store, wanted = TensorStore(url, str(tmp_path)), pointer(VALUES)
    for ask in (store.fetch, store.array):
        with pytest.raises(StoreError) as raised:
            ask(wanted)
        assert str(raised.value).startswith("golden tensor fc:output.0 is not cached, and ")
        assert str(raised.value).endswith(f"(sha256 {wanted.digest}, 2400 bytes, cache {tmp_path})")
        raised.match(words)


@pytest.mark.parametrize("wrong", [{"dtype": "object"}, {"dtype": "float64"}, {"shape": (7,)}])
def test_a_pointer_that_does_not_fit_its_bytes_is_refused(wrong: dict[str, Any], store: TensorStore) -> None:
    store.keep(VALUES)
    with pytest.raises(
        GoldenError, match=r"the stored tensor fc:output\.0 has 2400 bytes.*do not go together"
    ):
        store.array(replace(pointer(VALUES), **wrong))


def test_many_writers_of_one_content_leave_it_whole(store: TensorStore, tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(store.keep, [VALUES] * 40))
    assert found == {(pointer(VALUES).digest, VALUES.nbytes)}
    assert [path.read_bytes() for path in files(tmp_path)] == [VALUES.tobytes()] * 2  # cached, and stored
