"""The main job on a real model, on a machine without an NPU: what ``npudump demo`` writes and runs.

The model is PP-OCR's text angle classifier, of which one weight is changed.
"""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pytest_npudump.errors import MissingExtraError, RequestError

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
required_plugins = pytest-npudump
"""


def write_project(folder: Path) -> None:
    """Write the project into a new or empty folder.

    Raises:
        RequestError: the folder holds something already, is none, or cannot be written.
        MissingExtraError: a package of the extra is not installed.
    """
    for package in ("onnx", "onnxruntime"):  # at once, rather than after the first runs
        if find_spec(package) is None:
            raise MissingExtraError("npudump demo", package, "demo")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise RequestError(f"{folder} is not empty: name a folder that does not exist yet")
        texts = {folder / "test_angle_classifier.py": TEST, folder / "pytest.ini": _INI}
        try:
            for path, text in texts.items():
                path.write_text(text, encoding="utf-8")
            shutil.copyfile(MODEL, folder / CHANGED)
        except BaseException:
            for path in (*texts, folder / CHANGED):
                path.unlink(missing_ok=True)
            raise
    except OSError as error:
        reason = error.strerror or error
        raise RequestError(f"{folder} cannot be written ({reason}): name a folder that can") from error


def break_model(folder: Path, amount: float) -> None:
    """Add ``amount`` to the weights of :data:`LAYER`; the unchanged model stays under :data:`ORIGINAL`."""
    shutil.copyfile(folder / CHANGED, folder / ORIGINAL)
    change_weights(folder / CHANGED, LAYER, amount)


MODEL = Path(__file__).with_name("ch_ppocr_mobile_v2.0_cls_mobile.onnx")
"""258 operators, 0.6 MB; its licence (Apache-2.0) lies beside it."""


def change_weights(path: Path, layer: str, amount: float) -> None:
    """Add ``amount`` to every weight of one operator of an ONNX file, in place.

    Raises:
        RequestError: the model has no such operator, or the operator has no constant weights.
    """
    import onnx  # noqa: PLC0415 - an extra
    from onnx import numpy_helper  # noqa: PLC0415 - the same

    model = onnx.load(str(path))
    node = next((node for node in model.graph.node if node.name == layer), None)
    if node is None:
        raise RequestError(f"{path} has no operator named {layer!r}")
    for tensor in _constants(model, set(node.input)):
        values = numpy_helper.to_array(tensor)
        if values.ndim > 1:
            tensor.CopyFrom(numpy_helper.from_array((values + amount).astype(values.dtype), tensor.name))
            onnx.save(model, str(path))
            return
    raise RequestError(f"{layer!r} of {path} has no constant weights to change")


def _constants(model: Any, names: set[str]) -> list[Any]:
    found = [tensor for tensor in model.graph.initializer if tensor.name in names]
    for node in model.graph.node:
        if node.op_type == "Constant" and node.output[0] in names:
            found += [attribute.t for attribute in node.attribute if attribute.name == "value"]
    return found
