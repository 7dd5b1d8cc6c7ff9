"""Models: ONNX files run by onnxruntime, one CANN operator a node.

A model that is not dumped gives the result of ``InferenceSession(path).run`` with default options, bit for
bit. A model that is dumped runs the graph as written (no optimisation, one thread), so its results may
differ from those in the last bits, as a fused graph differs from its operators on a device.

An operator fails where a failure is injected (:mod:`pytest_npudump.emulator.faults`).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.emulator.dumps import recorder
from pytest_npudump.emulator.dumps.exceptions import ExceptionArgument, FailedTask
from pytest_npudump.emulator.dumps.recorder import STREAM, DumpPlan, DumpSettings, plan
from pytest_npudump.emulator.dumps.writer import folder_above
from pytest_npudump.emulator.faults import PLANTED, Distortion, Faults
from pytest_npudump.onnxmodels import graph as graph_module, sessions, tensor_types
from pytest_npudump.onnxmodels.graph import operators
from pytest_npudump.onnxmodels.sessions import ModelError, exposed_session, onnx, prepare
from pytest_npudump.onnxmodels.tensor_types import Tensor, from_ort_type, storage
from pytest_npudump.onnxmodels.variation import Variation, Varying

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_npudump.dump.dtypes import DType
    from pytest_npudump.emulator.streams import DeviceContext


def distorted_model(source: Path | bytes, faults: Sequence[Distortion]) -> Any:
    """Return the ``ModelProto`` of a model with faults in it: the outputs keep their names."""
    proto = sessions.read_model(source)
    for fault in faults:
        found = next((o for o in graph_module.operators(proto.graph) if o.name == fault.operator), None)
        if found is None:
            raise ModelError(f"distort: {fault.model} has no operator {fault.operator!r}")
        types = {
            port.name: from_ort_type(port.type)
            for port in exposed_session(source, proto, found.outputs).get_outputs()
        }
        names = [name for name in found.outputs if types[name].name in {"float16", "float32", "float64"}]
        if not names:
            kinds = ", ".join(types[name].name for name in found.outputs)
            raise ModelError(f"distort: {fault.operator} gives {kinds}, expected float16, float32 or float64")
        at = next(place for place, node in enumerate(proto.graph.node) if found.outputs[0] in node.output)
        node = proto.graph.node[at]
        behind = list(proto.graph.node)[at + 1 :]
        del proto.graph.node[at + 1 :]
        make, tensor = onnx().helper.make_node, onnx().numpy_helper.from_array
        for name in names:
            healthy, scaled = f"{name}/undistorted", f"{name}/scaled"
            node.output[list(node.output).index(name)] = healthy
            factor, offset = (np.array(value, storage(types[name])) for value in (fault.factor, fault.offset))
            proto.graph.initializer.extend(
                (tensor(factor, f"{name}/factor"), tensor(offset, f"{name}/offset"))
            )
            proto.graph.node.append(make("Mul", [healthy, f"{name}/factor"], [scaled], name=scaled))
            proto.graph.node.append(make("Add", [scaled, f"{name}/offset"], [name], name=f"{name}/distorted"))
        proto.graph.node.extend(behind)
    return proto


@dataclass(frozen=True, slots=True)
class ModelPort:
    """An input or output of a model.

    Attributes:
        name: as in the graph.
        dtype: its type.
        shape: its dimensions, -1 where one varies.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of it; 0 where a dimension varies."""
        return tensor_types.nbytes(self.dtype, self.shape)

    @property
    def dynamic(self) -> bool:
        """Return whether a dimension varies."""
        return -1 in self.shape


@dataclass(slots=True)
class Model:
    """A loaded model.

    Attributes:
        source: its file, or its bytes.
        name: model name in dumps: the file's stem, or the graph's name for a model from memory.
        inputs, outputs: its ports, in order.
        id: model id, unique in the process.
        context: the context it was loaded in; None for a description of a file.
        plan: which files it leaves; None if it was loaded while no dump was set.
        executions: how often it ran: the ``data_index`` of the next execution.
        current_shapes: output shapes of the last execution; None before the first.
        graph_name: the graph's own name.
        registered: whether its operators are known to an exception dump that was on when it was loaded.
        dumped: where each execution that was dumped is noted, by the folder that ``dump_path`` is in, then by
            ``{dump_path}/{time}/``.
        inside: operators inside others, which no dump has; none where it was loaded while no dump was set.
        written: operator and slot that write each tensor; none where it was loaded while no dump was set.
        faults: what may be injected in it.
        varying: what differs between members of a calibration.
    """

    source: Path | bytes
    name: str
    inputs: tuple[ModelPort, ...]
    outputs: tuple[ModelPort, ...]
    id: int = 0
    context: DeviceContext | None = None
    plan: DumpPlan | None = None
    executions: int = 0
    current_shapes: tuple[tuple[int, ...], ...] | None = None
    graph_name: str = ""
    registered: bool = False
    dumped: dict[str, dict[str, list[recorder.DumpedExecution]]] = field(default_factory=dict)
    inside: tuple[tuple[str, str], ...] = ()
    written: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)
    varying: Varying = field(default_factory=Varying)
    _session: Any = None
    _exposed: Any = None
    _previous: dict[str, Tensor] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def device(self) -> int:
        """The device it was loaded on."""
        return 0 if self.context is None else self.context.device

    def run(self, inputs: Sequence[Tensor], clock: Callable[[], int]) -> tuple[Tensor, ...]:
        """Execute once, writing the dump if there is one, and return the outputs.

        Raises:
            OperatorFailedError: one of its operators fails, as was injected.
            ModelError: onnxruntime cannot run the model on these inputs.
        """
        feeds = {port.name: tensor for port, tensor in zip(self.inputs, inputs, strict=True)}
        with self._lock:
            active = self.plan if self.plan is not None and self.plan.active else None
            dumped = active is not None and active.settings.step_selected(self.executions)
            feeds = self.varying.feeds(feeds, self.executions, dumped=dumped)
            for fault in self.faults.failing((self.name, self.graph_name), self.executions):
                if (
                    failure := _injected_failure(self.source, fault.operator, feeds, self.device)
                ) is not None:
                    raise failure
                if fault.model is not None:
                    raise ModelError(f"the model has no operator {fault.operator!r} that could fail")
            results = self._run_plain(feeds) if active is None else self._run_dumped(active, feeds, clock)
            self.executions += 1
            outputs = tuple(results[port.name] for port in self.outputs)
            self.current_shapes = tuple(tensor.shape for tensor in outputs)
        return outputs

    def _run_plain(self, feeds: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if self._session is None:
            names = (self.name, self.graph_name)
            self._session = _plain_session(self.source, self.faults.distorting(names))
        return sessions.run(self._session, feeds, [port.name for port in self.outputs])

    def _run_dumped(
        self, files: DumpPlan, feeds: Mapping[str, Tensor], clock: Callable[[], int]
    ) -> dict[str, Tensor]:
        wanted = [name for name in files.tensors if name not in feeds]
        names = list(dict.fromkeys([*(port.name for port in self.outputs), *wanted]))
        results = {**feeds, **sessions.run(self._exposed, feeds, names)}
        if files.settings.step_selected(self.executions):
            place = recorder.DumpedRun(self.device, self.name, self.id, self.executions)
            left = recorder.record(files, place, results, self._previous, clock)
            root = files.settings.root
            self.dumped.setdefault(folder_above(root), {}).setdefault(root, []).append(left)
        self._previous = {name: results[name] for name in files.tensors} if files.watches else {}
        return results


def load(
    source: Path | bytes,
    settings: DumpSettings | None,
    *,
    faults: Faults = PLANTED,
    varying: Varying | None = None,
) -> Model:
    """Load a model; what it dumps is settled here, by the ``settings`` of now. Its id is left 0.

    Args:
        source: its file, or its bytes.
        settings: the dump that is on; None for none.
        faults: what is injected in the machine it is loaded on.
        varying: what varies there; None for nothing.

    Raises:
        ModelError: the source is no ONNX model or one that onnxruntime refuses.
        MissingExtraError: onnx or onnxruntime is not installed.
    """
    varies = Varying() if varying is None else varying
    model = (
        _load_plain(source, faults)
        if settings is None
        else _load_dumped(source, settings, faults, varies.variation)
    )
    model.faults, model.varying = faults, varies
    return model


def _load_plain(source: Path | bytes, faults: Faults) -> Model:
    session = sessions.plain_session(source)
    graph_name = session.get_modelmeta().graph_name
    name = source.stem if isinstance(source, Path) else graph_name
    if distorting := faults.distorting((name, graph_name)):
        session = _plain_session(source, distorting)
    inputs, outputs = _ports(session.get_inputs()), _outputs(source, session.get_outputs())
    return Model(source, name, inputs, outputs, graph_name=graph_name, _session=session)


def _plain_session(source: Path | bytes, faults: Sequence[Distortion]) -> Any:
    if not faults:
        return sessions.plain_session(source)
    return exposed_session(source, distorted_model(source, faults), (), threads=0, optimised=True)


def _load_dumped(source: Path | bytes, settings: DumpSettings, faults: Faults, variation: Variation) -> Model:
    prepared = prepare(source)
    names = (source.stem if isinstance(source, Path) else prepared.name, prepared.name)
    data = prepared.inputs
    files = plan(settings, names, prepared.operators, data, faults.trampling(names))
    inner = [tensor for tensor in files.tensors if tensor not in data]
    if distorting := faults.distorting(names):
        session = exposed_session(
            source,
            distorted_model(source, distorting),
            inner,
            threads=variation.threads,
            optimised=variation.optimised,
        )
    else:
        session = prepared.session(inner, variation)
    inputs = _ports(session.get_inputs())
    outputs = _outputs(source, session.get_outputs()[: prepared.outputs])
    written = {tensor: (one.name, at) for one in prepared.operators for at, tensor in enumerate(one.outputs)}
    return Model(
        source,
        names[0],
        inputs,
        outputs,
        plan=files,
        graph_name=names[1],
        inside=prepared.inside,
        written=written,
        _exposed=session,
    )


def _ports(arguments: Sequence[Any]) -> tuple[ModelPort, ...]:
    return tuple(ModelPort(*port) for port in sessions.ports(arguments))


def _outputs(source: Path | bytes, arguments: Sequence[Any]) -> tuple[ModelPort, ...]:
    """Return ports of outputs; one without a shape, which onnxruntime tells as a scalar, has any size."""
    found = _ports(arguments)
    if all(port.shape for port in found):
        return found
    types = {value.name: value.type for value in sessions.read_model(source).graph.output}
    tensors = {name: one.tensor_type for name, one in types.items() if one.HasField("tensor_type")}
    free = {name for name, one in tensors.items() if not one.HasField("shape")}
    return tuple(
        replace(port, shape=(-1,)) if port.name in free and not port.shape else port for port in found
    )


class OperatorFailedError(ModelError):
    """An operator that failed on the device.

    Attributes:
        operator: which one, with its tensors; what it was to write is all zeros.
    """

    def __init__(self, operator: FailedTask, why: str) -> None:
        super().__init__(
            f"{operator.op_type} operator {operator.name!r} failed (task {operator.task}): {why}"
        )
        self.operator = operator


def _injected_failure(
    source: Path | bytes, name: str, feeds: Mapping[str, Tensor], device: int
) -> OperatorFailedError | None:
    """Return the failure of an operator, with what it got, weights included; None without such a one.

    The graph runs up to it as it is written, for its inputs, and for the size of its results.
    """
    proto = sessions.read_model(source)
    nodes = [(at, node) for at, node in enumerate(proto.graph.node) if node.op_type != "Constant"]
    named = {one.name: (one, *place) for one, place in zip(operators(proto.graph), nodes, strict=True)}
    if name not in named:
        return None
    operator, last, node = named[name]
    given, written = ([tensor for tensor in side if tensor] for side in (node.input, node.output))
    inner = [tensor for tensor in dict.fromkeys((*given, *written)) if tensor not in feeds]
    del proto.graph.node[last + 1 :]
    del proto.graph.output[:]
    session = exposed_session(source, proto, inner)
    known = {port.name for port in session.get_inputs()}
    run = sessions.run(session, {tensor: feeds[tensor] for tensor in feeds if tensor in known}, inner)
    values = {**feeds, **run}
    room = [replace(values[tensor], data=np.zeros_like(values[tensor].data)) for tensor in written]
    tensors = [
        ExceptionArgument(tensor, at)
        for at, tensor in enumerate((*(values[tensor] for tensor in given), *room))
        if tensor.nbytes
    ]
    inputs = [one for one in tensors if one.index < len(given)]
    task = FailedTask(name, operator.op_type, operator.task, STREAM, device, inputs, tensors[len(inputs) :])
    return OperatorFailedError(task, "a failure that was injected (emulator.faults.fail)")
