"""Conversion of a request to acl.json, the file that ``acl.mdl.set_dump`` reads."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.config import ge
from pytest_npudump.config.acl_keys import MAX_BYTES, PATH_CHARACTERS
from pytest_npudump.config.adump import validate
from pytest_npudump.config.cann import default_statistics, profile_for
from pytest_npudump.errors import ConfigError
from pytest_npudump.request import DumpRequest, RunRequest
from pytest_npudump.scene import SCENES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_npudump.config.rule_table import CheckerVerdict


def asks_for_statistics(run: RunRequest) -> bool:
    """Return whether the device is to compute statistics, and the test does not name any."""
    wanted = SCENES[run.test.scene].statistics and (run.dump_data or run.test.dump_data or "stats") == "stats"
    return wanted and not run.test.dump_stats


def dump_section(run: RunRequest, soc: str = "") -> dict[str, Any]:
    """Return the value of the key ``dump``.

    Args:
        run: what is dumped.
        soc: name of the chip, which decides what it computes where the test does not say; "" where unknown.
    """
    request, dump_path = run.test, str(run.dump_path)
    scene = SCENES[request.scene]
    keys = scene.acl_json(request)
    if not scene.statistics:
        return {"dump_path": dump_path, **keys}
    data = run.dump_data or run.test.dump_data or "stats"
    section: dict[str, Any] = {"dump_path": dump_path, "dump_mode": request.dump_mode, "dump_data": data}
    for key in ("dump_level", "dump_step", "dump_stats", "dump_kernel_data"):
        if (value := getattr(request, key)) and not (key == "dump_stats" and data != "stats"):
            section[key] = list(value) if isinstance(value, tuple) else value
    if asks_for_statistics(run) and (statistics := default_statistics(soc)):
        section["dump_stats"] = list(statistics)
    return {**section, **(keys or {"dump_list": [_dump_list_item(request, run.layers)]})}


def _dump_list_item(request: DumpRequest, layers: Sequence[str] | None) -> dict[str, Any]:
    item: dict[str, Any] = {}
    for key in ("model_name", "optype_blacklist", "opname_blacklist", "opname_range"):
        if value := getattr(request, key):
            item[key] = value if isinstance(value, str) else [dict(entry) for entry in value]
    wanted = layers if layers is not None else (request.layers if request.exact_layers else ())
    if wanted:
        item["layer"] = list(wanted)
    return item


def check_request(request: DumpRequest, *, version: str, cwd: Path, runtime: str = "") -> None:
    """Check the request's acl.json by the rules of ``aclmdlSetDump``, and of GE behind it.

    Args:
        request: what the test asks for.
        version: CANN version whose rules apply.
        cwd: an existing directory, standing in for the dump path.
        runtime: what runs the test, as in ``--npudump-runtime``; "" where that is not known yet.

    Raises:
        ConfigError: CANN would refuse it, aloud or without a word; the message has the reason.
    """
    section = dump_section(RunRequest(request, Path()))
    verdict = _judged(section, version, cwd)
    if not verdict.accepted:
        raise ConfigError(f"CANN {version} refuses this dump: {verdict.message}")
    second = ge.validate_dump(section)
    if not second.accepted:
        raise ConfigError(
            f"CANN's graph engine refuses this dump without a word, and dumps nothing: {second.message}"
        )
    if runtime == "torch_npu" and request.scene == "overflow":
        refuse_operator_overflow(version)


def request_warnings(request: DumpRequest, *, version: str, cwd: Path) -> tuple[str, ...]:
    """Return warnings of settings that CANN accepts and ignores, in whole or in part.

    Args:
        request: what the test asks for.
        version: CANN version whose rules apply.
        cwd: an existing directory, standing in for the dump path.
    """
    return _judged(dump_section(RunRequest(request, Path())), version, cwd).warnings


def _judged(section: Mapping[str, Any], version: str, cwd: Path) -> CheckerVerdict:
    return validate(json.dumps({"dump": section}).encode(), version=version, cwd=cwd)


def refuse_operator_overflow(version: str) -> None:
    """Refuse an overflow dump of aclnn operators where CANN has none.

    CANN 8.5 and 9.0 hand adump ``dumpStatus = off`` for ``dump_debug`` (``dump_config_converter.cpp`` of
    v9.0.0, line 720), so that only models of GE are looked at.

    Raises:
        ConfigError: this is such a release.
    """
    if profile_for(version) in {"8.5.0", "9.0.0"}:
        raise ConfigError(
            f"scene='overflow': in CANN {version} the overflow dump works for models only, and torch_npu "
            f"runs aclnn operators: no overflow would ever be seen; take CANN 9.1.0 or later, or scene='op', "
            f"whose statistics count NaN and Inf"
        )


def write_acl_json(path: Path, section: Mapping[str, Any]) -> None:
    """Write acl.json, readable for its owner only.

    Raises:
        ConfigError: the dump path is one that CANN would accept and then not use.
    """
    dump_path = str(section["dump_path"])
    # GE, which dumps models, knows fewer characters than the call that accepts the path, and then dumps
    # nothing without a word (second validation in dump_callback.cc).
    if not PATH_CHARACTERS.fullmatch(os.fsencode(dump_path)):
        raise ConfigError(
            f"dump path {dump_path!r}: CANN's graph engine dumps nothing into a path with spaces or "
            f"characters other than letters, digits and -=[];\\,./!@#$%^&*()_+{{}}:? "
            f"(choose another with --npudump-output, or --basetemp)"
        )
    if len(dump_path) > MAX_BYTES:
        raise ConfigError(f"dump path {dump_path!r} is longer than the {MAX_BYTES} bytes CANN allows")
    path.write_text(json.dumps({"dump": dict(section)}, indent=2) + "\n", encoding="utf-8")
    path.chmod(0o600)
