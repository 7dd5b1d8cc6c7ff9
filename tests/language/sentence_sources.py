"""The sentences of a module: what its errors, notes and reasons are made of, with a placeholder a value."""

from __future__ import annotations

import ast
import keyword
import re

from pytest_npudump.language.sentences import is_sentence


def sentences(source: str, marks: frozenset[str]) -> list[str]:
    """Return the sentences of a module, with a placeholder for each value, but those that are marked.

    Args:
        source: of the module.
        marks: names of the functions that mark a message.
    """
    tree = ast.parse(source)
    passed = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
    found = []
    for node in ast.walk(tree):  # a sentence comes before its parts
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in marks:
            passed |= {id(one) for one in ast.walk(node)}
        if id(node) in passed:
            continue
        pieces = _pieces(node)
        if pieces is not None:
            passed |= {id(one) for one in _literals(node)}
            text = _template(pieces)
            if is_sentence(text):
                found.append(text)
    return found


def _pieces(node: ast.AST) -> list[str | ast.AST] | None:
    """Return a text as literals and expressions; None of what is no text."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return [
            str(one.value) if isinstance(one, ast.Constant) else one.value  # type: ignore[attr-defined]
            for one in node.values
        ]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _pieces(node.left), _pieces(node.right)
        if left is None and right is None:
            return None
        return [*([node.left] if left is None else left), *([node.right] if right is None else right)]
    return None


def _literals(node: ast.AST) -> list[ast.AST]:
    """Return the nodes that a text has used up, so that none is a text of its own."""
    if isinstance(node, ast.JoinedStr):
        return [node, *(one for one in node.values if isinstance(one, ast.Constant)), *_specs(node)]
    if isinstance(node, ast.BinOp):
        return [node, *_literals(node.left), *_literals(node.right)]
    return [node] if isinstance(node, ast.Constant) else []


def _specs(node: ast.JoinedStr) -> list[ast.AST]:
    formats = [one.format_spec for one in node.values if isinstance(one, ast.FormattedValue)]
    return [part for spec in formats if spec is not None for part in ast.walk(spec)]


def _template(pieces: list[str | ast.AST]) -> str:
    names: dict[str, str] = {}
    text = ""
    for piece in pieces:
        if isinstance(piece, str):
            text += piece.replace("{", "{{").replace("}", "}}")
        else:
            code = ast.unparse(piece)
            text += "{" + names.setdefault(code, _name(code, {*names.values()})) + "}"
    return text


def _name(code: str, taken: set[str]) -> str:
    """Return a placeholder for an expression: its last name, with a number where that is taken."""
    named = re.findall(r"[A-Za-z_]\w*", re.sub(r"'[^']*'", "", code))
    words = [word for word in named if word not in _GENERAL]
    name = words[-1].strip("_").lower() if words else "value"
    number = 1
    while (numbered := name if number == 1 else f"{name}{number}") in taken:
        number += 1
    return numbered


_GENERAL = frozenset({"join", "map", "sorted", "str", "len", "self", *keyword.kwlist})
