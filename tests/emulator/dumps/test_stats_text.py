"""The statistics text against files of CANN's own device-side dump code."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import example, given, strategies as st
from hypothesis.extra import numpy as hnp

from pytest_npudump.dump.dtypes import BY_NAME, BY_PROTO
from pytest_npudump.emulator.dumps import writer
from pytest_npudump.onnxmodels.tensor_types import Tensor, from_array, storage

DATA = Path(__file__).parents[2] / "data" / "emulator"


def tensor(found: Any) -> Tensor:
    dtype = BY_PROTO[found.dtype]
    raw = np.frombuffer(found.data, np.uint8)
    kind = storage(dtype)
    return Tensor(dtype, found.shape, raw.view(kind) if raw.size % kind.itemsize == 0 else raw)


def text(dump: Any) -> str:
    return writer.csv([tensor(t) for t in dump.inputs], [tensor(t) for t in dump.outputs])


def test_text_is_cann_s_for_every_data_type_and_for_layers_of_a_model(wire: Any) -> None:
    paths = [sorted((DATA / name).glob("*.bin")) for name in ("all-dtypes", "ppocr")]
    assert len(paths[0]) == 42, "every published data type"
    for path in (*paths[0], *paths[1]):
        assert text(wire.read(path)) == path.with_suffix(".csv").read_text(), path


def test_mixed_rows_are_cann_s() -> None:
    inputs = [
        from_array(BY_NAME["float32"], np.array([np.nan, 1, np.inf, -np.inf, 2.3456789], np.float32)),
        from_array(BY_NAME["bool"], np.array([True, False, True])),
        from_array(BY_NAME["int8"], np.array([-5, 3, 127], np.int8)),
        Tensor(BY_NAME["bfloat16"], (4,), np.zeros(4, storage(BY_NAME["bfloat16"]))),
        Tensor(BY_NAME["complex64"], (), np.zeros(6, np.complex64)),
        Tensor(BY_NAME["float32"], (0,), np.zeros(0, np.float32)),
    ]
    values = np.array([0, 4294967295, 0, 1, 1, 1], np.uint32)
    expected = (DATA / "mixed-dtypes.csv").read_text().splitlines()
    lines = writer.csv(inputs, [Tensor(BY_NAME["uint32"], (3,), values)]).splitlines()
    assert lines[:7] == expected[:7]
    assert lines[7].startswith("Output,0,24,DT_UINT32,ND,3,4294967295,0,")
    assert expected[7].startswith("Output,0,24,DT_UINT32,ND,3,4294967295,0,")


def test_a_type_that_came_from_another_process_is_numpy_s_as_any() -> None:
    values = np.array([16777217, -16777219], np.int64)
    sent = pickle.loads(pickle.dumps(values.dtype))  # noqa: S301 - our own, as a process would get it
    alike = values.view(sent)
    assert alike.dtype.isbuiltin != values.dtype.isbuiltin
    texts = [writer.csv([Tensor(BY_NAME["int64"], (2,), one)], []) for one in (values, alike)]
    assert texts[1] == texts[0]
    assert ",16777217,-16777219," in texts[1]


def by_the_book(values: np.ndarray[Any, Any]) -> list[str]:
    """CANN's loop, element by element, in the device's arithmetic."""
    largest = smallest = values[0]
    mean, nans, negative, positive = 0.0, 0, 0, 0
    with np.errstate(all="ignore"):
        for index, value in enumerate(values):
            nans += bool(np.isnan(value))
            if value > largest:  # noqa: PLR1730 - max() would treat a NaN otherwise
                largest = value
            if value < smallest:  # noqa: PLR1730 - the same
                smallest = value
            if np.isinf(value):
                positive += bool(value > 0)
                negative += bool(value < 0)
            mean += (float(value) - mean) / (index + 1)
    if negative and not positive:
        mean = -math.inf
    elif positive and not negative:
        mean = math.inf

    def shown(value: Any) -> str:
        if isinstance(value, np.integer):
            return str(int(value))
        return format(value, "g")

    cells = [shown(largest), shown(smallest), format(mean, "g"), len(values), nans, negative, positive]
    return [str(cell) for cell in cells]


FLOATS = hnp.arrays(
    st.sampled_from([np.float16, np.float32, np.float64]), st.integers(1, 40), elements=st.floats(width=16)
)
INTS = hnp.arrays(st.sampled_from([np.int8, np.uint16, np.int64, np.uint64]), st.integers(1, 40))


@given(values=FLOATS | INTS)
def test_text_is_that_of_the_loop_it_replaces(values: np.ndarray[Any, Any]) -> None:
    dtype = BY_NAME[values.dtype.name]
    line = writer.csv([from_array(dtype, values)], []).splitlines()[1]
    assert [cell.lstrip("-") if "nan" in cell else cell for cell in line.split(",")[6:]] == by_the_book(
        values
    )


@given(scale=st.floats(-1e300, 1e300), count=st.integers(1, 3000), seed=st.integers(0, 2**32 - 1))
@example(scale=5e-324, count=10, seed=15)
def test_mean_of_many_doubles_is_that_of_the_loop(scale: float, count: int, seed: int) -> None:
    values = np.random.default_rng(seed).standard_normal(count) * scale
    mean = 0.0
    for index, value in enumerate(values.tolist()):
        mean += (value - mean) / (index + 1)
    assert format(writer.running_mean(values, values.max(), values.min()), "g") == format(mean, "g")


@given(
    count=st.integers(1, 20_000),
    seed=st.integers(0, 2**32 - 1),
    offset=st.sampled_from([0, 1e-9, 1, 1e9]),
    dtype=st.sampled_from([np.float16, np.float32, np.float64]),
)
def test_bound_of_the_fast_mean_covers_the_loop(count: int, seed: int, offset: float, dtype: Any) -> None:
    values = (np.random.default_rng(seed).standard_normal(count) + offset).clip(-6e4, 6e4).astype(dtype)
    mean = 0.0
    for index, value in enumerate(values.tolist()):
        mean += (value - mean) / (index + 1)
    magnitude = float(np.abs(values).max())
    fast, bound = writer._fast_mean(values, magnitude)
    assert abs(mean - fast) <= bound


def test_zero_that_comes_first_keeps_its_sign() -> None:
    zeros = from_array(BY_NAME["float32"], np.array([-0.0, 0.0], np.float32))
    assert writer.csv([zeros], []).splitlines()[1].split(",")[6:9] == ["-0", "-0", "0"]


def test_custom_statistics_have_the_layout_of_the_host_converter() -> None:
    """Large unsigned values are printed as their low bits."""
    values = from_array(BY_NAME["float32"], np.array([[1.5, -1.0], [np.nan, 0.25]], np.float32))
    mask = writer.mask(["L2norm", "Max", "Nan"])
    lines = writer.csv([from_array(BY_NAME["int32"], np.array([3, 4], np.int32))], [values], mask)
    assert lines.splitlines() == [
        "Input/Output,Index,Data Size,Data Type,Format,Shape,Count,Max Value,Nan Count,l2norm",
        "Input,0,8,DT_INT32,ND,2,2,4,0,5",
        "Output,0,16,DT_FLOAT,ND,2x2,4,1.5,1,nan",
    ]
    values = from_array(BY_NAME["uint64"], np.array([5_000_000_000, 1], np.uint64))
    row = writer.csv([values], [], writer.mask(["Max", "Min"])).splitlines()[1]
    assert row == "Input,0,16,DT_UINT64,ND,2,2,705032704,1"


def test_custom_statistics_that_fail_have_no_count_cell() -> None:
    values = from_array(BY_NAME["complex64"], np.zeros(2, np.complex64))
    assert writer.csv([values], [], writer.mask(["Max", "Min"])).splitlines()[1] == (
        "Input,0,16,DT_COMPLEX64,ND,2,NA,NA"
    )
