"""``acl.init``, ``acl.finalize`` and what belongs to no sub-module."""

from __future__ import annotations

import logging
import struct

from pytest_npudump.emulator.acl._calls import ACL, CODE, MDL
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.codes import RefusedError
from pytest_npudump.emulator.process import lifecycle
from pytest_npudump.emulator.process.state import process
from pytest_npudump.onnxmodels.tensor_types import from_acl_type

SOC_NAME = "Emulator"
"""What ``acl.get_soc_name`` says: no name of a chip, so that no golden claims to come from one."""
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
_log = logging.getLogger("acl")


@ACL("i", refused=lambda *_: ({}, CODE))
def get_cann_version(_: int) -> None:
    """``(package) -> ({}, 100003)``: there is no CANN."""
    raise RefusedError(codes.INVALID_FILE, "the emulator runs without CANN")


@ACL("is", refused=None)
def app_log(level: int, text: str) -> None:
    """``(level, text) -> None``: goes to the logger ``acl``; levels 0 debug to 3 error."""
    _log.log(_LEVELS[level] if 0 <= level < len(_LEVELS) else logging.ERROR, "%s", text)


@ACL("i", refused=0)
def data_type_size(number: int) -> int:
    """``(aclDataType) -> bytes`` of an element; 0 where it has no size in whole bytes."""
    dtype = from_acl_type(number)
    return 0 if dtype is None or dtype.name == "undefined" else dtype.bits // 8


@ACL("I", refused=0.0)
def float16_to_float(bits: int) -> float:
    """``(bits) -> value``."""
    value: float = struct.unpack("<e", struct.pack("<H", bits & 0xFFFF))[0]
    return value


@ACL("d", refused=0)
def float_to_float16(value: float) -> int:
    """``(value) -> bits``, infinity where it is too large."""
    try:
        packed = struct.pack("<e", value)
    except OverflowError:
        packed = struct.pack("<e", float("inf") if value > 0 else float("-inf"))
    bits: int = struct.unpack("<H", packed)[0]
    return bits


ACL.table(
    {
        "init": ("|s", CODE, lifecycle.init),
        "finalize": ((), CODE, lifecycle.finalize),
        "finalize_reference": ((), (0, CODE), lifecycle.finalize_reference),
        "get_version": ((), (0, 0, 0, CODE), lambda: (1, 15, 0)),
        "get_soc_name": ((), "", lambda: SOC_NAME),
        # of the calling thread's last failure, once
        "get_recent_err_msg": ((), None, lambda: process().take_message()),
    }
)
MDL.table(
    {
        "init_dump": ((), CODE, lifecycle.init_dump),
        "set_dump": ("|s", CODE, lifecycle.set_dump),
        "finalize_dump": ((), CODE, lifecycle.finalize_dump),
    }
)
