"""What a reference is given, and what its answer becomes; ``NPUDUMP_TORCHAIR`` names a folder with torch."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pytest_npudump.errors import RequestError
from pytest_npudump.regression.scenes.check_op import Question, answer_of, arrays_of

FOLDER = os.environ.get("NPUDUMP_TORCHAIR", "")
HALF = np.array([1, -2, 65504], np.float16)

TORCH = """
import sys
sys.path.append(sys.argv[1])
import ml_dtypes, numpy, torch
from pytest_npudump.regression.scenes.check_op import arrays_of

given = [torch.tensor([1.5, -0.0]).to(torch.bfloat16), torch.ones(2, requires_grad=True), torch.tensor(True)]
one, two, three = arrays_of(given, "reference")
assert one.dtype == ml_dtypes.bfloat16 and one.tobytes() == numpy.array([1.5, -0.0], one.dtype).tobytes()
assert two.dtype == numpy.float32 and two.tolist() == [1.0, 1.0]
assert three.dtype == bool and three.shape == ()
"""


def answer(reference: Any, *inputs: np.ndarray, **how: Any) -> Any:
    return answer_of(Question("Op", inputs, reference, **how))


def test_floats_are_widened_and_integers_stay() -> None:
    seen: list[np.dtype[Any]] = []

    def reference(*given: np.ndarray) -> np.ndarray:
        seen.extend(array.dtype for array in given)
        return given[0]

    whole = np.array([1], np.int8)
    (found,) = answer(reference, HALF, whole, HALF.astype(ml_dtypes.bfloat16))
    assert seen == [np.float64, np.int8, np.float64]
    assert (found.dtype, found.values.dtype) == (np.float16, np.float64)
    seen.clear()
    answer(reference, HALF, whole, widen=False)
    assert seen == [np.float16, np.int8]


def test_a_reference_that_writes_into_its_inputs_changes_nothing() -> None:
    def reference(x: np.ndarray) -> np.ndarray:
        x[...] = 0
        return x

    for widen in (True, False):
        answer(reference, HALF, widen=widen)
        answer(reference, np.array([7]), widen=widen)
    assert HALF.tolist() == [1, -2, 65504]


def test_outputs_have_the_type_of_the_first_input_of_floats_or_of_the_reference() -> None:
    less, total = answer(lambda _, x, y: (x < y, x + y), np.array([3]), HALF, HALF.astype(np.float32))
    assert (less.dtype, total.dtype) == (np.bool_, np.float16)
    (alone,) = answer(lambda n: n / 2, np.array([3]))
    assert alone.dtype == np.float64
    (named,) = answer(lambda x: x, HALF, dtypes=["float32"])
    assert named.dtype == np.float32


def test_warnings_of_a_reference_at_extreme_values_are_no_errors() -> None:
    (found,) = answer(lambda x: x / 0 * np.inf, HALF, widen=False)
    assert np.isinf(found.values).all()


def test_integers_beyond_the_type_are_no_answer() -> None:
    (found,) = answer(lambda _: np.array([127]), HALF, dtypes=[np.int8])
    assert found.values.dtype == np.int8
    with pytest.raises(RequestError, match="int64 with values that int8 does not hold"):
        answer(lambda _: np.array([128]), HALF, dtypes=[np.int8])
    with pytest.raises(RequestError, match="float64 with values that int8 does not hold"):
        answer(lambda x: x * np.nan, HALF, dtypes=[np.int8])


@pytest.mark.parametrize("found", [None, "text", object(), 1j, [None]])
def test_what_is_no_array_is_refused(found: Any) -> None:
    with pytest.raises(RequestError, match=r"the reference gave .* expected arrays"):
        arrays_of(found, "reference")


def test_tensors_of_the_real_torch_become_arrays() -> None:
    if not FOLDER:
        pytest.skip("NPUDUMP_TORCHAIR names no folder with the real torch")
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    subprocess.run([sys.executable, "-c", TORCH, FOLDER], env=environment, check=True)
