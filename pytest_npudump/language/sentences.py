"""Sentences that errors, notes and reasons say in English, known again."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from string import Formatter
from typing import TYPE_CHECKING, NamedTuple

from pytest_npudump.language.catalogue import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SENTENCE = re.compile(r"[A-Za-z]{2,}[,;:]? (?:\{\w*\} )*[A-Za-z]{2,}|\ba [a-z]{3,}")
"""What makes a text a sentence by its own words, which no name of a layer or of a file is taken for."""

_SUFFIX = ".sentences"
_JOINTS = (("; ", "；"), (": ", "："))
_COMMA = (", ", "，")
_WITHIN = "，位于 "
_PARTS = 12
"""Of more sentences that are joined, none holds the sign by which they are."""
_READINGS = 8
"""Sentences that a text is read as, those first that say most by themselves."""
_WORDS = frozenset({"one_line", "several_lines", "lines_along"})
"""Placeholders of what a catalogue has by itself, never a name that a user gave."""
_NUMBERS = frozenset({"number", "length", "total", "begin", "end"})
"""Placeholders of what begins with a number."""
_SEVERAL = re.compile(r"[:;()]|, | in | and | of \d")
"""What neither a word nor a number holds, but sentences that are joined."""


class _Sentence(NamedTuple):
    """A sentence with places for values.

    Attributes:
        literals: what stands before, between and behind the values; one more than there are ``names``.
        names: of the values, in order.
        anchor: the longest literal.
        translated: literals and names of the sentence in the other language.
    """

    literals: tuple[str, ...]
    names: tuple[str, ...]
    anchor: str
    translated: tuple[tuple[str, ...], tuple[str, ...]]

    def values(self, text: str) -> Mapping[str, str] | None:
        """Return the values of a text that is made of it; None of any other.

        Of two values that nothing parts, the second has all.
        """
        first, last = self.literals[0], self.literals[-1]
        if not (text.startswith(first) and text.endswith(last)) or len(text) < len(first) + len(last):
            return None
        found: dict[str, str] = {}
        at, end = len(first), len(text) - len(last)
        for name, literal in zip(self.names[:-1], self.literals[1:-1], strict=True):
            until = text.find(literal, at, end)
            if until < 0:
                return None
            found[name] = text[at:until]
            at = until + len(literal)
        found[self.names[-1]] = text[at:end]
        return found

    def read(self, text: str, language: str) -> _Reading | None:
        """Return a text that is made of it in the other language; None of any other."""
        values = self.values(text)
        if values is None:
            return None
        told: dict[str, str] = {}
        known = sum(map(len, self.literals))
        for name, value in values.items():
            reading = _value(name, value, language)
            if reading is None:
                return None
            told[name] = reading.text
            known += reading.known
        pieces, names = self.translated
        values_then = [*(told[name] for name in names), ""]
        return _Reading(known, "".join(map("".join, zip(pieces, values_then, strict=True))))


def is_sentence(message: str) -> bool:
    """Whether a text, with placeholders for values, can be known again."""
    return bool(_SENTENCE.search(message)) or bool(_WORDS.intersection(_template(message)[1]))


def known_again(text: str, language: str) -> str | None:
    """Return a text in another language; None where no sentence of it is known.

    A text may be several sentences, joined as ``what; why`` or ``where: what``: what of them is not known
    stays as it is. Of several readings the one that knows most of the text counts.

    Args:
        text: in English.
        language: that has a catalogue.

    Raises:
        CatalogueError: the catalogue is damaged.
    """
    reading = _read(text, language)
    return None if reading is None else reading.text


class _Reading(NamedTuple):
    """A text in the other language, and how many letters of its English were known."""

    known: int
    text: str


@lru_cache(maxsize=4096)
def _read(text: str, language: str) -> _Reading | None:
    if " " not in text.strip():
        return None
    if _SENTENCE.search(text) and (whole := _fixed(language).get(text)) is not None:
        return _Reading(len(text), whole)
    if "\n" in text:
        return _joined(text.split("\n"), "\n", "\n", language)
    found = (sentence.read(text, language) for sentence in _sentences(language) if sentence.anchor in text)
    apart = (_apart(text, sign, translated, language) for sign, translated in _JOINTS)
    known = islice(filter(None, found), _READINGS)
    readings = [*filter(None, apart), *known, *filter(None, _listed(text, language))]
    return max(readings, key=lambda reading: reading.known, default=None)


def _value(name: str, value: str, language: str) -> _Reading | None:
    """Return a value in the other language, or as it is; None of one that cannot be the one of its name."""
    told = None
    if name in _WORDS | _NUMBERS:
        if _SEVERAL.search(value) or (name in _NUMBERS) != value[:1].isdigit():
            return None
        told = _all(language).get(value) if name in _WORDS else value
    reading = _read(value, language)
    if reading is None and told is not None:
        return _Reading(len(value), told)
    return reading or (None if name in _WORDS else _Reading(0, value))


def _apart(text: str, sign: str, translated: str, language: str) -> _Reading | None:
    """Return a text as sentences that a sign joins, of which at least one is known."""
    parts = text.split(sign)
    if len(parts) > _PARTS:
        return _joined(parts, sign, translated, language)
    head, *rest = parts
    return _joined([head, sign.join(rest)], sign, translated, language) if rest else None


def _listed(text: str, language: str) -> Iterator[_Reading | None]:
    """Yield readings of a text that lists, or says where: less likely than one sentence that has lists."""
    yield _apart(text, *_COMMA, language)
    if " in " in text:
        parts = text.split(" in ")
        if all(_read(part, language) for part in parts):
            yield _joined(parts, " in ", _WITHIN, language)


def _joined(parts: Sequence[str], sign: str, translated: str, language: str) -> _Reading | None:
    told = [_read(part, language) for part in parts]
    if not any(told):
        return None
    text = ""
    for at, (part, reading) in enumerate(zip(parts, told, strict=True)):
        if at:
            text += sign if told[at - 1] is None else translated
        text += part if reading is None else reading.text
    return _Reading(sum(reading.known for reading in told if reading is not None), text)


@lru_cache(maxsize=4)
def _sentences(language: str) -> tuple[_Sentence, ...]:
    """Return all that have values, those first that say most by themselves."""
    found = []
    for english, translated in _all(language).items():
        literals, names = _template(english)
        if names and is_sentence(english):
            found.append(_Sentence(literals, names, max(literals, key=len), _template(translated)))
    return tuple(sorted(found, key=lambda one: -sum(map(len, one.literals))))


def _template(message: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what stands around the placeholders of a message, and their names."""
    literals, names = [""], []
    try:
        for literal, name, _, _ in Formatter().parse(message):
            literals[-1] += literal
            if name is not None:
                names.append(name)
                literals.append("")
    except ValueError:
        return (message,), ()
    return tuple(literals), tuple(names)


@lru_cache(maxsize=4)
def _fixed(language: str) -> Mapping[str, str]:
    """Return what has no values."""
    told = ((_template(english), _template(one)) for english, one in _all(language).items())
    return {literals[0]: translated[0] for (literals, names), (translated, _) in told if not names}


@lru_cache(maxsize=4)
def _all(language: str) -> Mapping[str, str]:
    """Return what is said in whole sentences, and what is marked where it is shown."""
    return {**catalogue(language), **catalogue(language + _SUFFIX)}
