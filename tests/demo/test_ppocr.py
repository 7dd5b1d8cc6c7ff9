"""The project eats its own food: a real model under the marker, its golden in this repository."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_npudump.demo import MODEL
from pytest_npudump.plugin.fixture import NpuDump

pytestmark = pytest.mark.e2e


def text_line() -> np.ndarray:
    """A picture of a text line, the same in every run: (1, 3, 48, 192), values -1 and 1."""
    rng = np.random.default_rng(seed=7)
    strokes = np.kron(rng.random((1, 3, 12, 48)) > 0.6, np.ones((1, 1, 4, 4)))
    return (strokes * 2 - 1).astype(np.float32)


@pytest.mark.npu_dump
def test_angle_classifier_says_what_it_said(npu_dump: NpuDump) -> None:
    with npu_dump.load_model(MODEL) as model:
        (probabilities,) = model.run(text_line())
    assert probabilities.shape == (1, 2)
    assert probabilities.sum() == pytest.approx(1, abs=1e-6)


@pytest.mark.npu_dump(layers=["Conv@0", "Conv@21", "Softmax@0"], acl_json={"dump_mode": "all"})
def test_chosen_layers_of_the_classifier_with_their_inputs(npu_dump: NpuDump) -> None:
    with npu_dump.load_model(MODEL) as model:
        model.run(text_line())
        model.run(-text_line())
