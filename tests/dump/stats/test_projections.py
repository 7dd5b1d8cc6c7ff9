"""Projections against their definition in plain Python, and what they see."""

from __future__ import annotations

import base64
import functools
import math
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from pytest_npudump.dump.arrays.decode import DecodeError, load, read_npy_header
from pytest_npudump.dump.filebytes import chunks
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import Payload
from pytest_npudump.dump.stats.compact_projections import FINE, doubts, steps, sums_of, texts
from pytest_npudump.dump.stats.kernels import BFLOAT16, FLOAT16, Half
from pytest_npudump.dump.stats.projections import (
    Projector,
    array_elements,
    array_projector,
    distance,
    project,
    raw_elements,
)
from pytest_npudump.dump.stats.sums import Totals
from pytest_npudump.dump.stats.tensor import (
    Projected,
    array_accumulator,
    npy_stats,
    payload_stats,
    projected_stats,
    tensor_stats,
)

BLOCK = 16_384
FLOATS = [
    *(np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn),
    ml_dtypes.float8_e5m2,
]

FLOATS_WITH_INFINITIES = [kind for kind in FLOATS if kind is not ml_dtypes.float8_e4m3fn]
INTS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.bool_]

BOUND = 2e-6


@functools.cache
def splitmix64(seed: int, output: int) -> int:
    """As published, with Python's integers."""
    z = (seed + (output + 1) * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31


def sign(k: int, i: int) -> int:
    """The sign of element i in projection k, after the definition."""
    b, p = divmod(i, 16_384)
    u, v, w = splitmix64(0, p), splitmix64(1, p % 496), splitmix64(2, b)
    turn = (w >> 8) & 7
    bit = (u ^ (v >> (k ^ turn)) ^ (w >> k)) & 1
    return -1 if bit else 1


@functools.cache
def rows() -> list[list[float]]:
    """All signs of a tensor of more than one block, by projection."""
    return [[float(sign(k, i)) for i in range(BLOCK + 700)] for k in range(8)]


@functools.cache
def signs() -> np.ndarray:
    return np.array(rows())


def truth(values: list[float]) -> list[float]:
    return [math.fsum(s * v for s, v in zip(row, values, strict=False)) for row in rows()]


def streamed(array: np.ndarray, cuts: list[int]) -> tuple[float, ...]:
    projector = Projector(array_elements(array.dtype), array.size)
    for piece in np.split(array, sorted(cuts)):
        projector.add(piece.copy())
    return projector.sums()


def noise(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def test_worked_example_of_the_documentation_holds() -> None:
    # The first numbers are published: https://rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64
    assert [f"{splitmix64(seed, 0):X}" for seed in range(3)] == [
        "E220A8397B1DCDAF",
        "910A2DEC89025CC1",
        "975835DE1C9756CE",
    ]
    assert " ".join("-+"[sign(k, 0) > 0] for k in range(8)) == "+ - + + - - - +"
    assert " ".join("-+"[sign(k, 1) > 0] for k in range(8)) == "- - - + - + + +"
    assert project(np.array([1, 2, 3, 4], np.float32)) == (6, -4, -8, 2, 4, 0, 8, 4)
    array = np.zeros(40_000, np.int32)
    array[[16_383, 16_384, 39_999]] = 1, 10, 100
    expected = tuple(sign(k, 16_383) + 10 * sign(k, 16_384) + 100 * sign(k, 39_999) for k in range(8))
    assert project(array) == expected == (-89, -111, -109, 91, 91, -111, 91, -109)


@settings(max_examples=25)
@given(
    st.sampled_from(FLOATS).flatmap(
        lambda dtype: hnp.arrays(
            np.float32,
            st.integers(0, 1500),
            elements=st.floats(-200, 200, width=32),
            fill=st.floats(-1, 1, width=32),
        ).map(lambda array: array.astype(dtype))
    )
)
def test_floats_are_within_the_bound_of_the_definition(array: np.ndarray) -> None:
    values = array.astype(np.float64).tolist()
    allowed = (1e-14 if array.dtype == np.float64 else BOUND) * math.fsum(map(abs, values))
    assert project(array) == pytest.approx(truth(values), rel=0, abs=allowed)


@settings(max_examples=20)
@given(
    st.sampled_from(INTS).flatmap(
        lambda dtype: hnp.arrays(
            dtype, st.sampled_from([0, 1, 495, 496, 497, 33 * 496 + 1, BLOCK - 1, BLOCK, BLOCK + 1])
        )
    )
)
def test_integers_are_exact(array: np.ndarray) -> None:
    array = array if array.dtype.itemsize < 8 else array // 2**25  # sums of 2**14 below 2**53
    assert list(project(array)) == truth(array.tolist())


@pytest.mark.each(("dtype", "code"), [(np.uint8, 255), (np.int8, -128), (np.uint16, 65_535)])
def test_columns_of_the_largest_integers_do_not_overflow(dtype: type, code: int) -> None:
    alike = np.where(signs()[0] > 0, code, 0).astype(dtype)  # all that the first projection adds
    assert project(alike) == tuple(signs()[:, alike != 0].sum(axis=1) * code)


@pytest.mark.parametrize("dtype", [*FLOATS, np.int8, np.int32, np.bool_])
@given(data=st.data())
def test_result_does_not_depend_on_the_pieces(dtype: type, data: st.DataObject) -> None:
    size = data.draw(st.integers(0, 4 * BLOCK))
    array = noise(size, size).astype(dtype)
    cuts = data.draw(st.lists(st.integers(0, size), max_size=6))
    assert streamed(array, cuts) == project(array)


def test_result_does_not_depend_on_the_address() -> None:
    values, room = noise(1, 90_000), np.empty(90_016, np.float32)
    found = set()
    for start in range(16):
        room[start : start + values.size] = values
        found.add(project(room[start : start + values.size]))
    assert len(found) == 1


def test_columns_are_added_up_in_float32_in_the_order_of_the_rows() -> None:
    values = np.append(noise(2, BLOCK), np.zeros(480, np.float32)).reshape(34, 496)
    places = np.array([1 - 2 * (splitmix64(0, p) & 1) for p in range(34 * 496)], np.float32).reshape(34, 496)
    columns = np.zeros(496, np.float32)
    for row in values * places:
        columns += row
    places_alone = signs()[:, :496] * places[0]  # what is left is the signs of columns and block
    expected = [math.fsum((row * columns).tolist()) for row in places_alone]
    assert project(values.reshape(-1)[:BLOCK]) == pytest.approx(
        expected, rel=0, abs=1e-13 * float(np.abs(columns).sum())
    )


@pytest.mark.each(("dtype", "kind"), [(np.float16, FLOAT16), (ml_dtypes.bfloat16, BFLOAT16)])
@pytest.mark.each("count", [1, 2, 497, BLOCK, 3 * BLOCK + 700, 5 * BLOCK + 1])
def test_values_that_were_converted_already_change_nothing(dtype: type, kind: object, count: int) -> None:
    array = noise(3, count).astype(dtype)
    projector = Projector(array_elements(array.dtype), count)
    projector.add(array, Half(Totals(), kind).add(array))  # type: ignore[arg-type]
    assert projector.sums() == project(array) == project(array.astype(np.float32))


@pytest.mark.each("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.each("count", [500, 5_000, 3 * BLOCK, 40 * BLOCK + 700, 40 * BLOCK + 5_001])
def test_one_pass_with_the_statistics_gives_the_same_bits(dtype: type, count: int) -> None:
    for special in (0, 1, 40):
        array = noise(3, count).astype(dtype)
        array[np.arange(special) * 11] = math.inf
        array[np.arange(special) * 11 + 4] = math.nan
        running = Projected(array_accumulator(array.dtype), array_projector(array.dtype, count))
        for piece in chunks(array):
            running.add(piece)
        found = running.stats()
        assert found.projections == project(array)
        assert str(replace(found, projections=None)) == str(tensor_stats(array))  # NaN equals NaN


def test_elements_that_are_not_finite_count_as_zeros() -> None:
    for dtype in FLOATS_WITH_INFINITIES:
        array = noise(4, 5 * BLOCK).astype(dtype)
        clean = array.copy()
        where = [0, 77, BLOCK + 3, 4 * BLOCK]
        array[where], clean[where] = [math.nan, math.inf, -math.inf, math.inf], 0
        assert project(array) == project(clean) == streamed(array, [5, 20_000])


@pytest.mark.each("dtype", FLOATS_WITH_INFINITIES)
@pytest.mark.each("size", [9, BLOCK + 3, 5 * BLOCK])
def test_beside_zeros_alone_nan_and_infinities_stand_for_numbers(dtype: type, size: int) -> None:
    array, stands_for = np.zeros(size, dtype), np.zeros(size)
    where = [0, 2, 7, size - 1]
    array[where], stands_for[where] = [math.nan, math.inf, -math.inf, -math.inf], [2, 1, -1, -1]
    assert project(array) == project(stands_for) == streamed(array, [5, 8])
    array[size // 2] = 1
    stands_for[:] = 0
    stands_for[size // 2] = 1
    assert project(array) == project(stands_for)


def test_parts_of_complex_numbers_stand_for_numbers_each() -> None:
    array, stands_for = np.zeros(5, np.complex64), np.zeros(10)
    assert project(array) == (0.0,) * 8
    array[3], stands_for[7] = complex(0, -math.inf), -1
    assert project(array) == project(stands_for)


def test_sums_beyond_float32_are_added_up_in_float64() -> None:
    array = np.full(signs().shape[1], 3e38, np.float32)
    assert project(array) == pytest.approx((3e38 * signs().sum(axis=1)).tolist(), rel=1e-6)


def test_both_parts_of_complex_numbers_are_elements() -> None:
    parts = noise(5, 2 * 20_000)
    expected = pytest.approx(project(parts), rel=0, abs=1e-4)
    for dtype in (np.complex64, np.complex128):
        assert project(parts.view(np.complex64).astype(dtype)) == expected
    halves = parts[:600].astype(np.float16)
    projector = Projector(raw_elements("complex32"), halves.size)
    projector.add(halves.view(np.uint8))
    assert projector.sums() == project(halves)


@pytest.mark.each(
    "change",
    [
        lambda a: a.T,
        lambda a: a[::-1],
        lambda a: a[:, ::2],
        np.asfortranarray,
        lambda a: a.astype(">f4"),
        lambda a: np.frombuffer(b"x" + a.tobytes(), np.uint8)[1:].view(np.float32).reshape(a.shape),
        lambda a: np.broadcast_to(a[:1], a.shape),
        lambda a: a.reshape(1, *a.shape, 1),
    ],
)
def test_elements_are_taken_in_c_order(change: object) -> None:
    array = change(noise(6, 300, 400))  # type: ignore[operator]
    assert project(array) == project(np.array(array, np.float32, order="C"))
    assert project(array) != project(np.array(array, np.float32, order="C").reshape(-1)[::-1])


@pytest.mark.each(
    "dtype", ["int4", "int2", "uint1", "uint2", "bool", "hifloat8", "float4_e2m1fn", "float4_e1m2fn"]
)
@pytest.mark.each("count", [1, 7, 4096, BLOCK, BLOCK + 11])
def test_types_that_numpy_lacks_have_the_projections_of_their_values(
    tmp_path: Path, dtype: str, count: int
) -> None:
    octets = np.random.default_rng(7).integers(0, 2 if dtype == "bool" else 256, count, np.uint8)
    octets.tofile(tmp_path / "raw")
    values = load(Payload(tmp_path / "raw", 0, count), dtype, (count,))
    projector = Projector(raw_elements(dtype), count)
    per_byte = {"int4": 2, "int2": 4, "uint1": 8, "uint2": 4, "float4_e2m1fn": 2, "float4_e1m2fn": 2}
    needed = -(-count // per_byte.get(dtype, 1))
    for piece in np.split(octets[:needed], [needed // 3]):
        projector.add(piece)
    assert projector.sums() == project(values)


def test_tensors_without_numbers_are_refused() -> None:
    for array, words in ((np.zeros(3, "datetime64[s]"), "datetime"), (np.array(["a"]), "<U1")):
        with pytest.raises(DecodeError, match=words):
            project(array)
    with pytest.raises(DecodeError, match="no numeric meaning"):
        raw_elements("variant")


def test_wrong_numbers_of_elements_are_refused() -> None:
    projector = Projector(array_elements(np.dtype(np.float32)), 5)
    projector.add(np.ones(3, np.float32))
    with pytest.raises(ValueError, match="2 elements of the tensor were not added"):
        projector.sums()
    with pytest.raises(ValueError, match="1 elements more"):
        projector.add(np.ones(3, np.float32))


def swapped_rows(array: np.ndarray) -> np.ndarray:
    return array[[1, 0, *range(2, len(array))]]


def shifted_tail(array: np.ndarray) -> np.ndarray:
    changed = array.reshape(-1).copy()
    changed[-200:] = np.roll(changed[-200:], 1)
    return changed.reshape(array.shape)


def one_element(array: np.ndarray) -> np.ndarray:
    changed = array.copy()
    changed[37, 5] += 1e-3 * np.abs(array).max()
    return changed


@pytest.mark.each("fault", [swapped_rows, lambda a: a[:, ::-1], shifted_tail, one_element])
@pytest.mark.each("shape", [(64, 100), (64, 512), (64, 4096), (40, 16_384)])
def test_what_statistics_hide_is_seen(fault: object, shape: tuple[int, int]) -> None:
    array = noise(9, *shape)
    changed = fault(array)  # type: ignore[operator]
    away = float(np.linalg.norm(changed.astype(np.float64) - array))
    assert 0.3 * away < distance(project(array), project(changed)) < 2 * away


@pytest.mark.each("size", [30, 500, 5_000, 20_000])
def test_distance_estimates_the_l2norm_of_the_difference(size: int) -> None:
    ratios = []
    for seed in range(300):
        one, other = noise(seed, 2, size)
        ratios.append(distance(project(one), project(other)) / float(np.linalg.norm(one - other)))
    found = np.array(ratios)
    # Eight normal sums: the square has mean 1 and variance 2 / 8, the root a standard deviation of 1 / 4.
    assert float(np.mean(found**2)) == pytest.approx(1, abs=0.09)
    assert float(np.std(found)) == pytest.approx(0.247, abs=0.04)
    assert 0.2 < found.min() < found.max() < 2.2


@pytest.mark.each(
    "shape", [(16, 512), (32, 512), (128, 512), (32, 256), (16, 128), (64, 1024), (197, 768), (20, 4096)]
)
def test_a_constant_added_to_one_channel_is_seen(shape: tuple[int, int]) -> None:
    ratios, nothing = [], project(np.zeros(shape, np.float32))
    for channel in range(0, shape[1], 11):
        array = np.zeros(shape, np.float32)
        array[:, channel] = 1
        ratios.append(distance(project(array), nothing) / math.sqrt(shape[0]))
    assert min(ratios) > 0.1
    assert float(np.std(ratios)) < 0.45


def test_pairs_that_change_places_are_seen_as_often_as_documented() -> None:
    one, other = np.random.default_rng(10).integers(0, BLOCK, (2, 40_000))
    alike = (signs()[:, one] == signs()[:, other]).all(axis=0)[one != other]
    assert float(alike.mean()) == pytest.approx(1 / 200, abs=0.002)


TREES = Path(__file__).parents[2] / "data" / "trees"


def of_shape(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


@pytest.mark.each("shape", [(), (7,), (40, 60), (300, 40, 90)])
@pytest.mark.each("order", ["C", "F"])
def test_npy_files_of_either_order_have_the_projections_of_c_order(
    tmp_path: Path, shape: tuple[int, ...], order: str
) -> None:
    array = np.asarray(of_shape(*shape), order=order)  # type: ignore[call-overload]
    np.save(tmp_path / "a.npy", array)
    found = npy_stats(tmp_path / "a.npy", read_npy_header(tmp_path / "a.npy"), projections=True)
    assert found.projections == project(np.ascontiguousarray(array))
    assert found.max == tensor_stats(array).max


@pytest.mark.each("dtype", [">f4", "<f2", ">i4", "<c8", "?", "<f8"])
def test_numpy_types_of_either_byte_order_have_the_projections_of_their_values(
    tmp_path: Path, dtype: str
) -> None:
    array = (10 * of_shape(50, 700)).astype(dtype)
    np.save(tmp_path / "a.npy", array)
    found = npy_stats(tmp_path / "a.npy", read_npy_header(tmp_path / "a.npy"), projections=True)
    assert found.projections == project(array)


@pytest.mark.each("count", [0, 1, 4096, 4097, 16_384, 700_000, 2_300_000])
@pytest.mark.each("dtype", ["float32", "float16", "int8", "bool"])
def test_raw_files_that_are_read_or_mapped_have_the_same(tmp_path: Path, dtype: str, count: int) -> None:
    array = (5 * of_shape(count)).astype(dtype)
    (tmp_path / "raw").write_bytes(b"head" + array.tobytes())
    payload = Payload(tmp_path / "raw", 4, array.nbytes)
    found = payload_stats(payload, dtype, count, projections=True)
    assert found is not None
    assert found.projections == project(array)
    without = payload_stats(payload, dtype, count)
    assert without is not None
    assert str(replace(found, projections=None, checksum="")) == str(without)  # NaN equals NaN
    assert found.checksum == projected_stats(array).checksum
    assert bool(found.checksum) is (count > 1 and "float" not in dtype)


def checksum(octets: bytes) -> str:
    """As it is defined, with Python's integers."""
    total = 0
    for at in range(0, len(octets), 8):
        mixed = int.from_bytes(octets[at : at + 8], "little") * 0x9E3779B97F4A7C15 % 2**64
        place = splitmix64(4, at // 8 % BLOCK) | 1
        total += (mixed ^ mixed >> 32) * place * (splitmix64(5, at // 8 // BLOCK) | 1)
    return f"x{total % 2**64:016x}"


@pytest.mark.each("dtype", [*INTS, np.uint64])
@pytest.mark.each("size", [2, 3, 9, 700, BLOCK, 2 * BLOCK + 77])
def test_checksum_is_that_of_the_bytes_whatever_the_pieces_and_their_order_in_memory(
    dtype: type, size: int
) -> None:
    array = np.random.default_rng(size).integers(0, 256, size * np.dtype(dtype).itemsize, np.uint8)
    array = (array & 1 if dtype == np.bool_ else array).view(dtype)
    assert projected_stats(array).checksum == (expected := checksum(array.tobytes()))
    for cuts in ([1], [size // 3, size // 2], [size - 1]):
        running = Projected(array_accumulator(array.dtype), array_projector(array.dtype, size))
        for piece in filter(np.size, np.split(array, cuts)):
            running.add(piece.copy())
        assert running.stats().checksum == expected
    table = np.stack([array, array[::-1]])
    assert projected_stats(table.T).checksum == checksum(table.T.tobytes())
    assert projected_stats(array.astype(array.dtype.newbyteorder(">"))).checksum == expected


@pytest.mark.each("tile", [[0, 0, 0, 1], [1] * 8, [0] * 7 + [128], [1 << 20, 1 << 20], [-1, 0], [1 << 62]])
def test_checksum_sees_any_words_that_change_places(tile: list[int]) -> None:
    for dtype in (np.uint8, np.int32, np.int64, np.uint64):
        with np.errstate(over="ignore"):
            row = np.array(tile).astype(dtype)
        array = np.zeros((2 * BLOCK + 5, row.size), dtype)
        array[0] = row
        first = projected_stats(array).checksum
        for at in (1, 2, 7, 496, 1000, BLOCK - 1, BLOCK, 2 * BLOCK):
            moved = array.copy()
            moved[[0, at]] = array[[at, 0]]
            same = moved.tobytes() == array.tobytes()
            assert (projected_stats(moved).checksum == first) is same, (dtype, at)


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


NUMBER = st.floats(-1e290, 1e290).filter(lambda one: one == 0 or abs(one) > 1e-250)
SUMS = st.lists(NUMBER, min_size=8, max_size=8).filter(any)


@given(SUMS)
@settings(max_examples=100)
def test_a_text_gives_back_what_it_was_made_of_to_a_step(sums: list[float]) -> None:
    told = np.array([sums])
    found = sums_of(texts(told))
    assert texts(found) == texts(told)
    assert (np.abs(found - told) <= doubts(found)).all()
    largest = np.abs(told).max()
    assert (steps(told)[:, :FINE] <= 2.0**-22 * largest).all()
    assert (steps(told)[:, FINE:] <= 2.0**-10 * largest).all()


def test_what_lies_just_below_a_power_is_off_by_up_to_a_step() -> None:
    told = np.array([[0.99999994, 0.1, 0, 0, 0.99999994, -0.99999994, 0.1, 0]])
    found = sums_of(texts(told))
    away = np.abs(found - told)
    assert (away <= doubts(found)).all()
    assert (away > steps(told) / 2).tolist() == [[False] * 4 + [True, True, False, False]]


def test_the_text_is_as_it_is_described() -> None:
    (text,) = texts(np.array([[1.0, -0.5, 0.25, 0, 1, -1, 0.5, 0]]))
    octets = base64.b64decode("AA" + text)
    numbers = [int.from_bytes(octets[at : at + 3], "big") for at in range(0, 21, 3)]
    assert numbers[0] == 2048 + 1  # all are below 2**1
    assert numbers[1:4] == [1 << 22, (1 << 24) - (1 << 21), 1 << 20]
    assert numbers[5:] == [(1 << 10) << 12 | (4096 - (1 << 10)), (1 << 9) << 12]


@pytest.mark.each(
    ("sums", "back"),
    [
        ([0.0] * 8, [0.0] * 8),
        ([float("nan"), *[1.0] * 7], [float("nan")] * 8),
        ([float(2**22 + 1)] * 4 + [0.0] * 4, [float(2**22 + 1)] * 4 + [0.0] * 4),  # integers
        ([1e-310] * 8, [0.0] * 8),
    ],
)
def test_what_has_no_digits_to_lose_comes_back_as_it_is(sums: list[float], back: list[float]) -> None:
    assert np.array_equal(sums_of(texts(np.array([sums])))[0], back, equal_nan=True)


def test_a_peak_that_moves_changes_the_text_as_it_changes_the_projections() -> None:
    peaks = np.eye(214)
    sums = np.array([project(one) for one in peaks])
    assert len({*texts(sums)}) == len({*map(tuple, sums)}) > 120
