"""One configuration file, judged by whichever checker will read it."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_npudump.config import adump, ge, mindspore, torchair
from pytest_npudump.config.files import read_config_file, read_plain_file
from pytest_npudump.config.profile import DEFAULT_VERSION
from pytest_npudump.config.soc import soc_warnings
from pytest_npudump.config.verdict import AdumpVerdict, Reason, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TARGETS: Final = ("acl", "ge", "torchair", "mindspore")


def check_file(
    path: Path,
    target: str,
    *,
    version: str = DEFAULT_VERSION,
    device: str = "Ascend",
    soc: str = "",
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Verdict:
    """Return what ``target`` makes of a file, its size, nesting and name included.

    Args:
        path: the file.
        target: one of :data:`TARGETS`: ``aclmdlSetDump``, GE's silent second check, TorchAir or MindSpore.
        version: the CANN release, for ``acl``.
        device: ``device_target``, for ``mindspore``.
        soc: the chip, for ``acl``; ``""`` where it is not known.
        cwd: what relative paths start from; the process's own by default.
        environ: the environment that the real checker would see; the process's by default.

    Raises:
        ConfigError: ``version`` is not a version.
    """
    if target in ("acl", "ge"):
        file = read_config_file(path, cwd=cwd)
        if file.reason is not None:
            return AdumpVerdict(accepted=False, code=file.code, reasons=(file.reason,))
        if not file.text:
            return AdumpVerdict(accepted=True, warnings=("the file is empty: nothing is configured",))
        if target == "ge":
            return ge.validate(file.text)
        verdict = adump.validate(file.text, version=version, cwd=cwd, environ=environ)
        limits = soc_warnings(verdict.dump, soc) if verdict.accepted else ()
        return replace(verdict, warnings=verdict.warnings + limits)
    file = read_plain_file(path, cwd=cwd)
    if file.reason is not None:
        return Verdict(accepted=False, reasons=(file.reason,))
    if target == "torchair":
        return torchair.validate(file.text, cwd=cwd)
    # MindSpore resolves links before it looks at the name.
    if not os.path.realpath(path if cwd is None else cwd / path).endswith(".json"):
        reason = Reason(str(path), "the name does not end in .json", "rename the file")
        return Verdict(accepted=False, reasons=(reason,))
    return mindspore.validate(file.text, device=device, environ=environ)
