"""Words for people, translated where another language than English is spoken.

Nothing is translated unless :func:`speaking` says so: data, and whatever a program reads, stay English.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_npudump.errors import Said, said
from pytest_npudump.language import ENGLISH, chosen

_CATALOGUE: ContextVar[Mapping[str, str] | None] = ContextVar("catalogue", default=None)


@contextmanager
def speaking(language: str) -> Iterator[None]:
    """Make the block's texts in a language, one of :data:`LANGUAGES`."""
    before = _CATALOGUE.set(None if (language := chosen(language)) == ENGLISH else catalogue(language))
    try:
        yield
    finally:
        _CATALOGUE.reset(before)


@lru_cache(maxsize=1)
def catalogue(language: str) -> Mapping[str, str]:
    """Return the translations of a language by their English, and by what :class:`Said` carries of it.

    The file is read as it is, so that no compiled one can be outdated.
    """
    from ast import literal_eval  # noqa: PLC0415 - only for another language

    file = Path(__file__).parent / "catalogues" / f"{language}.po"
    strings = re.findall(r'^([a-z_]+)(?:\[0\])? (".*"(?:\n".*")*)$', file.read_text("utf-8"), re.MULTILINE)
    formats = re.compile(r"\{(\w+)[:!][^{}]*\}")
    words: dict[str, str] = {}
    carried: dict[str, str] = {}
    english: list[str] = []
    for keyword, quoted in strings:
        text = literal_eval(f"({quoted})")
        if keyword != "msgstr":
            english = [text] if keyword == "msgid" else [*english, text]
        elif english[0]:
            words[english[0]] = text
            carried |= {formats.sub(r"{\1}", form): formats.sub(r"{\1}", text) for form in english}
    return MappingProxyType(carried | words)


class _Message(Said):
    """A message that carries its template once it is filled, and itself where nothing is to be filled."""

    __slots__ = ()

    def format(self, *_: object, **values: object) -> str:
        """Return the message, filled, in English that can be spoken in another language."""
        return said(str.__str__(self), **values)


def _message(text: str) -> str:
    message = _Message(text)
    message.template, message.values = text, {}
    return message


_CARRIED: Mapping[str, str] = MappingProxyType({})
"""Stands for the words of texts that are kept in English and spoken later."""


@contextmanager
def carrying() -> Iterator[None]:
    """Make the block's texts in English with their templates, to be kept and translated later."""
    before = _CATALOGUE.set(_CARRIED)
    try:
        yield
    finally:
        _CATALOGUE.reset(before)


def is_english() -> bool:
    """Return whether texts are made in English now."""
    return not _CATALOGUE.get()


def gettext(message: str) -> str:
    """Return a message in the language that is spoken; its placeholders are filled afterwards."""
    words = _CATALOGUE.get()
    if words is _CARRIED:
        return _message(message)
    return message if words is None else words.get(message, message)


def ngettext(one: str, many: str, count: int) -> str:
    """Return the form of a message that fits a number; Chinese has one for all of them."""
    words = _CATALOGUE.get()
    if words is not None and one in words:
        return words[one]
    text = one if count == 1 else many
    return _message(text) if words is _CARRIED else text


def counted(count: int, one: str, many: str, **values: object) -> str:
    """Return the form of a message that fits a number, with that as ``count``, and other values."""
    return ngettext(one, many, count).format(count=count, **values)


def spoken(text: str) -> str:
    """Return a text in the language that is spoken, where it carries its template; else as it is."""
    words = _CATALOGUE.get()
    if not words or not isinstance(text, Said):
        return text
    template, parts = text.parts()
    told = {name: spoken(part) for name, part in parts.items()}
    if template in words:
        return words[template].format(**told)
    from string import Formatter  # noqa: PLC0415 - only for another language

    shown = ""
    for literal, name, _, _ in Formatter().parse(template):  # joins texts, of which some are translated
        shown += literal.replace("; ", "；").replace(": ", "：") if shown[-1:] > "\u2fff" else literal
        shown += "" if name is None else told[name]
    return shown


MESSAGES = "messages"
"""Key of an object of JSON with the templates and values of its texts."""


def carried(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object of JSON with plain texts, and their templates and values under one key."""
    messages: dict[str, tuple[str, dict[str, str]]] = {}

    def plain(text: str) -> str:
        if not isinstance(text, Said):
            return text
        template, parts = text.parts()
        words = str.__str__(text)
        messages[words] = (template, {name: plain(part) for name, part in parts.items()})
        return words

    content: dict[str, Any] = _changed({**data}, plain)
    return content | ({MESSAGES: [[*message] for message in messages.values()]} if messages else {})


def restored(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return data that was :func:`carried`, its texts with their templates and values again."""
    content = {name: value for name, value in data.items() if name != MESSAGES}
    known: dict[str, str] = {}
    if MESSAGES not in data:
        return content
    from string import Formatter  # noqa: PLC0415 - only for messages

    with suppress(LookupError, TypeError, ValueError, AttributeError):  # a file may come from elsewhere
        for template, parts in data[MESSAGES]:
            if all(not (form or conversion) for _, _, form, conversion in Formatter().parse(template)):
                text = said(template, **{name: known.get(part, part) for name, part in parts.items()})
                known[text] = text
    texts = {
        text: one for text, one in known.items() if " " in text
    }  # a word may be data, as a folder's name
    return dict(_changed(content, lambda text: texts.get(text, text))) if texts else content


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    """Return data as JSON has it, with its texts changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {name: _changed(one, change) for name, one in value.items()}
    return type(value)([_changed(one, change) for one in value]) if type(value) in {list, tuple} else value
