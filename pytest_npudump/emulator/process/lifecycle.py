"""Initialisation and the dump's life cycle, with ACL's order of checks and its codes.

Sources: ``aclrt_impl/acl.cpp`` and ``aclrt_impl/toolchain/dump.cpp`` of hicann/runtime, ``dump_manager.cc``
of hicann/ge.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pytest_npudump.config import adump, ge
from pytest_npudump.config.acl_keys import remote_path
from pytest_npudump.config.json_file import StrictJsonError, parse, read_config_file
from pytest_npudump.emulator.dumps.dump_settings import DumpSettings, settings, statistics_mask
from pytest_npudump.emulator.dumps.exceptions import ExceptionDump
from pytest_npudump.emulator.dumps.writer import data_directory
from pytest_npudump.emulator.machine import codes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.config.rule_table import AdumpVerdict
    from pytest_npudump.emulator.process.state import Process


def init(process: Process, path: str | None) -> int:
    """``aclInit``: 0, or 100002, 100003, 100006, 100000, 100009, 500000."""
    life = process.lifecycle
    if life.references:
        life.references += 1
        return process.explain(codes.REPEAT_INITIALIZE, "acl.init: ACL is initialised already")
    file = read_config_file(path) if path else None
    if file is not None and file.code:
        return process.explain(file.code, f"acl.init: {file.reason}")
    text = file.text if file is not None else b""
    code = _first_content(process, text) or _apply_init_file(process, text)
    if code:
        return code
    life.first_content, life.references, life.finalized = text, 1, False
    return codes.SUCCESS


def _first_content(process: Process, text: bytes) -> int:
    first = process.lifecycle.first_content
    if first is None or first == text:
        return codes.SUCCESS
    problem = "acl.init: this process was initialised with another configuration before, which is final"
    return process.explain(codes.INVALID_PARAM, problem)


def _apply_init_file(process: Process, text: bytes) -> int:
    if not text:
        return codes.SUCCESS
    try:
        root = parse(text)
    except StrictJsonError as error:
        return process.explain(codes.PARSE_FILE, f"acl.init: the configuration is not JSON: {error}")
    # A tuple, no set: an array or an object cannot be looked up in one.
    if isinstance(root, dict) and root.get("err_msg_mode", "0") not in ("0", "1"):
        return process.explain(codes.INVALID_PARAM, 'acl.init: err_msg_mode has to be "0" or "1"')
    return _apply(process, text, "acl.init")


def finalize(process: Process) -> int:
    """``aclFinalize``: 0, or 100037 the second time. The dump's state stays as it is."""
    life = process.lifecycle
    if life.finalized:
        return process.explain(codes.REPEAT_FINALIZE, "acl.finalize: ACL is finalised already")
    life.references, life.finalized = 0, True
    return codes.SUCCESS


def finalize_reference(process: Process) -> tuple[int, int]:
    """``aclFinalizeReference``: the remaining count, and 0 or 100037."""
    life = process.lifecycle
    if not life.references:
        return 0, process.explain(codes.REPEAT_FINALIZE, "acl.finalize_reference: nothing to finalise")
    if life.references > 1:
        life.references -= 1
        return life.references, codes.SUCCESS
    return 0, finalize(process)


def init_dump(process: Process) -> int:
    """``aclmdlInitDump``: 0, 100001 before ``acl.init``, or 100002 if it is open."""
    if not process.lifecycle.references:
        return process.explain(codes.UNINITIALIZE, "acl.mdl.init_dump: call acl.init first")
    if process.lifecycle.dump_flag:
        return process.explain(codes.REPEAT_INITIALIZE, "acl.mdl.init_dump: a dump is open already")
    process.lifecycle.dump_flag = True
    return codes.SUCCESS


def _not_running(process: Process, call: str) -> int:
    if not process.lifecycle.references:
        return process.explain(codes.UNINITIALIZE, f"{call}: call acl.init first")
    if not process.lifecycle.dump_flag:
        return process.explain(codes.DUMP_NOT_RUN, f"{call}: call acl.mdl.init_dump first")
    return codes.SUCCESS


def set_dump(process: Process, path: str | None) -> int:
    """``aclmdlSetDump``: 0, 100001, 100045, 100000, 100003, 100006, 100009 or 500000."""
    call = "acl.mdl.set_dump"
    code = _not_running(process, call)
    if code:
        return code
    if path is None:
        return process.explain(codes.INVALID_PARAM, f"{call}: no path of a configuration")
    file = read_config_file(path)
    if file.code:
        return process.explain(file.code, f"{call}: {file.reason}")
    return _apply(process, file.text, call) if file.text else codes.SUCCESS


def finalize_dump(process: Process) -> int:
    """``aclmdlFinalizeDump``: 0, 100001 or 100045. Switches every kind of dump off, but a detail dump."""
    code = _not_running(process, "acl.mdl.finalize_dump")
    if code:
        return code
    process.lifecycle.dump_flag = False
    exception = process.dumping.exception
    process.dumping.exception = exception if exception is not None and exception.permanent else None
    _switch_off(process)
    return codes.SUCCESS


def _switch_off(process: Process) -> None:
    process.dumping.settings = None
    for model in process.models.values():
        if model.plan is not None:
            model.plan.active = False


def _apply(process: Process, text: bytes, call: str) -> int:
    verdict = adump.validate(text)
    if not verdict.accepted or verdict.code:
        message = f"{verdict.reason_code}: {call}: {verdict.message}"
        return process.explain(verdict.code or codes.INVALID_DUMP_CONFIG, message)
    if not verdict.need_dump:
        return codes.SUCCESS
    if verdict.dump_type == "OPERATOR":
        return _dump_data(process, verdict.dump, call)
    if verdict.dump_type == "OP_OVERFLOW":
        return _dump_overflow(process, verdict.dump, call)
    return _dump_exceptions(process, verdict, call)


def _dump_exceptions(process: Process, verdict: AdumpVerdict, call: str) -> int:
    if process.dumping.exception is not None:
        return process.explain(codes.SUCCESS, f"{call}: an exception dump is on already and stays as it is")
    process.dumping.exception = ExceptionDump(verdict.dump_type, verdict.dump_path)
    return codes.SUCCESS


def _dump_overflow(process: Process, dump: Mapping[str, Any], call: str) -> int:
    if code := _leaves_the_host(process, dump, call):
        return code
    if _refused_by_ge(process, dump, call, "no overflow"):
        return codes.SUCCESS
    root = data_directory(dump["dump_path"], time.time())
    _switch_on(process, DumpSettings(root, "all", 0, (), all_models=True, overflow=True))
    return codes.SUCCESS


def _leaves_the_host(process: Process, dump: Mapping[str, Any], call: str) -> int:
    if remote_path(dump["dump_path"].encode()) is None:
        return codes.SUCCESS
    message = f"{call}: the emulator cannot send a dump to another host ({dump['dump_path']})"
    return process.explain(codes.INTERNAL_ERROR, message)


def _refused_by_ge(process: Process, dump: Mapping[str, Any], call: str, lost: str = "nothing") -> bool:
    """Whether GE dumps nothing of this; its answer is ignored by ACL, and explained here."""
    second = ge.validate_dump(dict(dump))
    if not second.accepted:
        why = f"GE refuses: {second.message}"
    elif process.collecting:
        lost, why = "nothing", f"GE refuses (E10056) while {process.collecting} is set"
    else:
        return False
    process.explain(codes.SUCCESS, f"{call} succeeds, and yet {lost} is dumped, as {why}")
    return True


def _dump_data(process: Process, dump: Mapping[str, Any], call: str) -> int:
    if code := _leaves_the_host(process, dump, call):
        return code
    dumping = process.dumping
    dumping.statistics |= statistics_mask(dump)
    if _refused_by_ge(process, dump, call):
        return codes.SUCCESS
    if dump.get("dump_level") == "kernel":
        _switch_off(process)
        return process.explain(codes.SUCCESS, f"{call}: dump_level kernel dumps no operator of a model")
    root = data_directory(dump["dump_path"], time.time())
    _switch_on(process, settings(dump, root, dumping.statistics))
    return codes.SUCCESS


def _switch_on(process: Process, new: DumpSettings) -> None:
    """Dump the models that are loaded from now on, and no other, as CANN's documents say.

    GE may re-arm models that were loaded under an earlier dump; a test must not lean on that, since what it
    dumps would be what the earlier configuration asked for.
    """
    process.dumping.settings = new
    # Nobody asks for executions whose dump is deleted by now.
    process.dumped[:] = [execution for execution in process.dumped if execution.wanted()]
