"""The text of a first test that runs on what was found: an ONNX model, a framework, or its own model."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npudump.cli.init.model_inputs import inputs_of
from pytest_npudump.language.excerpt import cut
from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.cli.init.model_inputs import ModelInput
    from pytest_npudump.cli.init.survey import Survey

FILE = "test_npudump_first.py"
_REASON = 300

_MODEL = '''\
"""A first test whose layers are compared with a golden."""

import numpy as np
import pytest


@pytest.mark.npu_dump
def test_{name}(npu_dump):
    rng = np.random.default_rng(seed=7)
    arrays = [
{arrays}
    ]
    with npu_dump.load_model({path!r}) as model:
        model.run(*arrays)
'''
_TORCH = '''\
"""A first test whose operators are compared with a golden."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_npu")


@pytest.mark.npu_dump
def test_linear():
    torch.manual_seed(7)
    layer = torch.nn.Linear(16, 4).npu()
    layer(torch.linspace(-1, 1, 32).reshape(2, 16).npu()).cpu()
'''
_MINDSPORE = '''\
"""A first test whose operators are compared with a golden."""

import numpy as np
import pytest

mindspore = pytest.importorskip("mindspore")


@pytest.mark.npu_dump
def test_softmax():
    mindspore.set_seed(7)
    image = mindspore.Tensor(np.linspace(-1, 1, 32, dtype=np.float32).reshape(2, 16))
    mindspore.ops.softmax(mindspore.ops.relu(image)).asnumpy()
'''
_OWN = '''\
"""A first test whose layers are compared with a golden: put a model of yours in the place of this one."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper


def own_model(path):
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [2, 16])
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, [2, 16])
    nodes = [
        helper.make_node("Relu", ["image"], ["a"], name="relu"),
        helper.make_node("Softmax", ["a"], ["out"], name="softmax", axis=1),
    ]
    graph = helper.make_graph(nodes, "own", [image], [out])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.npu_dump
def test_own_model(npu_dump, tmp_path):
    image = np.linspace(-1, 1, 32, dtype=np.float32).reshape(2, 16)
    with npu_dump.load_model(own_model(tmp_path / "own.onnx")) as model:
        model.run(image)
'''


@dataclass(frozen=True, slots=True)
class FirstTest:
    """A first test.

    Attributes:
        text: of the file; "" where nothing is there that a test could run.
        unknown: what was not known, in words.
    """

    text: str
    unknown: tuple[str, ...] = ()


def first_test(found: Survey) -> FirstTest:
    """Return a test of the smallest ONNX model, else of a framework, else of a model of its own."""
    onnx = [path for path in found.models if path.suffix == ".onnx"]
    offline = tuple(str(path) for path in found.models if path.suffix == ".om")
    if onnx and "onnx" in found.packages:
        return _of_model(found, onnx[0])
    unknown: tuple[str, ...] = (
        (_("{model}: which inputs it has: pip install onnx, and run this again").format(model=onnx[0]),)
        if onnx
        else ()
    )
    if offline:
        unknown += (
            _("{model}: which inputs it has: write its test with npu_dump.load_model").format(
                model=offline[0]
            ),
        )
    if "torch_npu" in found.packages:
        return FirstTest(
            _TORCH, (*unknown, _("which of your modules to run: the test runs a layer of its own"))
        )
    if "mindspore" in found.packages:
        return FirstTest(_MINDSPORE, (*unknown, _("which of your cells to run: the test runs two operators")))
    if {"onnx", "onnxruntime"} <= found.packages:
        return FirstTest(_OWN, (*unknown, _("which model to run: the test makes one of two operators")))
    none = _(
        'what to run: no model, torch_npu, MindSpore or onnxruntime: pip install "pytest-npudump[emulator]"'
    )
    return FirstTest("", (*unknown, none))


def _of_model(found: Survey, model: Path) -> FirstTest:
    runs = "onnxruntime" in found.packages
    try:
        trial = inputs_of(found.root / model, run=runs)
    except (OSError, ValueError) as error:
        first = str(error).splitlines()[:1]
        return FirstTest(
            "",
            (
                _("{model}: which inputs it has: it cannot be read: {reason}").format(
                    model=model, reason=" ".join(first)
                ),
            ),
        )
    name = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in model.stem.lower())
    path = os.path.relpath(found.root / model, found.tests).replace(os.sep, "/")
    text = _MODEL.format(arrays="\n".join(map(_array, trial.inputs)), name=name, path=path)
    others = len(found.models) - 1
    unknown = tuple(
        _("{model}: the size of axis {axis} of the input {name!r}: the test takes {size}").format(
            model=model, axis=axis, name=one.name, size=one.shape[axis]
        )
        for one in trial.inputs
        for axis in one.guessed
    )
    if not runs:
        unknown += (_("{model}: whether it runs with these inputs: it was not tried").format(model=model),)
    elif trial.error:
        reason = cut(trial.error, _REASON)
        none = _("{model}: inputs with which it runs: none of those that were tried: {reason}")
        unknown += (none.format(model=model, reason=reason), _("write its inputs into the test first"))
    unknown += (_("what its inputs look like: the test feeds uniform random numbers with a seed"),)
    if others:
        unknown += (
            _("which of {count} models matter: the test runs the smallest ONNX model, {model}").format(
                count=others + 1, model=model
            ),
        )
    return FirstTest(text, unknown)


def _array(one: ModelInput) -> str:
    """Return the line of a test that makes an input."""
    how = "uniform" if one.dtype.startswith(("float", "complex")) else "integers"
    return f"        rng.{how}(0, {one.high}, {one.shape}).astype({one.dtype!r}),  # {one.name!r}"
