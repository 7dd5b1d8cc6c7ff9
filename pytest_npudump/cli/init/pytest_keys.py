"""Keys in pytest's configuration: those that are missing are added, and no line that is there is changed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KEYS: Mapping[str, str] = {"required_plugins": "pytest-npudump", "npudump_golden_dir": "golden"}
"""What a repository says: no run without the plugin, which would pass without a comparison; and where its
goldens lie."""
INI_OPTIONS = "[tool.pytest.ini_options]"
"""The section of pyproject.toml in which all values are text; in those since pytest 9 a list is one."""


def values_for(file: Path, section: str) -> Mapping[str, str]:
    """Return the values of :data:`KEYS` as they are written in a section of a file."""
    if file.suffix != ".toml":
        return KEYS
    quoted = {name: f'"{value}"' for name, value in KEYS.items()}
    lists = {} if section == INI_OPTIONS else {"required_plugins": f"[{quoted['required_plugins']}]"}
    return quoted | lists


def is_section(line: str, section: str) -> bool:
    """Whether a line begins a section."""
    return re.match(rf"\s*{re.escape(section)}\s*([#;].*)?$", line) is not None


def with_keys(text: str, section: str, keys: Mapping[str, str] = KEYS) -> tuple[str, tuple[str, ...]]:
    """Return a configuration with the keys that its section lacks, and their lines.

    Args:
        text: the file's; "" for a new one.
        section: the line of the section, which is added where the file has none.
        keys: the values by key, as the file spells them.
    """
    lines = text.splitlines(keepends=True)
    at = next((row for row, line in enumerate(lines) if is_section(line, section)), None)
    own = _section(lines, at)
    missing = {name: value for name, value in keys.items() if not _has(own, name)}
    added = tuple(f"{name} = {value}" for name, value in missing.items())
    if not added:
        return text, ()
    ending = "\r\n" if "\r\n" in text else "\n"
    new = [f"{line}{ending}" for line in added]
    if at is None:
        gap = [] if not text else [ending] if text.endswith("\n") else [ending, ending]
        return "".join([*lines, *gap, section, ending, *new]), added
    if not lines[at].endswith("\n"):
        lines[at] += ending
    return "".join([*lines[: at + 1], *new, *lines[at + 1 :]]), added


def _section(lines: list[str], at: int | None) -> list[str]:
    if at is None:
        return []
    own: list[str] = []
    for line in lines[at + 1 :]:
        if re.match(r"\[[^\]]+\]\s*(#.*)?$", line):
            break
        own.append(line)
    return own


def _has(lines: list[str], name: str) -> bool:
    return any(re.match(rf"\"?{re.escape(name)}\"?\s*[=:]", line) for line in lines)
