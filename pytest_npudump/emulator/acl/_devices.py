"""Devices and contexts: ``acl.rt.set_device``, ``acl.rt.create_context`` and their kin."""

from __future__ import annotations

from pytest_npudump.emulator.acl._calls import CODE, RT, known
from pytest_npudump.emulator.acl._streams import here, wait_for
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.codes import RefusedError
from pytest_npudump.emulator.machine.memory import DEVICE_BYTES
from pytest_npudump.emulator.machine.streams import Context, Stream
from pytest_npudump.emulator.process.state import DEVICES, process

_RUN_MODE_HOST = 1
_INF_NAN_MODE = 1


def _check(device: int) -> None:
    if not 0 <= device < DEVICES:
        message = f"device {device} of {DEVICES} emulated devices (0 to {DEVICES - 1})"
        raise RefusedError(codes.RT_INVALID_DEVICEID, message)


@RT("i")
def set_device(device: int) -> None:
    """``(device) -> ret``: makes the device's default context the calling thread's."""
    _check(device)
    state = process()
    with state.lock:
        state.device_uses[device] += 1
        if device not in state.default_contexts:
            state.default_contexts[device] = state.handles.add(Context(device))
    state.context_handle = state.default_contexts[device]


def _reset(device: int, uses: int) -> None:
    _check(device)
    state = process()
    with state.lock:
        state.device_uses[device] = max(uses, 0)
        if uses <= 0:
            state.memory.release_device(device)
            handle = state.default_contexts.pop(device, 0)
            state.handles.remove(handle, Context)


@RT("i", refused=(0, CODE))
def create_context(device: int) -> int:
    """``(device) -> (context, ret)``: the new context is the calling thread's."""
    _check(device)
    state = process()
    state.context_handle = state.handles.add(Context(device))
    return state.context_handle


@RT("k")
def destroy_context(handle: int) -> None:
    """``(context) -> ret``: 107002 for what is no context, and for one that ``set_device`` has created.

    Source: ``ContextDestroy`` of hicann/runtime's ``api_impl.cc``.
    """
    if not handle:
        raise RefusedError(codes.INVALID_PARAM, "the context is NULL")
    state = process()
    default = handle in state.default_contexts.values()
    if default or state.handles.remove(handle, Context) is None:
        what = "the default context of a device" if default else "no context"
        raise RefusedError(codes.RT_CONTEXT_NULL, f"{handle:#x} is {what}")


@RT("k")
def set_context(handle: int) -> None:
    """``(context) -> ret``."""
    known(Context, handle)
    process().context_handle = handle


@RT(refused=(0, CODE))
def get_context() -> int:
    """``() -> (context, ret)``."""
    here()
    return process().context_handle


@RT()
def synchronize_device() -> None:
    """``() -> ret``, when all streams of the context's device are done; the code of what failed on them."""
    device, handles = here().device, process().handles
    every = [*(context.stream for context in handles.all(Context)), *handles.all(Stream)]
    failed = []
    for stream in every:
        if stream.context.device == device:
            try:
                wait_for(stream)
            except RefusedError as error:
                failed.append(error)
    if failed:
        raise failed[0]


@RT("i", refused=(0, 0, CODE))
def get_mem_info(_: int) -> tuple[int, int]:
    """``(attribute) -> (free, total, ret)`` in bytes."""
    return DEVICE_BYTES - process().memory.used(here().device), DEVICE_BYTES


@RT("i")
def set_device_sat_mode(mode: int) -> None:
    """``(mode) -> ret``: only the INF/NAN mode there is."""
    if mode != _INF_NAN_MODE:
        raise RefusedError(codes.RT_FEATURE_NOT_SUPPORT, "the emulator computes in INF/NAN mode only")


RT.table(
    {
        # After as many calls as of set_device the device's memory is freed, at once where it is forced.
        "reset_device": ("i", CODE, lambda device: _reset(device, process().device_uses[device] - 1)),
        "reset_device_force": ("i", CODE, lambda device: _reset(device, 0)),
        "get_device": ((), (0, CODE), lambda: here().device),
        "get_device_count": ((), (0, CODE), lambda: DEVICES),
        "get_run_mode": ((), (0, CODE), lambda: _RUN_MODE_HOST),
        "get_device_sat_mode": ((), (0, CODE), lambda: _INF_NAN_MODE),  # that is how a CPU computes
    }
)
