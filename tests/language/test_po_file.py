"""The catalogue has every marked message, and says with each what the code fills in."""

from __future__ import annotations

import importlib.util
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from babel.messages.pofile import read_po
from hypothesis import given
from hypothesis import strategies as st

from pytest_npudump.language.sentences import CatalogueError, catalogue, parse

if TYPE_CHECKING:
    from collections.abc import Iterator


def _messages() -> Any:
    """Return the module beside this file; in importlib mode no folder of tests is on the path."""
    path = Path(__file__).with_name("messages.py")
    spec = importlib.util.spec_from_file_location("npudump_messages", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MESSAGES = _messages()
PATH = MESSAGES.PACKAGE / "language" / "catalogues" / "zh.po"


@pytest.fixture(scope="module")
def marked() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = MESSAGES.marked()
    return found


def entries() -> Iterator[tuple[str, str, bool]]:
    """Yield English, Chinese and whether it is fuzzy, as babel reads the file."""
    for message in read_po(io.BytesIO(PATH.read_bytes()), locale="zh_CN", abort_invalid=True):
        if message.id:
            plural = isinstance(message.id, tuple)
            english = message.id[0] if plural else message.id
            yield str(english), str(message.string[0] if plural else message.string), message.fuzzy


def test_the_catalogue_has_every_marked_message_and_no_other(marked: dict[str, tuple[str, ...]]) -> None:
    known = {english for english, _, _ in entries()}
    lacking = "".join(
        f'\n\n#: {marked[one][0]}\nmsgid "{one}"\nmsgstr ""' for one in marked if one not in known
    )
    assert not lacking, f"entries to add to {PATH.name}:{lacking}"
    assert sorted(known - marked.keys()) == [], f"entries to remove from {PATH.name}"


def test_no_message_is_fuzzy_or_empty() -> None:
    assert [english for english, chinese, fuzzy in entries() if fuzzy or not chinese.strip()] == []


def test_a_translation_has_the_placeholders_of_its_message(marked: dict[str, tuple[str, ...]]) -> None:
    differ = []
    for english, chinese, _ in entries():
        plural = marked.get(english, ("",))[1:]
        wanted = {tuple(MESSAGES.placeholders(text)) for text in plural or (english,)}
        if tuple(MESSAGES.placeholders(chinese)) not in wanted:
            differ.append((english, chinese))
    assert differ == []


def test_no_marked_message_is_an_f_string() -> None:
    """Such a message has no fixed text, so no catalogue can have it."""
    assert MESSAGES.unfixed() == []


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="what later releases say has not been read")
def test_what_this_python_s_argparse_says_is_known() -> None:
    assert MESSAGES.unknown_of_argparse() == []


def test_no_message_is_translated_before_the_language_is_known() -> None:
    assert MESSAGES.frozen() == []


def test_the_command_has_no_sentence_that_is_not_marked(marked: dict[str, tuple[str, ...]]) -> None:
    known = frozenset(marked)
    found = {
        str(path.relative_to(MESSAGES.PACKAGE)): sentences
        for path in sorted((MESSAGES.PACKAGE / "cli").rglob("*.py"))
        if (sentences := MESSAGES.unmarked(path.read_text("utf-8"), known))
    }
    assert found == {}


@pytest.mark.each(
    ("source", "sentences"),
    [
        ('emit(["two words"])', ["two words"]),
        ('emit([f"{count} of them"])', ["{} of them"]),
        ('emit([f"{count} tensors, first {first}"])', ["{} tensors, first {}"]),
        ('emit([_("two words")])', []),
        ('raise RequestError(f"{path}: is not there")', ["{}: is not there"]),
        ('def run():\n    """A docstring."""', []),
    ],
)
def test_a_sentence_that_is_not_marked_is_found(source: str, sentences: list[str]) -> None:
    assert MESSAGES.unmarked(source) == sentences


def test_our_reader_reads_what_babel_does() -> None:
    assert dict(catalogue("zh")) == {english: chinese for english, chinese, _ in entries()}


TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from('\n\t"\\'), min_size=1)


@given(st.dictionaries(TEXTS, TEXTS, max_size=4))
def test_what_babel_writes_is_read(words: dict[str, str]) -> None:
    from babel.messages.catalog import Catalog
    from babel.messages.pofile import write_po

    written = Catalog(locale="zh_CN")
    for english, chinese in words.items():
        written.add(english, chinese)
    file = io.BytesIO()
    write_po(file, written, width=60)
    expected = {
        str(one.id): str(one.string) for one in read_po(io.BytesIO(file.getvalue()), locale="zh_CN") if one.id
    }
    assert dict(parse(file.getvalue().decode(), "zh.po")) == expected


def test_fuzzy_and_untranslated_entries_stay_english() -> None:
    text = '#, fuzzy\nmsgid "a"\nmsgstr "甲"\n\nmsgid "b"\nmsgstr ""\n\nmsgid "c"\nmsgstr "丙"\n'
    assert dict(parse(text, "zh.po")) == {"c": "丙"}


@pytest.mark.each("line", ["msgid a", "nonsense", 'msgid "a', 'msgid "a" + "b"', 'msgid "\\x"', '"a"'])
def test_a_damaged_catalogue_is_named_with_its_line(line: str) -> None:
    with pytest.raises(CatalogueError, match=r"^zh\.po, line 1: "):
        parse(line, "zh.po")


def test_a_language_without_a_catalogue_is_an_error() -> None:
    with pytest.raises(CatalogueError, match="install the package again"):
        catalogue("xx")
