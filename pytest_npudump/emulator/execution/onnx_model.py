"""Models: ONNX files run by onnxruntime, one CANN operator a node.

A model that is not dumped gives the result of ``InferenceSession(path).run`` with default options, bit for
bit. A model that is dumped runs the graph as written (no optimisation, one thread), so its results may
differ from those in the last bits, as a fused graph differs from its operators on a device.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.dump.values.dtypes import BY_GE
from pytest_npudump.emulator.dumps import recorder
from pytest_npudump.emulator.dumps.plan import Plan, plan
from pytest_npudump.emulator.execution.distorted_model import distorted_model
from pytest_npudump.emulator.execution.failed_operator import Graph, injected_failure, real_failure
from pytest_npudump.emulator.faults import PLANTED, Faults
from pytest_npudump.emulator.gears import COMPILED, SHAPE_DATA, gears_of
from pytest_npudump.emulator.unsupported import NotEmulatedError
from pytest_npudump.onnxmodels import sessions, tensor_types
from pytest_npudump.onnxmodels.exposed_session import exposed_session
from pytest_npudump.onnxmodels.model_cache import prepare
from pytest_npudump.onnxmodels.sessions import ModelError
from pytest_npudump.onnxmodels.variation import Varying

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_npudump.dump.values.dtypes import DType
    from pytest_npudump.emulator.dumps.dump_settings import DumpSettings
    from pytest_npudump.emulator.faults import Distortion
    from pytest_npudump.emulator.gears import Gears
    from pytest_npudump.emulator.machine.streams import Context
    from pytest_npudump.onnxmodels.tensor_types import Tensor
    from pytest_npudump.onnxmodels.variation import Variation


_SHAPE_TYPE = BY_GE[9]
"""int64."""


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a model.

    Attributes:
        name: as in the graph.
        dtype: its type.
        shape: its dimensions, -1 where one varies.
        largest: those of the largest gear, where ATC has compiled the model for some.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    largest: tuple[int, ...] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of it, in the largest gear; 0 where a dimension varies without gears."""
        return tensor_types.nbytes(self.dtype, self.shape if self.largest is None else self.largest)

    @property
    def dynamic(self) -> bool:
        """Whether a dimension varies."""
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
        gears: what ATC has compiled it for, if anything; its last input then tells an execution's.
        registered: whether its operators are known to an exception dump that was on when it was loaded.
        dumped: where each execution that was dumped is noted.
        inside: operators inside others, which no dump has; none where it was loaded while no dump was set.
        faults: what may be injected in it.
        varying: what differs between members of a calibration.
    """

    source: Path | bytes
    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    id: int = 0
    context: Context | None = None
    plan: Plan | None = None
    executions: int = 0
    current_shapes: tuple[tuple[int, ...], ...] | None = None
    graph_name: str = ""
    gears: Gears | None = None
    registered: bool = False
    dumped: list[recorder.Execution] = field(default_factory=list)
    inside: tuple[tuple[str, str], ...] = ()
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
            OperatorFailedError: one of its operators fails, by itself or because that was injected.
            ModelError: onnxruntime cannot run the model on these inputs.
        """
        feeds = {port.name: tensor for port, tensor in zip(self.inputs, inputs, strict=True)}
        feeds.pop(SHAPE_DATA, None)
        with self._lock:
            active = self.plan if self.plan is not None and self.plan.active else None
            dumped = active is not None and active.settings.step_selected(self.executions)
            feeds = self.varying.feeds(feeds, self.executions, dumped=dumped)
            self._check_faults(feeds)
            try:
                results = self._run_plain(feeds) if active is None else self._run_dumped(active, feeds, clock)
            except ModelError as error:
                raise real_failure(self.source, feeds, self.device, error) from error
            self.executions += 1
            outputs = tuple(results[port.name] for port in self.outputs)
            self.current_shapes = tuple(tensor.shape for tensor in outputs)
        return outputs

    def _check_faults(self, feeds: Mapping[str, Tensor]) -> None:
        for fault in self.faults.failing((self.name, self.graph_name), self.executions):
            if fault.model is not None or fault.operator in Graph(self.source).names:
                raise injected_failure(self.source, fault.operator, feeds, self.device)

    def _run_plain(self, feeds: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if self._session is None:
            names = (self.name, self.graph_name)
            self._session = _plain_session(self.source, self.faults.distorting(names))
        return sessions.run(self._session, feeds, [port.name for port in self.outputs])

    def _run_dumped(
        self, files: Plan, feeds: Mapping[str, Tensor], clock: Callable[[], int]
    ) -> dict[str, Tensor]:
        wanted = [name for name in files.tensors if name not in feeds]
        names = list(dict.fromkeys([*(port.name for port in self.outputs), *wanted]))
        results = {**feeds, **sessions.run(self._exposed, feeds, names)}
        if files.settings.step_selected(self.executions):
            place = recorder.Place(self.device, self.name, self.id, self.executions)
            left = recorder.record(files, place, results, self._previous, clock)
            self.dumped.append(left)
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
        ModelError: the source is no ONNX model, or one that onnxruntime refuses, or its gears do not fit it.
        MissingExtraError: onnx or onnxruntime is not installed.
        NotEmulatedError: a model with gears while a dump is set.
    """
    varies = Varying() if varying is None else varying
    if settings is None:
        model = _load_plain(source, faults)
    else:
        model = _load_dumped(source, settings, faults, varies.variation)
    model.faults, model.varying = faults, varies
    option = COMPILED.get(model.name) or COMPILED.get(model.graph_name)
    if option is None:
        return model
    if settings is not None:
        raise NotEmulatedError("the dump of a model with gears", "GE puts operators of its own into it")
    gears = gears_of(source, {port.name: port.shape for port in model.inputs}, option)
    inputs = _in_largest(model.inputs, gears.inputs(gears.largest))
    told = Port(SHAPE_DATA, _SHAPE_TYPE, (len(option.gears[0]),))
    outputs = _in_largest(model.outputs, gears.outputs[gears.largest])
    return replace(model, inputs=(*inputs, told), outputs=outputs, gears=gears)


def _in_largest(ports: Sequence[Port], shapes: Sequence[tuple[int, ...]]) -> tuple[Port, ...]:
    """Return ports that know the shape they have in the largest gear."""
    return tuple(replace(port, largest=shape) for port, shape in zip(ports, shapes, strict=True))


def _load_plain(source: Path | bytes, faults: Faults) -> Model:
    session = sessions.plain_session(source)
    graph_name = session.get_modelmeta().graph_name
    name = source.stem if isinstance(source, Path) else graph_name
    if distorting := faults.distorting((name, graph_name)):
        session = _plain_session(source, distorting)
    inputs, outputs = _ports(session.get_inputs()), _ports(session.get_outputs())
    return Model(source, name, inputs, outputs, graph_name=graph_name, _session=session)


def _plain_session(source: Path | bytes, faults: Sequence[Distortion]) -> Any:
    if not faults:
        return sessions.plain_session(source)
    proto = distorted_model(source, faults)
    return exposed_session(source, proto, (), threads=0, optimised=True)


def _load_dumped(source: Path | bytes, settings: DumpSettings, faults: Faults, variation: Variation) -> Model:
    prepared = prepare(source)
    names = (source.stem if isinstance(source, Path) else prepared.name, prepared.name)
    data = prepared.inputs
    files = plan(settings, names, prepared.operators, data, faults.trampling(names))
    inner = [tensor for tensor in files.tensors if tensor not in data]
    if distorting := faults.distorting(names):
        how: dict[str, Any] = {"threads": variation.threads, "optimised": variation.optimised}
        session = exposed_session(source, distorted_model(source, distorting), inner, **how)
    else:
        session = prepared.session(inner, variation)
    inputs = _ports(session.get_inputs())
    outputs = _ports(session.get_outputs()[: prepared.outputs])
    how = {"plan": files, "graph_name": names[1], "inside": prepared.inside, "_exposed": session}
    return Model(source, names[0], inputs, outputs, **how)


def _ports(arguments: Sequence[Any]) -> tuple[Port, ...]:
    return tuple(Port(*port) for port in sessions.ports(arguments))
