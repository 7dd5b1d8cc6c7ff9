"""The catalogue has every message that is marked, and says with each what the code fills in."""

from __future__ import annotations

import argparse
import ast
import gc
import io
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from string import Formatter

import pytest
from babel.messages.extract import extract
from babel.messages.pofile import read_po

import pytest_npudump
from pytest_npudump.cli import COMMANDS, _parser
from pytest_npudump.language.translation import catalogue

PACKAGE = Path(pytest_npudump.__file__).parent
PATH = PACKAGE / "language" / "catalogues" / "zh.po"
MARKS = {"_": None, "gettext": None, "mark": None, "ngettext": (1, 2), "plural": (1, 2), "counted": (2, 3)}
EXTRACTED = {
    "*.j2": ("jinja2.ext:babel_extract", MARKS),
    "*.js": ("javascript", {"t": None}),
}
"""By files of the package that are no modules: babel's method, and the functions that mark messages there."""

ARGPARSE = (
    "usage: ",
    "%(prog)s: error: %(message)s\n",
    "argument %(argument_name)s: %(message)s",
    "expected one argument",
    "expected at most one argument",
    "expected at least one argument",
    "expected %s argument",
    "invalid %(type)s value: %(value)r",
    "the following arguments are required: %s",
    "unrecognized arguments: %s",
    "ambiguous option: %(option)s could match %(matches)s",
    "ignored explicit argument %r",
    "not allowed with argument %s",
    "one of the arguments %s is required",
)
"""What argparse says to users, beside its titles, which are in the parsers; some only in later Pythons."""


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def calls_in(path: Path) -> list[ast.Call]:
    nodes = ast.walk(tree_of(path))
    return [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]


def calls(*names: str) -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls of functions in the package, each with its place."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in calls_in(path):
            if node.func.id in names:  # type: ignore[attr-defined]
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}", node


def fields(template: str) -> list[str]:
    return sorted({name for _, name, _, _ in Formatter().parse(template) if name is not None})


def plain(template: str) -> str:
    """Return a template as the catalogue has that of a message with values: without formats."""
    return re.sub(r"\{(\w+)[^{}]*\}", r"{\1}", template)


def has_words(template: str) -> bool:
    literals = "".join(literal for literal, _, _, _ in Formatter().parse(template))
    return bool(re.search("[A-Za-z]{2}", re.sub("npu_?dump: ", "", literals)))


@pytest.fixture(scope="module", autouse=True)
def _parsed() -> Iterator[None]:
    """Have trees parsed without looking for garbage in them, four times faster, and none held afterwards."""
    gc.disable()
    for path in PACKAGE.rglob("*.py"):
        calls_in(path)
    gc.enable()
    yield
    tree_of.cache_clear()
    calls_in.cache_clear()


@pytest.fixture(scope="module")
def marked() -> dict[str, tuple[str, ...]]:
    """Return every message; with the file or command that has it first, and its plural."""
    found: dict[str, tuple[str, ...]] = dict.fromkeys(ARGPARSE, ("argparse",))
    for prog, message in parser_texts(_parser(list(COMMANDS))):
        found.setdefault(message, (prog,))
    for place, call in calls(*MARKS):
        at = MARKS[call.func.id] or (1,)  # type: ignore[attr-defined]
        given = [arg.value for arg in call.args[at[0] - 1 : at[-1]] if isinstance(arg, ast.Constant)]
        if len(given) == len(at) and all(isinstance(one, str) for one in given):
            found.setdefault(given[0], (place, *given[1:]))
    for pattern, (method, marks) in EXTRACTED.items():
        for path in sorted(PACKAGE.rglob(pattern)):
            with path.open("rb") as file:
                for _, words, _, _ in extract(method, file, marks, options={"parse_template_string": True}):
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
        texts += [action.help for action in group._group_actions]
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
    marked = [*calls(*MARKS, "said")]
    assert [at for at, call in marked if any(isinstance(one, ast.JoinedStr) for one in call.args)] == []
    assert [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for statement in tree_of(path).body
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef)
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id in {"_", "gettext", "ngettext"}
    ] == []


def test_our_reader_reads_our_catalogue_as_babel_does() -> None:
    words = {english: chinese for english, chinese, _ in entries()}
    assert {english: catalogue("zh")[english] for english in words} == words
    assert "" not in catalogue("zh")
