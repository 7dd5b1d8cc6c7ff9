"""What MindSpore's parser takes, and yet matches nothing or is not read."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from pytest_npudump.config.checker_verdict import few, shown
from pytest_npudump.config.mindspore.common import KEYS as COMMON_KEYS
from pytest_npudump.config.mindspore.e2e import KEYS as E2E_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECTIONS = {"common_dump_settings": COMMON_KEYS, "e2e_dump_settings": E2E_KEYS}
_BOUNDS = 2


def mindspore_warnings(root: dict[str, Any]) -> tuple[str, ...]:
    """Return the warnings for a configuration that the parser takes."""
    iterations = _iterations(root["common_dump_settings"]["iteration"])
    return (*few(_unknown(root), "unknown keys"), *few(iterations, "common_dump_settings.iteration"))


def _unknown(root: dict[str, Any]) -> Iterator[str]:
    for key in root:
        if key not in _SECTIONS:
            yield f"{key}: unknown section, ignored"
    for section, keys in _SECTIONS.items():
        held = root.get(section)
        for key in held if isinstance(held, dict) else ():
            if key not in keys:
                close = get_close_matches(key.strip().lower(), keys, n=1, cutoff=0.8)
                hint = f", {close[0]} was meant?" if close else ""
                yield f"{section}.{key}: unknown key, ignored{hint}"


def _iterations(text: str) -> Iterator[str]:
    if text == "all":
        return
    for part in text.split("|"):
        bounds = part.split("-")
        matches = all(bounds) and len(bounds) <= _BOUNDS and int(bounds[0][:20]) <= int(bounds[-1][:20])
        if part and not matches:
            yield f"common_dump_settings.iteration: {shown(part)} matches no iteration"
