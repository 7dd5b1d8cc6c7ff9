"""Inputs of a test's models, kept for the reference."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.stats.verdict import GRAPH_INPUT
from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.dump.names import Place, context, read_place
from pytest_npudump.dump.records import TensorKey, TensorRecord, sanitise
from pytest_npudump.errors import RequestError
from pytest_npudump.language.text import number_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import ArrayLike
    from typing_extensions import Self

    from pytest_npudump.runtime.base import ModelSession

    Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(slots=True)
class LoadedModel:
    """One model that was loaded, and what each of its executions was given.

    Attributes:
        part: the capture it was loaded in; "" outside of any.
        path: its file.
        names: its inputs' names, in order; empty where the runtime does not tell them.
        runs: copies of the arrays, in the order of the inputs, one item an execution.
    """

    part: str
    path: Path
    names: tuple[str, ...]
    runs: list[tuple[Array, ...]] = field(default_factory=list)


@dataclass(slots=True)
class RunInputs:
    """Inputs of all models in one run of a test.

    Attributes:
        loaded: models loaded through ``npu_dump.load_model``, in the order of loading.
        given: what ``npu_dump.reference_inputs`` was given, by the capture it was called in.
        advice: how to give inputs that are not known.
    """

    loaded: list[LoadedModel] = field(default_factory=list)
    given: dict[str, list[dict[str, Array]]] = field(default_factory=dict)
    advice: str = (
        "load the model with npu_dump.load_model(), call npu_dump.reference_inputs({name: array, ...}) once "
        'for each execution, or dump the inputs themselves with acl_json={"dump_data": "tensor"}'
    )

    def watch(self, session: ModelSession, path: Path, part: str) -> ModelSession:
        """Return ``session`` such that what it is run on is remembered."""
        names = tuple(getattr(session, "input_names", ()))
        self.loaded.append(LoadedModel(part, path, names))
        return _WatchedSession(session, self.loaded[-1])

    def give(self, inputs: Mapping[str, ArrayLike], part: str) -> None:
        """Keep the inputs of an execution under way, or of the next one.

        Raises:
            RequestError: ``inputs`` is no mapping of names to arrays of numbers.
        """
        arrays = {name: np.array(value, copy=True) for name, value in dict(inputs).items()}
        if not arrays or any(not isinstance(name, str) for name in arrays):
            raise RequestError(
                "reference_inputs: expected a mapping of the reference's input names to arrays"
            )
        for name, array in arrays.items():
            if array.dtype.kind in "OSUMm":
                raise RequestError(
                    f"reference_inputs: {name!r} is of the type {array.dtype}, expected numbers"
                )
        self.given.setdefault(part, []).append(arrays)


@dataclass(slots=True)
class _WatchedSession:
    """A session that copies what it is run on."""

    _session: ModelSession
    _model: LoadedModel

    def run(self, *arrays: np.ndarray) -> list[np.ndarray]:
        __tracebackhide__ = True
        # Copies, made before the run: buffers are reused, also by the run itself.
        copies = tuple(np.array(array, copy=True) for array in arrays)
        before = self._session.executions
        try:
            return self._session.run(*arrays)
        finally:
            # The device counts an execution that failed, too, and none that never reached it.
            if self._session.executions > before:
                self._model.runs.append(copies)

    def __enter__(self) -> Self:
        self._session.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.__exit__(kind, error, trace)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


def execution_of(record: TensorRecord) -> TensorKey:
    """Return the part that keys of all tensors of one execution of a model share."""
    return replace(record.key, layer="", io="", slot=0, turn=0)


@dataclass(frozen=True, slots=True)
class Feeds:
    """The inputs of the executions of one run of a test.

    Attributes:
        inputs: what was remembered while it ran.
        names: the reference's inputs, in order.
        executions: those that are compared with it, and one record of each, in execution order.
        records: the dump, where it may hold the inputs themselves.
    """

    inputs: RunInputs
    names: tuple[str, ...]
    executions: Mapping[TensorKey, TensorRecord]
    records: Sequence[TensorRecord]

    def of(self, execution: TensorKey) -> dict[str, Array]:
        """Return the arrays of one execution by the reference's names.

        Raises:
            RequestError: they are not known for certain; the message says what to do.
            DumpError: the dump holds them and cannot be read.
        """
        if execution.capture in self.inputs.given:
            return self._given(execution)
        try:
            return self._run_on(execution)
        except RequestError as error:
            dumped = self._dumped(execution)
            if dumped is None:
                raise RequestError(f"{error}; {self.inputs.advice}") from None
            return dumped

    def _given(self, execution: TensorKey) -> dict[str, Array]:
        given = self.inputs.given[execution.capture]
        executions = [e for e in self.executions if e.capture == execution.capture]
        if len(given) != len(executions):
            raise RequestError(
                f"npu_dump.reference_inputs() was called {number_of(len(given), 'time')}, the dump has "
                f"{number_of(len(executions), 'execution')} of the model: call it once for each, "
                f"in their order"
            )
        found = given[executions.index(execution)]
        if unknown := [name for name in found if name not in self.names]:
            raise RequestError(
                f"npu_dump.reference_inputs(): {unknown[0]!r} is no input of the reference, which has "
                f"{', '.join(map(repr, self.names))}"
            )
        return found

    def _run_on(self, execution: TensorKey) -> dict[str, Array]:
        model = self._model_of(execution)
        step = _place_of(self.executions[execution]).iteration
        if step < 0 and len(model.runs) == 1:
            step = 0
        if not 0 <= step < len(model.runs):
            raise RequestError(
                f"the inputs of execution {step} of {model.path.name} are not known: its session ran "
                f"{number_of(len(model.runs), 'time')}"
            )
        arrays = model.runs[step]
        names = model.names if set(model.names) == set(self.names) else self.names
        if len(arrays) != len(names):
            raise RequestError(
                f"the model was run on {number_of(len(arrays), 'array')}, the reference takes {len(names)}: "
                f"{', '.join(names)}"
            )
        return dict(zip(names, arrays, strict=True))

    def _model_of(self, execution: TensorKey) -> LoadedModel:
        """Return the loaded model of ``execution``, where exactly one is possible."""
        ran = [m for m in self.inputs.loaded if m.part == execution.capture and m.runs]
        if not ran:
            raise RequestError("the inputs of the model are not known")
        name = _place_of(self.executions[execution]).model
        called = [model for model in ran if sanitise(model.path.stem) == sanitise(name)]
        ran = called or ran
        same = {  # the loaded models of that name in the dump, in the order of loading
            replace(other, step=0): _place_of(record).model_id
            for other, record in self.executions.items()
            if other.capture == execution.capture and _place_of(record).model == name
        }
        loads = sorted(same, key=lambda loaded: same[loaded])
        if len(ran) != len(loads):
            raise RequestError(
                f"the inputs of the model are not known: {len(ran)} loaded models ran, the dump tells "
                f"{len(loads)} of the name {name!r}"
            )
        return ran[loads.index(replace(execution, step=0))]

    def _dumped(self, execution: TensorKey) -> dict[str, Array] | None:
        """Return the outputs of the ``Data`` operators of one execution; None if one has no bytes."""
        held = {
            sanitise(record.key.layer): (record.payload, record.dtype, record.shape)
            for record in self.records
            if record.op_type == GRAPH_INPUT and record.payload and execution_of(record) == execution
        }
        arrays = {name: load(*held[key]) for name in self.names if (key := sanitise(name)) in held}
        return arrays if len(arrays) == len(self.names) else None


def _place_of(record: TensorRecord) -> Place:
    """Parse the directories of a record's file."""
    return read_place(context(record.path.parent.parts))


def executions_of(records: Iterable[TensorRecord]) -> dict[TensorKey, TensorRecord]:
    """Return the executions of a dump in their order, each with its first record."""
    found: dict[TensorKey, TensorRecord] = {}
    for record in records:
        found.setdefault(execution_of(record), record)
    return found
