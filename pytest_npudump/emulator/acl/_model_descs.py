"""Model descriptions: what a model's inputs and outputs are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_npudump.emulator.acl._calls import CODE, MDL, destroy, known
from pytest_npudump.emulator.acl._load import loaded, model_bytes, model_file
from pytest_npudump.emulator.execution import onnx_model as models
from pytest_npudump.emulator.faults import Faults
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.codes import RefusedError
from pytest_npudump.emulator.process.state import process
from pytest_npudump.onnxmodels.sessions import ModelError
from pytest_npudump.onnxmodels.tensor_types import FORMAT_ND, acl_number

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_npudump.emulator.execution.onnx_model import Model, Port

_UNDEFINED = -1


@dataclass(slots=True)
class ModelDesc:
    """A description; empty until ``get_desc`` fills it."""

    model: Model | None = None

    def ports(self, io: str) -> tuple[Port, ...]:
        """Return the model's inputs or outputs; none while it is empty."""
        if self.model is None:
            return ()
        return self.model.inputs if io == "input" else self.model.outputs


@MDL(ModelDesc, "I")
def get_desc(desc: ModelDesc, model_id: int) -> None:
    """``(desc, model id) -> ret``; 145003 for an unknown id."""
    desc.model = loaded(model_id)


def _describe(desc: ModelDesc, source: Path | bytes) -> None:
    """Fill a description without loading the model."""
    try:
        desc.model = models.load(source, None, faults=Faults())
    except ModelError as error:
        raise RefusedError(codes.GE_EXEC_MODEL_PATH_INVALID, str(error)) from error


def _port(io: str, handle: int, index: int) -> Port:
    ports = known(ModelDesc, handle).ports(io)
    if index >= len(ports):
        raise RefusedError(codes.INVALID_PARAM, f"there is no {io} {index}")
    return ports[index]


def _dims(port: Port, shape: tuple[int, ...] | None) -> dict[str, Any]:
    """Return what pyACL makes of an ``aclmdlIODims``, -1 for a dimension that varies."""
    dims = port.shape if shape is None else shape
    return {"name": port.name, "dimCount": len(dims), "dims": list(dims)}


@MDL("kk", refused=lambda *_: ({}, CODE))
def get_cur_output_dims(handle: int, index: int) -> dict[str, Any]:
    """``(desc, index) -> ({"name", "dimCount", "dims"}, ret)`` of the last execution.

    Of a model with gears it is the one that was set last, the largest before.
    """
    port, model = _port("output", handle, index), known(ModelDesc, handle).model
    shapes = None if model is None else model.current_shapes
    return _dims(port, port.largest if shapes is None else shapes[index])


def _index(io: str, desc: ModelDesc, name: str) -> int:
    for index, port in enumerate(desc.ports(io)):
        if port.name == name:
            return index
    raise RefusedError(codes.INVALID_PARAM, f"the model has no {io} {name!r}")


@MDL(ModelDesc, "s", refused=None)
def get_tensor_real_name(desc: ModelDesc, name: str) -> str | None:
    """``(desc, name) -> name`` of an input or output in the model; None where it has no such one.

    CANN shortens names of 128 characters and more, which this turns back. The emulator shortens none.
    """
    ports = (*desc.ports("input"), *desc.ports("output"))
    return name if name in {port.name for port in ports} else None


MDL.table(
    {
        "create_desc": ((), 0, lambda: process().handles.add(ModelDesc())),
        "destroy_desc": ("k", CODE, destroy(ModelDesc)),
        "get_desc_from_file": ((ModelDesc, "s"), CODE, lambda desc, path: _describe(desc, model_file(path))),
        "get_desc_from_mem": (
            (ModelDesc, "kk"),
            CODE,
            lambda desc, *place: _describe(desc, model_bytes(*place)),
        ),
    }
)


def _of_ports(io: str) -> None:
    """Make the calls that there are of inputs and of outputs alike.

    The size of an output is 0 where a dimension varies. For it an application passes either a buffer that it
    knows to be large enough, or an empty one (``acl.create_data_buffer(0, 0)``), which the execution then
    points to memory of the right size, to be freed with ``acl.rt.free``.
    """

    def row(refused: Any, what: Callable[[Port], Any]) -> Any:
        return "kk", refused, lambda handle, index: what(_port(io, handle, index))

    MDL.table(
        {
            f"get_num_{io}s": (ModelDesc, 0, lambda desc: len(desc.ports(io))),
            f"get_{io}_size_by_index": row(0, lambda port: port.nbytes),
            f"get_{io}_data_type": row(_UNDEFINED, lambda port: acl_number(port.dtype)),
            f"get_{io}_format": row(_UNDEFINED, lambda _: FORMAT_ND),  # the emulator knows no other
            f"get_{io}_name_by_index": row("", lambda port: port.name),
            f"get_{io}_index_by_name": ((ModelDesc, "s"), (0, CODE), lambda desc, n: _index(io, desc, n)),
        }
    )
    for name in ("get_input_dims", "get_input_dims_v2") if io == "input" else ("get_output_dims",):
        # of an output those of the largest gear
        MDL.table(
            {name: row(lambda *_: ({}, CODE), lambda p: _dims(p, p.largest if io == "output" else None))}
        )


_of_ports("input")
_of_ports("output")
