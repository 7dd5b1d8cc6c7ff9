"""What is marked for translation, as babel finds it in the sources."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING

from babel.messages.extract import extract

import pytest_npudump
from pytest_npudump.cli import COMMANDS, _parser

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(pytest_npudump.__file__).parent
_MARKS = {"_": None, "gettext": None, "mark": None, "said": None, "ngettext": (1, 2)}
_EXTRACTED = {
    "*.py": ("python", _MARKS),
    "*.j2": ("jinja2.ext:babel_extract", _MARKS),
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

_TO_PROGRAMMERS = (
    *("conflicting ", "cannot ", ".__call__()", "dest=", "mutually exclusive", "%r is not callable"),
    *("invalid option string", "invalid conflict", "'required' is", "unknown parser", "unexpected option"),
    *("can't open", 'argument "-"', "subcommands", "%(heading)s:", " (default: ", "expected %s arguments"),
    *("%(prog)s: warning", "command '", "option '", "argument '"),
)


def marked() -> dict[str, tuple[str, ...]]:
    """Return every message; with the file or command that has it first, and its plural."""
    found: dict[str, tuple[str, ...]] = dict.fromkeys(ARGPARSE, ("argparse",))
    for prog, message in parser_texts(_parser(list(COMMANDS))):
        found.setdefault(message, (prog,))
    for pattern, (method, marks) in _EXTRACTED.items():
        for path in sorted(PACKAGE.rglob(pattern)):
            options = {"parse_template_string": True}
            with path.open("rb") as file:
                for _, words, _, _ in extract(method, file, keywords=marks, options=options):
                    one, *many = words if isinstance(words, tuple) else (words,)
                    found.setdefault(one, (_place(path), *many))
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


def unknown_of_argparse() -> list[str]:
    """Return what this Python's argparse may say to users and :data:`ARGPARSE` lacks."""
    found = [
        one.value
        for node in ast.walk(ast.parse(inspect.getsource(argparse)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _MARKS
        for one in node.args[:2]
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    ]
    shown = {*ARGPARSE, *(text for _, text in parser_texts(_parser(list(COMMANDS))))}
    return [one for one in found if one not in shown and not one.startswith(_TO_PROGRAMMERS)]


def _place(path: Path) -> str:
    return str(path.relative_to(PACKAGE.parent))


def placeholders(text: str) -> list[str]:
    """Return the placeholders of a message, each with its format, in order of their names."""
    return sorted(re.findall(r"(?<!\{)\{([^{}]+)\}|(%%|%\(\w+\)[sdr]|%[sr])", text))


_FINAL = {"_", "gettext", "ngettext"}
_COMMANDS = (
    *("git ", "npudump ", "pytest ", "  pytest ", "$ ", "config ", "merge.", "--format="),
    *("[self-hosted, ", "--executor dask", "{} filter=lfs", "{} text eol=lf", "  image: "),
)
"""Beginnings of commands and options, and of what is written to files that programs read."""
_ENGLISH = {"command line", "an overflow record without data: collect the dump again"}
"""Data, and a reason that a reader of files gives: both are English everywhere."""


def frozen() -> list[str]:
    """Return where a message is translated as its module is imported, before the language is known."""
    return [
        f"{_place(path)}:{node.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for statement in ast.parse(path.read_text("utf-8")).body
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef)
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FINAL
    ]


def unmarked(source: str, known: frozenset[str] = frozenset()) -> list[str]:
    """Return the sentences of a module of the command that no catalogue can have.

    Args:
        source: of the module.
        known: what parsers say, which is translated as they format it.
    """
    tree = ast.parse(source)
    passed = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _MARKS:
            passed |= {id(one) for one in ast.walk(node)}
        elif isinstance(node, ast.JoinedStr):
            passed |= {id(one) for one in node.values}
    texts = [_static(node) for node in ast.walk(tree) if id(node) not in passed]
    return [
        text
        for text in texts
        if re.search(r"[A-Za-z]{2,}[,;:]? [A-Za-z]{2,}", text)
        and not (text in known or text in _ENGLISH or text.startswith(_COMMANDS) or text.count("\n") > 1)
    ]


def _static(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_static, node.values))
    if isinstance(node, ast.FormattedValue):
        return "{}"
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def unfixed() -> list[str]:
    """Return where an f-string is marked."""
    return [
        f"{_place(path)}:{node.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _MARKS
        if any(isinstance(one, ast.JoinedStr) for one in node.args)
    ]
