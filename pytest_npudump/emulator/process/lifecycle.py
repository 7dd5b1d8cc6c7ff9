"""Initialisation and the dump's life cycle, with ACL's order of checks and its codes.

Sources: ``aclrt_impl/acl.cpp`` and ``aclrt_impl/toolchain/dump.cpp`` of hicann/runtime, ``dump_manager.cc``
of hicann/ge.
"""

from __future__ import annotations

import time
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_npudump.config import adump, ge
from pytest_npudump.config.acl_keys import remote_path
from pytest_npudump.config.json_file import StrictJsonError, parse, read_config_file
from pytest_npudump.emulator.dumps.dump_settings import DumpSettings, settings, statistics_mask
from pytest_npudump.emulator.dumps.exceptions import DETAIL, ExceptionDump
from pytest_npudump.emulator.dumps.writer import data_directory
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.codes import RefusedError
from pytest_npudump.emulator.process.state import process

if TYPE_CHECKING:
    from collections.abc import Callable


R = TypeVar("R")


def _locked(call: Callable[..., R]) -> Callable[..., R]:
    """Let one thread at a time change what is dumped."""

    @wraps(call)
    def locked(*args: Any) -> R:
        with process().lock:
            return call(*args)

    return locked


@_locked
def init(path: str | None = None) -> int:
    """``([path]) -> ret``: 0, or 100002, 100003, 100006, 100000, 100009, 500000."""
    life = process().lifecycle
    if life.references:
        life.references += 1
        raise RefusedError(codes.REPEAT_INITIALIZE, "ACL is initialised already")
    text = _content(path) if path else b""
    if life.first_content not in {None, text}:
        problem = "this process was initialised with another configuration before, which is final"
        raise RefusedError(codes.INVALID_PARAM, problem)
    code = _apply_init_file(text) if text else codes.SUCCESS
    if not code:
        life.first_content, life.references, life.finalized = text, 1, False
    return code


def _content(path: str) -> bytes:
    """Return the content of a configuration."""
    file = read_config_file(path)
    if file.code:
        raise RefusedError(file.code, str(file.reason))
    return file.text


def _apply_init_file(text: bytes) -> int:
    try:
        root = parse(text)
    except StrictJsonError as error:
        raise RefusedError(codes.PARSE_FILE, f"the configuration is not JSON: {error}") from error
    # A tuple, no set: an array or an object cannot be looked up in one.
    if isinstance(root, dict) and root.get("err_msg_mode", "0") not in ("0", "1"):
        raise RefusedError(codes.INVALID_PARAM, 'err_msg_mode has to be "0" or "1"')
    return _apply(text, "acl.init")


@_locked
def finalize() -> None:
    """``() -> ret``: 0, or 100037 the second time. The dump's state stays as it is."""
    life = process().lifecycle
    if life.finalized:
        raise RefusedError(codes.REPEAT_FINALIZE, "ACL is finalised already")
    life.references, life.finalized = 0, True


@_locked
def finalize_reference() -> int:
    """``() -> (remaining count, ret)``: 0 or 100037."""
    life = process().lifecycle
    if not life.references:
        raise RefusedError(codes.REPEAT_FINALIZE, "nothing to finalise")
    if life.references > 1:
        life.references -= 1
    else:
        finalize()
    return life.references


@_locked
def init_dump() -> None:
    """``() -> ret``: 0, 100001 before ``acl.init``, or 100002 if it is open."""
    life = process().lifecycle
    if not life.references:
        raise RefusedError(codes.UNINITIALIZE, "call acl.init first")
    if life.dump_flag:
        raise RefusedError(codes.REPEAT_INITIALIZE, "a dump is open already")
    life.dump_flag = True


def _check_running() -> None:
    life = process().lifecycle
    if not life.references:
        raise RefusedError(codes.UNINITIALIZE, "call acl.init first")
    if not life.dump_flag:
        raise RefusedError(codes.DUMP_NOT_RUN, "call acl.mdl.init_dump first")


@_locked
def set_dump(path: str | None = None) -> int:
    """``([path]) -> ret``: 0, 100001, 100045, 100000, 100003, 100006, 100009 or 500000.

    Without a path 100000, as for NULL.
    """
    _check_running()
    if path is None:
        raise RefusedError(codes.INVALID_PARAM, "no path of a configuration")
    text = _content(path)
    return _apply(text, "acl.mdl.set_dump") if text else codes.SUCCESS


@_locked
def finalize_dump() -> None:
    """``() -> ret``: 0, 100001 or 100045. Switches every kind of dump off, but a detail dump."""
    _check_running()
    state = process()
    state.lifecycle.dump_flag = False
    exception = state.dumping.exception
    if exception is not None and exception.kind != DETAIL:
        state.dumping.exception = None
    _switch_off()


def _switch_off() -> None:
    state = process()
    state.dumping.settings = None
    for model in state.models.values():
        if model.plan is not None:
            model.plan.active = False


def _apply(text: bytes, call: str) -> int:
    """Switch on what a configuration asks for; it succeeds, with a message, where that dumps nothing."""
    state, verdict = process(), adump.validate(text)
    if not verdict.accepted or verdict.code:
        message = f"{verdict.reason_code}: {call}: {verdict.message}"
        return state.explain(verdict.code or codes.INVALID_DUMP_CONFIG, message)
    if not verdict.need_dump:
        return codes.SUCCESS
    dumping, dump = state.dumping, verdict.dump
    overflow = verdict.dump_type == "OP_OVERFLOW"
    if verdict.dump_type != "OPERATOR" and not overflow:
        if dumping.exception is not None:
            return state.explain(codes.SUCCESS, f"{call}: an exception dump is on already and stays as it is")
        dumping.exception = ExceptionDump(verdict.dump_type, verdict.dump_path)
        return codes.SUCCESS
    if remote_path(dump["dump_path"].encode()) is not None:
        message = f"the emulator cannot send a dump to another host ({dump['dump_path']})"
        raise RefusedError(codes.INTERNAL_ERROR, message)
    if not overflow:
        dumping.statistics |= statistics_mask(dump)
    second = ge.validate_dump(dict(dump))  # whose answer ACL ignores
    if not second.accepted:
        lost = "no overflow" if overflow else "nothing"
        why = f"{lost} is dumped, as GE refuses: {second.message}"
        return state.explain(codes.SUCCESS, f"{call} succeeds, and yet {why}")
    if state.collecting:
        why = f"nothing is dumped, as GE refuses (E10056) while {state.collecting} is set"
        return state.explain(codes.SUCCESS, f"{call} succeeds, and yet {why}")
    root = data_directory(dump["dump_path"], time.time())
    if overflow:
        new = DumpSettings(root, "all", 0, (), all_models=True, overflow=True)
    elif dump.get("dump_level") == "kernel":
        _switch_off()
        return state.explain(codes.SUCCESS, f"{call}: dump_level kernel dumps no operator of a model")
    else:
        new = settings(dump, root, dumping.statistics)
    # Models that are loaded from now on are dumped, and no other, as CANN's documents say. GE may re-arm
    # those that were loaded under an earlier dump; a test must not lean on that, since what it dumps would be
    # what the earlier configuration asked for.
    dumping.settings = new
    # Nobody asks for executions whose dump is deleted by now.
    state.dumped[:] = [execution for execution in state.dumped if execution.wanted()]
    return codes.SUCCESS
