"""The dump's functions that initialise the device and raise."""

import os

import torch_npu
from torch_npu import _device


def is_support_inf_nan() -> bool:
    return bool(_device.state["inf_nan"])


def init_dump() -> None:
    _device.initialise()
    torch_npu._C._npu_initDump()


def set_dump(cfg_file: str) -> None:
    _device.initialise()
    torch_npu._C._npu_setDump(os.path.realpath(cfg_file))


def finalize_dump() -> None:
    _device.initialise()
    torch_npu._C._npu_finalizeDump()
