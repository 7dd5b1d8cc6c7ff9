"""Catalogues of translations: gettext's ``.po``, read as it is, so that no compiled file can be outdated.

https://www.gnu.org/software/gettext/manual/html_node/PO-Files.html
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from pytest_npudump.errors import NpudumpError

_STRINGS = ("msgid", "msgid_plural", "msgstr", "msgstr[0]")
_FORMAT = re.compile(r"\{(\w+)[:!][^{}]*\}")


class CatalogueError(NpudumpError):
    """A catalogue of this package is damaged."""


@lru_cache(maxsize=4)
def catalogue(language: str) -> Mapping[str, str]:
    """Return the translations of a language by their English; of a plural by the singular.

    Raises:
        CatalogueError: the file is not there or no catalogue.
    """
    path = Path(__file__).parent / "catalogues" / f"{language}.po"
    try:
        content = path.read_text("utf-8")
        return MappingProxyType({**_as_carried(content, path.name), **parse(content, path.name)})
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogueError(f"{path} cannot be read: {error}: install the package again") from error


def parse(text: str, name: str) -> Mapping[str, str]:
    """Return the translations that a catalogue holds; what is untranslated or fuzzy is left out.

    Raises:
        CatalogueError: a line is none of a catalogue.
    """
    return MappingProxyType({english: translated for english, _, translated in _translations(text, name)})


def _as_carried(text: str, name: str) -> dict[str, str]:
    """Return the translations by what :class:`~pytest_npudump.errors.Said` carries: plurals, no formats."""
    return {
        _FORMAT.sub(r"{\1}", form): _FORMAT.sub(r"{\1}", translated)
        for english, plural, translated in _translations(text, name)
        for form in (english, plural)
        if form and (form == plural or ":" in form)
    }


def _translations(text: str, name: str) -> Iterator[tuple[str, str, str]]:
    for entry, fuzzy in _entries(text, name):
        english, plural = entry.get("msgid", ""), entry.get("msgid_plural", "")
        translated = entry.get("msgstr", "") or entry.get("msgstr[0]", "")
        if english and translated and not fuzzy:
            yield english, plural, translated


def _entries(text: str, name: str) -> Iterator[tuple[dict[str, str], bool]]:
    """Yield the strings of each entry by their keyword, and whether it is marked as fuzzy."""
    entry: dict[str, str] = {}
    keyword, fuzzy = "", False
    for number, line in enumerate([*text.split("\n"), ""], start=1):
        if not line.strip() or (line.startswith(("msgid ", "#")) and keyword.startswith("msgstr")):
            if entry:
                yield entry, fuzzy
            entry, keyword, fuzzy = {}, "", False
        if not line.strip():
            continue
        if line.startswith("#"):
            fuzzy = fuzzy or (line.startswith("#,") and "fuzzy" in line)
        else:
            head, _, rest = line.partition(" ") if not line.startswith('"') else (keyword, "", line)
            if head not in _STRINGS or not (rest[:1] == rest[-1:] == '"'):
                raise CatalogueError(f"{name}, line {number}: {line!r} is not of a catalogue: install again")
            keyword = head
            entry[keyword] = entry.get(keyword, "") + _unquoted(rest, name, number)


def _unquoted(text: str, name: str, number: int) -> str:
    try:
        return str(ast.literal_eval(text))
    except (ValueError, SyntaxError) as error:
        raise CatalogueError(
            f"{name}, line {number}: {text} is no string: install the package again"
        ) from error
