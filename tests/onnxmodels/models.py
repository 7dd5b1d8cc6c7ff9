"""ONNX models of tests, in one call each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = Sequence[int | str] | None
Ports = Mapping[str, Shape | tuple[int, Shape]]


def onnx_model(
    nodes: Sequence[onnx.NodeProto],
    given: Ports,
    gives: Ports,
    weights: Mapping[str, np.ndarray] | None = None,
    *,
    kind: int = TensorProto.FLOAT,
    name: str = "small",
    opset: int = 17,
    **more: Any,
) -> onnx.ModelProto:
    """Return a model of operators, ports by their names, of one type or with the type before the shape."""
    ports = []
    for some in (given, gives):
        typed = {at: told if _typed(told) else (kind, told) for at, told in some.items()}
        ports.append([helper.make_tensor_value_info(at, *told) for at, told in typed.items()])
    arrays = [numpy_helper.from_array(np.asarray(array), key) for key, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, name, *ports, arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8, **more)


def _typed(told: Any) -> bool:
    return isinstance(told, tuple) and len(told) == 2 and not isinstance(told[1], int | str)


def onnx_file(path: Path, *arguments: Any, **named: Any) -> Path:
    """Write what :func:`onnx_model` makes of these; return the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(onnx_model(*arguments, **named), str(path))
    return path
