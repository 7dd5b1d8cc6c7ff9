"""Which rules a CANN release has: four sets are known, each read in the source of its tag."""

from __future__ import annotations

import re
from typing import Final

from pytest_npudump.errors import ConfigError

PROFILES: Final = ("8.5.0", "9.0.0", "9.1.0-beta.3", "9.1.0")
DEFAULT_VERSION: Final = "9.1.0"

_VERSION = re.compile(r"v?(?P<major>\d{1,4})\.(?P<minor>\d{1,4})(?:\.(?P<rest>[0-9A-Za-z.+-]*))?", re.ASCII)
_BETA_1 = re.compile(r"0[.-](alpha|beta\.?1(?!\d))")
_BETA_3 = re.compile(r"0[.-]beta\.?3(?!\d)")
_OLDEST_KNOWN = (8, 5)


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
    if release == (9, 1) and _BETA_3.match(rest):
        return "9.1.0-beta.3"
    return "9.1.0"


def profile_warnings(version: str) -> tuple[str, ...]:
    """Say where the rules for ``version`` are those of a neighbour."""
    match = _VERSION.fullmatch(version.strip())
    if match is not None and (int(match["major"]), int(match["minor"])) < _OLDEST_KNOWN:
        what = f"the dump rules of CANN {version} are not published"
        return (f"{what}; checked against 8.5.0, the oldest release whose source is",)
    return ()
