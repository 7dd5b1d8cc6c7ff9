"""As in the client, the queueing functions replace those of utils."""

from torch_npu import _device
from torch_npu.npu import graphs, utils
from torch_npu.npu.graphs import NPUGraph, graph, is_current_stream_capturing
from torch_npu.npu.npu_config import finalize_dump, init_dump, set_dump

__all__ = [
    "NPUGraph",
    "current_device",
    "device_count",
    "finalize_dump",
    "get_device_name",
    "graph",
    "graphs",
    "init_dump",
    "is_available",
    "is_current_stream_capturing",
    "is_initialized",
    "set_device",
    "set_dump",
    "synchronize",
    "utils",
]


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return bool(_device.state["initialised"])


def current_device() -> int:
    _device.initialise()
    return int(_device.state["device"])


def device_count() -> int:
    return 8


def get_device_name(device: int | None = None) -> str:
    # As in the client: it asks for the current device where none is given, and initialises the NPU for that.
    _ = current_device() if device is None else device
    return "Ascend910B3"


def set_device(device: int) -> None:
    _device.initialise()
    _device.use(device)
    _device.ask("aclrtSetDevice", device)


def synchronize(device: int | None = None) -> None:
    _device.initialise()
    _device.used.add(current_device() if device is None else device)
    _device.ask("aclrtSynchronizeDevice", *([] if device is None else [device]))
