"""A failing operator of a model, as a folder with its model, its inputs and a test."""

from __future__ import annotations

import io
import json
import re
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.tolerances.tolerance import OF_ONE
from pytest_npudump.dump.dtypes import BY_NAME, is_of_numpy
from pytest_npudump.dump.records import TensorKey
from pytest_npudump.dump.table import PROJECTIONS
from pytest_npudump.errors import RequestError
from pytest_npudump.explain.reference_model import Node, ReferenceModel, arrays_of, piece_of, tensors_of
from pytest_npudump.explain.reproduction.failure import GOLDEN, FailingTensor, Models, read_operands
from pytest_npudump.explain.reproduction.reproduction import (
    README,
    Reproduction,
    TrialRun,
    code,
    draw,
    ran,
    readme,
    trial_of,
)
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

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_npudump.explain.operator_alone import Alone

    Array = np.ndarray[Any, np.dtype[Any]]


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
