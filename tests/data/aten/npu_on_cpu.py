"""A device for the stand-in of torch_npu: the CPU of the real torch, whose calls are dumped.

The kernels that the variable ``FAULTS`` names are 0.1 % off on the device, and right outside of it.
"""

from __future__ import annotations

import os
import struct
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch_npu import _device

from pytest_npudump.dump.files.container import dump_data_class
from pytest_npudump.runtime.aten import KeptCalls, is_view, results_of
from pytest_npudump.runtime.graphs import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator

npu_calls = KeptCalls.__init__
KeptCalls.__init__ = lambda calls, _, *known: npu_calls(calls, "cpu", *known)  # type: ignore[method-assign]
_NUMBERS = {torch.float32: (1, "DT_FLOAT"), torch.float16: (2, "DT_FLOAT16"), torch.int64: (7, "DT_INT64")}
_HEADER = (
    "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,"
    "Nan Count,Negative Inf Count,Positive Inf Count\n"
)
_NAMES = {"mm": "Mm", "native_layer_norm": "LayerNorm", "mul_": "InplaceMul", "add_": "InplaceAdd"}
FAULTS = os.environ.get("FAULTS", "").split()
_state = {"wrong": False}
_library = torch.library.Library("aten", "IMPL")


def _off(result: torch.Tensor) -> torch.Tensor:
    return result * 1.001 if _state["wrong"] else result


def _relu(x: torch.Tensor) -> torch.Tensor:
    return _off(torch.clamp_min(x, 0))


def _mm(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return _off((x[:, :, None] * y).sum(1))


def _mul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.copy_(_off(torch.mul(x, y)))


_KERNELS = {"relu": _relu, "mm": _mm, "mul_.Tensor": _mul}
for fault in FAULTS:
    _library.impl(fault, _KERNELS[fault], "CPU")


class Dumped(TorchDispatchMode):
    """Writes what each call of an operator gives, while a dump is on."""

    def __torch_dispatch__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        returned = function(*args, **kwargs)
        if _device.state["config"] and not is_view(function) and name_of(function) not in ("empty", "detach"):
            _write(name_of(function), results_of(function, args, kwargs, returned))
        return returned


@contextmanager
def npu() -> Iterator[None]:
    """Run what is inside on the device."""
    _device.initialise()
    _state["wrong"] = _device.state["config"] is not None
    try:
        with Dumped():
            yield
    finally:
        _state["wrong"] = False


def _write(name: str, results: list[torch.Tensor]) -> None:
    api = "aclnn" + _NAMES.get(name, name.title().replace("_", ""))
    state = _device.state
    state["counter"] += 1
    state["time"] = max(state["time"] + 1, time.time_ns() // 1000)
    folder = Path(state["config"]["dump_path"]) / "20261121051811" / "0"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{api}_{state['counter']}_L2.{api}.65535.65535.{state['time']}"
    if state["config"]["dump_data"] == "tensor":
        path.write_bytes(_container(api, results))
    else:
        rows = "".join(_row(slot, tensor) for slot, tensor in enumerate(results))
        path.with_name(f"{path.name}.csv").write_text(_HEADER + rows, encoding="utf-8")


def _row(slot: int, tensor: torch.Tensor) -> str:
    dtype, values = _NUMBERS[tensor.dtype][1], tensor.double()
    shape = "x".join(map(str, tensor.shape))
    stats = f"{values.max():g},{values.min():g},{values.mean():g}"
    return f"Output,{slot},{tensor.nbytes},{dtype},ND,{shape},{stats},{tensor.numel()},0,0,0\n"


def _container(name: str, results: list[torch.Tensor]) -> bytes:
    message = dump_data_class()(version="2.0", dump_time=_device.state["time"], op_name=name)
    data = b""
    for tensor in results:
        output = message.output.add(
            data_type=_NUMBERS[tensor.dtype][0], format=2, size=tensor.nbytes, address=4096
        )
        output.shape.dim.extend(tensor.shape)
        data += tensor.contiguous().numpy().tobytes()
    header = message.SerializeToString()
    return struct.pack("<Q", len(header)) + header + data
