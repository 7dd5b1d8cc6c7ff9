"""Streams, and the refusals that all of ``acl.rt`` shares."""

from __future__ import annotations

from pytest_npudump.emulator import codes
from pytest_npudump.emulator.arguments import parse
from pytest_npudump.emulator.state import DEFAULT_STREAM, Stream, process


def refuse(code: int, message: str) -> int:
    """Leave ``message`` for the application and return ``code``."""
    return process().explain(code, message)


def no_context(call: str) -> int:
    """Return 107002, with what to do about it."""
    return refuse(codes.RT_CONTEXT_NULL, f"{call}: this thread has no context; call acl.rt.set_device first")


def create_stream(*_: object) -> tuple[int, int]:
    """``() -> (stream, ret)``."""
    state = process()
    context = state.context
    if context is None:
        return 0, no_context("acl.rt.create_stream")
    return state.handles.add(Stream(context.device, next(state.stream_ids))), codes.SUCCESS


def destroy_stream(*args: object) -> int:
    """``(stream) -> ret``."""
    (handle,) = parse("acl.rt.destroy_stream", "k", args)
    if process().handles.remove(handle, Stream) is None:
        return refuse(codes.INVALID_PARAM, f"acl.rt.destroy_stream: {handle:#x} is no stream")
    return codes.SUCCESS


def known_stream(call: str, handle: int) -> int:
    """Return 0 for the default stream and for one that was created, else 107000."""
    if handle != DEFAULT_STREAM and process().handles.get(handle, Stream) is None:
        return refuse(codes.RT_PARAM_INVALID, f"{call}: {handle:#x} is no stream")
    return codes.SUCCESS


def synchronize_stream(*args: object) -> int:
    """``(stream) -> ret``: nothing to wait for, calls of the emulator return when their work is done."""
    (handle,) = parse("acl.rt.synchronize_stream", "k", args)
    return known_stream("acl.rt.synchronize_stream", handle)
