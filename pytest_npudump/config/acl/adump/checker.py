"""adump: the checker of acl.json inside ``aclmdlSetDump`` and ``aclInit``.

:func:`validate` accepts and refuses what CANN's own accepts and refuses (``dump_config_converter.cpp`` and
``dump_setting.cpp`` of hicann/runtime, four rule sets by release), and says what CANN leaves unsaid.
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.config.acl import ge
from pytest_npudump.config.acl.adump.legacy_rules import legacy_reasons
from pytest_npudump.config.acl.adump.type_rules import type_reasons
from pytest_npudump.config.acl.adump.value_rules import constraint_reasons, value_reasons
from pytest_npudump.config.acl.adump.without_effect import adump_warnings, unknown_key_warnings
from pytest_npudump.config.acl.dump_keys import OPTIONS, SCENE_TYPES
from pytest_npudump.config.acl.path_checks import OVERRIDING, exception_path
from pytest_npudump.config.acl.profile import DEFAULT_VERSION, profile_for, profile_warnings
from pytest_npudump.config.checker_verdict import (
    MOST_REASONS,
    AdumpVerdict,
    Refusal,
    as_json,
    few,
    shown,
)
from pytest_npudump.config.text.strict_json import StrictJsonError, parse

if TYPE_CHECKING:
    from collections.abc import Mapping

_ACL_SUCCESS = 0
ACL_ERROR_INVALID_DUMP_CONFIG = 100009
ACL_ERROR_INTERNAL_ERROR = 500000

_C_BLANK = " \t\n\v\f\r"
_LEGACY = ("8.5.0", "9.0.0")


def validate(
    text: bytes,
    *,
    version: str = DEFAULT_VERSION,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> AdumpVerdict:
    """Return what adump makes of the content of an acl.json.

    Content only: size, nesting and the like are checked on the file, by
    :mod:`pytest_npudump.config.acl.config_file`.

    Args:
        text: the bytes of the file.
        version: the CANN release whose rules count.
        cwd: what a relative ``dump_path`` starts from; the process's own by default.
        environ: where ``ASCEND_DUMP_PATH`` and ``ASCEND_WORK_PATH`` are looked up; the process's by default.

    Raises:
        ConfigError: ``version`` is not a version.
    """
    profile = profile_for(version)
    try:
        root = parse(text)
    except StrictJsonError as error:
        return _refused((_not_json(error, profile),))
    if not isinstance(root, dict) or "dump" not in root:
        return AdumpVerdict(accepted=True, warnings=adump_warnings(root, profile))
    dump = root["dump"]
    if profile not in _LEGACY and dump == {}:
        return AdumpVerdict(accepted=True, warnings=adump_warnings(root, profile))
    base = Path.cwd() if cwd is None else cwd
    reasons = _reasons(dump, base, profile)
    if reasons or not isinstance(dump, dict):
        return _refused(reasons, dump)
    return _accepted(root, profile, base, os.environ if environ is None else environ, version)


def _not_json(error: StrictJsonError, profile: str) -> Refusal:
    code = "" if profile in _LEGACY else "EP0004"
    remedy = "write plain JSON: no comments, no comma after the last member, no single quotes"
    return Refusal("", f"not JSON: {error}", remedy, code)


def _reasons(dump: object, cwd: Path, profile: str) -> tuple[Refusal, ...]:
    if profile in _LEGACY:
        first = next(legacy_reasons(dump, cwd, profile), None)
        return () if first is None else (first,)
    if not isinstance(dump, dict):
        problem = f"{shown(dump)} must be of the JSON type object"
        return (Refusal("dump", problem, 'write {"dump": {"dump_path": ...}}', "EP0001"),)
    return (
        tuple(islice(type_reasons(dump), MOST_REASONS))
        or tuple(islice(value_reasons(dump), MOST_REASONS))
        or tuple(islice(constraint_reasons(dump, cwd, strict=profile == "9.1.0-beta.3"), MOST_REASONS))
    )


def _refused(reasons: tuple[Refusal, ...], dump: object = None) -> AdumpVerdict:
    held = dump if isinstance(dump, dict) else {}
    return AdumpVerdict(
        accepted=False,
        reasons=reasons,
        warnings=tuple(few(unknown_key_warnings(held), "unknown keys")),
        code=ACL_ERROR_INVALID_DUMP_CONFIG,
        dump=held,
    )


def _accepted(
    root: Mapping[str, Any], profile: str, cwd: Path, environ: Mapping[str, str], version: str
) -> AdumpVerdict:
    dump: Mapping[str, Any] = root["dump"]
    need_dump = bool(
        (isinstance(dump.get("dump_list"), list) and dump["dump_list"])
        or dump.get("dump_op_switch") == "on"
        or dump.get("dump_debug") == "on"
        or dump.get("dump_scene")
    )
    dump_type = _dump_type(dump) if need_dump else ""
    path = _dump_path(dump, profile, cwd, environ) if need_dump else ""
    return AdumpVerdict(
        accepted=True,
        code=_return_code(dump, dump_type, profile),
        warnings=profile_warnings(version)
        + adump_warnings(root, profile)
        + _silent(dump, need_dump=need_dump)
        + (_moved(dump, path, environ, profile) if need_dump else ()),
        need_dump=need_dump,
        dump_type=dump_type,
        dump=dump,
        dump_path=path,
        kernel_data=_kernel_data(dump, dump_type, profile),
    )


def _silent(dump: Mapping[str, Any], *, need_dump: bool) -> tuple[str, ...]:
    """Say where GE, which checks the same text after adump, refuses without a word."""
    if not need_dump:
        return ()
    verdict = ge.validate_dump(dump)
    refusals = tuple(f"no model is dumped, for GE refuses silently: {reason}" for reason in verdict.reasons)
    return refusals + verdict.warnings


def _dump_type(dump: Mapping[str, Any]) -> str:
    if dump.get("dump_scene") in SCENE_TYPES:
        return SCENE_TYPES[dump["dump_scene"]]
    return "OP_OVERFLOW" if dump.get("dump_debug") == "on" else "OPERATOR"


def _return_code(dump: Mapping[str, Any], dump_type: str, profile: str) -> int:
    """What ``aclmdlSetDump`` returns.

    Before 9.1 an unknown statistic passes the checker and fails behind it (``dump_setting.cpp:226-259``).
    """
    if profile in _LEGACY and dump_type == "OPERATOR":
        names = {name.strip(_C_BLANK) for name in dump.get("dump_stats", ())}
        if not names <= set(OPTIONS["dump_stats"]):
            return ACL_ERROR_INTERNAL_ERROR
    return _ACL_SUCCESS


def _dump_path(dump: Mapping[str, Any], profile: str, cwd: Path, environ: Mapping[str, str]) -> str:
    if profile == "8.5.0":
        # Any scene, the watcher too, and the directory is not looked at.
        override = environ.get("ASCEND_WORK_PATH") if dump.get("dump_scene") else None
        return str(dump.get("dump_path", "")) if override is None else override
    if dump.get("dump_scene") in SCENE_TYPES:
        return exception_path(dump, cwd, environ)
    return str(dump.get("dump_path", ""))


def _moved(dump: Mapping[str, Any], path: str, environ: Mapping[str, str], profile: str) -> tuple[str, ...]:
    """Say where a variable sends the dump elsewhere than the configuration does."""
    if path == dump.get("dump_path", ""):
        return ()
    known = OVERRIDING[1:] if profile == "8.5.0" else OVERRIDING
    variable = next(name for name in known if environ.get(name) == path)
    place = as_json(path) if path else "the working directory"
    return (f"dump_path: not used, for {variable} is set: the dump goes to {place}",)


def _kernel_data(dump: Mapping[str, Any], dump_type: str, profile: str) -> tuple[str, ...]:
    """Which kinds are switched on; since 9.1.0 even where no dump is (``dump_manager.cpp:324-330``)."""
    if profile == "8.5.0" or (profile == "9.1.0-beta.3" and not dump_type):
        return ()
    if "dump_kernel_data" in dump:
        return tuple(dump["dump_kernel_data"].split(","))
    return ("all",) if dump_type == "OPERATOR" else ()
