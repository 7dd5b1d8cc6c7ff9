"""The small test project that the demonstration writes and runs."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from pytest_npudump.demo.classifier import change_weights, check_packages, find_model
from pytest_npudump.errors import RequestError

if TYPE_CHECKING:
    from pathlib import Path

LAYER = "Conv@21"
"""The operator whose weights the demonstration changes."""

CHANGED = "angle_classifier.onnx"
"""The model that the test runs."""

ORIGINAL = "angle_classifier.original.onnx"
"""The model as it was, kept beside the changed one."""

TEST = '''\
"""A model's layers as a regression test."""

import numpy as np
import pytest


def text_line():
    """The same picture of text in every run: (1, 3, 48, 192), from -1 to 1."""
    rng = np.random.default_rng(seed=7)
    strokes = np.kron(rng.random((1, 3, 12, 48)) > 0.6, np.ones((1, 1, 4, 4)))
    return (strokes * 2 - 1).astype(np.float32)


@pytest.mark.npu_dump(golden_tensors=["Conv@21"])
def test_angle_classifier(npu_dump):
    with npu_dump.load_model("angle_classifier.onnx") as model:
        [probabilities] = model.run(text_line())
    assert probabilities.sum() == pytest.approx(1, abs=1e-3)
'''

_INI = """\
[pytest]
addopts = --strict-markers
npudump_runtime = emulator
"""


def write_project(folder: Path) -> None:
    """Write the project into a new or empty folder.

    Raises:
        RequestError: the folder holds something already, is none, or cannot be written.
        MissingExtraError: a package of the extra is not installed.
    """
    check_packages()
    source = find_model()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise RequestError(f"{folder} is not empty: name a folder that does not exist yet")
        _fill(folder, source)
    except OSError as error:
        reason = error.strerror or error
        raise RequestError(f"{folder} cannot be written ({reason}): name a folder that can") from error


def _fill(folder: Path, source: Path) -> None:
    """Write the files into the folder; it is left empty where one cannot be written whole."""
    texts = {folder / "test_angle_classifier.py": TEST, folder / "pytest.ini": _INI}
    try:
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
        shutil.copyfile(source, folder / CHANGED)
    except BaseException:
        for path in (*texts, folder / CHANGED):
            path.unlink(missing_ok=True)
        raise


def break_model(folder: Path, amount: float) -> None:
    """Add ``amount`` to the weights of :data:`LAYER`; the unchanged model stays under :data:`ORIGINAL`."""
    shutil.copyfile(folder / CHANGED, folder / ORIGINAL)
    change_weights(folder / CHANGED, LAYER, amount)
