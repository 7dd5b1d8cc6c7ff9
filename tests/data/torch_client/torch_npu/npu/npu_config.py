"""The functions of the same names that say nothing, whatever ACL answers."""

from torch_npu import _device


def init_dump() -> None:
    _device.calls.append(("option", "mdldumpswitch", "enable"))


def set_dump(cfg_file: str) -> None:
    _device.calls.append(("option", "mdldumpconfigpath", cfg_file))


def finalize_dump() -> None:
    _device.calls.append(("option", "mdldumpswitch", "disable"))
