"""Projections against their definition in plain Python, and what they see."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from pytest_npudump.dump.arrays.decode import DecodeError, load
from pytest_npudump.dump.filebytes import chunks
from pytest_npudump.dump.records import Payload
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
from pytest_npudump.dump.stats.tensor import Projected, array_accumulator, tensor_stats

BLOCK = 16_384
FLOATS = [
    *(np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn),
    ml_dtypes.float8_e5m2,
]
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
    size = data.draw(st.integers(0, 100_000))
    array = noise(size, size).astype(dtype)
    cuts = data.draw(st.lists(st.integers(0, size), max_size=6))
    assert streamed(array, cuts) == project(array)


def test_result_does_not_depend_on_the_address() -> None:
    values = noise(1, 90_000)
    room = np.empty(values.size + 16, np.float32)
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
    for dtype in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2):
        array = noise(4, 5 * BLOCK).astype(dtype)
        clean = array.copy()
        where = [0, 77, BLOCK + 3, 4 * BLOCK]
        array[where] = [math.nan, math.inf, -math.inf, math.inf]
        clean[where] = 0
        found, expected = project(array), project(clean)
        assert found == expected
        assert streamed(array, [5, 20_000]) == found


@pytest.mark.each("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
@pytest.mark.each("size", [9, BLOCK + 3, 5 * BLOCK])
def test_beside_zeros_alone_nan_and_infinities_stand_for_numbers(dtype: type, size: int) -> None:
    array, stands_for = np.zeros(size, dtype), np.zeros(size)
    where = [0, 2, 7, size - 1]
    array[where], stands_for[where] = [math.nan, math.inf, -math.inf, -math.inf], [2, 1, -1, -1]
    assert project(array) == project(stands_for)
    assert streamed(array, [5, 8]) == project(array)
    array[size // 2] = 1
    stands_for[:] = 0
    stands_for[size // 2] = 1
    assert project(array) == project(stands_for)


def test_parts_of_complex_numbers_stand_for_numbers_each() -> None:
    array = np.zeros(5, np.complex64)
    array[3] = complex(0, -math.inf)
    stands_for = np.zeros(10)
    stands_for[7] = -1
    assert project(array) == project(stands_for)
    assert project(np.zeros(5, np.complex64)) == (0.0,) * 8


def test_sums_beyond_float32_are_added_up_in_float64() -> None:
    array = np.full(signs().shape[1], 3e38, np.float32)
    assert project(array) == pytest.approx((3e38 * signs().sum(axis=1)).tolist(), rel=1e-6)


def test_both_parts_of_complex_numbers_are_elements() -> None:
    parts = noise(5, 2 * 20_000)
    for dtype in (np.complex64, np.complex128):
        assert project(parts.view(np.complex64).astype(dtype)) == pytest.approx(
            project(parts), rel=0, abs=1e-4
        )


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


def test_complex32_is_read_as_float16() -> None:
    parts = noise(8, 600).astype(np.float16)
    projector = Projector(raw_elements("complex32"), parts.size)
    projector.add(parts.view(np.uint8))
    assert projector.sums() == project(parts)


def test_tensors_without_numbers_are_refused() -> None:
    with pytest.raises(DecodeError, match="datetime"):
        project(np.zeros(3, "datetime64[s]"))
    with pytest.raises(DecodeError, match="<U1"):
        project(np.array(["a"]))
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
    ratios = []
    for channel in range(0, shape[1], 11):
        array = np.zeros(shape, np.float32)
        array[:, channel] = 1
        ratios.append(distance(project(array), project(0 * array)) / math.sqrt(shape[0]))
    assert min(ratios) > 0.1
    assert float(np.std(ratios)) < 0.45


def test_pairs_that_change_places_are_seen_as_often_as_documented() -> None:
    rng = np.random.default_rng(10)
    pairs = [rng.choice(BLOCK, 2, replace=False) for _ in range(20_000)]
    unseen = sum(bool((signs()[:, i] == signs()[:, j]).all()) for i, j in pairs) / len(pairs)
    assert unseen == pytest.approx(1 / 200, abs=0.002)
