"""``acl.op``: single operators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from pytest_npudump.emulator.acl import _attributes
from pytest_npudump.emulator.acl._calls import CODE, OP, destroy
from pytest_npudump.emulator.acl._operators import OperatorHandle, create, create_cast, run
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.codes import RefusedError
from pytest_npudump.emulator.process.state import process
from pytest_npudump.emulator.unsupported import missing

if TYPE_CHECKING:
    from collections.abc import Sequence

del _attributes


@OP("s")
def set_model_dir(directory: str) -> None:
    """``(directory) -> ret``: 100014 for no directory, 100002 the second time.

    The emulator needs no compiled operators: it runs every type it knows, whatever is in there.
    """
    state = process()
    if state.operator_directory:
        raise RefusedError(codes.REPEAT_INITIALIZE, "set already")
    if not Path(directory).is_dir():
        raise RefusedError(codes.OP_LOAD_FAILED, f"{directory} is no directory")
    state.operator_directory = directory


@OP("K")
def set_max_op_queue_num(number: int) -> None:
    """``(number) -> ret``: how many operators may wait; here none ever waits."""
    if not number:
        raise RefusedError(codes.INVALID_PARAM, "the number is 0")


def _execute(  # noqa: PLR0917 - pyACL's list
    op_type: str,
    in_descs: Sequence[int],
    in_buffers: Sequence[int],
    out_descs: Sequence[int],
    out_buffers: Sequence[int],
    attr: int,
    stream: int,
) -> None:
    run(create(op_type, in_descs, out_descs, attr), in_buffers, out_buffers, stream)


@OP("kkkkBk")
def cast(source: int, data: int, target: int, result: int, _: int, stream: int) -> None:
    """``(source desc, source, target desc, target, truncate, stream) -> ret``."""
    run(create_cast(source, target), [data], [result], stream)


OP.table(
    {
        # type, descriptions and buffers of inputs, those of outputs, attributes, stream
        "execute": ("svvvvkk", CODE, _execute),
        "execute_v2": ("svvvvkk", CODE, _execute),
        "create_handle": ("svvk", (0, CODE), lambda *of: process().handles.add(create(*of))),
        "create_handle_for_cast": ("kkB", (0, CODE), lambda *of: process().handles.add(create_cast(*of[:2]))),
        "destroy_handle": ("k", None, destroy(OperatorHandle)),
        # handle, buffers of inputs and of outputs, stream
        "execute_with_handle": ((OperatorHandle, "vvk"), CODE, run),
    }
)

globals().update(OP.calls, __all__=[*OP.calls])


def __getattr__(name: str) -> NoReturn:
    missing("acl.op", name)
