"""``acl.init``, ``acl.finalize`` and what belongs to no sub-module."""

from __future__ import annotations

import logging
import struct

from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.parse_tuple import parse
from pytest_npudump.emulator.process import lifecycle
from pytest_npudump.emulator.process.state import process
from pytest_npudump.onnxmodels.tensor_types import from_acl_type

SOC_NAME = "Emulator"
"""What ``acl.get_soc_name`` says: no name of a chip, so that no golden claims to come from one."""
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
_log = logging.getLogger("acl")


def init(*args: object) -> int:
    """``([path]) -> ret``."""
    parsed = parse("acl.init", "|s", args)
    with process().lock:
        return lifecycle.init(process(), parsed[0] if parsed else None)


def finalize(*_: object) -> int:
    """``() -> ret``."""
    with process().lock:
        return lifecycle.finalize(process())


def finalize_reference(*_: object) -> tuple[int, int]:
    """``() -> (count, ret)``."""
    with process().lock:
        return lifecycle.finalize_reference(process())


def get_version(*_: object) -> tuple[int, int, int, int]:
    """``() -> (major, minor, patch, ret)`` of the ACL interface."""
    return 1, 15, 0, codes.SUCCESS


def get_soc_name(*_: object) -> str:
    """``() -> name``."""
    return SOC_NAME


def get_cann_version(*args: object) -> tuple[dict[str, object], int]:
    """``(package) -> ({}, 100003)``: there is no CANN."""
    parse("acl.get_cann_version", "i", args)
    code = process().explain(codes.INVALID_FILE, "acl.get_cann_version: the emulator runs without CANN")
    return {}, code


def get_recent_err_msg(*_: object) -> str | None:
    """``() -> text`` of the calling thread's last failure, once; None if there is none."""
    return process().take_message()


def app_log(*args: object) -> None:
    """``(level, text) -> None``: goes to the logger ``acl``; levels 0 debug to 3 error."""
    level, text = parse("acl.app_log", "is", args)
    _log.log(_LEVELS[level] if 0 <= level < len(_LEVELS) else logging.ERROR, "%s", text)


def data_type_size(*args: object) -> int:
    """``(aclDataType) -> bytes`` of an element; 0 where it has no size in whole bytes."""
    dtype = from_acl_type(*parse("acl.data_type_size", "i", args))
    return 0 if dtype is None or dtype.name == "undefined" else dtype.bits // 8


def float16_to_float(*args: object) -> float:
    """``(bits) -> value``."""
    (bits,) = parse("acl.float16_to_float", "I", args)
    value: float = struct.unpack("<e", struct.pack("<H", bits & 0xFFFF))[0]
    return value


def float_to_float16(*args: object) -> int:
    """``(value) -> bits``, infinity where it is too large."""
    (value,) = parse("acl.float_to_float16", "f", args)
    try:
        packed = struct.pack("<e", value)
    except OverflowError:
        packed = struct.pack("<e", float("inf") if value > 0 else float("-inf"))
    bits: int = struct.unpack("<H", packed)[0]
    return bits
