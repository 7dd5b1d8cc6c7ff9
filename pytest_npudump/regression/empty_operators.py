"""Operators that ran and left no file: CANN writes none where no tensor of an operator holds a byte.

An output of shape 0x3 then has no row, and could become 3x0, or no output at all, unseen. The emulator runs
the graph that the model's file holds, so that there these operators are known, with the shapes that follow
from the file; a golden lists them under its key ``empty``. On an NPU, whose graph engine fuses and
removes operators, nothing tells one that left no file from one that is not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.dump.records import sanitise
from pytest_npudump.dump.selection import both_spellings
from pytest_npudump.dump.table import UNKNOWN_SHAPE, shape_count, shape_text
from pytest_npudump.errors import NpudumpError
from pytest_npudump.golden.text import EMPTY
from pytest_npudump.request import matches_any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_npudump.dump.records import Dump
    from pytest_npudump.golden.text import Golden
    from pytest_npudump.regression.case import Case

_SHOWN = 3


def empty_operators(case: Case, dump: Dump) -> dict[str, list[str]] | None:
    """Return shapes of the outputs of the operators that left no file, by name; None where nothing can tell.

    A shape that does not follow from the model's file is ``?``.
    """
    request = case.request
    chosen = request.opname_blacklist or request.optype_blacklist or request.opname_range
    if case.runtime.name != "emulator" or request.dump_mode == "input" or chosen:
        return None
    files = [path.with_suffix(".onnx") for path in case.runtime.activity.models]
    if not all(file.is_file() for file in files):
        return None
    written = {sanitise(record.key.layer) for record in dump.records}
    found: dict[str, list[str]] = {}
    try:
        for file in files:
            found |= _in_model(file, written)
    except NpudumpError:  # the file has changed since the emulator loaded it
        return None
    wanted = both_spellings(request.layers)
    return {name: shapes for name, shapes in found.items() if not wanted or matches_any(wanted, name)}


def changed(golden: Golden, now: Mapping[str, list[str]] | None) -> tuple[str, ...]:
    """Say which operators without a file differ from those that the golden lists."""
    listed = golden.extra.get(EMPTY)
    if listed is None or now is None or listed == now:
        return ()
    before: Mapping[str, Any] = listed if isinstance(listed, dict) else {}
    names = [name for name in dict.fromkeys([*before, *now]) if before.get(name) != now.get(name)]
    shown = "; ".join(f"{name}: {_text(before, name)} -> {_text(now, name)}" for name in names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if names[_SHOWN:] else ""
    return (f"operators whose tensors hold no element, and which leave no file, differ: {shown}{more}",)


def notes_on(golden: Golden, now: Mapping[str, list[str]] | None) -> tuple[str, ...]:
    """Name the operators without a file that ``golden`` does not list."""
    if not now or EMPTY in golden.extra:
        return ()
    names = ", ".join([*now][:_SHOWN]) + (f" and {len(now) - _SHOWN} more" if len(now) > _SHOWN else "")
    note = (
        f"{names}: not compared, as no tensor of it holds an element, and it left no file; approve anew to "
        f"have the golden list its shapes"
    )
    return (note,)


def _text(side: Mapping[str, Any], name: str) -> str:
    shapes = side.get(name)
    return ", ".join(map(str, shapes)) if isinstance(shapes, list) else "not among them"


def _in_model(path: Path, written: set[str]) -> dict[str, list[str]]:
    from pytest_npudump.onnxmodels.graph import operators  # noqa: PLC0415 - only the emulator has it loaded
    from pytest_npudump.onnxmodels.sessions import onnx, read_model  # noqa: PLC0415 - the same

    model = read_model(path)
    silent = [operator for operator in operators(model.graph) if sanitise(operator.name) not in written]
    if not silent:
        return {}
    inferred = onnx().shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {
        value.name: _shape(value.type.tensor_type) for value in (*inferred.value_info, *inferred.output)
    }
    found = {op.name: [shapes.get(name, UNKNOWN_SHAPE) for name in op.outputs] for op in silent}
    # Others were not dumped for another reason: they did not run, or have no output.
    return {name: outputs for name, outputs in found.items() if outputs and all(map(_may_be_empty, outputs))}


def _may_be_empty(shape: str) -> bool:
    return shape_count(shape) in {None, 0}


def _shape(tensor: Any) -> str:
    dims = tensor.shape.dim
    if not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in dims):
        return UNKNOWN_SHAPE
    return shape_text(tuple(dim.dim_value for dim in dims))
