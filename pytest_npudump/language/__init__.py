"""Translation of texts for people: English is in the code, a catalogue has the other language.

``translation`` marks and translates what a report says, in the language that is spoken around it, by the
files of ``catalogues/``, and takes the templates of errors, notes and reasons through JSON; ``text`` lays
text out for a terminal, cuts it, and keeps names in it from being taken for commands.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

AUTO, ENGLISH, CHINESE = "auto", "en", "zh"
LANGUAGES = (AUTO, ENGLISH, CHINESE)
"""Values of an option for the language."""


def chosen(language: str, environment: Mapping[str, str] | None = None) -> str:
    """Return ``en`` or ``zh`` for an option's value; ``auto`` means the locale's.

    Args:
        language: one of :data:`LANGUAGES`.
        environment: with the locale; None for the one of this process.
    """
    if language != AUTO:
        return language
    environment = os.environ if environment is None else environment
    names = (environment.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    return CHINESE if next(filter(None, names), "").lower().startswith("zh") else ENGLISH


def plural(one: str, many: str) -> tuple[str, str]:
    """Return two forms of a message as they are, for :func:`.translation.counted` where it is shown."""
    return one, many


def mark(message: str) -> str:
    """Return a message as it is, which is translated where it is shown."""
    return message
