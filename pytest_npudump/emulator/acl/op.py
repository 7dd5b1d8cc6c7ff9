"""``acl.op``: single operators."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from pytest_npudump.emulator.acl._attributes import (
    create_attr,
    destroy_attr,
    set_attr_bool,
    set_attr_data_type,
    set_attr_float,
    set_attr_int,
    set_attr_list_bool,
    set_attr_list_float,
    set_attr_list_int,
    set_attr_list_string,
    set_attr_string,
)
from pytest_npudump.emulator.acl._operators import OperatorHandle, create, create_cast, run
from pytest_npudump.emulator.acl._refusals import RefusedError
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.parse_tuple import integers, parse
from pytest_npudump.emulator.process.state import process
from pytest_npudump.emulator.unsupported import missing

__all__ = [
    "cast",
    "create_attr",
    "create_handle",
    "create_handle_for_cast",
    "destroy_attr",
    "destroy_handle",
    "execute",
    "execute_v2",
    "execute_with_handle",
    "set_attr_bool",
    "set_attr_data_type",
    "set_attr_float",
    "set_attr_int",
    "set_attr_list_bool",
    "set_attr_list_float",
    "set_attr_list_int",
    "set_attr_list_string",
    "set_attr_string",
    "set_max_op_queue_num",
    "set_model_dir",
]


def set_model_dir(*args: object) -> int:
    """``(directory) -> ret``: 100014 for no directory, 100002 the second time.

    The emulator needs no compiled operators: it runs every type it knows, whatever is in there.
    """
    (directory,) = parse("acl.op.set_model_dir", "s", args)
    state = process()
    if state.operator_directory:
        return state.explain(codes.REPEAT_INITIALIZE, "acl.op.set_model_dir: set already")
    if not Path(directory).is_dir():
        return state.explain(codes.OP_LOAD_FAILED, f"acl.op.set_model_dir: {directory} is no directory")
    state.operator_directory = directory
    return codes.SUCCESS


def set_max_op_queue_num(*args: object) -> int:
    """``(number) -> ret``: how many operators may wait; here none ever waits."""
    (number,) = parse("acl.op.set_max_op_queue_num", "K", args)
    return codes.SUCCESS if number else codes.INVALID_PARAM


def execute(*args: object) -> int:
    """``(type, in descs, in buffers, out descs, out buffers, attr, stream) -> ret``."""
    return _execute("acl.op.execute", args)


def execute_v2(*args: object) -> int:
    """``(type, in descs, in buffers, out descs, out buffers, attr, stream) -> ret``."""
    return _execute("acl.op.execute_v2", args)


def _execute(call: str, args: tuple[object, ...]) -> int:
    op_type, in_descs, in_buffers, out_descs, out_buffers, attr, stream = parse(call, "sllllkk", args)
    try:
        handle = create(call, op_type, in_descs, out_descs, attr)
        return run(call, handle, integers(call, in_buffers), integers(call, out_buffers), stream)
    except RefusedError as error:
        return error.told(call)


def create_handle(*args: object) -> tuple[int, int]:
    """``(type, in descs, out descs, attr) -> (handle, ret)``."""
    call = "acl.op.create_handle"
    op_type, in_descs, out_descs, attr = parse(call, "sllk", args)
    try:
        handle = create(call, op_type, in_descs, out_descs, attr)
    except RefusedError as error:
        return 0, error.told(call)
    return process().handles.add(handle), codes.SUCCESS


def destroy_handle(*args: object) -> None:
    """``(handle) -> None``."""
    (handle,) = parse("acl.op.destroy_handle", "k", args)
    process().handles.remove(handle, OperatorHandle)


def execute_with_handle(*args: object) -> int:
    """``(handle, in buffers, out buffers, stream) -> ret``."""
    call = "acl.op.execute_with_handle"
    number, in_buffers, out_buffers, stream = parse(call, "kllk", args)
    handle = process().handles.get(number, OperatorHandle)
    if handle is None:
        return process().explain(codes.INVALID_PARAM, f"{call}: {number:#x} is no operator handle")
    try:
        return run(call, handle, integers(call, in_buffers), integers(call, out_buffers), stream)
    except RefusedError as error:
        return error.told(call)


def create_handle_for_cast(*args: object) -> tuple[int, int]:
    """``(source desc, target desc, truncate) -> (handle, ret)``."""
    call = "acl.op.create_handle_for_cast"
    source, target, _ = parse(call, "kkB", args)
    try:
        handle = create_cast(source, target)
    except RefusedError as error:
        return 0, error.told(call)
    return process().handles.add(handle), codes.SUCCESS


def cast(*args: object) -> int:
    """``(source desc, source, target desc, target, truncate, stream) -> ret``."""
    call = "acl.op.cast"
    source, data, target, result, _, stream = parse(call, "kkkkBk", args)
    try:
        return run(call, create_cast(source, target), [data], [result], stream)
    except RefusedError as error:
        return error.told(call)


def __getattr__(name: str) -> NoReturn:
    missing("acl.op", name)
