"""Layout, type and range of a device are no difference to the reference; a value is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
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


def test_shapes_that_are_one_tensor_agree_and_others_differ_even_if_statistics_agree(
    make_record: Record,
) -> None:
    cases: tuple[tuple[tuple[int, ...] | None, str, bool], ...] = (
        ((1, 5, 2, 3), "", True),
        ((5, 2, 3), "", True),  # an axis of one left out
        ((5, 2, 3, 1), "ND", True),  # or moved
        ((1, 2, 3, 5), "NHWC", True),
        ((2, 3, 5, 1), "HWCN", True),
        (None, "", True),  # unknown
        ((1, 5, 3, 2), "", False),
        ((1, 2, 3, 5), "ND", False),
        ((1, 5, 2, 3), "NHWC", False),
        ((1, 30), "", False),
    )
    for shape, layout, alike in cases:
        fields = {"format": layout} if layout else {}
        found = reasons(expect(make_record(KEY, IMAGE, shape=shape, **fields), IMAGE))
        assert found == set() if alike else "shape" in found, (shape, layout)
    small = nc1hwc0(IMAGE[:, :, :1])[..., :4]  # with fewer elements
    assert "shape" in reasons(expect(make_record(KEY, small, format="NC1HWC0"), IMAGE))


def test_padding_in_statistics_is_no_difference_and_what_it_stands_before_is_found(
    make_record: Record,
) -> None:
    def found(packed: Array) -> ExpectedTensor:
        return expect(make_record(KEY, packed, format="NC1HWC0"), IMAGE)

    for padding in (0.0, 7.5, -7.5):
        one = found(nc1hwc0(IMAGE, padding))
        assert (one.marks, reasons(one)) == ({PADDED}, set())
    assert reasons(found(nc1hwc0(IMAGE * np.float32(0.5)))) == {"max", "min"}
    broken = nc1hwc0(IMAGE)
    broken[0, 0, 0, 0, 0] = np.nan
    assert "nan" in reasons(found(broken))


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


def test_width_of_a_type_is_no_difference_but_its_kind_is(make_record: Record, tmp_path: Path) -> None:
    cases: tuple[tuple[Any, Any, bool], ...] = (
        (np.float16, np.float32, False),
        (np.float64, np.float32, False),
        (np.int32, np.int64, False),
        (np.uint8, np.bool_, False),
        (np.int32, np.float32, True),
        (np.float32, np.int64, True),
    )
    values = np.array([[0, 1, 1], [1, 0, 1]])
    for device, reference, differs in cases:
        by_stats = expect(make_record(KEY, values.astype(device)), values.astype(reference))
        assert ("dtype" in reasons(by_stats)) == differs
        record = make_record(KEY, None, **stored(tmp_path, values.astype(device)))
        by_elements = expect(record, values.astype(reference))
        assert ("dtype" in reasons(by_elements)) == differs
        assert (by_elements.elements is None) == differs
    wrong = expect(make_record(KEY, np.array([1, 2, 4], np.int32)), np.array([1, 2, 3]))
    assert reasons(wrong) == {"max", "avg"}


BIG = np.array([[1e5, 2.0], [-3.0, -2e6]], np.float32)


@pytest.mark.parametrize("saturates", [False, True])
def test_values_beyond_float16_are_expected_to_be_infinite_or_the_largest(
    make_record: Record,
    tmp_path: Path,
    saturates: bool,  # noqa: FBT001 - a table
) -> None:
    with np.errstate(over="ignore"):
        halves = (np.clip(BIG, -65504, 65504) if saturates else BIG).astype(np.float16)
    for fields in ({}, stored(tmp_path, halves)):
        found = expect(make_record(KEY, halves, **fields), BIG)
        assert (found.marks, reasons(found)) == ({OVERFLOW}, set())


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


def test_an_infinity_or_an_overflow_that_one_side_does_not_have_is_a_difference(make_record: Record) -> None:
    reference = np.array([[60000.0, 2.0], [-3.0, 4.0]], np.float32)
    found = expect(make_record(KEY, np.array([[np.inf, 2.0], [-3.0, 4.0]], np.float16)), reference)
    assert found.marks == frozenset()
    assert {"max", "pos_inf"} <= reasons(found)
    halves = np.array([[3.0, 2.0], [-3.0, 4.0]], np.float16)
    assert "max" in reasons(expect(make_record(KEY, halves), BIG))
    found = expect(make_record(KEY, BIG), BIG)
    assert (found.marks, reasons(found)) == (frozenset(), set()), "float32 does not overflow"


def test_statistics_are_compared_as_acl_computes_them_and_none_of_no_elements(make_record: Record) -> None:
    nan = float("nan")
    for array, stats in (
        (np.array([np.nan, 1.0, 2.0]), Stats(3, nan, nan, nan, nan=1, pos_inf=0, neg_inf=0, digits=6)),
        (np.zeros((0, 4)), Stats(count=0, max=0.0, min=0.0, avg=0.0, digits=6)),
    ):
        record = make_record(KEY, None, dtype="float32", shape=array.shape, stats=stats)
        assert reasons(expect(record, array.astype(np.float32))) == set()


IMAGES = hnp.array_shapes(min_dims=4, max_dims=4, max_side=20)


@settings(max_examples=40)
@given(hnp.arrays(np.float32, IMAGES, elements=st.floats(-9, 9, width=32)))
def test_any_image_agrees_with_itself_in_the_device_layout(array: Array) -> None:
    packed = nc1hwc0(array, padding=3.0)
    stats = Stats(packed.size, float(packed.max()), float(packed.min()), float(packed.mean()), None, 0, 0, 0)
    record = TensorRecord(
        TensorKey.parse(KEY), "", "float32", packed.shape, Path("d"), "NC1HWC0", stats=stats
    )
    assert reasons(expect(record, array)) == set()
