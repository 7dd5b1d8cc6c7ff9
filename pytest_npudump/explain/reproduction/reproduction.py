"""A failing operator as a folder, of a model or a call of torch.

It is written whole or not at all, run in a process of its own, and has a README. An operator comes with its
model, its inputs and a test; a call with a script that needs torch and numpy alone.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import ml_dtypes
import numpy as np

from pytest_npudump.compare.tolerances.tolerance import OF_ONE
from pytest_npudump.dump.dtypes import BY_NAME, is_of_numpy
from pytest_npudump.dump.records import TensorKey
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.dump.table import PROJECTIONS
from pytest_npudump.errors import RequestError
from pytest_npudump.explain.called_operators import CalledOperator
from pytest_npudump.explain.reference_model import Node, ReferenceModel, arrays_of, piece_of, tensors_of
from pytest_npudump.explain.reproduction.failure import GOLDEN, FailingTensor, Models, read_operands
from pytest_npudump.golden.origin import installed
from pytest_npudump.golden.path import golden_path
from pytest_npudump.golden.store import read_golden
from pytest_npudump.language.text import typed
from pytest_npudump.onnxmodels import sessions
from pytest_npudump.onnxmodels.graph import every_tensor
from pytest_npudump.onnxmodels.sessions import ModelError, exposed_session, onnx
from pytest_npudump.onnxmodels.tensor_types import onnx_number
from pytest_npudump.record.noise import CALIBRATION, REPEATS
from pytest_npudump.record.record import Record, rows_of
from pytest_npudump.record.text import render
from pytest_npudump.runtime import aten
from pytest_npudump.runtime.aten import NotRecomputedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_npudump.explain.operator_alone import Alone

    Array = np.ndarray[Any, np.dtype[Any]]


README = "README.md"
_COLUMNS = ("max", "min", "avg", "l2norm", "nan", "neg_inf", "pos_inf")
_LAST = 20
"""Lines of what a process printed that say why nothing could be judged."""


@dataclass(frozen=True, slots=True)
class TrialRun:
    """Result of a reproduction's test.

    Attributes:
        fails: whether its layers differ; a test that cannot run does not fail so.
        error: why nothing could be judged, in words; "" where something was.
    """

    fails: bool
    error: str = ""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Reproduction:
    """Reproduction of a failure by itself, and its folder.

    Attributes:
        failure: what the report knows of it.
        layer: name of the operator.
        criterion: what the output is held against.
        drawn: whether inputs, and weights, are drawn.
    """

    command: ClassVar[str]
    """Command that runs it in its folder."""

    failure: FailingTensor
    layer: str
    criterion: str
    drawn: bool = False

    @property
    def key(self) -> TensorKey:
        """The tensor that fails."""
        return self.failure.key


def write_and_try(
    folder: Path,
    reproduction: OperatorReproduction | CallReproduction,
    *,
    runs: bool,
    runtime: str = "",
    must_fail: bool = False,
) -> TrialRun | None:
    """Write a reproduction, and run its test, or its script.

    Args:
        folder: where to; it must not exist, or be empty. It appears whole or not at all.
        reproduction: what to write.
        runs: whether its test runs.
        runtime: as in ``--npudump-runtime``; "" for what is found.
        must_fail: nothing is left where the test does not fail.

    Returns:
        What became of its test; None where it was not run.

    Raises:
        RequestError: the folder holds something.
        OSError: it cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RequestError(f"-o {folder}: is there already and not empty: name a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        reproduction.write(stage)
        trial = reproduction.run(stage, runtime) if runs else None
        if not must_fail or (trial is not None and trial.fails):
            for cache in (*stage.rglob("__pycache__"), stage / ".pytest_cache"):
                shutil.rmtree(cache, ignore_errors=True)
            mask = os.umask(0)
            os.umask(mask)
            stage.chmod(0o777 & ~mask)
            stage.replace(folder)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return trial


def ran(folder: Path, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run this interpreter in a folder, with the environment that pytest was started in."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    return subprocess.run(  # noqa: S603 - pytest or a script of ours, of this interpreter
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
    )


def trial_of(done: subprocess.CompletedProcess[str], name: str, *, fails: bool) -> TrialRun:
    """Parse the end of a process: exit code 0 for a pass, 1 for the expected failure.

    Args:
        done: the process.
        name: of the program.
        fails: whether it says that layers differ.
    """
    if done.returncode == 0:
        return TrialRun(fails=False)
    if done.returncode == 1 and fails:
        return TrialRun(fails=True)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return TrialRun(fails=False, error="\n".join(lines[-_LAST:]) or f"{name} ended with {done.returncode}")


def readme(
    failure: FailingTensor,
    *,
    title: str,
    given: str,
    run: str,
    judged: Iterable[str],
    arrays: Mapping[str, Array],
    arguments: Iterable[str] = (),
    files: Mapping[str, str],
    packages: Iterable[str],
    golden: Mapping[str, str],
) -> str:
    """Return the README of a reproduction, in Markdown.

    Args:
        failure: what the report knows of it.
        title: name of the operator.
        given: on what, in a sentence.
        run: the section on how to run it.
        judged: what the output is compared with, and its error, a sentence each.
        arrays: what is known of the output, by who made it.
        arguments: lines behind the table of these.
        files: what each is, by name.
        packages: of which the versions here are told.
        golden: facts of the golden's run.
    """
    lines = [f"# Reproduction of {code(title)}", f"\n{given}\n", run, "## What fails\n"]
    if failure.reasons:
        lines.append(f"Mismatch of {code(str(failure.key))} in {code(failure.test)}:\n")
        lines += [*(f"* {code(reason)}" for reason in failure.reasons), ""]
    lines += [*judged, f"\n| | {' | '.join(_COLUMNS)} |", f"|---{'|---' * len(_COLUMNS)}|"]
    for who, array in arrays.items():
        stats = tensor_stats(array)
        values = (getattr(stats, name) for name in _COLUMNS)
        lines.append(f"| {who} | {' | '.join('-' if v is None else f'{v:.6g}' for v in values)} |")
    lines += ["", *arguments, "## Files\n", *(f"* {name}: {what}" for name, what in files.items())]
    lines.append("\n## Versions\n\n| | | |\n|---|---|---|")
    here = {**installed("pytest-npudump"), "Python": platform.python_version()}
    here |= dict(pair for package in packages for pair in installed(package).items())
    told = {"the failing run": failure.producer, "its golden": golden, "this folder": here}
    for who, facts in told.items():
        lines += [f"| {who} | {code(name)} | {code(str(value))} |" for name, value in facts.items()]
    return "\n".join((*lines, ""))


def code(text: str) -> str:
    """Return text as code, whatever a layer is called: nothing in it is Markdown."""
    plain = "".join(letter if letter.isprintable() else "?" for letter in text).replace("|", "\\|")
    longest = max(map(len, "".join(c if c == "`" else " " for c in plain).split()), default=0)
    edge = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{'`' * (longest + 1)}{edge}{plain}{edge}{'`' * (longest + 1)}"


_SEED = 20


def draw(array: Array, number: int = 0) -> Array:
    """Return random values like those of an array.

    Floats: as many NaN, infinities and zeros, in other places; the others from a normal distribution of the
    same mean and deviation, cut at the least and the greatest. Integers: evenly from the least to the
    greatest. Booleans: as many that are true. None of the values is taken over but these limits.

    Args:
        array: of any shape and numeric type.
        number: which array it is: each has random numbers of its own, and the same in each call.
    """
    if not array.size:
        return array
    rng = np.random.default_rng([_SEED, number])
    kind = BY_NAME[array.dtype.name].kind
    if kind == "bool":
        flat: Array = array.reshape(-1).copy()
        rng.shuffle(flat)
        return np.reshape(flat, array.shape)
    if kind == "int":
        least, most = int(array.min()), int(array.max())
        wide = np.uint64 if most > _INT64 else np.int64
        whole = rng.integers(least, most, array.size, dtype=wide, endpoint=True)
        return np.reshape(whole.astype(array.dtype), array.shape)
    return _floats(array, rng)


_INT64 = np.iinfo(np.int64).max


def _floats(array: Array, rng: np.random.Generator) -> Array:
    if array.dtype.kind == "c":
        both = np.empty_like(array)
        both.real, both.imag = _floats(array.real, rng), _floats(array.imag, rng)
        return both
    wide: Array = array.astype(np.float64).reshape(-1)
    usual = np.isfinite(wide) & (wide != 0)
    values = wide[usual]
    if values.size:
        scale = np.abs(values).max()  # squares of large values overflow
        shares = values / scale
        new = rng.normal(shares.mean(), shares.std(), values.size)
        drawn = np.clip(new, shares.min(), shares.max()) * scale
        wide[usual] = np.clip(drawn, values.min(), values.max())  # the product may be off by a last digit
    rng.shuffle(wide)
    with np.errstate(over="ignore"):
        return np.reshape(wide.astype(array.dtype), array.shape)


_TEST_FILE = "test_repro.py"
_INPUTS = "inputs.npz"
_GOLDEN = golden_path(
    Path("golden"), test_file=Path(_TEST_FILE), classes=(), name="test_repro", param_id=None
)
_KEPT_WEIGHTS = ("The weights are those of the models, as a difference between them may be the cause.",)

_TEST = '''\
"""A failing piece of a model by itself: README.md says more."""

from pathlib import Path

{imports}import numpy as np
import pytest


@pytest.mark.npu_dump({arguments})
def test_repro(npu_dump):
    arrays = np.load(Path(__file__).parent / {inputs!r})
    inputs = [
{lines}
    ]
    with npu_dump.load_model({model!r}) as model:
        model.run(*inputs)
'''
_INI = "[pytest]\nnpudump_golden_dir = golden\n"
_CONFTEST = '''\
"""Keeps the test out of the sessions of a project that this folder lies in."""

from pathlib import Path


def pytest_ignore_collect(config):
    return None if config.rootpath.samefile(Path(__file__).parent) else True
'''
_RUN = """\
## Run it

Without an NPU, on the emulator:

```console
$ pip install 'pytest-npudump[emulator]'
$ pytest
```

On an Atlas machine, with the options of ATC that the whole model is built with (`--precision_mode` and its
like):

```console
$ {atc}
$ pytest --npudump-runtime=acl
```
"""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class OperatorReproduction(Reproduction):
    """An operator of a model that fails.

    Attributes:
        name: of the model, without a suffix; that of the one that failed, so that dumps are alike.
        origin: the model's file.
        model: the ONNX file.
        inputs: an array for each input, in order.
        reference: the ONNX file that says what is right; None where it is ``model``.
        golden: the golden that decides; None where the reference does.
        expected: what onnxruntime makes of the inputs, by name.
        got: what the device made of them.
        alone: how far the two are apart; None where it was not measured.
        remarks: what a reader should know.
    """

    command = "pytest"

    name: str
    origin: str
    model: bytes
    inputs: Mapping[str, Array]
    reference: bytes | None = None
    golden: Record | None = None
    expected: Mapping[str, Array] = field(default_factory=dict)
    got: Mapping[str, Array] = field(default_factory=dict)
    alone: Alone | None = None
    remarks: tuple[str, ...] = ()

    @property
    def reference_file(self) -> str:
        """Name of the model that is taken to be right."""
        return f"{self.name}.onnx" if self.reference is None else f"{self.name}.reference.onnx"

    def write(self, folder: Path) -> None:
        """Write it into an empty folder.

        Raises:
            GoldenError: the golden cannot be written.
            OSError: a file cannot be written.
        """
        for name, content in self._files():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def run(self, folder: Path, runtime: str) -> TrialRun:
        """Run its test where it was written, on a runtime as in ``--npudump-runtime``.

        What other plugins the environment has pytest load (``PYTEST_ADDOPTS``, ``PYTEST_PLUGINS``) is loaded.
        """
        with tempfile.TemporaryDirectory(prefix="npudump-") as output:
            command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header"]
            command += [f"--npudump-output={output}", "-onpudump_keep_dumps=failed", _TEST_FILE]
            done = ran(folder, [*command, *([f"--npudump-runtime={runtime}"] if runtime else [])])
            reports = [*Path(output, "dumps").glob("*/report.json")]
            report: dict[str, Any] = json.loads(reports[0].read_text(encoding="utf-8")) if reports else {}
        return trial_of(done, "pytest", fails=report.get("status") == "failed")

    def _files(self) -> Iterator[tuple[str, bytes]]:
        outputs = {f"device {name}": one for name, one in self.got.items()}
        outputs |= {f"onnxruntime {name}": one for name, one in self.expected.items()}
        golden = self.golden
        files = (
            (f"{self.name}.onnx", self.model),
            (self.reference_file, self.reference),
            (golden.path.as_posix(), render(golden).encode()) if golden is not None else ("", None),
            (_INPUTS, _archive({f"input_{at}": one for at, one in enumerate(self.inputs.values())})),
            ("outputs.npz", _archive(outputs) if outputs else None),
            (_TEST_FILE, self._test().encode()),
            ("pytest.ini", _INI.encode()),
            ("conftest.py", _CONFTEST.encode()),
            (README, self._readme().encode()),
        )
        return ((name, content) for name, content in files if content is not None)

    def _test(self) -> str:
        """Return the test; whatever names there are in it are literals of Python."""
        if self.golden is not None and self.criterion == GOLDEN:
            arguments: dict[str, object] = {"layers": [self.key.layer]}
            tensors = not self.golden.table.digits.any()
            for bound in (re.search(r"rtol=(\S+)", one) for one in self.failure.reasons if OF_ONE in one):
                if bound is not None:  # the golden of a piece has no edges, by which it would be known
                    rule = {
                        "statistic": PROJECTIONS,
                        "rtol": float(bound[1]),
                        "atol": 0,
                        "reason": str(OF_ONE),
                    }
                    arguments["tolerances"] = [rule]
        else:
            arguments, tensors = {"reference": self.reference_file}, True
        if tensors:
            arguments["acl_json"] = {"dump_data": "tensor"}
        if self.failure.bounds == "hf32":
            arguments["preset"] = "hf32"
        views = [
            "" if is_of_numpy(one.dtype) else f".view(ml_dtypes.{one.dtype.name})"
            for one in self.inputs.values()
        ]
        lines = (
            f'        arrays["input_{at}"]{views[at]},  # {name!r}' for at, name in enumerate(self.inputs)
        )
        return _TEST.format(
            imports="import ml_dtypes\n" if any(views) else "",
            arguments=", ".join(f"{name}={value!r}" for name, value in arguments.items()),
            inputs=_INPUTS,
            lines="\n".join(lines),
            model=f"{self.name}.om",
        )

    def _readme(self) -> str:
        failure, who = self.failure, "emulator" if self.failure.runtime == "emulator" else "device"
        given = "drawn inputs with the statistics of those" if self.drawn else "the inputs"
        again = "`test_repro.py` fails if its output is wrong."
        if failure.reproduced is False:
            now = f", in which {code(str(self.key))} is {failure.now}" if failure.now else ""
            again = f"The failure did not reproduce: what is here is of the second run{now}."
        soc = failure.producer.get("soc", "") if who == "device" else ""
        options = [f"--model={self.name}.onnx", "--framework=5", f"--output={self.name}"]
        by_golden = self.criterion == GOLDEN
        against = f"onnxruntime on the CPU, which runs {code(self.reference_file)}"
        judged = [
            f"The test compares the output with {'its golden, in `golden/`' if by_golden else against}.",
            *self.remarks,
        ]
        if self.alone is not None and not by_golden:
            apart, allowed = f"{self.alone.apart:.3g}", f"{self.alone.allowed:.3g}"
            measured = f"Relative L2 error on the {who}: {apart} (limit {allowed})."
            judged.insert(1, f"On the {who} {self.alone.why}." if self.alone.why else measured)
        arrays = {f"the {who}'s {code(name)}": array for name, array in self.got.items()}
        arrays |= {f"onnxruntime's {code(name)}": array for name, array in self.expected.items()}
        files = {code(f"{self.name}.onnx"): f"{code(self.layer)}, with the weights"}
        if self.reference is not None:
            files[code(self.reference_file)] = "the same operator of the reference"
        files |= {
            "`inputs.npz`": "its inputs, `input_0` and so on in the order of the model's inputs",
            "`outputs.npz`": f"the outputs of the {who} and of onnxruntime, as far as they are known",
            "`test_repro.py`, `pytest.ini`, `conftest.py`": "the test, and its project's configuration",
        }
        return readme(
            failure,
            title=self.key.layer,
            given=f"Of {code(self.origin)}, on {given} that it had in {code(failure.test)}. {again}",
            run=_RUN.format(atc=typed("atc", *options, f"--soc_version={soc or 'SOC'}")),
            judged=judged,
            arrays=arrays,
            files=files,
            packages=("numpy", "onnx", "onnxruntime", "pytest"),
            golden=self.golden.producer if self.golden is not None else {},
        )


def _archive(arrays: Mapping[str, Array]) -> bytes:
    """Return an npz; types that numpy lacks as integers of their width."""
    buffer = io.BytesIO()
    plain = {
        name.replace("/", "_"): one if is_of_numpy(one.dtype) else one.view(f"u{one.dtype.itemsize}")
        for name, one in arrays.items()
        if BY_NAME[one.dtype.name].kind != "opaque"
    }
    np.savez_compressed(buffer, **plain)  # type: ignore[arg-type]
    return buffer.getvalue()


def _model_of(
    model: ReferenceModel, node: Node, feeds: Mapping[str, Array], tensor: str, *, drawn: bool = False
) -> tuple[bytes, Mapping[str, Array]]:
    """Cut an operator out of a model.

    Args:
        model: the model.
        node: the operator.
        feeds: an array for each input of it, in the type that the model has there.
        tensor: the output that fails, whether or not the operator itself reads it.
        drawn: whether its floating-point weights are drawn, with the statistics of those that it has;
            integers are shapes and indices.

    Returns:
        The bytes of the ONNX file, its weights among them, and what onnxruntime computes of its outputs.

    Raises:
        ModelError: onnxruntime refuses it, or a weight in another file cannot be read.
    """
    tensors = tensors_of(feeds)
    proto = piece_of(model, [node], tensors)
    try:
        onnx().load_external_data_for_model(proto, str(model.path.parent))
    except (OSError, ValueError) as error:
        raise ModelError(f"{model.path}: a weight in another file cannot be read: {error}") from error
    helper = onnx().numpy_helper
    for number, weight in enumerate(every_tensor(proto) if drawn else ()):
        array = helper.to_array(weight)
        if array.size > 1 and BY_NAME[array.dtype.name].kind in ("float", "complex"):
            weight.CopyFrom(helper.from_array(draw(array, number), weight.name))
    read = {*node.all_inputs, *node.captured} - {tensor}
    names = [name for name in node.operator.outputs if name not in read]
    found = sessions.run(exposed_session(model.path, proto, names), tensors, names)
    proto.graph.output.extend(
        onnx().helper.make_tensor_value_info(name, onnx_number(one.dtype), one.shape)
        for name, one in found.items()
    )
    return proto.SerializeToString(), arrays_of(found)


def of_operator(failure: FailingTensor, models: Models, *, drawn: bool = False) -> OperatorReproduction:
    """Return the reproduction of one operator on the inputs that the second run dumped.

    Args:
        failure: what is to be reproduced.
        models: of the failing test.
        drawn: whether inputs, and the weights of an operator whose own model says what is right, are drawn.

    Raises:
        RequestError: the operator does not fail by itself, its inputs were not dumped, or only a golden could
            show the fault, which has no say about drawn inputs.
        ModelError: onnxruntime refuses a model.
    """
    found, judged, alone, criterion = read_operands(failure, models)
    if drawn and criterion == GOLDEN:
        raise RequestError(
            f"--synthetic: {failure.key} is compared with its golden, which is for the recorded inputs only; "
            f"set reference= in the marker of {failure.test}"
        )
    feeds = {name: draw(one, at) if drawn else one for at, (name, one) in enumerate(found.feeds.items())}
    own = drawn and models.own
    model, expected = _model_of(models.device, found.node, feeds, found.tensor, drawn=own)
    reference = None
    if not models.own:
        pairs = zip(judged.feeds.items(), feeds.values(), strict=True)
        same = {name: one.astype(array.dtype) for (name, array), one in pairs}
        reference, expected = _model_of(models.reference, judged.node, same, judged.tensor)
    golden = failure.golden if criterion == GOLDEN else None
    return OperatorReproduction(
        failure=failure,
        name=models.device.path.stem,
        origin=models.device.path.name,
        layer=found.node.name,
        model=model,
        reference=reference,
        expected=expected,
        inputs=feeds,
        criterion=criterion,
        golden=_excerpt(golden, failure.key) if golden is not None else None,
        got={} if drawn else {found.tensor: found.output},
        alone=alone,
        drawn=drawn,
        remarks=_KEPT_WEIGHTS if drawn and not models.own else (),
    )


def _excerpt(path: Path, key: TensorKey) -> Record:
    """Cut a golden to the outputs of one execution of a layer, as a golden of the folder's test.

    Raises:
        RequestError: the golden has no such tensor.
        GoldenError: it cannot be read.
    """
    golden = read_golden(path)
    keys = [TensorKey.parse(text) for text in golden.table.keys]
    rows = [row for row, one in enumerate(keys) if replace(one, slot=key.slot).sanitised == key.sanitised]
    if not rows:
        raise RequestError(f"{path}: has no {key} any more: was the golden recorded again since?")
    table = rows_of((golden.table, golden.table), [(0, row) for row in rows])
    plain = tuple(str(TensorKey(keys[row].layer, keys[row].io, keys[row].slot)) for row in rows)
    return replace(
        golden,
        test=f"{_TEST_FILE}::test_repro",
        table=replace(table, keys=plain),
        path=_GOLDEN,
        extra={name: golden.extra[name] for name in (REPEATS, CALIBRATION) if name in golden.extra},
        blocks={},
        digest="",
        base=None,
        own_digest="",
    )


SCRIPT = "repro.py"
CPU = "cpu"
"""Reference of a call."""

_RUN_CALL = """\
## Run it

It needs torch and numpy, and for an NPU torch_npu; without an NPU the CPU stands for the device.

```console
$ python repro.py
```

Exit code 0: the call gives what it gives on the CPU; 1: it does not; 2: it cannot be run. `--device=npu`
insists on the NPU.
"""

_CALL_FILES = {
    "`repro.py`": "the call, and how it is judged",
    "`call.json`": (
        "the operator and its arguments; a tensor is a view into memory: name, sizes, strides, offset"
    ),
    "`inputs.npz`": "that memory, types that numpy lacks as integers of their width",
    "`outputs.npz`": "what the device and the CPU made of it, as far as it is known",
}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CallReproduction(Reproduction):
    """A call of torch that fails.

    Attributes:
        call: the content of ``call.json``.
        inputs: memory of the arguments by name, flat, as archived.
        outputs: the result as the device gave it, if the inputs are its own, and as the CPU did.
    """

    command = f"python {SCRIPT}"

    call: Mapping[str, Any]
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]

    def write(self, folder: Path) -> None:
        """Write it into an empty folder."""
        shutil.copyfile(Path(__file__).with_name("call_script.py"), folder / SCRIPT)
        aten.write_files(folder, self.call, self.inputs, self.outputs)
        (folder / README).write_text(self._readme(), encoding="utf-8")

    def run(self, folder: Path, runtime: str) -> TrialRun:
        """Run the script where it was written; ``torch_npu`` insists on an NPU."""
        done = ran(folder, [SCRIPT, *(["--device=npu"] if runtime not in ("", "auto") else [])])
        return trial_of(done, SCRIPT, fails="mismatch with the CPU" in done.stdout)

    def _readme(self) -> str:
        given = "the inputs that it had"
        if self.drawn:
            given = "drawn inputs with the statistics of those that it had"
        dtype, memory = self.call["judged"]["dtype"], self.call["memory"]
        arguments = {str(at): one for at, one in enumerate(self.call["arguments"])} | self.call["named"]
        return readme(
            self.failure,
            title=self.call["operator"],
            given=f"The call that gave {code(str(self.key))}, on {given} in {code(self.failure.test)}.",
            run=_RUN_CALL,
            judged=_call_judged(self.call["judged"]),
            arrays={  # what is no integer of the width may be of the device's type
                f"by the {code(name)}": _typed(array, dtype) if array.dtype.kind == "i" else array
                for name, array in self.outputs.items()
            },
            arguments=[
                "| argument | |\n|---|---|",
                *(f"| {code(name)} | {code(_argument(one, memory))} |" for name, one in arguments.items()),
                "",
            ],
            files=_CALL_FILES,
            packages=("numpy", "torch", "torch_npu"),
            golden={},
        )


def _call_judged(judged: Mapping[str, Any]) -> Iterator[str]:
    yield f"The script compares the result with the same call on the CPU, in {code(judged['wide'])}."
    if judged["why"]:
        yield f"On the device {code(judged['why'])}."
    elif judged["apart"] is not None:
        yield f"Relative L2 error on the device: {judged['apart']:.3g}."
    if judged["allowed"] is not None:
        yield (
            f"The limit is {judged['allowed']:.3g}: four times the error measured of correct operators, or "
            f"four times the change of the result for inputs that differ by one ULP."
        )


def _argument(data: Any, dtypes: Mapping[str, str]) -> str:
    if isinstance(data, list):
        return f"[{', '.join(_argument(each, dtypes) for each in data)}]"
    if isinstance(data, dict) and "tensor" in data:
        name, sizes, strides, _ = data["tensor"]
        return f"{dtypes[name]} {sizes} of {name}, strides {strides}"
    return str(next(iter(data.values())) if isinstance(data, dict) else data)


def of_call(failure: FailingTensor, *, drawn: bool = False) -> CallReproduction:
    """Return the reproduction of a call that the second run has saved.

    Args:
        failure: of the call.
        drawn: whether its inputs are drawn, and how far it may be off is found anew, by torch.

    Raises:
        RequestError: the files are gone, or torch, which drawn inputs need, is not installed here or cannot
            compute the call for them.
    """
    folder = failure.call
    assert folder is not None  # noqa: S101 - the caller has looked
    try:
        call, inputs, outputs = aten.read_files(folder)
    except (OSError, ValueError) as error:
        raise RequestError(
            f"{folder}: what the call was given is not there any more: run {failure.test} again, with "
            f"--npudump-output=DIR -o npudump_keep_dumps=failed ({error})"
        ) from error
    call["hf32"] = failure.producer.get("hf32", "")
    made = CallReproduction(
        failure=failure,
        layer=failure.key.layer,
        criterion=CPU,
        call=call,
        inputs=inputs,
        outputs=outputs,
    )
    return _drawn(made) if drawn else made


def _drawn(made: CallReproduction) -> CallReproduction:
    dtypes = made.call["memory"]
    inputs = {
        name: draw(_typed(array, dtypes[name]), number)
        for number, (name, array) in enumerate(made.inputs.items())
    }
    try:
        import_module("torch")
    except ImportError as error:
        why = "torch, which computes how far drawn inputs may put a call off, is not installed here"
        raise RequestError(f"--synthetic: {why}") from error
    how = {name: made.call["judged"][name] for name in ("place", "dtype", "wide", "plain")}
    operator = CalledOperator(aten.call_of(made.call, inputs), **how)
    try:
        expected = operator.expected()
        allowed = None if expected.dtype.kind in "iub" else operator.healthy(expected).most
    except NotRecomputedError as error:
        raise RequestError(
            f"--synthetic: {made.key} cannot be recomputed on drawn inputs: {error}"
        ) from error
    told = {**made.call["judged"], "allowed": allowed, "apart": None}
    outputs = {aten.CPU: expected}
    return replace(made, call={**made.call, "judged": told}, inputs=inputs, outputs=outputs, drawn=True)


def _typed(array: Array, dtype: str) -> Array:
    """Return an array in its true type, where numpy has another one of its width."""
    return array.view(getattr(ml_dtypes, dtype)) if hasattr(ml_dtypes, dtype) else array
