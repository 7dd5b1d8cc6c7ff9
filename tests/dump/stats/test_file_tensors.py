from __future__ import annotations

import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from pytest_npudump.dump.arrays.decode import read_npy_header
from pytest_npudump.dump.filebytes import CHUNK_BYTES, open_raw
from pytest_npudump.dump.records import Payload, Stats
from pytest_npudump.dump.stats.tensor import Waiting, npy_stats, payload_stats
from pytest_npudump.errors import FormatError

TYPES = ["float32", "float16", "float64", "bfloat16", "float8_e5m2", "int8", "uint16", "int32", "int64"]


def _numbers(dtype: str, count: int) -> np.ndarray:
    found = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    values = np.resize(np.random.default_rng(0).standard_normal(100_003) * 20, count)
    values[:: max(count // 9, 1)] = 0
    return np.abs(values).astype(found) if found.kind == "u" else values.astype(found)


def _raw_file(path: Path, values: np.ndarray, offset: int = 0) -> Payload:
    path.write_bytes(bytes(offset) + values.tobytes() + b"\xff" * 7)
    return Payload(path, offset, values.nbytes)


def _assert_is_what_numpy_finds(found: Stats | None, values: np.ndarray) -> None:
    wide = values.astype(np.float64)
    assert found is not None
    assert (found.count, found.nan, found.pos_inf, found.neg_inf) == (wide.size, 0, 0, 0)
    assert found.zero == np.count_nonzero(wide == 0)
    assert (found.max, found.min) == (wide.max(), wide.min())
    assert found.avg == pytest.approx(wide.sum() / wide.size, abs=9e-7 * np.abs(wide).mean())
    assert found.l2norm == pytest.approx(np.linalg.norm(wide), rel=1e-6)


@pytest.mark.each("dtype", TYPES)
@pytest.mark.each(("offset", "pieces"), [(0, 2), (3, 5)])
def test_all_pieces_of_a_large_tensor_count_wherever_it_begins(
    tmp_path: Path, dtype: str, offset: int, pieces: int
) -> None:
    values = _numbers(dtype, pieces * CHUNK_BYTES // np.dtype(getattr(ml_dtypes, dtype, dtype)).itemsize + 5)
    payload = _raw_file(tmp_path / "data", values, offset)
    _assert_is_what_numpy_finds(payload_stats(payload, dtype, values.size), values)


_SIZES = (1, 2, 7, 64, 1023, 4096, 4097, 9000, 16384, 16385, 25344, 32768, 45000, 131072, 526336)
"""Elements; up to one block, with a rest of a few or many rows, and more than are read at once."""


@pytest.mark.each("acl", [False, True])
@pytest.mark.each("dtype", ["float32", "float16", "bfloat16"])
def test_tensors_of_many_files_add_up_to_the_digits_of_each(tmp_path: Path, dtype: str, *, acl: bool) -> None:
    waiting = Waiting(projections=True, acl=acl)
    pairs = []
    made = ((1, 0), (1e-3, -0.0), (1e-30, 1), (1e20, -5), (1, math.nan), (1, math.inf), (0, 0))
    for count, (factor, special) in itertools.product(_SIZES, made):
        values = _numbers("float32", count) * np.float32(factor)
        values[count // 2] = special
        with np.errstate(all="ignore"):
            values = values.astype(getattr(ml_dtypes, dtype, dtype))
        for each in (values, abs(values)):
            payload = _raw_file(tmp_path / "data", each, 3)
            with open_raw(payload.path) as file:
                asked = {"acl": acl, "projections": True}
                here = payload_stats(payload, dtype, count, file=file, waiting=waiting, **asked)
            pairs.append((here, payload_stats(payload, dtype, count, **asked)))
    waiting.fill()
    assert [*map(repr, (here for here, _ in pairs))] == [*map(repr, (alone for _, alone in pairs))]


def test_only_the_elements_asked_for_count(tmp_path: Path) -> None:
    values = np.arange(1, 101, dtype=np.int32)
    found = payload_stats(_raw_file(tmp_path / "data", values), "int32", 10)
    assert found is not None
    assert (found.count, found.max) == (10, 10)


@pytest.mark.each("order", ["C", "F"])
@pytest.mark.each("descr", ["<f4", ">f4", "<f2", ">i8", "<f8"])
def test_an_npy_file_counts_in_either_order_of_axes_and_of_bytes(
    tmp_path: Path, descr: str, order: str
) -> None:
    values = np.asarray(_numbers("float64", 24 * 31).reshape(24, 31).astype(descr), order=order)
    np.save(tmp_path / "a.npy", values)
    header = read_npy_header(tmp_path / "a.npy")
    _assert_is_what_numpy_finds(npy_stats(tmp_path / "a.npy", header), values)
    payload = Payload(tmp_path / "a.npy", header.offset, header.nbytes, "npy")
    _assert_is_what_numpy_finds(payload_stats(payload, header.dtype.name, values.size), values)


def test_a_type_that_acl_has_no_statistics_for_is_only_counted_in_an_npy_file(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((2, 3), np.complex64))
    found = npy_stats(tmp_path / "a.npy", read_npy_header(tmp_path / "a.npy"), acl=True)
    assert (found.count, found.max, found.l2norm) == (6, None, None)


@pytest.mark.each("dtype", ["float32", "float16", "float64"])
@pytest.mark.each("place", [0, 1, CHUNK_BYTES])
def test_acl_is_misled_by_a_nan_in_the_first_element_of_the_tensor_only(
    tmp_path: Path, dtype: str, place: int
) -> None:
    values = np.ones(CHUNK_BYTES + 1, dtype)
    values[place] = np.nan
    found = payload_stats(_raw_file(tmp_path / "data", values), dtype, values.size, acl=True)
    assert found is not None
    assert math.isnan(found.max if found.max is not None else 0) == (place == 0)
    assert found.nan == 1


def test_a_file_without_the_bytes_is_an_error_that_names_the_byte(tmp_path: Path) -> None:
    payload = _raw_file(tmp_path / "data", np.ones(4, np.float32))
    with pytest.raises(FormatError, match="the tensor needs 400 bytes, but the file has 23 from there on"):
        payload_stats(Payload(payload.path, 0, 400), "float32", 100)


def test_files_read_in_threads_do_not_disturb_each_other(tmp_path: Path) -> None:
    arrays = [np.full(300_000 + number, number, np.float16) for number in range(12)]
    payloads = [_raw_file(tmp_path / str(number), array) for number, array in enumerate(arrays)]

    def read(number: int) -> tuple[float | None, float | None, int]:
        found = payload_stats(payloads[number], "float16", arrays[number].size)
        assert found is not None
        return found.max, found.min, found.count

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(read, range(12)))
    assert found == [(number, number, 300_000 + number) for number in range(12)]
