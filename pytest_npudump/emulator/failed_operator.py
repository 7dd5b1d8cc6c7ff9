"""Operators that fail while a model runs: which one it was, and what it worked on.

A failure is injected (:mod:`pytest_npudump.emulator.faults`), or it is onnxruntime's own. What failed is then
found by running ever longer beginnings of the graph as it is written, without optimisation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.emulator.dumps.exceptions import Argument, FailedTask
from pytest_npudump.emulator.dumps.plan import STREAM
from pytest_npudump.errors import MissingExtraError
from pytest_npudump.onnxmodels import sessions
from pytest_npudump.onnxmodels.graph import operators
from pytest_npudump.onnxmodels.sessions import ModelError, exposed_session
from pytest_npudump.onnxmodels.tensor_types import Tensor, nbytes, storage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


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


class Graph:
    """A model that can be run up to one of its operators.

    Attributes:
        names: of the operators, in execution order.
    """

    def __init__(self, source: Path | bytes) -> None:
        """Read the model."""
        self._source, self._proto = source, sessions.read_model(source)
        self._operators = operators(self._proto.graph)
        self.names = tuple(operator.name for operator in self._operators)

    def first_failing(self, feeds: Mapping[str, Tensor]) -> int | None:
        """Return the index of the first operator that fails on ``feeds``, None where none does."""
        low, high = 0, len(self.names)
        if self._runs(high, feeds):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._runs(middle, feeds) else (low, middle)
        return low

    def _runs(self, count: int, feeds: Mapping[str, Tensor]) -> bool:
        names = [name for name in self._node(count - 1).output if name]
        session = self._begin(count, names)
        try:
            _run(session, feeds, names)
        except ModelError:
            return False
        return True

    def _node(self, index: int) -> Any:
        return [node for node in self._proto.graph.node if node.op_type != "Constant"][index]

    def _begin(self, count: int, names: Sequence[str]) -> Any:
        """Return a session of the first ``count`` operators that hands out the tensors ``names``."""
        begin = type(self._proto)()
        begin.CopyFrom(self._proto)
        nodes = self._proto.graph.node
        ends = [at for at, node in enumerate(nodes) if node.op_type != "Constant"]
        del begin.graph.node[ends[count] if count < len(ends) else len(nodes) :]
        del begin.graph.output[:]
        return exposed_session(self._source, begin, names)

    def operator(self, index: int, feeds: Mapping[str, Tensor], device: int) -> FailedTask:
        """Return an operator with the tensors that it got, weights included, and room for its results."""
        found, node = self._operators[index], self._node(index)
        given = [name for name in node.input if name]
        inner = [name for name in dict.fromkeys(given) if name not in feeds]
        values = {**feeds, **(_run(self._begin(index, inner), feeds, inner) if inner else {})}
        room = self._room(index, feeds, [name for name in node.output if name])
        inputs = [Argument(values[name], at) for at, name in enumerate(given) if values[name].nbytes]
        outputs = [Argument(tensor, len(given) + at) for at, tensor in enumerate(room) if tensor.nbytes]
        return FailedTask(found.name, found.op_type, found.task, STREAM, device, inputs, outputs)

    def _room(self, index: int, feeds: Mapping[str, Tensor], names: Sequence[str]) -> list[Tensor]:
        """Return zeros in place of an operator's results, those left out whose shape is not known."""
        try:
            results = _run(self._begin(index + 1, names), feeds, names)
        except ModelError:
            session = self._begin(index + 1, names)
            declared = [(dtype, shape) for _, dtype, shape in sessions.ports(session.get_outputs())]
            sized = [(dtype, shape, nbytes(dtype, shape)) for dtype, shape in declared if -1 not in shape]
            return [
                Tensor(dtype, shape, np.zeros(size, np.uint8).view(storage(dtype)))
                for dtype, shape, size in sized
            ]
        return [replace(results[name], data=np.zeros_like(results[name].data)) for name in names]


def _run(session: Any, feeds: Mapping[str, Tensor], names: Sequence[str]) -> dict[str, Tensor]:
    known = {port.name for port in session.get_inputs()}
    return sessions.run(session, {name: feeds[name] for name in feeds if name in known}, names)


def injected_failure(
    source: Path | bytes, operator: str, feeds: Mapping[str, Tensor], device: int
) -> OperatorFailedError:
    """Return the failure of the operator that is to fail."""
    graph = Graph(source)
    if operator not in graph.names:
        raise ModelError(f"the model has no operator {operator!r} that could fail")
    found = graph.operator(graph.names.index(operator), feeds, device)
    return OperatorFailedError(found, "a failure that was injected (emulator.faults.fail)")


def real_failure(
    source: Path | bytes, feeds: Mapping[str, Tensor], device: int, error: ModelError
) -> ModelError:
    """Return the failure of an operator behind onnxruntime's ``error``, or that error where none is found."""
    try:
        graph = Graph(source)
        index = graph.first_failing(feeds)
        if index is None:
            return error
        return OperatorFailedError(graph.operator(index, feeds, device), str(error))
    except (ModelError, MissingExtraError):
        return error
