"""Models in which an operator computes wrongly, and whatever follows it goes on with that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.onnxmodels import graph as graph_module
from pytest_npudump.onnxmodels import sessions
from pytest_npudump.onnxmodels.exposed_session import exposed_session
from pytest_npudump.onnxmodels.sessions import ModelError, onnx
from pytest_npudump.onnxmodels.tensor_types import from_ort_type, storage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_npudump.emulator.faults import Distortion

_FLOATS = frozenset({"float16", "float32", "float64"})


def distorted_model(source: Path | bytes, faults: Sequence[Distortion]) -> Any:
    """Return the ``ModelProto`` of a model with faults in it: the outputs keep their names.

    Raises:
        ModelError: it is no ONNX model, or has no such operator, or that has no floating-point output.
    """
    proto = sessions.read_model(source)
    for fault in faults:
        _distort(source, proto, fault)
    return proto


def _distort(source: Path | bytes, proto: Any, fault: Distortion) -> None:
    found = next((o for o in graph_module.operators(proto.graph) if o.name == fault.operator), None)
    if found is None:
        raise ModelError(f"distort: {fault.model} has no operator {fault.operator!r}")
    types = {
        port.name: from_ort_type(port.type)
        for port in exposed_session(source, proto, found.outputs).get_outputs()
    }
    names = [name for name in found.outputs if types[name].name in _FLOATS]
    if not names:
        kinds = ", ".join(types[name].name for name in found.outputs)
        raise ModelError(f"distort: {fault.operator} gives {kinds}, expected float16, float32 or float64")
    at = next(place for place, node in enumerate(proto.graph.node) if found.outputs[0] in node.output)
    node = proto.graph.node[at]
    behind = list(proto.graph.node)[at + 1 :]
    del proto.graph.node[at + 1 :]
    for name in names:
        healthy = f"{name}/undistorted"
        node.output[list(node.output).index(name)] = healthy
        proto.graph.node.extend(_faulty(proto.graph, healthy, name, storage(types[name]), fault))
    proto.graph.node.extend(behind)


def _faulty(graph: Any, healthy: str, name: str, dtype: np.dtype[Any], fault: Distortion) -> tuple[Any, ...]:
    helper = onnx().helper
    constants = {f"{name}/factor": fault.factor, f"{name}/offset": fault.offset}
    graph.initializer.extend(
        onnx().numpy_helper.from_array(np.array(value, dtype), key) for key, value in constants.items()
    )
    factor, offset = constants
    scaled = f"{name}/scaled"
    return (
        helper.make_node("Mul", [healthy, factor], [scaled], name=scaled),
        helper.make_node("Add", [scaled, offset], [name], name=f"{name}/distorted"),
    )
