"""The dump's functions that initialise the device and raise."""

import os

from torch_npu import _device


def is_support_inf_nan() -> bool:
    return bool(_device.state["inf_nan"])


def init_dump() -> None:
    _device.initialise()
    _device.ask("aclmdlInitDump")


def set_dump(cfg_file: str) -> None:
    _device.initialise()
    _device.ask("aclmdlSetDump", os.path.realpath(cfg_file))


def finalize_dump() -> None:
    _device.initialise()
    _device.ask("aclmdlFinalizeDump")
