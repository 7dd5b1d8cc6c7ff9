"""The text of a first test that runs on what was found: an ONNX model, a framework, or its own model."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pprint import pformat
from typing import TYPE_CHECKING

from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.cli.init.survey import Survey

FILE = "test_npudump_first.py"

_MODEL = '''\
"""A first test whose layers are compared with a golden."""

import numpy as np
import pytest

INPUTS = {inputs}


@pytest.mark.npu_dump
def test_{name}(npu_dump):
    rng = np.random.default_rng(seed=7)
    arrays = [rng.uniform(0, 1, shape).astype(dtype) for shape, dtype in INPUTS]
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
    try:
        inputs, guessed = _inputs(found.root / model)
    except Exception as error:  # noqa: BLE001 - whatever the package says of a file that is no model
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
    text = _MODEL.format(inputs=pformat(inputs), name=name, path=path)
    others = len(found.models) - 1
    unknown = tuple(
        _("{model}: the size of {axis}: the test takes 1").format(model=model, axis=axis) for axis in guessed
    )
    unknown += (_("what its inputs look like: the test feeds uniform random numbers with a seed"),)
    if others:
        unknown += (
            _("which of {count} models matter: the test runs the smallest ONNX model, {model}").format(
                count=others + 1, model=model
            ),
        )
    return FirstTest(text, unknown)


def _inputs(model: Path) -> tuple[list[tuple[tuple[int, ...], str]], list[str]]:
    """Return shape and numpy type of each input, and which axes have no size of their own."""
    from pytest_npudump.onnxmodels.sessions import onnx, read_model  # noqa: PLC0415 - only where there is one

    graph = read_model(model).graph
    constants = {tensor.name for tensor in graph.initializer}
    found, guessed = [], []
    for value in graph.input:
        if value.name in constants:
            continue
        tensor = value.type.tensor_type
        shape = [axis.dim_value for axis in tensor.shape.dim]
        guessed += [
            _("axis {axis} of the input {name!r}").format(axis=row, name=value.name)
            for row, size in enumerate(shape)
            if size <= 0
        ]
        dtype = onnx().helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        found.append((tuple(max(size, 1) for size in shape), str(dtype)))
    return found, guessed
