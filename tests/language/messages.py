"""What is marked for translation, found in the sources and not by the code that translates."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest_npudump

PACKAGE = Path(pytest_npudump.__file__).parent
_MARKS = {"_", "gettext", "mark", "ngettext"}
_TEMPLATE = re.compile(r'(?<!n)(?:\b_|\bgettext)\("((?:[^"\\]|\\.)*)"')
_PLURAL = re.compile(r'ngettext\("((?:[^"\\]|\\.)*)", "((?:[^"\\]|\\.)*)"')
_SCRIPT = re.compile(r'\bt\("((?:[^"\\]|\\.)*)"')


def marked() -> dict[str, tuple[str, ...]]:
    """Return every marked message; with it the plural, where it has one, and the file that has it first."""
    found: dict[str, tuple[str, ...]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _MARKS:
                _take(found, node, path)
    for path in sorted(PACKAGE.rglob("*.j2")):
        text = path.read_text("utf-8")
        for one, many in _PLURAL.findall(text):
            found.setdefault(one, (_place(path), many))
        for message in _TEMPLATE.findall(text):
            found.setdefault(message, (_place(path),))
    for path in sorted(PACKAGE.rglob("*.js")):
        for message in _SCRIPT.findall(path.read_text("utf-8")):
            found.setdefault(message, (_place(path),))
    return found


def _take(found: dict[str, tuple[str, ...]], node: ast.Call, path: Path) -> None:
    texts = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    if texts:
        found.setdefault(texts[0], (_place(path), *texts[1:2]))


def _place(path: Path) -> str:
    return str(path.relative_to(PACKAGE.parent))


def placeholders(text: str) -> list[str]:
    """Return the placeholders of a message, each with its format, in order of their names."""
    return sorted(re.findall(r"(?<!\{)\{([^{}]+)\}", text))


def unfixed() -> list[str]:
    """Return where an f-string is marked."""
    return [
        f"{_place(path)}:{node.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _MARKS
        if any(isinstance(one, ast.JoinedStr) for one in node.args)
    ]
