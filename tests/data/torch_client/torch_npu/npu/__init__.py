"""As in the client, the queueing functions replace those of utils."""

from torch_npu import _device
from torch_npu.npu import utils
from torch_npu.npu.npu_config import finalize_dump, init_dump, set_dump

__all__ = [
    "finalize_dump",
    "get_device_name",
    "init_dump",
    "is_available",
    "is_initialized",
    "memory_stats",
    "set_device",
    "set_dump",
    "synchronize",
    "utils",
]


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return bool(_device.state["initialised"])


def get_device_name(device: int | None = None) -> str:
    del device
    return "Ascend910B3"


def set_device(device: int) -> None:
    _device.ask("aclrtSetDevice", device)


def synchronize(device: int | None = None) -> None:
    del device
    _device.initialise()
    _device.ask("aclrtSynchronizeDevice")


def memory_stats(device: int | None = None) -> dict[str, int]:
    del device
    return {"allocation.all.allocated": _device.state["allocated"]} if is_initialized() else {}
