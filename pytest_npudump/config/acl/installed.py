"""Which CANN, and which driver of the NPU, are installed here."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.config.acl.profile import DEFAULT_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_ROOTS = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_HOME")
_LIMIT = 64 * 1024
_LINE = re.compile(
    r"^[ \t]*(?:version|version_dir|(?:runtime|toolkit|compiler)_running_version)[ \t]*="
    r"[ \t]*\[?(?P<value>[^\]\s]+)",
    re.MULTILINE | re.IGNORECASE,
)
_DRIVER_PLACE = re.compile(
    r"^\s*Driver_Install_Path_Param\s*=\s*(?P<path>/\S*)", re.MULTILINE | re.IGNORECASE
)
_DRIVER_VERSION = re.compile(
    r"^[ \t]*(?P<key>package_version|Version)[ \t]*=[ \t]*(?P<value>\S+)", re.MULTILINE
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


def driver_version(read: Callable[[str], str]) -> tuple[str, str]:
    """Return the file that tells the NPU driver's version, and that version, "" where it tells none.

    Args:
        read: the text of the file at a path, "" where there is none. ``/etc/ascend_install.info`` says where
            the driver lies; it is in ``/usr/local/Ascend`` where that says nothing.
    """
    stated = _DRIVER_PLACE.search(read("/etc/ascend_install.info"))
    file = f"{stated['path'].rstrip('/') if stated else '/usr/local/Ascend'}/driver/version.info"
    told = {found["key"]: found["value"] for found in _DRIVER_VERSION.finditer(read(file))}
    return file, told.get("package_version") or told.get("Version", "")


def installed_driver() -> str | None:
    """Return the version of the NPU driver, or None where there is none that tells it."""
    return driver_version(lambda path: _head(Path(path)))[1] or None


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


def _head(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return stream.read(_LIMIT).decode("utf-8", "replace")
    except OSError:
        return ""


def _version_in(file: Path) -> str | None:
    for line in _LINE.finditer(_head(file)):
        release = _RELEASE.search(line["value"].rpartition(":")[2])
        if release:
            return release.group()
    return None
