"""Layout, type and range of a device are no difference to the reference; a value is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.records import Payload, Stats, TensorKey, TensorRecord
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.explain.comparison import LAYOUT, OVERFLOW, PADDED, expect

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.explain.comparison import ExpectedTensor

    Record = Callable[..., TensorRecord]
    Array = np.ndarray[Any, Any]

RNG = np.random.default_rng(11)
IMAGE = RNG.normal(size=(1, 5, 2, 3)).astype(np.float32)
KEY = "layer:output.0"


def reasons(found: ExpectedTensor) -> set[str]:
    """Statistics by which the two sides differ, under the preset for references."""
    comparison = compare_tables(
        StatsTable.from_records([found.golden]), StatsTable.from_records([found.actual]), Tolerances("om-net")
    )
    return {reason.statistic for verdict in comparison.failing for reason in verdict.reasons}


def stored(tmp_path: Path, array: Array) -> dict[str, Any]:
    """Fields of a record whose bytes are those of ``array``."""
    path = tmp_path / "tensor"
    path.write_bytes(array.tobytes())
    return {"payload": Payload(path, 0, array.nbytes), "shape": array.shape, "dtype": array.dtype.name}


def nc1hwc0(array: Array, padding: float = 0.0) -> Array:
    """Pack NCHW into blocks of 16 channels, as the device does, by plain indexing."""
    n, c, h, w = array.shape
    packed = np.full((n, -(-c // 16), h, w, 16), padding, array.dtype)
    for channel in range(c):
        packed[:, channel // 16, :, :, channel % 16] = array[:, channel]
    return packed


@pytest.mark.each(
    ("shape", "fields"),
    [
        ((1, 5, 2, 3), {}),
        ((5, 2, 3), {}),
        ((5, 2, 3, 1), {"format": "ND"}),
        ((1, 2, 3, 5), {"format": "NHWC"}),
        ((2, 3, 5, 1), {"format": "HWCN"}),
        (None, {}),
    ],
    ids=["same", "axis of one left out", "axis of one moved", "NHWC", "HWCN", "unknown"],
)
def test_shapes_that_are_one_tensor_agree(
    make_record: Record, shape: tuple[int, ...] | None, fields: dict[str, Any]
) -> None:
    record = make_record(KEY, IMAGE, **{"shape": shape, **fields})
    assert reasons(expect(record, IMAGE)) == set()


@pytest.mark.each(
    ("shape", "fields"),
    [
        ((1, 5, 3, 2), {}),
        ((1, 2, 3, 5), {"format": "ND"}),
        ((1, 5, 2, 3), {"format": "NHWC"}),
        ((1, 30), {}),
    ],
)
def test_other_shapes_are_a_difference_even_if_statistics_agree(
    make_record: Record, shape: tuple[int, ...], fields: dict[str, Any]
) -> None:
    record = make_record(KEY, IMAGE, **{"shape": shape, **fields})
    assert "shape" in reasons(expect(record, IMAGE))


def test_device_layout_with_fewer_elements_is_a_difference(make_record: Record) -> None:
    small = nc1hwc0(IMAGE[:, :, :1])[..., :4]
    assert "shape" in reasons(expect(make_record(KEY, small, format="NC1HWC0"), IMAGE))


@pytest.mark.parametrize("padding", [0.0, 7.5, -7.5])
def test_padding_in_statistics_is_no_difference(make_record: Record, padding: float) -> None:
    found = expect(make_record(KEY, nc1hwc0(IMAGE, padding), format="NC1HWC0"), IMAGE)
    assert found.marks == {PADDED}
    assert reasons(found) == set()


@pytest.mark.parametrize("change", [0.5, -0.5])
def test_extremes_that_shrink_are_found_behind_padding(make_record: Record, change: float) -> None:
    found = expect(make_record(KEY, nc1hwc0(IMAGE * np.float32(1 - abs(change))), format="NC1HWC0"), IMAGE)
    assert reasons(found) == {"max", "min"}


def test_nan_is_found_behind_padding(make_record: Record) -> None:
    broken = nc1hwc0(IMAGE)
    broken[0, 0, 0, 0, 0] = np.nan
    assert "nan" in reasons(expect(make_record(KEY, broken, format="NC1HWC0"), IMAGE))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_elements_of_a_device_layout_are_compared_without_its_padding(
    make_record: Record, tmp_path: Path, dtype: Any
) -> None:
    packed = nc1hwc0(IMAGE.astype(dtype), padding=99.0)
    fields = {**stored(tmp_path, packed), "format": "NC1HWC0", "original_shape": IMAGE.shape}
    found = expect(make_record(KEY, None, **fields), IMAGE)
    assert reasons(found) == set()
    assert found.actual.shape == IMAGE.shape
    assert found.elements is not None
    assert found.elements.difference is not None
    error = np.abs(IMAGE.astype(dtype).astype(np.float64) - IMAGE)
    assert found.elements.difference.max_abs == pytest.approx(error.max(), rel=1e-6)
    assert found.elements.difference.count == IMAGE.size


def test_swapped_elements_show_although_statistics_agree(make_record: Record, tmp_path: Path) -> None:
    turned = np.ascontiguousarray(IMAGE[..., ::-1])
    found = expect(make_record(KEY, None, **stored(tmp_path, turned)), IMAGE)
    assert reasons(found) == set()
    assert found.elements is not None
    assert found.elements.difference is not None
    assert found.elements.difference.relative_l2 > 0.5


def test_layout_that_cannot_be_converted_is_compared_by_statistics_and_said(
    make_record: Record, tmp_path: Path
) -> None:
    fields = {**stored(tmp_path, IMAGE), "format": "NC1HWC2", "original_shape": IMAGE.shape}
    record = make_record(KEY, IMAGE, **fields)
    found = expect(record, IMAGE)
    assert LAYOUT in found.marks
    assert reasons(found) == set()


@pytest.mark.each(
    ("device", "reference", "differs"),
    [
        (np.float16, np.float32, False),
        (np.float64, np.float32, False),
        (np.int32, np.int64, False),
        (np.uint8, np.bool_, False),
        (np.int32, np.float32, True),
        (np.float32, np.int64, True),
    ],
)
def test_width_of_a_type_is_no_difference_but_its_kind_is(
    make_record: Record,
    tmp_path: Path,
    device: Any,
    reference: Any,
    differs: bool,  # noqa: FBT001 - a table
) -> None:
    values = np.array([[0, 1, 1], [1, 0, 1]])
    by_stats = expect(make_record(KEY, values.astype(device)), values.astype(reference))
    assert ("dtype" in reasons(by_stats)) == differs
    record = make_record(KEY, None, **stored(tmp_path, values.astype(device)))
    by_elements = expect(record, values.astype(reference))
    assert ("dtype" in reasons(by_elements)) == differs
    assert (by_elements.elements is None) == differs


def test_wrong_integer_fails_exactly(make_record: Record) -> None:
    assert reasons(expect(make_record(KEY, np.array([1, 2, 4], np.int32)), np.array([1, 2, 3]))) == {
        "max",
        "avg",
    }


BIG = np.array([[1e5, 2.0], [-3.0, -2e6]], np.float32)


@pytest.mark.parametrize("elements", [False, True])
def test_values_beyond_float16_are_expected_to_be_infinite(
    make_record: Record,
    tmp_path: Path,
    elements: bool,  # noqa: FBT001 - a table
) -> None:
    with np.errstate(over="ignore"):
        halves = BIG.astype(np.float16)
    fields = stored(tmp_path, halves) if elements else {}
    found = expect(make_record(KEY, halves, **fields), BIG)
    assert found.marks == {OVERFLOW}
    assert reasons(found) == set()


@pytest.mark.parametrize("elements", [False, True])
def test_device_that_saturates_is_expected_to_show_the_largest_value(
    make_record: Record,
    tmp_path: Path,
    elements: bool,  # noqa: FBT001 - a table
) -> None:
    halves = np.clip(BIG, -65504, 65504).astype(np.float16)
    fields = stored(tmp_path, halves) if elements else {}
    found = expect(make_record(KEY, halves, **fields), BIG)
    assert found.marks == {OVERFLOW}
    assert reasons(found) == set()


def test_values_beyond_bfloat16_are_expected_to_be_infinite(make_record: Record, tmp_path: Path) -> None:
    mask = np.array([[np.finfo(np.float32).min, 0.0]], np.float32)
    halves = mask.astype(ml_dtypes.bfloat16)
    assert np.isinf(halves.astype(np.float32)).any()
    found = expect(make_record(KEY, None, **stored(tmp_path, halves)), mask)
    assert found.marks == {OVERFLOW}
    assert reasons(found) == set()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_signalling_nan_beside_values_beyond_16_bits_gives_no_warning(
    make_record: Record, tmp_path: Path, dtype: Any
) -> None:
    reference = np.array([[np.finfo(np.float32).max, 2.0], [0.0, 4.0]], np.float32)
    reference.view(np.uint32)[1, 0] = 0x7FA00000
    halves = np.array([[np.inf, 2.0], [np.nan, 4.0]], dtype)
    found = expect(make_record(KEY, None, **stored(tmp_path, halves)), reference)
    assert found.marks == {OVERFLOW}
    assert reasons(found) == set()


def test_infinity_the_reference_does_not_have_is_a_difference(make_record: Record) -> None:
    halves = np.array([[np.inf, 2.0], [-3.0, 4.0]], np.float16)
    reference = np.array([[60000.0, 2.0], [-3.0, 4.0]], np.float32)
    found = expect(make_record(KEY, halves), reference)
    assert found.marks == frozenset()
    assert {"max", "pos_inf"} <= reasons(found)


def test_overflow_that_did_not_happen_on_the_device_is_a_difference(make_record: Record) -> None:
    halves = np.array([[3.0, 2.0], [-3.0, 4.0]], np.float16)
    assert "max" in reasons(expect(make_record(KEY, halves), BIG))


def test_float32_on_the_device_does_not_overflow(make_record: Record) -> None:
    found = expect(make_record(KEY, BIG), BIG)
    assert found.marks == frozenset()
    assert reasons(found) == set()


def test_statistics_are_compared_as_acl_computes_them(make_record: Record) -> None:
    array = np.array([np.nan, 1.0, 2.0], np.float32)
    stats = Stats(
        count=3, max=float("nan"), min=float("nan"), avg=float("nan"), nan=1, pos_inf=0, neg_inf=0, digits=6
    )
    record = make_record(KEY, None, dtype="float32", shape=(3,), stats=stats)
    assert reasons(expect(record, array)) == set()


def test_tensors_without_elements_agree_whatever_the_producer_writes(make_record: Record) -> None:
    stats = Stats(count=0, max=0.0, min=0.0, avg=0.0, digits=6)
    record = make_record(KEY, None, dtype="float32", shape=(0, 4), stats=stats)
    assert reasons(expect(record, np.zeros((0, 4), np.float32))) == set()


IMAGES = hnp.array_shapes(min_dims=4, max_dims=4, max_side=20)


@given(hnp.arrays(np.float32, IMAGES, elements=st.floats(-9, 9, width=32)))
def test_any_image_agrees_with_itself_in_the_device_layout(array: Array) -> None:
    packed = nc1hwc0(array, padding=3.0)
    stats = Stats(packed.size, float(packed.max()), float(packed.min()), float(packed.mean()), None, 0, 0, 0)
    record = TensorRecord(
        TensorKey.parse(KEY), "", "float32", packed.shape, Path("d"), "NC1HWC0", stats=stats
    )
    assert reasons(expect(record, array)) == set()
