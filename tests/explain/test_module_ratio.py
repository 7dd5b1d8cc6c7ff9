"""The three-tensor ratio of modules, by tensors whose errors are known."""

from __future__ import annotations

import math
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from pytest_npudump.dump.records import TensorKey
from pytest_npudump.errors import RequestError
from pytest_npudump.explain.module_ratio import ratio_of, ratios

KEY = TensorKey("blocks.0.mlp", "output", 0)
EXACT = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
ROUNDED = EXACT.astype(ml_dtypes.bfloat16)
STEP = 2.0**-8


def other(change: object) -> np.ndarray:
    found = ROUNDED.copy()
    change(found)  # type: ignore[operator]
    return found


def test_verdicts_of_tensors_whose_errors_are_known() -> None:
    noise = np.random.default_rng(1).uniform(-STEP, STEP, EXACT.shape).astype(np.float32)
    lost = (EXACT + 0.3 * np.random.default_rng(2).standard_normal(EXACT.shape)).astype(ml_dtypes.bfloat16)

    def put(value: float) -> np.ndarray:
        return other(lambda found: found.__setitem__((3, 5), value))

    nans, half = other(lambda found: found.fill(math.nan)), other(lambda found: found[32:].fill(math.inf))
    cases = [
        ("the same", ROUNDED, ROUNDED, ""),
        ("another rounding", (EXACT * (1 + noise)).astype(ml_dtypes.bfloat16), ROUNDED, ""),
        ("float32 itself", EXACT, ROUNDED, ""),
        ("a row of zeros", other(lambda found: found[7].fill(0)), ROUNDED, "device"),
        ("three percent", (EXACT * 1.03).astype(ml_dtypes.bfloat16), ROUNDED, "device"),
        ("one element", put(9), ROUNDED, "device"),
        ("one NaN", put(math.nan), ROUNDED, "device"),
        ("nothing rounds on the CPU", ROUNDED, EXACT.astype(ml_dtypes.bfloat16).astype(np.float32), ""),
        ("the type leaves nothing", other(lambda found: found[7].fill(0)), lost, "dtype"),
        ("the type has no numbers", nans, nans, "dtype"),
        ("the type has few numbers", half, half, "dtype"),
    ]
    for name, device, rounded, whose in cases:
        exact = EXACT if rounded.dtype != np.float32 else rounded
        found = ratio_of(KEY, "Linear", device, rounded.astype(ml_dtypes.bfloat16), exact)
        assert found.whose == whose, (name, found)
    moved = (EXACT * 1.01).astype(ml_dtypes.bfloat16)  # 4 to 5 times what rounding does, as a vector
    for count, whose in ((128, ""), (129, "device"), (500, "device"), (501, "device")):
        three = (array.reshape(-1)[:count] for array in (moved, ROUNDED, EXACT))
        found = ratio_of(KEY, "Linear", *three)
        assert (found.whose, 3 < found.ratio < 8) == (whose, True), count
    truth = np.linalg.norm((EXACT * 1.03).astype(ml_dtypes.bfloat16).astype(np.float64) - EXACT)
    rounding = np.linalg.norm(ROUNDED.astype(np.float64) - EXACT)
    found = ratio_of(KEY, "Linear", (EXACT * 1.03).astype(ml_dtypes.bfloat16), ROUNDED, EXACT)
    assert math.isclose(found.ratio, truth / rounding)
    assert found.blame.whose == "device"
    assert ratio_of(KEY, "Linear", put(math.nan), ROUNDED, EXACT).ratio == math.inf
    masked = [EXACT.copy(), ROUNDED.copy(), ROUNDED.copy()]
    for one in masked:
        one[2, 3:5] = -math.inf, math.nan
    for value, whose in ((-math.inf, ""), (math.inf, "device"), (0, "device"), (math.nan, "device")):
        masked[2][2, 3] = value
        assert ratio_of(KEY, "Softmax", masked[2], masked[1], masked[0]).whose == whose, value
    high = float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
    overflown = [EXACT.copy(), ROUNDED.copy(), ROUNDED.copy()]  # at one element in the type of the device
    for at, one in enumerate(overflown):
        one[0, 0], one[3, 5] = math.inf if at else 3.4e38, high
    for value, whose in ((high, ""), (math.inf, ""), (math.nan, "device")):
        overflown[2][3, 5] = value
        assert ratio_of(KEY, "Linear", overflown[2], overflown[1], overflown[0]).whose == whose, value
    for value in (math.nan, math.inf, -math.inf):
        overflown[2][3, 5], overflown[2][4, 4] = high, value
        assert ratio_of(KEY, "Linear", overflown[2], overflown[1], overflown[0]).whose == "device", value


def dump(folder: Path, tensors: dict[str, np.ndarray]) -> Path:
    folder.mkdir()
    for at, (layer, array) in enumerate(tensors.items()):
        name = f"Linear.{layer}.0.0.{1795228705872229 + at}.output.0.ND.{array.dtype.name}.npy"
        with (folder / name).open("wb") as file:
            head = f"{{'descr': '{array.dtype.name}', 'fortran_order': False, 'shape': {array.shape}}}"
            if array.dtype == np.float32:
                np.save(file, array)
                continue
            text = head.encode() + b"\n"
            file.write(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + array.tobytes())
    return folder


def test_dumps_are_judged_by_name_in_the_order_of_execution(tmp_path: Path) -> None:
    wrong = other(lambda found: found[7].fill(0))
    device = dump(tmp_path / "device", {"a.0": ROUNDED, "b.1": wrong, "c": ROUNDED})
    rounded = dump(tmp_path / "rounded", {"c": ROUNDED, "b.1": ROUNDED, "a.0": ROUNDED})
    exact = dump(tmp_path / "exact", {"a.0": EXACT, "b.1": EXACT})
    notes: list[str] = []
    found = [(one.key.layer, one.whose) for one in ratios(device, str(rounded), exact, notes)]
    assert found == [("a.0", ""), ("b.1", "device")]
    assert notes == ["npu_dump.ratio(): tensors not checked, as a reference lacks them: 1: c:output.0"]
    with pytest.raises(RequestError, match="no tensor of floats is in all three"):
        ratios(device, rounded, dump(tmp_path / "other", {"d": EXACT}))
    with pytest.raises(RequestError, match=r"a\.0:output\.0 has other shapes"):
        ratios(device, rounded, dump(tmp_path / "short", {"a.0": EXACT[:3]}))
    routed = dump(tmp_path / "routed", {"a.0": EXACT[:3], "b.1": EXACT, "c": EXACT})
    notes.clear()
    found = [(one.key.layer, one.whose) for one in ratios(device, rounded, routed, notes)]
    assert found == [("b.1", "device"), ("c", "")]
    assert notes == [
        "npu_dump.ratio(): tensors not checked, as a reference has other shapes: 1: a.0:output.0"
    ]


def test_a_rounded_model_that_is_far_off_is_told(tmp_path: Path) -> None:
    """The device may share its fault, which the ratio cannot tell."""
    wrong = (ROUNDED.astype(np.float32) * 1.2).astype(ROUNDED.dtype)
    exact = dump(tmp_path / "exact", {"a.0": EXACT, "b.1": EXACT})
    sides = [dump(tmp_path / str(at), {"a.0": ROUNDED, "b.1": wrong}) for at in range(2)]
    notes: list[str] = []
    assert [one.whose for one in ratios(*sides, exact, notes)] == ["", "dtype"]
    why = "the rounded model is too far off the reference"
    assert notes == [f"npu_dump.ratio(): tensors not checked, as {why}: 1: b.1:output.0"]


@pytest.mark.each(
    ("device", "rounded", "exact", "words"),
    [
        ("device", "rounded", "device", "no two the same"),
        ("device", "device", "exact", "no two the same"),
        ("device", "exact", "exact", "no two the same"),
        (
            "exact",
            "rounded",
            "device",
            "bfloat16 in the reference, bfloat16 in the rounded model and float32",
        ),
        ("device", "exact", "rounded", "bfloat16 in the reference, float32 in the rounded model"),
        (
            "device",
            "rounded",
            "other",
            "bfloat16 in the reference, bfloat16 in the rounded model and bfloat16",
        ),
    ],
)
def test_a_reference_is_no_other_side_and_no_narrower(
    tmp_path: Path, device: str, rounded: str, exact: str, words: str
) -> None:
    wrong = other(lambda found: found[7].fill(0))
    made = {"device": wrong, "rounded": ROUNDED, "exact": EXACT, "other": ROUNDED}
    three = {name: dump(tmp_path / name, {"a.0": array}) for name, array in made.items()}
    with pytest.raises(RequestError, match=words):
        ratios(three[device], str(three[rounded]), three[exact])
