"""The first test that ``npudump init`` writes: of a model that is there, with inputs that it runs with."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.language.text import cut
from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_npudump.cli.survey import Survey


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


_SIZES = (1, 2, 3, 4, 7, 8, 16, 32, 48, 64, 96, 112, 128, 160, 192, 224, 256, 299, 320, 384, 416, 512, 640)
"""Sizes of axes that a model leaves open, in the order in which they are tried."""
_SECONDS = 120
_FORWARDED = {"Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Expand"}
_TABLES = {("Gather", 1): 0, ("EmbedLayerNormalization", 0): 2, ("EmbedLayerNormalization", 1): 4}
"""By an operator and the input that has indices, the input that these are of."""


@dataclass(frozen=True, slots=True)
class ModelInput:
    """An input of a model.

    Attributes:
        name: as in the graph.
        shape: its sizes.
        dtype: the name of its numpy type.
        high: what its random values are below.
        guessed: axes whose size the model leaves open.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    high: int
    guessed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Trial:
    """What was found.

    Attributes:
        inputs: those with which the model runs; of the first try where it runs with none.
        error: why it runs with none; "" where it does.
    """

    inputs: tuple[ModelInput, ...]
    error: str = ""


def inputs_of(model: Path, *, run: bool) -> Trial:
    """Return a model's inputs.

    Args:
        model: its file.
        run: whether it is run, with sizes for the axes that it leaves open; else these are 1.

    Raises:
        OSError: there is no process for it.
        ValueError: the file is no model, or has inputs that are no tensors of numbers.
    """
    command = [sys.executable, "-m", __name__, str(model.absolute()), *(["run"] if run else [])]
    options: dict[str, Any] = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    try:
        # Not in the repository, whose modules would be imported in the place of others.
        done = subprocess.run(command, check=False, timeout=_SECONDS, cwd="/", **options)  # noqa: S603 - Python itself
        told, stderr = done.stdout, done.stderr
    except subprocess.TimeoutExpired as error:
        told = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        stderr = _("not done in {seconds} seconds").format(seconds=_SECONDS)
    last = (stderr.strip().splitlines() or [_("its process died")])[-1]
    last = re.sub(r"^[\w.]+Error: ", "", last)
    lines = [line for line in told.splitlines() if line.startswith('{"inputs"')]
    if not lines:
        raise ValueError(last)
    found = json.loads(lines[-1])
    inputs = [
        ModelInput(**{**one, "shape": tuple(one["shape"]), "guessed": tuple(one["guessed"])})
        for one in found["inputs"]
    ]
    # The first try is told before it is made: the process may have ended in it.
    return Trial(tuple(inputs), found["error"] or (last if len(lines) == 1 and run else ""))


def _main(model: Path, *, run: bool) -> None:
    from pytest_npudump.onnxmodels import sessions  # noqa: PLC0415 - only in the process that runs it

    graph = sessions.read_model(model).graph
    tries = _tries(graph)
    first = next(tries)
    _tell(first)
    if not run:
        return
    session = sessions.plain_session(model)
    error = ""
    for inputs in (first, *tries):
        try:
            session.run(None, _arrays(inputs))
        except Exception as failure:  # noqa: BLE001, PERF203 - whatever onnxruntime says of inputs that do not fit
            error = error or " ".join(str(failure).split())
        else:
            _tell(inputs)
            return
    _tell(first, error)


def _tell(inputs: tuple[ModelInput, ...], error: str = "") -> None:
    sys.stdout.write(json.dumps(asdict(Trial(inputs, error))) + "\n")
    sys.stdout.flush()


def _arrays(inputs: tuple[ModelInput, ...]) -> dict[str, Any]:
    import numpy as np  # noqa: PLC0415 - as above

    rng = np.random.default_rng(seed=7)
    return {
        one.name: (
            rng.uniform(0, one.high, one.shape)
            if np.dtype(one.dtype).kind in "fc"
            else rng.integers(0, one.high, one.shape)
        ).astype(one.dtype)
        for one in inputs
    }


def _tries(graph: Any) -> Iterator[tuple[ModelInput, ...]]:
    """Yield inputs, the first axis of each 1 as a batch has it, then all open axes of one size."""
    import numpy as np  # noqa: PLC0415 - as above
    import onnx  # noqa: PLC0415 - the same

    constants = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            constants[node.output[0]] = tuple(node.attribute[0].t.dims)
        elif node.op_type in {"DequantizeLinear", "Cast", "Identity"} and node.input[0] in constants:
            constants[node.output[0]] = constants[node.input[0]]
    values = [value for value in graph.input if value.name not in constants]
    known: list[tuple[str, list[int], str, int]] = []
    for value in values:
        tensor = value.type.tensor_type
        try:
            dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        except KeyError:
            dtype = np.dtype(object)
        if dtype.kind not in "fiubc":
            raise ValueError(
                _("its input {name!r} is no tensor of numbers that numpy has a type for").format(
                    name=value.name
                )
            )
        shape = [max(axis.dim_value, 0) for axis in tensor.shape.dim]
        high = {"f": 1, "c": 1, "b": 2}.get(dtype.kind, 256 if dtype.name == "uint8" else 2)
        for axis, size in _sizes_by_weights(graph, value.name, len(shape), constants):
            shape[axis] = shape[axis] or size
        tables = [*_tables(graph, value.name, constants)] if dtype.kind in "iu" else []
        known.append((value.name, shape, dtype.name, min(tables, default=high)))
    if not any(0 in shape for _, shape, _, _ in known):
        yield tuple(ModelInput(name, tuple(shape), dtype, high, ()) for name, shape, dtype, high in known)
        return
    opened = {
        value.name: [axis.dim_value <= 0 for axis in value.type.tensor_type.shape.dim] for value in values
    }
    # One integer is a constant: a sequence of some says more.
    integers = any(0 in shape[1:] and dtype.startswith(("int", "uint")) for _, shape, dtype, _ in known)
    sizes = (8, *_SIZES) if integers else _SIZES
    for batch, size in (*((1, size) for size in sizes), *((size, size) for size in _SIZES[1:])):
        yield tuple(
            ModelInput(
                name,
                tuple(own or (size if axis else batch) for axis, own in enumerate(shape)),
                dtype,
                high,
                tuple(axis for axis, is_open in enumerate(opened[name]) if is_open),
            )
            for name, shape, dtype, high in known
        )


def _readers(graph: Any, name: str) -> Iterator[tuple[Any, int]]:
    """Yield the operators that read a value, as it is or in another form, and by which input."""
    names = {name}
    for node in graph.node:  # in the order of execution
        for index, read in enumerate(node.input):
            if read in names:
                yield node, index
        if node.op_type in _FORWARDED and node.input and node.input[0] in names:
            names.add(node.output[0])


def _tables(graph: Any, name: str, constants: Mapping[str, tuple[int, ...]]) -> Iterator[int]:
    """Yield how many rows each table has that an input has indices of."""
    for node, index in _readers(graph, name):
        table = _TABLES.get((node.op_type, index), -1)
        shape = constants.get(node.input[table], ()) if 0 <= table < len(node.input) else ()
        axis = next((one.i for one in node.attribute if one.name == "axis"), 0)
        if shape and -len(shape) <= axis < len(shape) and shape[axis] > 0:
            yield shape[axis]


def _sizes_by_weights(
    graph: Any, name: str, rank: int, constants: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[int, int]]:
    """Yield axes of an input, and their sizes by the weights that it is multiplied with."""
    for node in graph.node:
        if not node.input or node.input[0] != name:
            continue
        weights = constants.get(node.input[1], ()) if len(node.input) > 1 else ()
        told = {one.name: one.i for one in node.attribute}
        if node.op_type == "Conv" and len(weights) == rank > 1:
            yield 1, weights[1] * told.get("group", 1)
        elif node.op_type == "MatMul" and len(weights) == 2 <= rank:  # noqa: PLR2004 - a matrix
            yield rank - 1, weights[0]
        elif node.op_type == "Gemm" and len(weights) == rank == 2 and not told.get("transA"):  # noqa: PLR2004
            yield 1, weights[1 if told.get("transB") else 0]


if __name__ == "__main__":
    _main(Path(sys.argv[1]), run="run" in sys.argv[2:])
