"""How ``npudump compare`` words what it found in the elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import dump_file

Run = Callable[..., Any]
GOLDEN = np.linspace(-3, 5, 4096, dtype=np.float32).reshape(64, 64)


def _changed(**values: float) -> np.ndarray:
    """A copy with values at flat places: ``_changed(at_12=nan)``."""
    other: np.ndarray = GOLDEN.copy()
    for place, value in values.items():
        other.flat[int(place.removeprefix("at_"))] = value
    return other


@pytest.fixture
def compared(run: Run, tmp_path: Path) -> Callable[..., Any]:
    """Compare two arrays as the dumps of one layer: ``compared(golden, actual, *options)``."""

    def compare(golden: np.ndarray, actual: np.ndarray, *options: object, **how: Any) -> Any:
        dump_file(tmp_path / "golden", "net/relu", golden, **how)
        dump_file(tmp_path / "actual", "net/relu", actual, **how)
        return run("compare", tmp_path / "golden", tmp_path / "actual", *options)

    return compare


def _first(text: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith("first mismatch: ")]
    head = "first mismatch: net/relu:output.0 "
    assert line.startswith(head)
    return line.removeprefix(head).removeprefix("differs: ")


def _cells(text: str) -> dict[str, str]:
    """The one row of the table by its header."""
    header, row = text.splitlines()[-2:]
    names = [name for name in header.split("  ") if name]
    starts = [*(header.index(name.strip()) for name in names), None]
    return {
        name.strip(): row[begin:end].strip()
        for name, begin, end in zip(names, starts, starts[1:], strict=False)
    }


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("golden", "actual", "words"),
    [
        (
            GOLDEN,
            _changed(at_76=NAN, at_100=NAN),
            "NaN or Inf differ in 2 places, first at [1, 12] (golden: none; actual: 2 NaN)",
        ),
        (
            GOLDEN,
            _changed(at_0=-INF),
            "NaN or Inf differ in 1 place, first at [0, 0] (golden: none; actual: 1 Inf)",
        ),
        (
            GOLDEN,
            _changed(at_1=NAN, at_0=INF),
            "NaN or Inf differ in 2 places, first at [0, 0] (golden: none; actual: 1 NaN, 1 Inf)",
        ),
        (
            _changed(at_64=NAN),
            GOLDEN,
            "NaN or Inf differ in 1 place, first at [1, 0] (golden: 1 NaN; actual: none)",
        ),
        (
            _changed(at_3=NAN, at_4=INF),
            _changed(at_3=NAN, at_4=-INF),
            "NaN or Inf differ in 1 place, first at [0, 4] (golden: 1 NaN, 1 Inf; actual: 1 NaN, 1 Inf)",
        ),
    ],
    ids=["nan", "inf", "both", "gone", "sign"],
)
def test_nan_and_infinities_are_told_by_their_places(
    compared: Run, golden: np.ndarray, actual: np.ndarray, words: str
) -> None:
    done = compared(golden, actual)
    assert done.code == 1
    assert _first(done.out) == words
    assert _cells(done.out)["statistic"].startswith("NaN and Inf")


def test_a_tensor_without_a_comparable_pair_has_no_distances_and_with_one_it_has(compared: Run) -> None:
    actual = np.full_like(GOLDEN, NAN)
    cells = _cells(compared(GOLDEN, actual).out)
    assert [cells[name] for name in ("max abs", "max rel", "cosine", "within")] == ["-", "-", "-", "0%"]
    assert cells["golden"] == "none"
    assert cells["actual"] == "4096 NaN, first at [0, 0]"
    found = compared(GOLDEN, actual, "--json", "-").json["verdicts"][0]["elements"]
    distances = ("max_abs", "max_rel", "mean_rel", "cosine", "relative_l2")
    assert [found[name] for name in distances] == [None] * 5
    assert (found["outside"], found["special_different"]) == (4096, 4096)
    actual[5, 5] = GOLDEN[5, 5] + 1
    assert _cells(compared(GOLDEN, actual).out)["max abs"] == "1"


def test_the_farthest_element_is_told_with_how_many_are_outside(compared: Run) -> None:
    actual = GOLDEN.copy()
    actual[7, :37] = GOLDEN[7, :37] + np.float32(0.25)
    done = compared(GOLDEN, actual, "--rtol", "1e-2")
    # 1e-2 of the greatest magnitude, 5, is allowed: 0.25 is 5 times that.
    assert _first(done.out) == "elements: max abs 0.25 (5x tolerance), 37 of 4096 out of tolerance"
    cells = _cells(done.out)
    assert cells["statistic"].startswith("elements: max abs")
    assert (cells["golden"], cells["actual"], cells["x tol"]) == ("-", "0.25", "5")


def test_relative_l2_is_explained(compared: Run) -> None:
    golden = np.random.default_rng(1).standard_normal(4096).astype(np.float32)
    golden[0] = 1000
    actual = np.concatenate([golden[:1], golden[:0:-1]])
    done = compared(golden, actual, "--rtol", "1e-2")
    expected = np.linalg.norm((actual - golden).astype(float)) / np.linalg.norm(golden.astype(float))
    assert "relative_l2, the length of the difference by that of the golden, is " in _first(done.out)
    assert f"is {expected:.6g} ({expected / 1e-2:.3g}x tolerance)" in _first(done.out)
    assert _cells(done.out)["golden"] == "-"


def test_a_statistic_that_differs_is_told_with_what_the_elements_say_or_bytes(compared: Run) -> None:
    words = _first(compared(GOLDEN, _changed(at_4095=6)).out)
    assert words.startswith("max 6, expected 5 (")
    assert words.endswith("; elements: max abs 1, 1 of 4096 out of tolerance")
    golden = np.arange(64, dtype=np.uint8)
    actual = golden.copy()
    actual[3] = 9
    assert _first(compared(golden, actual, dtype="qint8").out) == "1 of 64 bytes"  # a type without values
