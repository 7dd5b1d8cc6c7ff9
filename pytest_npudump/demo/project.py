"""The small test project that the demonstration writes and runs."""

from __future__ import annotations

import shutil
from pathlib import Path

from pytest_npudump.demo.model import find_model
from pytest_npudump.errors import RequestError

LAYER = "Conv@21"
"""The operator whose weights the demonstration changes."""

TEST = '''\
"""A model's layers as a regression test."""

import numpy as np
import pytest


def text_line():
    """A picture of a text line, the same in every run: (1, 3, 48, 192), values from -1 to 1."""
    rng = np.random.default_rng(seed=7)
    strokes = np.kron(rng.random((1, 3, 12, 48)) > 0.6, np.ones((1, 1, 4, 4)))
    return (strokes * 2 - 1).astype(np.float32)


@pytest.mark.npu_dump(golden_tensors=["Conv@21"])
def test_angle_classifier(npu_dump):
    with npu_dump.load_model("angle_classifier.onnx") as model:
        [probabilities] = model.run(text_line())
    assert probabilities.sum() == pytest.approx(1, abs=1e-3)
'''

INI = """\
[pytest]
addopts = --strict-markers
npudump_runtime = emulator
"""


def write_project(folder: Path) -> Path:
    """Write the project into a new or empty folder and return the model's path in it.

    Raises:
        RequestError: the folder holds something already.
        MissingExtraError: the package that carries the model is not installed.
    """
    source = find_model()
    if folder.exists() and any(folder.iterdir()):
        raise RequestError(f"{folder} is not empty: name a folder that does not exist yet")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "test_angle_classifier.py").write_text(TEST, encoding="utf-8")
    (folder / "pytest.ini").write_text(INI, encoding="utf-8")
    return Path(shutil.copyfile(source, folder / "angle_classifier.onnx"))
