"""Which CANN is installed here."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.config.acl.profile import DEFAULT_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ROOTS = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_HOME")
_LIMIT = 64 * 1024
_LINE = re.compile(
    r"^[ \t]*(?:version|version_dir|(?:runtime|toolkit|compiler)_running_version)[ \t]*="
    r"[ \t]*\[?(?P<value>[^\]\s]+)",
    re.MULTILINE | re.IGNORECASE,
)
# A part's own number has four places or more (7.3.0.1.231); what is wanted is the release: 8.5.0, 8.1.RC1.
_RELEASE = re.compile(
    r"(?<![\d.])\d{1,2}\.\d{1,2}(?:\.(?:\d{1,2}|RC\d+))?(?![\d.]*\d)(?:[-.][A-Za-z][\w.-]*)?"
)


def installed_cann(environ: Mapping[str, str] | None = None) -> str | None:
    """Return the version of the CANN toolkit that the environment points at, or None where there is none.

    Looks below ``ASCEND_HOME_PATH``, ``ASCEND_TOOLKIT_HOME`` and ``ASCEND_HOME`` for
    ``ascend_toolkit_install.info``, ``version.cfg`` and the ``version.info`` of the runtime; the first file
    that tells a release counts.
    """
    environment = os.environ if environ is None else environ
    for variable in _ROOTS:
        if environment.get(variable):
            for file in _candidates(Path(environment[variable])):
                version = _version_in(file)
                if version:
                    return version
    return None


def rules_version(environ: Mapping[str, str] | None = None) -> str:
    """Return the CANN release whose rules count here: the installed one, else 9.1.0."""
    return installed_cann(environ) or DEFAULT_VERSION


def _candidates(root: Path) -> Iterator[Path]:
    yield from (root / "ascend_toolkit_install.info", root / "version.cfg", root / "version.info")
    try:
        yield from sorted(root.glob("*-linux/ascend_toolkit_install.info"))
        yield from sorted(root.glob("*-linux/version.info"))
    except OSError:
        pass
    yield from (
        root / name / "version.info" for name in ("share/info/runtime", "runtime", "toolkit", "compiler")
    )


def _version_in(file: Path) -> str | None:
    try:
        with file.open("rb") as stream:
            text = stream.read(_LIMIT).decode("utf-8", "replace")
    except OSError:
        return None
    for line in _LINE.finditer(text):
        release = _RELEASE.search(line["value"].rpartition(":")[2])
        if release:
            return release.group()
    return None
