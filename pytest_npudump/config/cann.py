"""Facts of the installed CANN, the chip and the environment that decide the effect of an acl.json.

Four sets of rules are known, each read in the source of its tag. CANN's checker looks at no chip.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pytest_npudump.errors import ConfigError
from pytest_npudump.storage.regular_file import open_regular

PROFILES: Final = ("8.5.0", "9.0.0", "9.1.0-beta.3", "9.1.0")
DEFAULT_VERSION: Final = "9.1.0"
STATISTICS = ("Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf", "L2norm")
"""All names of ``dump_stats``, in the order of CANN's bits."""
DATA_DUMPS: Final = frozenset({"OPERATOR", "OP_OVERFLOW"})
"""The dump types that a collecting variable stops: of operators, the watcher's included, and of overflows."""
COLLECT_VARIABLES: Final = ("NPU_COLLECT_PATH", "NPU_COLLECT_PATH_EXE")
"""Variables of GE (``dump_manager.cc``), which then refuses dumps of data (E10056); set_dump returns 0."""

_A2 = re.compile(r"ascend910b", re.IGNORECASE)
_VERSION = re.compile(r"v?(?P<major>\d{1,4})\.(?P<minor>\d{1,4})(?:\.(?P<rest>[0-9A-Za-z.+-]*))?", re.ASCII)
_BETA_1 = re.compile(r"0[.-](alpha|beta\.?1(?!\d))")
_BETA_3 = re.compile(r"0[.-]beta\.?3(?!\d)")
_OLDEST_KNOWN = (8, 5)
ROOTS = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_HOME")
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


def profile_for(version: str) -> str:
    """Return the rule set of a CANN release, one of :data:`PROFILES`.

    ``8.5.x`` and older take the 8.5.0 rules (no older source is published), 9.0.x and 9.1.0-beta.1 those
    of 9.0.0, 9.1.0-beta.3 its own, everything later those of 9.1.0 (``dump_config_converter.cpp`` is
    unchanged from tag v9.1.0 to v9.2.0-beta.1 and master).

    Raises:
        ConfigError: ``version`` is not a version.
    """
    match = _VERSION.fullmatch(version.strip())
    if match is None:
        raise ConfigError(
            f"CANN version {version!r} is not understood: expected a release such as {', '.join(PROFILES)}"
        )
    release = (int(match["major"]), int(match["minor"]))
    rest = (match["rest"] or "").lower().replace("_", "-")
    if release < (9, 0):
        return "8.5.0"
    if release == (9, 0) or (release == (9, 1) and _BETA_1.match(rest)):
        return "9.0.0"
    return "9.1.0-beta.3" if release == (9, 1) and _BETA_3.match(rest) else "9.1.0"


def profile_warnings(version: str) -> tuple[str, ...]:
    """Report where the rules for ``version`` are those of a neighbour."""
    match = _VERSION.fullmatch(version.strip())
    if match is not None and (int(match["major"]), int(match["minor"])) < _OLDEST_KNOWN:
        what = f"the dump rules of CANN {version} are not published"
        return (f"{what}; checked against 8.5.0, the oldest release whose source is",)
    return ()


def installed_cann(environ: Mapping[str, str] | None = None) -> str | None:
    """Return the version of the CANN toolkit that the environment points at, or None where there is none.

    Looks below ``ASCEND_HOME_PATH``, ``ASCEND_TOOLKIT_HOME`` and ``ASCEND_HOME`` for
    ``ascend_toolkit_install.info``, ``version.cfg`` and the ``version.info`` of the runtime; the first file
    that tells a release counts.
    """
    environment = os.environ if environ is None else environ
    for root in (Path(environment[variable]) for variable in ROOTS if environment.get(variable)):
        files = [root / name for name in ("ascend_toolkit_install.info", "version.cfg", "version.info")]
        with suppress(OSError):
            files += sorted(root.glob("*-linux/ascend_toolkit_install.info"))
            files += sorted(root.glob("*-linux/version.info"))
        parts = ("share/info/runtime", "runtime", "toolkit", "compiler")
        files += [root / name / "version.info" for name in parts]
        for line in (line for file in files for line in _LINE.finditer(head(file))):
            if release := _RELEASE.search(line["value"].rpartition(":")[2]):
                return release.group()
    return None


def driver_version(read: Callable[[str], str]) -> tuple[str, str]:
    """Return the file with the NPU driver's version, and that version; "" for none.

    Args:
        read: the text of the file at a path, "" where there is none. ``/etc/ascend_install.info`` says where
            the driver lies; it is in ``/usr/local/Ascend`` where that says nothing.
    """
    stated = _DRIVER_PLACE.search(read("/etc/ascend_install.info"))
    file = f"{stated['path'].rstrip('/') if stated else '/usr/local/Ascend'}/driver/version.info"
    told = {found["key"]: found["value"] for found in _DRIVER_VERSION.finditer(read(file))}
    return file, told.get("package_version") or told.get("Version", "")


def installed_driver() -> str | None:
    """Return the version of the NPU driver, or None where it is unknown."""
    return driver_version(lambda path: head(Path(path)))[1] or None


def rules_version(environ: Mapping[str, str] | None = None) -> str:
    """Return the CANN release whose rules count here: the installed one, else 9.1.0."""
    return installed_cann(environ) or DEFAULT_VERSION


def head(file: Path) -> str:
    """Return the first 64 KiB of a regular file; "" where it cannot be read."""
    try:
        with open_regular(file) as stream:
            return stream.read(_LIMIT).decode("utf-8", "replace")
    except OSError:
        return ""


def default_statistics(soc: str) -> tuple[str, ...]:
    """Names for ``dump_stats`` where a test names none: all on a chip that computes l2norm.

    The key is documented for Atlas A2 only; without it CANN computes all but l2norm.

    Args:
        soc: the name that ``acl.get_soc_name()`` gives (``Ascend910B3``), or ``""`` where it is not known.

    Returns:
        The names; none where the key is to be left out.
    """
    return STATISTICS if _A2.match(soc) else ()


def soc_warnings(dump: Mapping[str, Any], soc: str) -> tuple[str, ...]:
    """Name settings of ``dump`` that do not work on a chip.

    Args:
        dump: the ``dump`` object of an acl.json that adump accepts.
        soc: the name that ``acl.get_soc_name()`` gives (``Ascend910B3``), or ``""`` where it is not known.
    """
    notes = list(_unsupported(dump, soc))
    if dump.get("dump_scene") == "aic_err_detail_dump":
        notes.append(
            "dump_scene: aic_err_detail_dump needs a chip and a driver that can do it, else aclmdlSetDump "
            "returns 500000; set it before acl.rt.set_device"
        )
    return tuple(notes)


def soc_notes(dump: Mapping[str, Any], soc: str) -> tuple[str, ...]:
    """Name settings of ``dump`` that a chip ignores silently; none that it refuses.

    Args:
        dump: the same.
        soc: the same; nothing is said where it is not known.
    """
    return tuple(_unsupported(dump, soc)) if soc else ()


def _unsupported(dump: Mapping[str, Any], soc: str) -> Iterator[str]:
    if "dump_stats" in dump and not _A2.match(soc):
        where = f"this is {soc}" if soc else "the chip is not known here"
        yield f"dump_stats: documented for Atlas A2 (Ascend910B) only, and {where}"


def collecting(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables of ``environ`` because of which GE dumps no model and no single operator."""
    return tuple(name for name in COLLECT_VARIABLES if environ.get(name))


def collecting_words(environ: Mapping[str, str]) -> str:
    """Report that GE refuses the dump, and the way out; "" if no variable makes it."""
    names = " and ".join(collecting(environ))
    if not names:
        return ""
    return (
        f"{names}: with it in the environment CANN's graph engine dumps no model and no overflow (E10056), "
        f"and aclmdlSetDump returns 0 all the same; unset {names}"
    )
