"""Survey of a repository for ``npudump init``, and pytest's configuration with keys of the plugin."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from glob import glob
from importlib.util import find_spec
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any

from pytest_npudump.cli.common.pytest_config import locate, required
from pytest_npudump.config.cann import installed_cann
from pytest_npudump.language.text import cut

KEYS: Mapping[str, str] = {"required_plugins": "pytest-npudump", "npudump_golden_dir": "golden"}
"""Keys of a repository: no run without the plugin, which would pass without a comparison; and where its
goldens lie."""
INI_OPTIONS = "[tool.pytest.ini_options]"
"""The section of pyproject.toml in which all values are text; in those since pytest 9 a list is one."""


def values_for(file: Path, section: str) -> Mapping[str, str]:
    """Return the values of :data:`KEYS` as they are written in a section of a file."""
    if file.suffix != ".toml":
        return KEYS
    quoted = {name: f'"{value}"' for name, value in KEYS.items()}
    lists = {} if section == INI_OPTIONS else {"required_plugins": f"[{quoted['required_plugins']}]"}
    return quoted | lists


def is_section(line: str, section: str) -> bool:
    """Return whether a line is the heading of a section."""
    return re.match(rf"\s*{re.escape(section)}\s*([#;].*)?$", line) is not None


def with_keys(text: str, section: str, keys: Mapping[str, str] = KEYS) -> tuple[str, tuple[str, ...]]:
    """Return a configuration with the keys that its section lacks, and their lines.

    Args:
        text: the file's; "" for a new one.
        section: the line of the section, which is added where the file has none.
        keys: the values by key, as the file spells them.
    """
    lines = text.splitlines(keepends=True)
    at = next((row for row, line in enumerate(lines) if is_section(line, section)), None)
    own = _section(lines, at)
    missing = {
        name: value
        for name, value in keys.items()
        if not any(re.match(rf"\"?{re.escape(name)}\"?\s*[=:]", line) for line in own)
    }
    added = tuple(f"{name} = {value}" for name, value in missing.items())
    if not added:
        return text, ()
    ending = "\r\n" if "\r\n" in text else "\n"
    new = [f"{line}{ending}" for line in added]
    if at is None:
        gap = [] if not text else [ending] if text.endswith("\n") else [ending, ending]
        return "".join([*lines, *gap, section, ending, *new]), added
    if not lines[at].endswith("\n"):
        lines[at] += ending
    return "".join([*lines[: at + 1], *new, *lines[at + 1 :]]), added


def _section(lines: list[str], at: int | None) -> list[str]:
    if at is None:
        return []
    own: list[str] = []
    for line in lines[at + 1 :]:
        if re.match(r"\[[^\]]+\]\s*(#.*)?$", line):
            break
        own.append(line)
    return own


_SECTION = "[pytest]"
_SECTIONS = {"pyproject.toml": (INI_OPTIONS, "[tool.pytest]"), "setup.cfg": ("[tool:pytest]",)}
_OWN_FILES = {"pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"}
"""Files of pytest alone, which are its configuration without a section, too."""
MODELS = (".onnx", ".om")
"""What names of models end in."""
_LEFT_OUT = {"node_modules", "site-packages", "build", "dist", "golden"}
_MOST = 20_000
"""Files that are looked at: a model is not searched for without end."""


@dataclass(frozen=True, slots=True)
class Survey:
    """Findings of ``npudump init`` in a repository.

    Attributes:
        root: the repository.
        configuration: the file that pytest reads; a new pytest.ini where it would read none.
        section: the line of its section; "" where pytest's keys are there without one.
        golden_dir: the folder of goldens, relative to the root.
        requires: whether pytest is told to require this plugin, or can be, as no other is named.
        test: the file of the first test, in the first folder of pytest's ``testpaths``, else ``tests`` or
            ``test``; one of its own for a named model where that file has a test of another.
        models: ONNX models, then offline models, the smallest first, relative to the root.
        packages: which of torch_npu, mindspore, acl, onnx and onnxruntime can be imported.
        cann: the version of CANN; "" without it.
        has_git: whether the folder is a git repository.
        all_seen: whether all files were looked at.
    """

    root: Path
    configuration: Path
    section: str
    golden_dir: str
    requires: bool
    test: Path
    models: tuple[Path, ...]
    packages: frozenset[str]
    cann: str
    has_git: bool
    all_seen: bool


def survey(root: Path, model: Path | None = None) -> Survey:
    """Look at a repository, and at a model of it where one is named, which is then the only one.

    Raises:
        OSError: its configuration cannot be read.
        ConfigError: the same, of one that pytest cannot read either.
    """
    configuration, section, told = _configuration(root)
    models, all_seen = ((Path(os.path.relpath(model, root)),), True) if model else _models(root)
    names = ("torch_npu", "mindspore", "acl", "onnx", "onnxruntime")
    return Survey(
        root=root,
        configuration=configuration,
        section=section,
        golden_dir=_golden_dir(told),
        requires=not told.get("required_plugins") or bool(required(told["required_plugins"])),
        test=_test(_tests(root, told.get("testpaths", "")), model),
        models=models,
        packages=frozenset(filter(find_spec, names)),
        cann=installed_cann() or "",
        has_git=(root / ".git").exists(),
        all_seen=all_seen,
    )


def _configuration(root: Path) -> tuple[Path, str, Mapping[str, Any]]:
    """Return pytest's file, the line of its section, and its content."""
    path, told = locate(root)
    if path is None or path.parent != root:
        return root / "pytest.ini", _SECTION, {}
    sections, rows = _SECTIONS.get(path.name, (_SECTION,)), path.read_text("utf-8").splitlines()
    section = next((one for one in sections if any(is_section(row, one) for row in rows)), "")
    return path, section or (_SECTION if path.name in _OWN_FILES else ""), told


def _golden_dir(told: Mapping[str, Any]) -> str:
    usual = KEYS["npudump_golden_dir"]
    folder = PurePosixPath(str(told.get("npudump_golden_dir", usual)))
    return usual if folder.is_absolute() or ".." in folder.parts else str(folder)


def _tests(root: Path, testpaths: Any) -> Path:
    """Return the folder of the tests: pytest looks nowhere else where ``testpaths`` names some."""
    named = shlex.split(testpaths) if isinstance(testpaths, str) else map(str, testpaths)
    # As pytest does it; Path.glob takes neither absolute names nor "." for what they are.
    found = [name for one in named for name in sorted(glob(one, root_dir=root, recursive=True))]  # noqa: PTH207
    folders = [Path(os.path.normpath(root / name)) for name in (*found, "tests", "test")]
    return next((path for path in folders if path.is_dir() and path.is_relative_to(root)), root)


def _test(tests: Path, model: Path | None) -> Path:
    """Return the file of the first test, or of a model's own where that is there and does not name it."""
    first = tests / _FILE
    if model is None or not first.is_file():
        return first
    path = _relative(model, tests)
    if re.search(rf"[\"']{re.escape(path)}[\"']", first.read_text("utf-8")):
        return first
    name = _identifier(path.rpartition(".")[0]).strip("_")
    return tests / f"test_npudump_{name}.py"


def _relative(model: Path, tests: Path) -> str:
    """Return the path of a model as a test names it."""
    return os.path.relpath(model, tests).replace(os.sep, "/")


def _identifier(text: str) -> str:
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in text.lower())


def _models(root: Path) -> tuple[tuple[Path, ...], bool]:
    found: list[tuple[bool, int, Path]] = []
    seen = 0
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT and name[:1] != ".")
        seen += len(names)
        paths = [Path(folder, name) for name in names if name.endswith(MODELS)]
        found += [(path.suffix == ".om", path.stat().st_size, path) for path in paths if path.is_file()]
        if seen > _MOST:
            break
    return tuple(path.relative_to(root) for _, _, path in sorted(found)), seen <= _MOST


_FILE = "test_npudump_first.py"
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


def first_test(found: Survey) -> tuple[str, tuple[str, ...]]:
    """Return a test of the smallest ONNX model, else of a framework or a model of its own; what is unknown.

    What is to be done before the test is run begins with ``#``.
    The text is "" where nothing is there that a test could run.
    """
    onnx = [path for path in found.models if path.suffix == ".onnx"]
    offline = tuple(str(path) for path in found.models if path.suffix == ".om")
    if onnx and "onnx" in found.packages:
        return _of_model(found, onnx[0])
    unknown: tuple[str, ...] = (
        (f"{onnx[0]}: which inputs it has: install the emulator first",) if onnx else ()
    )
    if offline:
        unknown += (f"{offline[0]}: which inputs it has: write its test with npu_dump.load_model",)
    if "torch_npu" in found.packages:
        return _TORCH, (*unknown, "which of your modules to run: the test runs a layer of its own")
    if "mindspore" in found.packages:
        return _MINDSPORE, (*unknown, "which of your cells to run: the test runs two operators")
    if {"onnx", "onnxruntime"} <= found.packages:
        return _OWN, (*unknown, "which model to run: the test makes one of two operators")
    if not onnx:
        unknown += ("what to run: no model, torch_npu or MindSpore: install the emulator first",)
    return "", unknown


def _of_model(found: Survey, model: Path) -> tuple[str, tuple[str, ...]]:
    runs = "onnxruntime" in found.packages
    try:
        inputs, trouble = inputs_of(found.root / model, run=runs)
    except (OSError, ValueError) as error:
        first = str(error).splitlines()[:1]
        return "", (f"{model}: which inputs it has: it cannot be read: {' '.join(first)}",)
    path = _relative(found.root / model, found.test.parent)
    arrays = "\n".join(map(_array, inputs))
    text = _MODEL.format(arrays=arrays, name=_identifier(model.stem), path=path)
    others = len(found.models) - 1
    unknown = tuple(
        f"{model}: the shape of the input {one.name!r}: the test takes {one.shape}"
        for one in inputs
        if one.guessed
    )
    if not runs:
        unknown += (f"{model}: whether it runs with these inputs: it was not tried",)
    elif trouble:
        reason = cut(trouble, _REASON)
        unknown += (
            f"{model}: inputs with which it runs: none of those that were tried: {reason}",
            f"# first write inputs with which {model} runs into the test",
        )
    names = cut(", ".join(repr(one.name) for one in inputs), _REASON)
    unknown += (f"{model}: the values of its inputs: the test makes those of {names}",) if inputs else ()
    if others:
        unknown += (f"which of {others + 1} models matter: the test runs the smallest ONNX model, {model}",)
    return text, unknown


def _array(one: ModelInput) -> str:
    """Return the line of a test that makes an input."""
    how = "uniform" if one.dtype.startswith(("float", "complex")) else "integers"
    array = f"rng.{how}(0, {one.high}, {one.shape}).astype({one.dtype!r})"
    if one.value is not None:
        array = f"np.full({one.shape}, {one.value}, {one.dtype!r})"
    guesses = [*(f"axis {axis}" for axis in one.guessed), *([one.why] if one.why else [])]
    guess = f"; guessed: {', '.join(guesses)}" if guesses else ""
    return f"        {array},  # {one.name!r}{guess}"


_SIZES = (1, 2, 3, 4, 7, 8, 16, 32, 48, 64, 96, 112, 128, 160, 192, 224, 256, 299, 320, 384, 416, 512, 640)
"""Sizes of axes that a model leaves open, in the order in which they are tried."""
_SECONDS = 120
_MOST_ELEMENTS = 2**24
"""Elements of the inputs of a try after the first: the largest sizes are for models of few open axes."""
_FORWARDED = {"Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Expand"}
_ELEMENTWISE = {"Cast", "Identity", "Add", "Sub", "Mul", "Div", "QuantizeLinear", "DequantizeLinear"}
_RECURRENT = {"LSTM", "GRU", "RNN"}
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
        value: what all of its values are, which the model compares it with; None for random ones.
        why: what of its values is a guess, in words; "" where the model tells their range, or they are real
            numbers.
        guessed: axes whose size the model leaves open.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    high: int
    value: int | None
    why: str
    guessed: tuple[int, ...]


def inputs_of(model: Path, *, run: bool) -> tuple[tuple[ModelInput, ...], str]:
    """Return the inputs with which a model runs, or those of the first try and why it runs with none.

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
        stderr = f"not done in {_SECONDS} seconds"
    last = (stderr.strip().splitlines() or ["its process died"])[-1]
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
    return tuple(inputs), found["error"] or (last if len(lines) == 1 and run else "")


def _main(model: Path, *, run: bool) -> None:
    from pytest_npudump.onnxmodels import sessions  # noqa: PLC0415 - only in the process that runs it

    tries = _tries(sessions.read_model(model).graph)
    first = next(tries)
    _tell(first)
    if not run:
        return
    session = sessions.plain_session(model)
    error = ""
    few = (more for more in tries if sum(prod(one.shape) for one in more) <= _MOST_ELEMENTS)
    for inputs in (first, *few):
        try:
            session.run(None, _arrays(inputs))
        except Exception as failure:  # noqa: BLE001, PERF203 - whatever onnxruntime says of inputs that do not fit
            error = error or " ".join(str(failure).split())
        else:
            _tell(inputs)
            return
    _tell(first, error)


def _tell(inputs: tuple[ModelInput, ...], error: str = "") -> None:
    sys.stdout.write(json.dumps({"inputs": [*map(asdict, inputs)], "error": error}) + "\n")
    sys.stdout.flush()


def _arrays(inputs: tuple[ModelInput, ...]) -> dict[str, Any]:
    import numpy as np  # noqa: PLC0415 - as above

    rng = np.random.default_rng(seed=7)
    return {
        one.name: (
            np.full(one.shape, one.value)
            if one.value is not None
            else rng.uniform(0, one.high, one.shape)
            if np.dtype(one.dtype).kind in "fc"
            else rng.integers(0, one.high, one.shape)
        ).astype(one.dtype)
        for one in inputs
    }


def _tries(graph: Any) -> Iterator[tuple[ModelInput, ...]]:
    """Yield inputs, axes of the batch 1, then all open axes of one size.

    These are the first axes, and those that have the name of one; also the only open axis of an input whose
    first one is not.
    """
    import numpy as np  # noqa: PLC0415 - as above
    import onnx  # noqa: PLC0415 - the same

    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            tensors[node.output[0]] = node.attribute[0].t
    constants = {name: tuple(tensor.dims) for name, tensor in tensors.items()}
    for node in graph.node:
        if node.output and node.output[0] in constants:
            continue
        if node.op_type in {"DequantizeLinear", "Cast", "Identity"} and node.input[0] in constants:
            constants[node.output[0]] = constants[node.input[0]]
    values = [value for value in graph.input if value.name not in constants]
    known: list[tuple[str, list[int], tuple[str, int, int | None, str]]] = []
    for value in values:
        tensor = value.type.tensor_type
        try:
            dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        except KeyError:
            dtype = np.dtype(object)
        if dtype.kind not in "fiubc":
            raise ValueError(f"its input {value.name!r} is no tensor of numbers that numpy has a type for")
        shape = [max(axis.dim_value, 0) for axis in tensor.shape.dim]
        high = {"f": 1, "c": 1, "b": 2}.get(dtype.kind, 256 if dtype.name == "uint8" else 2)
        for axis, size in _sizes_by_weights(graph, value.name, len(shape), constants):
            shape[axis] = shape[axis] or size
        tables = [*_tables(graph, value.name, constants)] if dtype.kind in "iu" else []
        told, why = None, "" if tables or dtype.kind not in "iu" else "values"
        if why and shape in ([], [0], [1]):  # a length or a count, of which 0 would leave nothing
            told = _compared(graph, value.name, tensors)
            told, why = (1, why) if told is None else (told, "what the model compares it with")
        known.append((value.name, shape, (dtype.name, min(tables, default=high), told, why)))
    if not any(0 in shape for _, shape, _ in known):
        yield tuple(ModelInput(name, tuple(shape), *of, ()) for name, shape, of in known)
        return
    axes = {value.name: value.type.tensor_type.shape.dim for value in values}
    opened = {name: [axis.dim_value <= 0 for axis in dims] for name, dims in axes.items()}
    first = {dims[0].dim_param for dims in axes.values() if dims and dims[0].dim_value <= 0}

    def is_batch(name: str, axis: int) -> bool:
        alone = sum(opened[name]) == 1 and bool(first)
        return not axis or axes[name][axis].dim_param in first - {""} or alone

    # One element is a constant, and an image of one patch has no attention: more of them say more.
    image = any(0 in shape[2:] for _, shape, _ in known)
    sizes = (*((64, 224) if image else (8,)), *_SIZES)
    for batch, size in (*((1, size) for size in sizes), *((size, size) for size in _SIZES[1:])):
        yield tuple(
            ModelInput(
                name,
                tuple(own or (batch if is_batch(name, axis) else size) for axis, own in enumerate(shape)),
                *of,
                tuple(axis for axis, is_open in enumerate(opened[name]) if is_open),
            )
            for name, shape, of in known
        )


def _readers(graph: Any, name: str) -> Iterator[tuple[Any, int]]:
    """Yield the operators that read a value, as it is or in another form, and by which input."""
    names = {name}
    for node in graph.node:  # in the order of execution
        yield from ((node, index) for index, read in enumerate(node.input) if read in names)
        if node.op_type in _FORWARDED and node.input and node.input[0] in names:
            names.add(node.output[0])


def _compared(graph: Any, name: str, tensors: Mapping[str, Any]) -> int | None:
    """Return the first constant that an input is tested to be; None without one."""
    import onnx  # noqa: PLC0415 - as above

    for node, index in _readers(graph, name):
        other = tensors.get(node.input[1 - index]) if node.op_type == "Equal" else None
        if other is not None and all(size == 1 for size in other.dims):
            return int(onnx.numpy_helper.to_array(other).item())
    return None


def _tables(graph: Any, name: str, constants: Mapping[str, tuple[int, ...]]) -> Iterator[int]:
    """Yield the rows of each table that an input indexes; OneHot's is one of bytes or tokens."""
    for node, index in _readers(graph, name):
        if (node.op_type, index) == ("OneHot", 0):
            yield 256
        table = _TABLES.get((node.op_type, index), -1)
        shape = constants.get(node.input[table], ()) if 0 <= table < len(node.input) else ()
        axis = next((one.i for one in node.attribute if one.name == "axis"), 0)
        if shape and -len(shape) <= axis < len(shape) and shape[axis] > 0:
            yield shape[axis]


def _sizes_by_weights(
    graph: Any, name: str, rank: int, constants: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[int, int]]:
    """Yield axes of an input, and their sizes by the weights that it is multiplied with.

    So is an input of which each value is changed first, or whose axes are, as images of 8 bits are.
    """
    forms = {name: [*range(rank)]}
    for node in graph.node:  # in the order of execution
        axes = forms.get(node.input[0]) if node.input else None
        if axes is None:
            continue
        weights = constants.get(node.input[1], ()) if len(node.input) > 1 else ()
        told = {one.name: one.ints or one.i for one in node.attribute}
        if node.op_type in _ELEMENTWISE:
            forms[node.output[0]] = axes
        elif node.op_type == "Transpose" and len(order := told.get("perm") or range(rank)[::-1]) == rank:
            forms[node.output[0]] = [axes[axis] for axis in order]
        elif node.op_type == "Conv" and len(weights) == rank > 1:
            yield axes[1], weights[1] * told.get("group", 1)
        elif node.op_type == "MatMul" and len(weights) == 2 <= rank:  # noqa: PLR2004 - a matrix
            yield axes[-1], weights[0]
        elif node.op_type in _RECURRENT and len(weights) == rank == 3:  # noqa: PLR2004 - by directions
            yield axes[2], weights[2]
        elif node.op_type == "Gemm" and len(weights) == rank == 2 and not told.get("transA"):  # noqa: PLR2004
            yield axes[1], weights[1 if told.get("transB") else 0]


if __name__ == "__main__":
    _main(Path(sys.argv[1]), run="run" in sys.argv[2:])
