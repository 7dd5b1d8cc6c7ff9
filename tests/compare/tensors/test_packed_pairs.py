from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pytest_npudump.compare.tensors.difference import compare_tensors
from pytest_npudump.compare.tensors.tensor_pair import Pair, compare_pair
from pytest_npudump.dump.arrays.decode import DecodeError, load
from pytest_npudump.dump.arrays.host import host_array
from pytest_npudump.dump.arrays.packed import PackedTensor, packed_tensor
from pytest_npudump.dump.records import Payload, TensorKey, TensorRecord
from pytest_npudump.dump.stats.file_tensors import payload_stats
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.dump.values.dtypes import BY_NAME

if TYPE_CHECKING:
    from pathlib import Path

PACKED = ["int4", "uint1", "int2", "uint2", "hifloat8", "float4_e2m1fn", "float4_e1m2fn", "complex32"]
KEY = TensorKey("conv", "output", 0)


def _record(
    path: Path, dtype: str, shape: tuple[int, ...], *, seed: int = 0, layout: str = "ND"
) -> TensorRecord:
    nbytes = (math.prod(shape) * BY_NAME[dtype].bits + 7) // 8
    codes = np.random.default_rng(seed).integers(0, 0x70, nbytes, np.uint8)
    path.write_bytes(b"head" + codes.tobytes())
    payload = Payload(path, 4, nbytes)
    return TensorRecord(KEY, "Conv", dtype, shape, path, layout, payload=payload)


def _values(record: TensorRecord) -> Any:
    assert record.payload is not None
    return load(record.payload, record.dtype, record.shape)


@pytest.mark.parametrize("dtype", PACKED)
@pytest.mark.parametrize("count", [0, 1, 13, (1 << 18) + 11])
def test_tensors_unpacked_piece_by_piece_compare_as_those_unpacked_as_a_whole(
    dtype: str, count: int, tmp_path: Path
) -> None:
    golden = _record(tmp_path / "golden", dtype, (count,))
    actual = _record(tmp_path / "actual", dtype, (count,), seed=1)
    found = compare_pair(Pair(golden, actual, "ND", rtol=1e-3))
    one, other = _values(golden), _values(actual)
    assert not found.problems
    expected = compare_tensors(one, other, rtol=1e-3, atol=0)
    assert found.difference is not None
    assert found.golden is not None
    assert found.actual is not None
    by_codes = count and (dtype == "hifloat8" or dtype.startswith("float4"))
    for record, values in ((found.golden, one), (found.actual, other)):
        stats = tensor_stats(values)
        if by_codes:  # whose sums by codes are exact, where those of float32 are rounded
            stats = replace(
                stats, avg=pytest.approx(stats.avg, 1e-6), l2norm=pytest.approx(stats.l2norm, 1e-6)
            )
            assert record.payload is not None
            by_file = payload_stats(record.payload, dtype, count)
            assert record.stats == replace(by_file, avg=pytest.approx(by_file.avg, 1e-12))
        assert record.stats == stats
    if by_codes:
        sums = ("norm", "max_rel", "mean_rel", "cosine", "relative_l2")
        found_sums = {name: getattr(expected, name) for name in sums}
        expected = replace(expected, **{n: v and pytest.approx(v, 2e-6) for n, v in found_sums.items()})
    assert found.difference == expected


@pytest.mark.parametrize("dtype", ["int4", "hifloat8", "complex32"])
def test_the_memory_that_this_takes_does_not_grow_with_the_tensor(dtype: str, tmp_path: Path) -> None:
    peaks = []
    for count in (1 << 20, 1 << 23):
        golden = _record(tmp_path / "golden", dtype, (count,))
        actual = _record(tmp_path / "actual", dtype, (count,), seed=1)
        pair = Pair(golden, actual, "ND", rtol=1e-3)
        tracemalloc.start()
        assert compare_pair(pair).difference is not None
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + (1 << 20)


@pytest.mark.parametrize("dtype", [name for name in PACKED if BY_NAME[name].bits < 8])
@pytest.mark.parametrize("rtol", [0, 0.3])
@pytest.mark.parametrize("spare", [0, 1, 7])
def test_every_pair_of_bytes_compares_as_its_elements_do(
    dtype: str, rtol: float, spare: int, tmp_path: Path
) -> None:
    octets = np.tile(np.arange(1 << 16, dtype=np.uint16), 9).view(np.uint8).reshape(-1, 2)
    octets = np.random.default_rng(0).permutation(octets)
    octets[: octets.shape[0] // 2] = octets[: octets.shape[0] // 2] & 0x11
    count = octets.shape[0] * (8 // BY_NAME[dtype].bits) - spare % (8 // BY_NAME[dtype].bits)
    records = []
    for name, side in zip(("golden", "actual"), octets.T, strict=True):
        (tmp_path / name).write_bytes(side.tobytes())
        payload = Payload(tmp_path / name, 0, side.size)
        records.append(TensorRecord(KEY, "Conv", dtype, (count,), payload.path, "ND", payload=payload))
    found = compare_pair(Pair(*records, "ND", rtol=rtol))
    golden, actual = (_values(record).astype(np.float64) for record in records)
    distance, size = np.abs(actual - golden), np.abs(golden)
    assert found.difference is not None
    assert found.golden is not None
    assert found.golden.stats is not None
    assert found.difference.outside == np.count_nonzero(distance > rtol * size)
    assert found.difference.max_abs == distance.max()
    assert found.difference.magnitude == size.max()
    relative = (distance / np.where(size == 0, 1, size))[size != 0]
    assert found.difference.mean_rel == pytest.approx(relative.mean(), rel=1e-12)
    norms = np.linalg.norm(golden), np.linalg.norm(actual)
    assert found.difference.norm == pytest.approx(norms[0], rel=1e-12)
    assert found.difference.relative_l2 == pytest.approx(np.linalg.norm(distance) / norms[0], rel=1e-12)
    assert found.difference.cosine == pytest.approx(golden @ actual / norms[0] / norms[1], rel=1e-12)
    far = np.lexsort((np.arange(count), -distance))[:5]
    assert [element.index[0] for element in found.difference.worst] == far.tolist()
    assert [element.actual for element in found.difference.worst] == actual[far].tolist()
    stats = found.golden.stats
    assert (stats.max, stats.min, stats.zero) == (golden.max(), golden.min(), np.count_nonzero(golden == 0))
    assert stats.avg == pytest.approx(golden.mean(), rel=1e-12)


def test_types_that_do_not_compare_have_their_statistics(tmp_path: Path) -> None:
    golden = _record(tmp_path / "golden", "int4", (64,))
    actual = _record(tmp_path / "actual", "hifloat8", (64,))
    found = compare_pair(Pair(golden, actual, "ND"))
    assert found.difference is None
    assert found.golden is not None
    assert found.golden.stats == tensor_stats(_values(golden))
    assert "integers compare with equal types" in found.note


def test_only_what_lies_in_the_layout_that_is_asked_for_is_left_unmoved(tmp_path: Path) -> None:
    def packed(layout: str, asked: str, shape: tuple[int, ...] = (1, 2, 3, 4), dtype: str = "int4") -> bool:
        return packed_tensor(_record(tmp_path / "x", dtype, shape, layout=layout), asked) is not None

    assert packed("NCHW", "NCHW")
    assert packed("NCHW", "ND")
    assert packed("ND", "NHWC")
    assert packed("NCHW", "NHWC", (2, 3))
    assert not packed("NCHW", "NHWC")
    assert not packed("NC1HWC0", "NCHW", (1, 1, 2, 2, 32))
    assert not packed("ND", "ND", dtype="float32")
    assert not packed("ND", "ND", dtype="bool")


def test_layouts_that_differ_are_compared_in_the_one_that_is_asked_for(tmp_path: Path) -> None:
    golden = _record(tmp_path / "golden", "int4", (1, 2, 4, 4), layout="NCHW")
    values = _values(golden).transpose(0, 2, 3, 1).reshape(-1) & 0xF
    (tmp_path / "actual").write_bytes((values[::2] | values[1::2] << 4).astype(np.uint8).tobytes())
    payload = Payload(tmp_path / "actual", 0, 16)
    actual = TensorRecord(KEY, "Conv", "int4", (1, 4, 4, 2), payload.path, "NHWC", payload=payload)
    for layout in ("NCHW", "NHWC"):
        found = compare_pair(Pair(golden, actual, layout))
        assert found.difference is not None
        assert (found.difference.outside, found.difference.count) == (0, 32)


def test_a_payload_that_is_too_short_is_an_error(tmp_path: Path) -> None:
    record = _record(tmp_path / "x", "int4", (64,))
    assert record.payload is not None
    with pytest.raises(DecodeError, match="65 elements of int4 need 33 bytes"):
        PackedTensor(record.payload, "int4", (65,))


@pytest.mark.parametrize("dtype", ["hifloat8", "complex32"])
def test_device_layouts_of_such_types_are_joined_and_decoded_piece_by_piece(
    dtype: str, tmp_path: Path
) -> None:
    peaks = []
    for blocks in (8, 64):
        shape, host = (blocks, 4, 32, 32, 16), (blocks, 64, 32, 32)
        golden = replace(_record(tmp_path / "golden", dtype, shape, layout="NC1HWC0"), original_shape=host)
        actual = replace(_record(tmp_path / "actual", dtype, shape, layout="NC1HWC0"), original_shape=host)
        tracemalloc.start()
        found = compare_pair(Pair(golden, actual, "NCHW"))
        assert found.difference is not None
        assert (found.difference.shape, found.difference.outside) == (host, 0)
        alone = compare_pair(Pair(golden, None, "NCHW", shape=host)).golden
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert alone is not None
        assert alone.shape == host
        whole = host_array(_values(golden), golden, "NCHW")
        assert alone.stats == tensor_stats(whole)
    assert peaks[1] < peaks[0] + (1 << 20)
