"""The functions of the same names that say nothing, whatever ACL answers."""

import torch_npu


def init_dump() -> None:
    torch_npu._C._npu_setOption({"mdldumpswitch": "enable"})


def set_dump(cfg_file: str) -> None:
    torch_npu._C._npu_setOption({"mdldumpconfigpath": cfg_file})


def finalize_dump() -> None:
    torch_npu._C._npu_setOption({"mdldumpswitch": "disable"})
