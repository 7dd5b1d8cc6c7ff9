"""The catalogue has every message that is marked, and says with each what the code fills in."""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import re
import sys
from functools import cache
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING

import pytest
from babel.messages.extract import extract
from babel.messages.pofile import read_po
from hypothesis import given, settings
from hypothesis import strategies as st

import pytest_npudump
from pytest_npudump.cli import COMMANDS, _parser
from pytest_npudump.errors import Said, said
from pytest_npudump.language.catalogue import CatalogueError, catalogue, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(pytest_npudump.__file__).parent
PATH = PACKAGE / "language" / "catalogues" / "zh.po"
MARKS = {"_": None, "gettext": None, "mark": None, "ngettext": (1, 2)}
EXTRACTED = {
    "*.py": ("python", MARKS),
    "*.j2": ("jinja2.ext:babel_extract", MARKS),
    "*.js": ("javascript", {"t": None}),
}
"""By files of the package: babel's method for them, and the functions that mark a message there."""

ARGPARSE = (
    "usage: ",
    "%(prog)s: error: %(message)s\n",
    "argument %(argument_name)s: %(message)s",
    "expected one argument",
    "expected at most one argument",
    "expected at least one argument",
    "expected %s argument",
    "invalid %(type)s value: %(value)r",
    "invalid choice: %(value)r (choose from %(choices)s)",
    "invalid choice: %(value)r, maybe you meant %(suggestion)r? (choose from %(choices)s)",
    "the following arguments are required: %s",
    "unrecognized arguments: %s",
    "ambiguous option: %(option)s could match %(matches)s",
    "ignored explicit argument %r",
    "not allowed with argument %s",
    "one of the arguments %s is required",
)
"""What argparse says to users, beside its titles, which are in the parsers; some only in later Pythons."""

TO_PROGRAMMERS = (
    *("conflicting ", "cannot ", ".__call__()", "dest=", "mutually exclusive", "%r is not callable"),
    *("invalid option string", "invalid conflict", "'required' is", "unknown parser", "unexpected option"),
    *("can't open", 'argument "-"', "subcommands", "%(heading)s:", " (default: ", "expected %s arguments"),
    *("%(prog)s: warning", "command '", "option '", "argument '"),
)
COMMANDS_AND_DATA = (
    *("git ", "npudump ", "pytest ", "  pytest ", "$ ", "config ", "merge.", "--format=", "command line"),
    *("[self-hosted, ", "--executor dask", "{} filter=lfs", "{} text eol=lf", "  image: "),
    "an overflow record without data: collect the dump again",
)
"""Beginnings of commands and options, of what is written to files that programs read, and of data."""


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def calls(*names: str) -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls of functions in the package, each with its place."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}", node


def fields(template: str) -> list[str]:
    return sorted({name for _, name, _, _ in Formatter().parse(template) if name is not None})


def plain(template: str) -> str:
    """Return a template as the catalogue has that of a message with values: without formats."""
    text = said(template, **{name: _Anything() for name in fields(template)})
    assert isinstance(text, Said)
    return text.parts()[0]


class _Anything:
    def __format__(self, form: str) -> str:
        return form


def has_words(template: str) -> bool:
    literals = "".join(literal for literal, _, _, _ in Formatter().parse(template))
    return bool(re.search("[A-Za-z]{2}", re.sub("npu_?dump: ", "", literals)))


@pytest.fixture(scope="module")
def marked() -> dict[str, tuple[str, ...]]:
    """Return every message; with the file or command that has it first, and its plural."""
    found: dict[str, tuple[str, ...]] = dict.fromkeys(ARGPARSE, ("argparse",))
    for prog, message in parser_texts(_parser(list(COMMANDS))):
        found.setdefault(message, (prog,))
    for pattern, (method, marks) in EXTRACTED.items():
        for path in sorted(PACKAGE.rglob(pattern)):
            with path.open("rb") as file:
                for _, words, _, _ in extract(
                    method, file, keywords=marks, options={"parse_template_string": True}
                ):
                    one, *many = words if isinstance(words, tuple) else (words,)
                    found.setdefault(one, (str(path.relative_to(PACKAGE)), *many))
    for place, call in calls("said"):
        if isinstance(call.args[0], ast.Constant) and has_words(template := str(call.args[0].value)):
            found.setdefault(plain(template), (place,))
    return found


def parser_texts(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Yield what the help of a parser and of those below it has to say, with the command that says it."""
    texts = [parser.description, parser.epilog]
    for group in parser._action_groups:
        texts += [group.title, group.description] if group._group_actions else []
    for action in parser._actions:
        texts.append(action.help)
        if isinstance(action, argparse._SubParsersAction):
            texts += [choice.help for choice in action._choices_actions]
            for below in dict.fromkeys(action.choices.values()):
                yield from parser_texts(below)
    yield from ((parser.prog, text) for text in texts if text and text != argparse.SUPPRESS)


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
        f'\n#: {marked[one][0]}\nmsgid "{one}"\nmsgstr ""' for one in marked if one not in known
    )
    assert not lacking, f"entries to add to {PATH.name}, or messages to be f-strings:{lacking}"
    assert sorted(known - marked.keys()) == [], f"entries to remove from {PATH.name}"


def test_a_translation_is_whole_and_has_the_placeholders_of_its_message(
    marked: dict[str, tuple[str, ...]],
) -> None:
    def placeholders(text: str) -> list[str]:
        return sorted(set(re.findall(r"(?<!\{)\{([^{}]+)\}|(%%|%\(\w+\)[sdr]|%[sr])", text)))

    differ = []
    for english, chinese, fuzzy in entries():
        plural = marked.get(english, ("",))[1:]
        wanted = {tuple(placeholders(text)) for text in plural or (english,)}
        if fuzzy or not chinese.strip() or tuple(placeholders(chinese)) not in wanted:
            differ.append((english, chinese))
    assert differ == []


def test_a_message_with_values_has_one_template_and_a_value_for_each_placeholder() -> None:
    wrong = [
        place
        for place, call in calls("said")
        if place.partition(":")[0] not in {"errors.py", "language/translation.py"}  # which bring one back
        if len(call.args) != 1
        or not isinstance(call.args[0], ast.Constant)
        or fields(str(call.args[0].value)) != sorted(str(value.arg) for value in call.keywords)
    ]
    assert wrong == []


def test_no_marked_message_is_an_f_string_or_translated_before_the_language_is_known() -> None:
    """The first has no fixed text, so no catalogue can have it."""
    assert [
        place
        for place, call in calls(*MARKS, "said")
        if any(isinstance(one, ast.JoinedStr) for one in call.args)
    ] == []
    assert [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for statement in tree_of(path).body
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef)
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id in {"_", "gettext", "ngettext"}
    ] == []


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="what later releases say has not been read")
def test_what_this_python_s_argparse_says_is_known() -> None:
    shown = {*ARGPARSE, *(text for _, text in parser_texts(_parser(list(COMMANDS))))}
    assert [
        one.value
        for node in ast.walk(ast.parse(inspect.getsource(argparse)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MARKS
        for one in node.args[:2]
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
        if one.value not in shown and not one.value.startswith(TO_PROGRAMMERS)
    ] == []


def unmarked(tree: ast.Module, known: frozenset[str] = frozenset()) -> list[str]:
    """Return the sentences of a module of the command that no catalogue can have; ``known`` say parsers."""
    passed = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in {*MARKS, "said"}
        ):
            passed |= {id(one) for one in ast.walk(node)}
        elif isinstance(node, ast.JoinedStr):
            passed |= {id(one) for one in node.values}
    texts = [_static(node) for node in ast.walk(tree) if id(node) not in passed]
    return [
        text
        for text in texts
        if re.search(r"[A-Za-z]{2,}[,;:]? [A-Za-z]{2,}", text)
        and not (text in known or text.startswith(COMMANDS_AND_DATA) or text.count("\n") > 1)
    ]


def _static(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_static, node.values))
    if isinstance(node, ast.FormattedValue):
        return "{}"
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def test_the_command_has_no_sentence_that_is_not_marked(marked: dict[str, tuple[str, ...]]) -> None:
    source = 'emit(["two words", f"{count} of them", _("two words")])\ndef run():\n    """A docstring."""'
    assert unmarked(ast.parse(source)) == ["two words", "{} of them"]
    known = frozenset(marked)
    found = {path.name: unmarked(tree_of(path), known) for path in sorted((PACKAGE / "cli").rglob("*.py"))}
    assert {name: sentences for name, sentences in found.items() if sentences} == {}


TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from('\n\t"\\'), min_size=1)


@settings(max_examples=30)
@given(st.dictionaries(TEXTS, TEXTS, max_size=4))
def test_our_reader_reads_what_babel_writes(words: dict[str, str]) -> None:
    from babel.messages.catalog import Catalog
    from babel.messages.pofile import write_po

    written = Catalog(locale="zh_CN")
    for english, chinese in words.items():
        written.add(english, chinese)
    file = io.BytesIO()
    write_po(file, written, width=60)
    text = file.getvalue().decode()
    expected = {
        str(one.id): str(one.string) for one in read_po(io.BytesIO(text.encode()), locale="zh_CN") if one.id
    }
    for shown in (text, re.sub("\n\n+", "\n", text)):
        assert dict(parse(shown, "zh.po")) == expected


def test_our_reader_reads_our_catalogue_as_babel_does() -> None:
    assert dict(catalogue("zh")) == {english: chinese for english, chinese, _ in entries()}


def test_fuzzy_and_untranslated_entries_stay_english() -> None:
    text = '#, fuzzy\nmsgid "a"\nmsgstr "甲"\n\nmsgid "b"\nmsgstr ""\nmsgid "c"\nmsgstr "丙"\n'
    assert dict(parse(text, "zh.po")) == {"c": "丙"}
    assert dict(parse(text.replace("\n\n", "\n"), "zh.po")) == {"c": "丙"}


@pytest.mark.each("line", ["msgid a", "nonsense", 'msgid "a', 'msgid "a" + "b"', 'msgid "\\x"', '"a"'])
def test_a_damaged_catalogue_is_named_with_its_line(line: str) -> None:
    with pytest.raises(CatalogueError, match=r"^zh\.po, line 1: "):
        parse(line, "zh.po")


def test_a_language_without_a_catalogue_is_an_error() -> None:
    with pytest.raises(CatalogueError, match="install the package again"):
        catalogue("xx")
