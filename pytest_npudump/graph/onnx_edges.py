"""Edges of an ONNX model, by the names that the emulator and GE's parser give its operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.graph.edges import UNKNOWN, Edges, Node, Port
from pytest_npudump.onnxmodels.model_cache import prepare

if TYPE_CHECKING:
    from pathlib import Path

_WITH_BODY = frozenset({"If", "Loop", "Scan"})
"""Operators whose branches and bodies read tensors around them that are not among their inputs."""


def read_onnx(path: Path) -> Edges:
    """Return the edges of a model's file.

    Slots are those of the emulator's dumps, which leave weights and constants out.

    Raises:
        ModelError: it is no ONNX model.
        MissingExtraError: onnx is not installed.
    """
    model = prepare(path)
    makers = {name: Port(name) for name in model.inputs}
    for operator in model.operators:
        makers |= {name: Port(operator.name, slot) for slot, name in enumerate(operator.outputs)}
    nodes = [Node(name, "Data", ()) for name in model.inputs]
    for operator in model.operators:
        ports = tuple(makers.get(name) for name in operator.inputs)
        outer = (UNKNOWN,) if operator.op_type in _WITH_BODY else ()
        nodes.append(Node(operator.name, operator.op_type, ports + outer))
    return Edges.of(nodes, path.name)
