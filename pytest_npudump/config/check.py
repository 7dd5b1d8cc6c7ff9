"""One configuration file, judged by whichever checker will read it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pytest_npudump.config import adump, ge, mindspore, torchair
from pytest_npudump.config.cann import DATA_DUMPS, DEFAULT_VERSION, collecting_words, soc_warnings
from pytest_npudump.config.json_file import read_config_file, read_plain_file
from pytest_npudump.config.rule_table import AdumpVerdict, CheckerVerdict, Refusal


def check_file(
    path: Path,
    target: str,
    *,
    version: str = DEFAULT_VERSION,
    device: str = "Ascend",
    soc: str = "",
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> CheckerVerdict:
    """Return the verdict of ``target`` on a file, its size, nesting and name included.

    Args:
        path: the file.
        target: ``acl`` (``aclmdlSetDump``), ``ge`` (its silent second check), ``torchair`` or ``mindspore``.
        version: the CANN release, for ``acl``.
        device: ``device_target``, for ``mindspore``.
        soc: the chip, for ``acl``; ``""`` where it is not known.
        cwd: what relative paths start from; the process's own by default.
        environ: the environment that the real checker would see; the process's by default.

    Raises:
        ConfigError: ``version`` is not a version.
    """
    plain = target in ("torchair", "mindspore")
    file = read_plain_file(path, cwd=cwd) if plain else read_config_file(path, cwd=cwd)
    if file.reason is not None:
        refused = CheckerVerdict(accepted=False, reasons=(file.reason,))
        return refused if plain else AdumpVerdict(accepted=False, reasons=refused.reasons, code=file.code)
    if target == "torchair":
        return torchair.validate(file.text, cwd=cwd)
    if target == "mindspore":
        return _data_dump_json(path if cwd is None else cwd / path, file.text, device, environ)
    if not file.text:
        return AdumpVerdict(accepted=True, warnings=("the file is empty: nothing is configured",))
    if target == "ge":
        return ge.validate(file.text)
    verdict = adump.validate(file.text, version=version, cwd=cwd, environ=environ)
    limits = soc_warnings(verdict.dump, soc) if verdict.accepted else ()
    collects = collecting_words(os.environ if environ is None else environ)
    silent = (collects,) if collects and verdict.dump_type in DATA_DUMPS else ()
    return replace(verdict, warnings=verdict.warnings + limits + silent)


def _data_dump_json(
    path: Path, text: bytes, device: str, environ: Mapping[str, str] | None
) -> CheckerVerdict:
    # MindSpore resolves links before it looks at the name.
    if not os.path.realpath(path).endswith(".json"):
        reason = Refusal(str(path), "the name does not end in .json", "rename the file")
        return CheckerVerdict(accepted=False, reasons=(reason,))
    return mindspore.validate(text, device=device, environ=environ)
