"""Words for people, translated where another language than English is spoken.

Nothing is translated unless :func:`speaking` says so: data, and whatever a program reads, stay English.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

AUTO, ENGLISH, CHINESE = "auto", "en", "zh"
LANGUAGES = (AUTO, ENGLISH, CHINESE)
"""What an option for the language takes."""

_CATALOGUE: ContextVar[Mapping[str, str] | None] = ContextVar("catalogue", default=None)


def chosen(language: str, environment: Mapping[str, str] | None = None) -> str:
    """Return ``en`` or ``zh`` for what an option says; ``auto`` is what the locale says.

    Args:
        language: one of :data:`LANGUAGES`.
        environment: with the locale; None for the one of this process.
    """
    if language != AUTO:
        return language
    environment = os.environ if environment is None else environment
    names = (environment.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    return CHINESE if next(filter(None, names), "").lower().startswith("zh") else ENGLISH


@contextmanager
def speaking(language: str) -> Iterator[None]:
    """Have what is made inside be in a language, one of :data:`LANGUAGES`.

    Raises:
        CatalogueError: the file of its words is not what it has to be.
    """
    words = None
    if (language := chosen(language)) != ENGLISH:
        from pytest_npudump.language.sentences import catalogue  # noqa: PLC0415 - only for another language

        words = catalogue(language)
    before = _CATALOGUE.set(words)
    try:
        yield
    finally:
        _CATALOGUE.reset(before)


def is_english() -> bool:
    """Whether what is made now is in English."""
    return _CATALOGUE.get() is None


def spoken_language() -> str:
    """Return the language of what is made now: ``en`` or ``zh``."""
    return ENGLISH if is_english() else CHINESE


def gettext(message: str) -> str:
    """Return a message in the language that is spoken; its placeholders are filled afterwards."""
    words = _CATALOGUE.get()
    return message if words is None else words.get(message, message)


def ngettext(one: str, many: str, count: int) -> str:
    """Return the form of a message that fits a number; Chinese has one for all of them."""
    words = _CATALOGUE.get()
    if words is not None and one in words:
        return words[one]
    return one if count == 1 else many


def mark(message: str) -> str:
    """Return a message as it is, which is translated where it is shown."""
    return message


class Said(str):
    """A text in English, for programs, that can be said in another language to people: see :func:`spoken`."""

    __slots__ = ("message", "values")

    message: str
    values: Mapping[str, object]


def said(message: str, **values: object) -> str:
    """Return a message in English, with its placeholders filled; :func:`spoken` translates it."""
    text = Said(message.format(**values))
    text.message, text.values = message, values
    return text


def spoken(text: str) -> str:
    """Return a text in the language that is spoken, if it was :func:`said` or is known again; else as it is.

    Known again is what errors, notes and reasons say, also where a file or another process had them since.
    """
    if is_english():
        return text
    if isinstance(text, Said):
        told = {name: spoken(one) if isinstance(one, str) else one for name, one in text.values.items()}
        return gettext(text.message).format(**told)
    from pytest_npudump.language.sentences import known_again  # noqa: PLC0415 - only for another language

    return known_again(text, spoken_language()) or text


def reason_of(error: BaseException) -> str:
    """Return what an error says, which can be :func:`spoken`; ``str`` makes plain English of it."""
    return next((text for text in error.args if isinstance(text, str)), "")
