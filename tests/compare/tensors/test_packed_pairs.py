from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_npudump.compare.tensors.difference import compare_tensors
from pytest_npudump.compare.tensors.tensor_pair import Pair, compare_pair
from pytest_npudump.dump.arrays.decode import DecodeError, PackedTensor, load, packed_tensor
from pytest_npudump.dump.arrays.layouts import host_array
from pytest_npudump.dump.dtypes import BY_NAME
from pytest_npudump.dump.records import Payload, TensorKey, TensorRecord
from pytest_npudump.dump.stats.tensor import payload_stats, tensor_stats

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


@pytest.mark.each("dtype", PACKED)
@pytest.mark.each("count", [0, 1, 13, (1 << 18) + 11])
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
    by_codes = count and (dtype in {"hifloat8", "complex32"} or dtype.startswith("float4"))
    for record, values in ((found.golden, one), (found.actual, other)):
        stats = tensor_stats(values)
        if by_codes:  # whose sums are exact on one side, and rounded to float32 on the other
            stats = replace(
                stats,
                avg=stats.avg and pytest.approx(stats.avg, 1e-6),
                l2norm=pytest.approx(stats.l2norm, 1e-6),
            )
            assert record.payload is not None
            by_file = payload_stats(record.payload, dtype, count)
            assert record.stats == replace(
                by_file,
                avg=by_file.avg and pytest.approx(by_file.avg, 1e-12),
                l2norm=pytest.approx(by_file.l2norm, 1e-8),
            )
        assert record.stats == stats
    if by_codes:
        sums = ("norm", "max_rel", "mean_rel", "cosine", "relative_l2")
        found_sums = {name: getattr(expected, name) for name in sums}
        expected = replace(expected, **{n: v and pytest.approx(v, 2e-6) for n, v in found_sums.items()})
    # in words, as NaN equals nothing: since Python 3.13 dataclasses compare their fields one by one
    assert repr(found.difference.worst) == repr(expected.worst)
    assert found.difference == replace(expected, worst=found.difference.worst)


@pytest.mark.each("dtype", ["int4", "hifloat8", "complex32"])
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


CONTENTS = ["plain", "subnormal", "large", "zeros", "nan", "inf", "any bits"]


def _halves(content: str, count: int, seed: int) -> Any:
    """``count`` complex numbers as float16 of shape (2 * count,)."""
    rng = np.random.default_rng(seed)
    if content == "any bits":
        return rng.integers(0, 1 << 16, 2 * count).astype(np.uint16).view(np.float16)
    halves = rng.standard_normal(2 * count) * {"subnormal": 1e-6, "large": 1e4}.get(content, 1)
    if content in {"zeros", "nan", "inf"}:
        places = np.repeat(rng.random(count) < 0.25, 2) if content == "zeros" else rng.random(2 * count) < 0.1
        halves[places] = {"zeros": 0, "nan": np.nan, "inf": -np.inf}[content]
    return halves.astype(np.float16)


@pytest.mark.each(
    ("content", "kind"),
    [
        *product(CONTENTS, ["noise", "unrelated", "zero golden"]),
        *product(["plain", "nan", "any bits"], ["half equal", "equal"]),
    ],
)
def test_complex32_compares_as_its_values_in_complex128(content: str, kind: str, tmp_path: Path) -> None:
    count = (1 << 17) + 77
    one, other = _halves(content, count, 0), _halves(content, count, 1)
    if kind == "noise":
        factors = 1 + 1e-3 * np.random.default_rng(2).integers(-2, 3, 2 * count)
        with np.errstate(all="ignore"):
            other = (one.astype(np.float64) * factors).astype(np.float16)
    elif kind == "zero golden":
        one = np.zeros_like(one)
    elif "equal" in kind:
        same = len(one) if kind == "equal" else count // 2 * 2
        other[:same] = one[:same]
    records = []
    for name, side in (("golden", one), ("actual", other)):
        (tmp_path / name).write_bytes(side.tobytes())
        payload = Payload(tmp_path / name, 0, side.nbytes)
        records.append(TensorRecord(KEY, "Conv", "complex32", (count,), payload.path, "ND", payload=payload))
    with np.errstate(all="ignore"):
        golden, actual = (side.astype(np.float64).view(np.complex128) for side in (one, other))
        finite = np.isfinite(golden) & np.isfinite(actual)
        same = (np.isnan(golden) & np.isnan(actual)) | (golden == actual)
    g, a = golden[finite], actual[finite]
    distance, size = np.abs(a - g), np.abs(g)
    for rtol, atol in ((1e-35, 0), (1e-3, 0), (0, 1e-3), (0, 0), (2.0**-10, 2.0**-12)):
        found = compare_pair(Pair(*records, "ND", rtol=rtol, atol=atol)).difference
        assert found is not None
        outside = np.count_nonzero(distance > atol + rtol * size)
        assert found.outside == outside + found.special_different
    assert found.special == np.count_nonzero(~finite)
    assert found.special_different == np.count_nonzero(~finite & ~same)
    assert found.max_abs == pytest.approx(distance.max(initial=0), rel=1e-15)
    assert found.magnitude == pytest.approx(size.max(initial=0), rel=1e-15)
    assert found.norm == pytest.approx(np.linalg.norm(g), rel=2e-6)
    relative = distance[size > 0] / size[size > 0]
    changed = np.any(distance[size == 0] > 0)
    assert found.max_rel == pytest.approx(np.inf if changed else relative.max(initial=0), rel=2e-6)
    assert found.mean_rel == (pytest.approx(relative.mean(), rel=2e-6) if relative.size else None)
    if np.linalg.norm(g) and np.linalg.norm(a):
        cosine = np.vdot(g, a).real / np.linalg.norm(g) / np.linalg.norm(a)
        assert found.cosine == pytest.approx(cosine, rel=2e-6, abs=5e-6)
        assert found.relative_l2 == pytest.approx(np.linalg.norm(distance) / np.linalg.norm(g), rel=3e-6)
    if not found.special_different:
        far = np.sort(distance)[::-1][:5]
        assert [element.abs for element in found.worst] == [gap for gap in far.tolist() if gap]


@pytest.mark.each("dtype", [name for name in PACKED if BY_NAME[name].bits < 8])
@pytest.mark.each(("rtol", "spare", "times"), [(0, 0, 9), (0, 1, 2), (0.3, 7, 2)])
def test_every_pair_of_bytes_compares_as_its_elements_do(
    dtype: str, rtol: float, spare: int, times: int, tmp_path: Path
) -> None:
    octets = np.tile(np.arange(1 << 16, dtype=np.uint16), times).view(np.uint8).reshape(-1, 2)
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
    far = np.argsort(-distance, kind="stable")[:5]
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


def test_such_a_type_compares_with_the_values_of_another(tmp_path: Path) -> None:
    coded = _record(tmp_path / "coded", "hifloat8", (4, 16))
    _values(coded).astype(np.float32).tofile(path := tmp_path / "plain")
    plain = replace(coded, dtype="float32", payload=Payload(path, 0, 4 * 64), path=path)
    for pair in (Pair(coded, plain, "ND"), Pair(plain, coded, "ND")):
        found = compare_pair(pair).difference
        assert found is not None
        assert (found.outside, found.count) == (0, 64)


def test_a_payload_that_is_too_short_is_an_error(tmp_path: Path) -> None:
    record = _record(tmp_path / "x", "int4", (64,))
    assert record.payload is not None
    with pytest.raises(DecodeError, match="65 elements of int4 need 33 bytes"):
        PackedTensor(record.payload, "int4", (65,))


@pytest.mark.each("dtype", ["hifloat8", "complex32"])
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
