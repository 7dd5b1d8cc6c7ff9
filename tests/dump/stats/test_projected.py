"""Statistics and projections from one pass over files of any layout."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_npudump.dump.arrays.decode import load, read_npy_header
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import Payload
from pytest_npudump.dump.stats.projections import project
from pytest_npudump.dump.stats.tensor import npy_stats, payload_stats, tensor_stats

TREES = Path(__file__).parents[2] / "data" / "trees"


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


@pytest.mark.each("shape", [(), (7,), (40, 60), (300, 40, 90)])
@pytest.mark.each("order", ["C", "F"])
def test_npy_files_of_either_order_have_the_projections_of_c_order(
    tmp_path: Path, shape: tuple[int, ...], order: str
) -> None:
    array = np.asarray(noise(*shape), order=order)  # type: ignore[call-overload]
    np.save(tmp_path / "a.npy", array)
    found = npy_stats(tmp_path / "a.npy", read_npy_header(tmp_path / "a.npy"), projections=True)
    assert found.projections == project(np.ascontiguousarray(array))
    assert found.max == tensor_stats(array).max


@pytest.mark.each("dtype", [">f4", "<f2", ">i4", "<c8", "?", "<f8"])
def test_numpy_types_of_either_byte_order_have_the_projections_of_their_values(
    tmp_path: Path, dtype: str
) -> None:
    array = (10 * noise(50, 700)).astype(dtype)
    np.save(tmp_path / "a.npy", array)
    found = npy_stats(tmp_path / "a.npy", read_npy_header(tmp_path / "a.npy"), projections=True)
    assert found.projections == project(array)


@pytest.mark.each("count", [0, 1, 4096, 4097, 16_384, 700_000, 2_300_000])
@pytest.mark.each("dtype", ["float32", "float16", "int8", "bool"])
def test_raw_files_that_are_read_or_mapped_have_the_same(tmp_path: Path, dtype: str, count: int) -> None:
    array = (5 * noise(count)).astype(dtype)
    (tmp_path / "raw").write_bytes(b"head" + array.tobytes())
    payload = Payload(tmp_path / "raw", 4, array.nbytes)
    found = payload_stats(payload, dtype, count, projections=True)
    assert found is not None
    assert found.projections == project(array)
    without = payload_stats(payload, dtype, count)
    assert without is not None
    assert str(replace(found, projections=None)) == str(without)  # NaN equals NaN


@pytest.mark.each(
    "tree",
    ["acl-dtypes", "acl-exception", "acl-tensor", "mindspore-dtypes", "mindspore-control_flow_multigraph"],
)
def test_each_tensor_of_a_real_dump_has_those_of_its_values(tree: str) -> None:
    records = [record for record in read_dump(TREES / tree, projections=True).records if record.payload]
    assert records
    for record in records:
        assert record.payload is not None
        assert record.stats is not None, record.key
        values = load(record.payload, record.dtype, record.shape)
        assert record.stats.projections == project(values), record.key
