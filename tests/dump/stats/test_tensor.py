from __future__ import annotations

import csv
import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from hypothesis.extra.numpy import array_shapes, arrays

from pytest_npudump.dump.arrays.decode import DecodeError, load, read_npy_header
from pytest_npudump.dump.dtypes import BY_PROTO
from pytest_npudump.dump.filebytes import CHUNK_BYTES, open_raw
from pytest_npudump.dump.files.container import read_container
from pytest_npudump.dump.records import Payload, Stats
from pytest_npudump.dump.stats.kernels import row_totals
from pytest_npudump.dump.stats.sums import row_counts
from pytest_npudump.dump.stats.tensor import (
    ACL_TYPES,
    Waiting,
    npy_stats,
    payload_stats,
    rows_stats,
    tensor_stats,
)
from pytest_npudump.errors import FormatError

DATA = Path(__file__).parents[2] / "data" / "dump"
FLOATS = [
    *(np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2),
    ml_dtypes.float8_e4m3fn,
]
INTS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


def _wide(array: np.ndarray) -> Any:
    with np.errstate(invalid="ignore"):  # ml_dtypes reports signalling NaN
        return array.astype(np.float64)


def _mean(values: list[float]) -> float:
    try:
        return math.fsum(values) / len(values) + 0.0
    except OverflowError:
        return float(sum(map(Fraction, values)) / len(values))


def _truth(array: np.ndarray) -> Any:
    """Statistics by the definition, element by element in exact sums."""
    exact = array.dtype.kind in "biu"
    values = array.reshape(-1) if exact else _wide(array).reshape(-1)
    known = values if exact else values[~np.isnan(values)]
    positive, negative = (0, 0) if exact else ((known == side).sum() for side in (math.inf, -math.inf))
    nan = values.size - known.size
    if nan or (positive and negative):
        avg = math.nan
    elif positive or negative:
        avg = math.inf if positive else -math.inf
    else:
        avg = sum(values.tolist()) / values.size if exact else _mean(values.tolist())
    norm = math.nan if nan else math.inf if positive or negative else math.hypot(*values.tolist())
    number = int if exact else float
    return Stats(
        count=values.size,
        max=number(known.max()) + 0 if known.size else math.nan,
        min=number(known.min()) + 0 if known.size else math.nan,
        avg=avg,
        l2norm=norm,
        nan=nan,
        neg_inf=negative,
        pos_inf=positive,
        zero=(values == 0).sum(),
    )


def _assert_close(found: Any, expected: Any, array: np.ndarray) -> Any:
    exact = ("count", "max", "min", "nan", "neg_inf", "pos_inf", "zero")
    np.testing.assert_equal([getattr(found, n) for n in exact], [getattr(expected, n) for n in exact])
    if array.dtype.kind in "biu":
        assert found.avg == expected.avg
        assert type(found.max) is int
    elif math.isfinite(expected.avg):
        magnitude = _mean(np.abs(_wide(array)).reshape(-1).tolist())
        assert abs(found.avg - expected.avg) <= 9e-7 * magnitude + 5e-324
    else:
        np.testing.assert_equal(found.avg, expected.avg)
    np.testing.assert_allclose(found.l2norm, expected.l2norm, rtol=1e-6)


@pytest.mark.each("dtype", FLOATS + INTS, ids=lambda d: np.dtype(d).name)
@pytest.mark.each("count", [1, 2, 3, 32768, 70001, 600001])
def test_random_tensors_of_every_type_and_size(dtype: Any, count: int) -> None:
    values = np.random.default_rng(count).standard_normal(count) * 20
    array = (np.abs(values) if np.dtype(dtype).kind == "u" else values).astype(dtype)
    _assert_close(tensor_stats(array), _truth(array), array)


@pytest.mark.each("dtype", FLOATS, ids=lambda d: np.dtype(d).name)
def test_every_code_of_the_small_types_alone_and_together(dtype: Any) -> None:
    size = np.dtype(dtype).itemsize
    if size > 2:
        return
    codes = np.arange(1 << (8 * size), dtype=f"u{size}").view(dtype)
    _assert_close(tensor_stats(codes), _truth(codes), codes)
    wide = _wide(codes)
    finite = codes[np.isfinite(wide)]
    _assert_close(tensor_stats(finite), _truth(finite), finite)
    for code in codes[:: max(len(codes) // 512, 1)]:
        alone = np.array([code])
        _assert_close(tensor_stats(alone), _truth(alone), alone)


@settings(deadline=None, max_examples=80)
@given(
    st.sampled_from([np.float16, np.float32, np.float64]).flatmap(
        lambda d: hnp.arrays(d, hnp.array_shapes(min_dims=0, max_dims=3, max_side=9))
    )
)
def test_any_floats(array: np.ndarray) -> None:
    _assert_close(tensor_stats(array), _truth(array), array)


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(INTS).flatmap(lambda d: hnp.arrays(d, hnp.array_shapes(max_dims=2, max_side=9))))
def test_any_integers(array: np.ndarray) -> None:
    _assert_close(tensor_stats(array), _truth(array), array)


@pytest.mark.each("special", [math.nan, math.inf, -math.inf])
@pytest.mark.each("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.each("place", [0, 40000, 299999, 600000])
def test_one_special_value_anywhere(special: float, dtype: Any, place: int) -> None:
    array = np.linspace(-1, 1, 600001).astype(dtype)
    array[place] = special
    _assert_close(tensor_stats(array), _truth(array), array)


@pytest.mark.each("special", [math.nan, -math.inf])
@pytest.mark.each("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.each("zeros", [0, 1])
@pytest.mark.each("sign", [-1, 1])
def test_a_mask_over_elements_of_one_sign(special: float, dtype: Any, zeros: int, sign: int) -> None:
    values = np.random.default_rng(7).standard_normal(100_001)
    array = (sign * (np.abs(values) + 0.5)).astype(dtype)
    array[values > 0] = special
    array[100_000 - zeros : 100_000] = -0.0
    _assert_close(tensor_stats(array), _truth(array), array)


@pytest.mark.each("value", [0.1, 3.3e38, 1e-38, 1e-45, 2e19, 9.9e17, 1.01e17, 9.9e16, 1e-20])
def test_sums_in_float32_stay_within_the_stated_bound(value: float) -> None:
    array = np.full(1 << 20, value, np.float32)
    found = tensor_stats(array)
    assert abs(found.avg / float(array[0]) - 1) <= 9e-7
    assert abs(found.l2norm / (float(array[0]) * 1024) - 1) <= 1e-6


def _each_addition_rounds_up(rows: int, columns: int) -> Any:
    """Columns in which a sum of 1 is followed by terms just over half a unit in its last place."""
    block = np.full((rows, columns), 2.0**-24 * 1.0001, np.float32)
    block[0] = 1
    return np.tile(block.reshape(-1), (1 << 17) // block.size)


@pytest.mark.each("rows", [8, 16, 32, 64, 128])
@pytest.mark.each("columns", [1, 64, 1024])
def test_roundings_that_all_go_one_way_stay_within_the_stated_bound(rows: int, columns: int) -> None:
    for array in (_each_addition_rounds_up(rows, columns), np.sqrt(_each_addition_rounds_up(rows, columns))):
        found, values = tensor_stats(array), array.astype(np.float64)
        mean = _mean(values.tolist())
        assert abs(found.avg - mean) <= 9e-7 * mean
        assert abs(found.l2norm / math.sqrt(math.fsum((values * values).tolist())) - 1) <= 1e-6


@pytest.mark.each("dtype", [np.float16, np.float32, ml_dtypes.bfloat16])
@pytest.mark.each(("positive", "negative"), [(0, 0), (3, 0), (0, 2), (3, 2)])
def test_zeros_of_both_signs_are_counted(dtype: Any, positive: int, negative: int) -> None:
    array = np.linspace(1, 2, 700001).astype(dtype)
    array[::2] *= dtype(-1)
    array[5 : 5 + positive] = 0
    array[699000 : 699000 + negative] = dtype(-0.0)
    assert tensor_stats(array).zero == positive + negative


@pytest.mark.each("value", [1e308, 1e200, 1e-200, 5e-324])
def test_squares_of_float64_outside_its_range(value: float) -> None:
    found = tensor_stats(np.full(10000, value))
    assert found.avg == pytest.approx(value, rel=1e-12)
    assert found.l2norm == pytest.approx(value * 100, rel=1e-12)


def test_sums_of_integers_beyond_64_bits_are_exact() -> None:
    found = tensor_stats(np.full(1000, 2**64 - 1, np.uint64))
    assert (found.max, found.avg) == (2**64 - 1, float(2**64 - 1))
    assert tensor_stats(np.full(1000, -(2**63), np.int64)).avg == float(-(2**63))


def test_an_empty_tensor() -> None:
    found = tensor_stats(np.zeros((0, 3), np.float32))
    assert (found.count, found.max, found.min, found.avg, found.l2norm, found.nan) == (
        *(0, None, None, None, 0.0, 0),
    )


@pytest.mark.each("dtype", [np.float16, np.float32, np.int16, np.int8])
def test_views_of_any_strides_and_alignment(dtype: Any) -> None:
    base = np.random.default_rng(0).integers(-50, 50, (40, 30, 20)).astype(dtype)
    raw = np.frombuffer(b"x" + base.tobytes(), np.uint8)[1:].view(dtype).reshape(base.shape)
    for view in (
        base[::2, :, ::-1],
        base.T,
        np.asfortranarray(base),
        raw,
        base[3],
        base[:, 4, 5],
        base.astype(base.dtype.newbyteorder(">")),
    ):
        copy = np.ascontiguousarray(view).astype(dtype)
        _assert_close(tensor_stats(view), _truth(copy), copy)


@pytest.mark.each("name", ["float64", "float32", "float16", "bfloat16"])
def test_rows_have_the_statistics_of_each(name: str) -> None:
    """Also rows that are not all finite, of one sign, of zeros, and whose squares leave float64."""
    ordinary = np.random.default_rng(3).normal(size=(9, 40_000)) * 4
    special = [
        [math.nan],
        [math.inf, -math.inf],
        [-math.inf],
        [1e-300],
        [-0.0, 0.0],
        [1e-4] * 4,
        [-3.0, -2.0],
    ]
    for rows in (ordinary, ordinary[:5, :7], *(np.array([one, one]) for one in special), ordinary[:, :1]):
        with np.errstate(over="ignore"):
            array = np.ascontiguousarray(rows.astype(name))
        for row, found in zip(array, rows_stats(array), strict=True):
            truth = tensor_stats(row)
            exact = ("count", "max", "min", "nan", "neg_inf", "pos_inf", "zero")
            assert [repr(getattr(found, one)) for one in exact] == [
                repr(getattr(truth, one)) for one in exact
            ]
            scale = np.abs(row.astype(np.float64)).mean()
            assert found.avg == pytest.approx(truth.avg, rel=1e-9, abs=9e-7 * scale, nan_ok=True)
            assert found.l2norm == pytest.approx(truth.l2norm, rel=1e-6, nan_ok=True)


def test_complex_has_a_norm_and_counts_only() -> None:
    found = tensor_stats(np.array([3 + 4j, 0, complex(math.nan, 1)], np.complex64))
    assert (found.count, found.nan, found.zero, found.max, found.avg) == (3, 1, 1, None, None)
    for dtype in (np.complex64, np.complex128):
        assert tensor_stats(np.array([3 + 4j, 12j], dtype)).l2norm == pytest.approx(13)


def test_a_type_without_numbers_is_refused() -> None:
    for array in (np.array(["a"]), np.array([b"a"]), np.array([None]), np.zeros(2, "V1")):
        with pytest.raises(DecodeError, match="no statistics"):
            tensor_stats(array)


@pytest.mark.each("name", ["float32", "float16", "float64"])
def test_acl_ignores_nan_but_in_the_first_place(name: str) -> None:
    first = tensor_stats(np.array([math.nan, 1, math.inf, -math.inf, 2], name), acl=True)
    assert math.isnan(first.max)
    assert math.isnan(first.min)
    assert (first.count, first.nan, first.neg_inf, first.pos_inf) == (5, 1, 1, 1)
    later = tensor_stats(np.array([1, math.nan, 2], name), acl=True)
    assert (later.max, later.min, later.nan) == (2, 1, 1)
    assert math.isnan(later.avg)
    sane = tensor_stats(np.array([math.nan, 1, 2], name))
    assert (sane.max, sane.min) == (2, 1)


def _row(path: Path) -> Any:
    with path.open() as file:
        return list(csv.reader(file))[1][6:]


@pytest.mark.each("number", range(42))
def test_acls_own_statistics_of_every_type(number: int) -> None:
    (path,) = (p for p in (DATA / "dtypes").iterdir() if p.name.split("_")[0] == str(number) and not p.suffix)
    (tensor,) = read_container(path)[0].tensors
    row = _row(path.with_suffix(".csv"))
    dtype = BY_PROTO[number]
    count = math.prod(tensor.shape)
    found = payload_stats(tensor.payload, dtype.name, count, acl=True)
    if not any(row):
        assert found is None
        return
    numbers = [found.max, found.min, found.avg, found.count, found.nan, found.neg_inf, found.pos_inf]
    text = [format(n, "d" if isinstance(n, int) else "g") for n in numbers]
    assert text == row


def test_payloads_and_arrays_agree_for_all_types() -> None:
    for number, dtype in BY_PROTO.items():
        (path,) = (
            p
            for p in (DATA / "dtypes").iterdir()
            if p.name.split("_")[0] == str(min(number, 41)) and not p.suffix
        )
        (tensor,) = read_container(path)[0].tensors
        found = payload_stats(tensor.payload, tensor.dtype, math.prod(tensor.shape))
        if found is None:
            assert dtype.name not in ACL_TYPES
            continue
        values = load(tensor.payload, tensor.dtype, tensor.shape)
        expected = tensor_stats(values)
        assert (found.count, found.nan, found.zero) == (expected.count, expected.nan, expected.zero)
        np.testing.assert_equal([found.max, found.min], [expected.max, expected.min])
        np.testing.assert_allclose([found.l2norm], [expected.l2norm], rtol=1e-6)


def test_packed_types_count_no_spare_bits(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"\x21\xf3")
    found = payload_stats(Payload(path, 0, 2), "int4", 3)
    assert (found.count, found.max, found.min, found.avg) == (3, 3, 1, 2.0)
    with pytest.raises(DecodeError, match="5 elements of int4 need 3 bytes"):
        payload_stats(Payload(path, 0, 2), "int4", 5)


@pytest.mark.each(
    "magnitudes",
    [
        (1e-300, 1.0, 1e300),
        (1.0, 1e-300, 1e300),
        (1e300, 1.0, 1e-300),
        (1e-300, 1e-310, 1e-200),
        (1e-300, 0.0, 1.0),
        (1e300, 1.7e304, 1e299),
        (0.0, 0.0, 1e-320),
    ],
)
def test_squares_leave_the_range_of_float64_in_some_pieces_only(magnitudes: tuple[float, ...]) -> None:
    piece = np.linspace(-1, 0.7, (2 << 20) // 8)
    array = np.concatenate([piece * magnitude for magnitude in magnitudes])
    found, exponent = tensor_stats(array), -math.frexp(max(magnitudes))[1]
    scaled = np.ldexp(array, min(exponent, 1000))
    norm = math.sqrt(math.fsum((scaled * scaled).tolist()))
    assert found.l2norm == pytest.approx(math.ldexp(norm, -min(exponent, 1000)), rel=1e-12)
    mean = math.ldexp(math.fsum(scaled.tolist()) / len(array), -min(exponent, 1000))
    assert found.avg == pytest.approx(mean, rel=1e-9)


ROWS = array_shapes(min_dims=2, max_dims=2, max_side=20)
ELEMENTS = st.one_of(
    st.floats(width=32),
    st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1.5 * 2.0**127, 2.0**-149]),
)


def _same(found: Any, expected: Any) -> None:
    assert found == pytest.approx(expected, rel=1e-12, abs=0, nan_ok=True)


@given(arrays(np.float32, ROWS, elements=ELEMENTS))
def test_each_row_has_the_statistics_of_its_own_elements(rows: Any) -> None:
    values = rows.astype(np.float64)
    with np.errstate(all="ignore"):
        found = [totals.stats() for totals in row_totals(values, whole=False)]
    for stats, row in zip(found, values, strict=True):
        known, finite = row[~np.isnan(row)], row[np.isfinite(row)]
        assert (stats.count, stats.nan) == (row.size, np.isnan(row).sum())
        assert (stats.neg_inf, stats.pos_inf) == ((row == -math.inf).sum(), (row == math.inf).sum())
        assert stats.zero == (row == 0).sum()
        _same(stats.max, known.max() if known.size else math.nan)
        _same(stats.min, known.min() if known.size else math.nan)
        if finite.size == row.size:
            bound = 1e-14 * math.fsum(np.abs(row).tolist())
            assert abs(stats.avg - math.fsum(row.tolist()) / row.size) <= bound
            _same(stats.l2norm, math.sqrt(math.fsum((row * row).tolist())))
        else:
            assert not math.isfinite(stats.avg)
            assert not math.isfinite(stats.l2norm)


@given(arrays(np.int32, ROWS))
def test_integers_stay_integers(rows: Any) -> None:
    for totals, row in zip(row_totals(rows.astype(np.float64), whole=True), rows.tolist(), strict=True):
        expected = (max(row), min(row), sum(row), max(map(abs, row)), row.count(0))
        assert (totals.max, totals.min, totals.sum.value, totals.magnitude, totals.zero) == expected
        assert all(isinstance(one, int) for one in (totals.max, totals.min, totals.sum.value))
        _same(totals.squares.value, float(sum(one * one for one in row)))


@given(arrays(np.bool_, ROWS))
def test_flags_are_counted_by_row(flags: Any) -> None:
    assert row_counts(flags) == [sum(row) for row in flags.tolist()]


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
        if count > 200_000 and special not in (0, 1):  # the others are alike in all that is mapped
            continue
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
def test_npy_file_counts_in_either_order_of_axes_and_of_bytes(tmp_path: Path, descr: str, order: str) -> None:
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
def test_acl_is_misled_by_nan_in_first_element_of_tensor_only(tmp_path: Path, dtype: str, place: int) -> None:
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
