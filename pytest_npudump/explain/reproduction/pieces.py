"""A piece of a model that fails by itself, as a folder with the model, its inputs and a test.

The smallest one that still fails is found by bisection. A piece is then the operators that the failing tensor
follows from, from one of them on in the order of execution; what it reads from before is computed by
onnxruntime. The search takes it that a piece fails where a smaller one does, and that one operator of it is
to blame: both are checked at the end, as FLiT does (Sawaya et al., 2017). Where that does not hold, the piece
fails all the same, and is told not to be the smallest.
"""

from __future__ import annotations

import io
import json
import re
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.stats.verdict import GRAPH_INPUT
from pytest_npudump.compare.tolerances.tolerance import OF_ONE
from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.dump.dtypes import BY_NAME, is_of_numpy
from pytest_npudump.dump.records import TensorKey, sanitise
from pytest_npudump.dump.table import PROJECTIONS
from pytest_npudump.errors import RequestError
from pytest_npudump.explain.reference_model import (
    Node,
    ReferenceModel,
    arrays_of,
    operators_behind,
    piece_of,
    tensors_of,
)
from pytest_npudump.explain.reproduction.failure import (
    GOLDEN,
    REFERENCE,
    FailingTensor,
    Models,
    read_operands,
)
from pytest_npudump.explain.reproduction.reproduction import (
    README,
    Readme,
    Reproduction,
    TrialRun,
    code,
    draw,
    ran,
    trial_of,
)
from pytest_npudump.golden.path import golden_path
from pytest_npudump.golden.store import read_golden
from pytest_npudump.language.text import number_of, typed
from pytest_npudump.onnxmodels import sessions
from pytest_npudump.onnxmodels.graph import every_tensor
from pytest_npudump.onnxmodels.sessions import ModelError, exposed_session, onnx
from pytest_npudump.onnxmodels.tensor_types import onnx_number
from pytest_npudump.record.noise import CALIBRATION, REPEATS
from pytest_npudump.record.record import Record, rows_of
from pytest_npudump.record.run_folder import read_tensors
from pytest_npudump.record.text import render

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_npudump.explain.operator_alone import Alone

    Array = np.ndarray[Any, np.dtype[Any]]
    from collections.abc import Callable


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
class PieceReproduction(Reproduction):
    """Operators of a model that fail.

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
        computed: whether the inputs are onnxruntime's, and not the dump's.
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
    computed: bool = False
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
        compared = (report.get("comparison") or {}, (report.get("reference") or {}).get("comparison") or {})
        found = (one.get("first_divergence") for one in compared)
        first = next((str(one["layer"]) for one in found if one), "")
        return trial_of(done, "pytest", fails=report.get("status") == "failed", first=first)

    def _files(self) -> Iterator[tuple[str, bytes]]:
        yield f"{self.name}.onnx", self.model
        if self.reference is not None:
            yield self.reference_file, self.reference
        if self.golden is not None:
            yield self.golden.path.as_posix(), render(self.golden).encode()
        yield _INPUTS, _archive({f"input_{at}": one for at, one in enumerate(self.inputs.values())})
        outputs = {f"device {name}": one for name, one in self.got.items()}
        outputs |= {f"onnxruntime {name}": one for name, one in self.expected.items()}
        if outputs:
            yield "outputs.npz", _archive(outputs)
        yield _TEST_FILE, self._test().encode()
        yield "pytest.ini", _INI.encode()
        yield "conftest.py", _CONFTEST.encode()
        yield README, self._readme().text(self.failure).encode()

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

    def _readme(self) -> Readme:
        failure, who = self.failure, "emulator" if self.failure.runtime == "emulator" else "device"
        several = f"{len(self.layers)} operators, of which the last is {self.key.layer}"
        given = "the inputs that it had"
        if self.computed:
            given = "the inputs that onnxruntime computes for it"
        elif self.drawn:
            given = "drawn inputs with the statistics of those that it had"
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
        files = {code(f"{self.name}.onnx"): f"{', '.join(map(code, self.layers))}, with the weights"}
        if self.reference is not None:
            files[code(self.reference_file)] = "the same operators of the reference"
        files |= {
            "`inputs.npz`": "its inputs, `input_0` and so on in the order of the model's inputs",
            "`outputs.npz`": f"the outputs of the {who} and of onnxruntime, as far as they are known",
            "`test_repro.py`, `pytest.ini`, `conftest.py`": "the test, and its project's configuration",
        }
        return Readme(
            title=several if len(self.layers) > 1 else self.key.layer,
            given=f"Of {code(self.origin)}, on {given} in {code(failure.test)}. {again}",
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


@dataclass(frozen=True, slots=True, eq=False)
class ModelPiece:
    """Some operators of a model as a file that stands by itself.

    Attributes:
        layers: their names.
        content: the bytes of the ONNX file, its weights among them.
        outputs: what onnxruntime computes of its outputs, by name.
    """

    layers: tuple[str, ...]
    content: bytes
    outputs: Mapping[str, Array]


def cut_piece(
    model: ReferenceModel,
    nodes: Sequence[Node],
    feeds: Mapping[str, Array],
    *,
    tensor: str = "",
    drawn: bool = False,
) -> ModelPiece:
    """Cut operators out of a model.

    Its outputs are those that none of them reads.

    Args:
        model: the model.
        nodes: the operators, in the order of execution.
        feeds: an array for each input of the piece, in the type that the model has there.
        tensor: an output of the piece, whether or not one of them reads it.
        drawn: whether its floating-point weights are drawn, with the statistics of those that it has;
            integers are shapes and indices.

    Raises:
        ModelError: onnxruntime refuses the piece, or a weight in another file cannot be read.
    """
    tensors = tensors_of(feeds)
    proto = piece_of(model, nodes, tensors)
    try:
        onnx().load_external_data_for_model(proto, str(model.path.parent))
    except (OSError, ValueError) as error:
        raise ModelError(f"{model.path}: a weight in another file cannot be read: {error}") from error
    helper = onnx().numpy_helper
    for number, weight in enumerate(every_tensor(proto) if drawn else ()):
        array = helper.to_array(weight)
        if array.size > 1 and BY_NAME[array.dtype.name].kind in ("float", "complex"):
            weight.CopyFrom(helper.from_array(draw(array, number), weight.name))
    read = {name for node in nodes for name in (*node.all_inputs, *node.captured)}
    made = [name for node in nodes for name in node.operator.outputs]
    names = [name for name in made if name not in read or name == tensor]
    found = sessions.run(exposed_session(model.path, proto, names), tensors, names)
    proto.graph.output.extend(
        onnx().helper.make_tensor_value_info(name, onnx_number(one.dtype), one.shape)
        for name, one in found.items()
    )
    return ModelPiece(tuple(node.name for node in nodes), proto.SerializeToString(), arrays_of(found))


def of_pieces(
    failure: FailingTensor, models: Models, piece: ModelPiece, reference: ModelPiece | None, **known: Any
) -> PieceReproduction:
    """Return the reproduction of a piece of the device's model, and of the model taken to be right."""
    return PieceReproduction(
        failure=failure,
        name=models.device.path.stem,
        origin=models.device.path.name,
        layers=piece.layers,
        model=piece.content,
        reference=reference.content if reference is not None else None,
        expected=(reference or piece).outputs,
        **known,
    )


def of_operator(failure: FailingTensor, models: Models, *, drawn: bool = False) -> PieceReproduction:
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
    operands = read_operands(failure, models)
    if drawn and operands.criterion == GOLDEN:
        raise RequestError(
            f"--synthetic: {failure.key} is compared with its golden, which is for the recorded inputs only; "
            f"set reference= in the marker of {failure.test}"
        )
    found, judged = operands.found, operands.judged
    feeds = {name: draw(one, at) if drawn else one for at, (name, one) in enumerate(found.feeds.items())}
    piece = cut_piece(models.device, [found.node], feeds, tensor=found.tensor, drawn=drawn and models.own)
    reference = None
    if not models.own:
        pairs = zip(judged.feeds.items(), feeds.values(), strict=True)
        same = {name: one.astype(array.dtype) for (name, array), one in pairs}
        reference = cut_piece(models.reference, [judged.node], same, tensor=judged.tensor)
    golden = failure.golden if operands.criterion == GOLDEN else None
    return of_pieces(
        failure,
        models,
        piece,
        reference,
        inputs=feeds,
        criterion=operands.criterion,
        golden=_excerpt(golden, failure.key) if golden is not None else None,
        got={} if drawn else {found.tensor: found.output},
        alone=operands.alone,
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


_SINGLES = 8
"""Operators of a piece that are each tried alone at the end, at most."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """Result of the search.

    Attributes:
        reproduction: the smallest piece that fails.
        operators: how many the failing tensor follows from.
        checks: what was found true or false of the search's assumptions, in words.
    """

    reproduction: PieceReproduction
    operators: int
    checks: tuple[str, ...]


def reduced(
    failure: FailingTensor,
    models: Models,
    inputs: Path | None,
    runtime: str,
    report: Callable[[int, int], None] | None = None,
) -> Reduction:
    """Search.

    Args:
        failure: what is to be reproduced.
        models: of the failing test.
        inputs: an npz of the whole model's inputs; None for those that the second run dumped.
        runtime: what runs the pieces, as in ``--npudump-runtime``; "" for what is found.
        report: called with (trials done, trials in all).

    Raises:
        RequestError: the inputs are not known, the layer is not in the model, or all that it follows from
            does not fail on the CPU's inputs.
        ModelError: onnxruntime refuses a model.
    """
    return _Search(failure, models, _inputs(failure, models.reference, inputs), runtime, report).run()


class _Search:
    def __init__(
        self,
        failure: FailingTensor,
        models: Models,
        feeds: Mapping[str, Array],
        runtime: str,
        report: Callable[[int, int], None] | None,
    ) -> None:
        self._failure, self._models, self._runtime = failure, models, runtime
        self._report = report
        layer, nodes = sanitise(failure.key.layer), models.device.nodes
        last = next((at for at, node in enumerate(nodes) if sanitise(node.name) == layer), None)
        if last is None:
            raise RequestError(f"--reduce: {models.device.path.name} has no operator {failure.key.layer!r}")
        self._nodes = operators_behind(nodes[: last + 1], nodes[last].operator.outputs)
        self._references = {node.name: node for node in models.reference.nodes}
        if unknown := [node.name for node in self._nodes if node.name not in self._references]:
            raise RequestError(
                f"--reduce: {models.reference.path.name} has no operator {unknown[0]!r}, as "
                f"{models.device.path.name} has: it cannot say what is right of a piece"
            )
        made = (name for node in models.device.nodes for name in node.operator.outputs)
        self._tensor_names = frozenset((*made, *models.device.inputs)).difference(models.device.held())
        wanted = {name: 1 for node in self._nodes for name in self._border([node])}
        computed = models.reference.run(feeds, wanted)
        self._tensors = {name: array for name, array in computed if array is not None}
        self._ports = models.device.ports(self._tensors.keys())
        self._trials = 0

    def run(self) -> Reduction:
        nodes: Sequence[Node] = self._nodes
        whole = self._trial(nodes)
        if not whole.fails:
            raise RequestError(
                f"--reduce: no failure, on inputs of the whole model, of the "
                f"{number_of(len(nodes), 'operator')} that {self._failure.key.layer} follows from: "
                f"{whole.error or 'all agree with the reference'}"
            )
        first = sanitise(whole.first)
        end = next((at for at, node in enumerate(nodes, 1) if sanitise(node.name) == first), len(nodes))
        if end < len(nodes):
            shorter = operators_behind(nodes[:end], nodes[end - 1].operator.outputs)
            nodes = shorter if self._trial(shorter).fails else nodes
        least, most = 0, len(nodes) - 1  # nodes[least:] fails; is it so from a later one on?
        while least < most:
            middle = (least + most + 1) // 2
            if self._trial(nodes[middle:]).fails:
                least = middle
            else:
                most = middle - 1
        piece = nodes[least:]
        return Reduction(self._reproduction(piece), len(self._nodes), self._checks(piece))

    def _checks(self, piece: Sequence[Node]) -> tuple[str, ...]:
        found = []
        if len(piece) > 1:
            rest = self._trial(piece[1:]).fails
            found.append(f"without {piece[0].name} it {'fails as well' if rest else 'passes'}")
            alone = [node.name for node in piece[:_SINGLES] if self._trial([node]).fails]
            tried = f"{min(len(piece), _SINGLES)} of its {len(piece)} operators alone"
            found.append(
                f"{tried}: {', '.join(alone) + ' fails: a smaller piece' if alone else 'each passes'}"
            )
        found.append(
            f"the piece fails again: {'yes' if self._trial(piece).fails else 'no: it does not repeat'}"
        )
        return tuple(found)

    def _trial(self, nodes: Sequence[Node]) -> TrialRun:
        with tempfile.TemporaryDirectory(prefix="npudump-") as folder:
            piece = self._reproduction(nodes)
            piece.write(Path(folder))
            trial = piece.run(Path(folder), self._runtime)
        self._trials += 1
        if self._report is not None:
            self._report(self._trials, max(self._trials, len(self._nodes).bit_length() + 4))
        return trial

    def _reproduction(self, nodes: Sequence[Node]) -> PieceReproduction:
        device, reference = self._models.device, self._models.reference
        border = self._border(nodes)
        missing = [name for name in border if name not in self._tensors]
        if missing:
            raise RequestError(f"--reduce: {missing[0]!r}, which a piece reads, is no tensor of numbers")
        feeds = {name: self._tensors[name].astype(self._ports[name][0]) for name in border}
        piece = cut_piece(device, nodes, feeds)
        right = None
        if not self._models.own:
            same = {name: self._tensors[name] for name in border}
            right = cut_piece(reference, [self._references[node.name] for node in nodes], same)
        return of_pieces(
            self._failure, self._models, piece, right, inputs=feeds, criterion=REFERENCE, computed=True
        )

    def _border(self, nodes: Sequence[Node]) -> tuple[str, ...]:
        """Return the tensors that operators read and none of them makes, constants left out."""
        made = {name for node in nodes for name in node.operator.outputs}
        read = (name for node in nodes for name in (*node.all_inputs, *node.captured))
        return tuple(dict.fromkeys(name for name in read if name in self._tensor_names and name not in made))


def _inputs(failure: FailingTensor, model: ReferenceModel, archive: Path | None) -> dict[str, Array]:
    if archive is not None:
        try:
            with np.load(archive, allow_pickle=False) as arrays:
                found = {name: arrays[name] for name in arrays.files}
        except (OSError, ValueError) as error:
            raise RequestError(f"--inputs {archive}: is no npz of arrays: {error}") from error
    else:
        records, _ = read_tensors(failure.run, failure.key, failure.test)
        names = {sanitise(name): name for name in model.inputs}
        found = {
            names[layer]: load(record.payload, record.dtype, record.shape)
            for record in records
            if record.op_type == GRAPH_INPUT and (layer := sanitise(record.key.layer)) in names
            if record.payload is not None and record.shape is not None
        }
    missing = [name for name in model.inputs if name not in found]
    if missing:
        raise RequestError(
            f"--reduce runs the whole model, and its input {missing[0]!r} is not known: name an npz of its "
            f"inputs with --inputs"
        )
    return found
