"""Node data of Model Explorer: a file that colours a model's operators by error over tolerance.

The format is that of ``model_explorer.node_data_builder.GraphNodeData``, which the viewer loads beside a
model (``model-explorer --extensions=model_explorer_onnx``). Nodes are found by name: the layers of a dump
have the names of an ONNX model's nodes, where the compiler has not made operators of its own. Netron loads
no data beside a model (its issues 1234 and 1241).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_npudump.report.charts import COLOURS
from pytest_npudump.report.files import json_text, write_files
from pytest_npudump.report.view import HIGHEST, STATES, SessionView, TensorView

_LIGHT = frozenset({"changed"})
"""States whose colour takes dark letters."""


def node_data(name: str, tensors: Sequence[TensorView]) -> dict[str, Any]:
    """Return the data of a test: for each layer the worst of its tensors.

    The value is error over tolerance: 1 is the most that passes. JSON has no infinity, and neither has the
    viewer: what cannot be measured is 10**6, the top of every chart's scale.
    """
    worst: dict[str, TensorView] = {}
    for tensor in tensors:
        if (before := worst.get(tensor.key.layer)) is None or _badness(tensor) < _badness(before):
            worst[tensor.key.layer] = tensor
    results = {
        layer: {
            "value": _value(tensor),
            "bgColor": COLOURS[tensor.state],
            "textColor": "#000000" if tensor.state in _LIGHT else "#ffffff",
        }
        for layer, tensor in worst.items()
    }
    return {"results": results, "name": name}


def write(view: SessionView, folder: Path, name: str = "", /) -> list[Path]:
    """Write a file for each test whose tensors were compared, as a ``Writer`` of the table of media.

    Raises:
        NpudumpError: a file cannot be written.
    """
    prefix = f"{name}-" if name else ""
    files = {
        folder / f"{prefix}{test.file_name}.json": json_text(node_data(test.name, test.tensors)).encode()
        for test in view.tests
        if test.tensors
    }
    return write_files(files, lambda error: f"{folder}: node data cannot be written: {error}")


def _badness(tensor: TensorView) -> tuple[int, float]:
    return STATES.index(tensor.state), -_value(tensor)


def _value(tensor: TensorView) -> float:
    most = math.pow(10, HIGHEST)
    return min(tensor.share, most) if math.isfinite(tensor.share) else most
