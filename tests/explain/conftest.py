"""Small ONNX models, and dumps of them as the device would leave them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from tests.onnxmodels.models import onnx_file

if TYPE_CHECKING:
    from collections.abc import Callable

Node = tuple[str, str, list[str], list[str]]


@pytest.fixture
def write_model(tmp_path: Path) -> Callable[..., Path]:
    """Write a model of ``(name, type, inputs, outputs)`` nodes, whose input is ``x`` of ``shape``."""

    def write(
        *nodes: Node,
        shape: tuple[int, ...] = (2, 3),
        outputs: tuple[str, ...] = (),
        weights: dict[str, np.ndarray[Any, Any]] | None = None,
        dtype: int = TensorProto.FLOAT,
        inputs: tuple[str, ...] = ("x",),
        name: str = "model.onnx",
        **attributes: dict[str, Any],
    ) -> Path:
        made = [
            helper.make_node(kind, ins, outs, name=node, **attributes.get(node, {}))
            for node, kind, ins, outs in nodes
        ]
        given, gives = dict.fromkeys(inputs, shape), dict.fromkeys(outputs or (nodes[-1][3][0],))
        return onnx_file(tmp_path / name, made, given, gives, weights, kind=dtype, name="graph")

    return write


def make_record(
    key: str, array: np.ndarray[Any, Any] | None = None, *, dtype: str = "", op_type: str = "", **fields: Any
) -> TensorRecord:
    """Record of a tensor, with the statistics of ``array`` in float64 where one is given."""
    stats = None
    shape = None
    if array is not None:
        exact = array.astype(np.float64)
        finite = exact[~np.isnan(exact)]
        shape = array.shape
        with np.errstate(invalid="ignore"):
            avg = float(exact.mean())
        stats = Stats(
            count=array.size,
            max=float(finite.max()),
            min=float(finite.min()),
            avg=avg,
            nan=int(np.isnan(exact).sum()),
            pos_inf=int(np.isposinf(exact).sum()),
            neg_inf=int(np.isneginf(exact).sum()),
            digits=6,
        )
        dtype = dtype or array.dtype.name
    values: dict[str, Any] = {"shape": shape, "path": Path("dump"), "stats": stats, **fields}
    return TensorRecord(TensorKey.parse(key), op_type, dtype or "float32", **values)
