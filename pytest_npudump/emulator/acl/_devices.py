"""Devices and contexts: ``acl.rt.set_device``, ``acl.rt.create_context`` and their kin."""

from __future__ import annotations

from pytest_npudump.emulator.acl._refusals import no_context, refuse, wait_for
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.memory import DEVICE_BYTES
from pytest_npudump.emulator.machine.parse_tuple import parse
from pytest_npudump.emulator.machine.streams import FOR_EVER, Context, Stream
from pytest_npudump.emulator.process.state import DEVICES, process

_RUN_MODE_HOST = 1
_INF_NAN_MODE = 1


def set_device(*args: object) -> int:
    """``(device) -> ret``: makes the device's default context the calling thread's."""
    (device,) = parse("acl.rt.set_device", "i", args)
    if not 0 <= device < DEVICES:
        message = f"acl.rt.set_device: device {device} of {DEVICES} emulated devices (0 to {DEVICES - 1})"
        return refuse(codes.RT_INVALID_DEVICEID, message)
    state = process()
    with state.lock:
        state.device_uses[device] += 1
        if device not in state.default_contexts:
            state.default_contexts[device] = state.handles.add(Context(device))
    state.context_handle = state.default_contexts[device]
    return codes.SUCCESS


def reset_device(*args: object) -> int:
    """``(device) -> ret``: after as many calls as of ``set_device`` the device's memory is freed."""
    (device,) = parse("acl.rt.reset_device", "i", args)
    return _reset(device, process().device_uses[device] - 1)


def reset_device_force(*args: object) -> int:
    """``(device) -> ret``: frees the device's memory whoever else uses it."""
    (device,) = parse("acl.rt.reset_device_force", "i", args)
    return _reset(device, 0)


def _reset(device: int, uses: int) -> int:
    if not 0 <= device < DEVICES:
        return refuse(codes.RT_INVALID_DEVICEID, f"acl.rt.reset_device: there is no device {device}")
    state = process()
    with state.lock:
        state.device_uses[device] = max(uses, 0)
        if uses <= 0:
            state.memory.release_device(device)
            handle = state.default_contexts.pop(device, 0)
            state.handles.remove(handle, Context)
    return codes.SUCCESS


def get_device(*_: object) -> tuple[int, int]:
    """``() -> (device, ret)``."""
    context = process().context
    if context is None:
        return 0, no_context("acl.rt.get_device")
    return context.device, codes.SUCCESS


def get_device_count(*_: object) -> tuple[int, int]:
    """``() -> (devices, ret)``."""
    return DEVICES, codes.SUCCESS


def get_run_mode(*_: object) -> tuple[int, int]:
    """``() -> (mode, ret)``: always 1, ``ACL_HOST``."""
    return _RUN_MODE_HOST, codes.SUCCESS


def create_context(*args: object) -> tuple[int, int]:
    """``(device) -> (context, ret)``: the new context is the calling thread's."""
    (device,) = parse("acl.rt.create_context", "i", args)
    if not 0 <= device < DEVICES:
        return 0, refuse(codes.RT_INVALID_DEVICEID, f"acl.rt.create_context: there is no device {device}")
    state = process()
    state.context_handle = state.handles.add(Context(device))
    return state.context_handle, codes.SUCCESS


def destroy_context(*args: object) -> int:
    """``(context) -> ret``: 107002 for what is no context, and for one that ``set_device`` has created.

    Source: ``ContextDestroy`` of hicann/runtime's ``api_impl.cc``.
    """
    call = "acl.rt.destroy_context"
    (handle,) = parse(call, "k", args)
    if not handle:
        return refuse(codes.INVALID_PARAM, f"{call}: the context is NULL")
    state = process()
    default = handle in state.default_contexts.values()
    if default or state.handles.remove(handle, Context) is None:
        what = "the default context of a device" if default else "no context"
        return refuse(codes.RT_CONTEXT_NULL, f"{call}: {handle:#x} is {what}")
    return codes.SUCCESS


def set_context(*args: object) -> int:
    """``(context) -> ret``."""
    (handle,) = parse("acl.rt.set_context", "k", args)
    state = process()
    if state.handles.get(handle, Context) is None:
        return refuse(codes.INVALID_PARAM, f"acl.rt.set_context: {handle:#x} is no context")
    state.context_handle = handle
    return codes.SUCCESS


def get_context(*_: object) -> tuple[int, int]:
    """``() -> (context, ret)``."""
    state = process()
    if state.context is None:
        return 0, no_context("acl.rt.get_context")
    return state.context_handle, codes.SUCCESS


def synchronize_device(*_: object) -> int:
    """``() -> ret``, when all streams of the context's device are done; the code of what failed on them."""
    call, state = "acl.rt.synchronize_device", process()
    if state.context is None:
        return no_context(call)
    contexts, streams = state.handles.all(Context), state.handles.all(Stream)
    every = [*(context.stream for context in contexts), *streams]
    here = [stream for stream in every if stream.context.device == state.context.device]
    return next(filter(None, [wait_for(call, stream, FOR_EVER) for stream in here]), codes.SUCCESS)


def get_mem_info(*args: object) -> tuple[int, int, int]:
    """``(attribute) -> (free, total, ret)`` in bytes."""
    parse("acl.rt.get_mem_info", "i", args)
    state = process()
    if state.context is None:
        return 0, 0, no_context("acl.rt.get_mem_info")
    return DEVICE_BYTES - state.memory.used(state.context.device), DEVICE_BYTES, codes.SUCCESS


def get_device_sat_mode(*_: object) -> tuple[int, int]:
    """``() -> (mode, ret)``: always 1, INF/NAN: that is how a CPU computes."""
    return _INF_NAN_MODE, codes.SUCCESS


def set_device_sat_mode(*args: object) -> int:
    """``(mode) -> ret``: only the INF/NAN mode there is."""
    (mode,) = parse("acl.rt.set_device_sat_mode", "i", args)
    if mode != _INF_NAN_MODE:
        message = "acl.rt.set_device_sat_mode: the emulator computes in INF/NAN mode only"
        return refuse(codes.RT_FEATURE_NOT_SUPPORT, message)
    return codes.SUCCESS
