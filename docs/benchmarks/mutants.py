"""Faults planted in what judges, and whether the tests see them.

A mutant is one change of one function: a comparison turned, a constant moved, a branch or a ``raise``
dropped. Each is planted in a copy of the package, and the nearest tests run until one fails. A line of JSON
a mutant, named by function, statement and change and not by file and line, so that two versions of the code
can be compared by ``--against FILE``: a mutant that was killed there and survives here makes the exit code 1.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "pytest_npudump"
# Room to mutate, and its tests, the quickest first.
NEAREST = {
    "compare": ("tests/compare", "tests/regression", "tests/cli/compare", "tests/frozen"),
    "golden": ("tests/golden", "tests/regression", "tests/frozen"),
    "record": ("tests/record", "tests/golden", "tests/results", "tests/frozen"),
    "regression": ("tests/regression", "tests/results", "tests/frozen", "tests/plugin"),
    "results": ("tests/results", "tests/cli", "tests/frozen"),
}
TURNED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
SECONDS = 600


class Mutant(NamedTuple):
    """One change: where it is, what it makes of the file, and the name by which another version knows it."""

    path: Path
    text: str
    name: str


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a module."""
    source = path.read_text(encoding="utf-8")
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for number in range(len(list(_places(function)))):
            tree = ast.parse(source)
            twin = next(
                node
                for node in ast.walk(tree)
                if type(node) is type(function)
                and (node.lineno, node.name) == (function.lineno, function.name)
            )
            node, statement = list(_places(twin))[number]
            before = ast.unparse(statement).splitlines()[0]
            what = _change(node, statement, twin)
            if what:
                yield Mutant(
                    path, ast.unparse(ast.fix_missing_locations(tree)), f"{function.name}: {before}: {what}"
                )


def _places(function: ast.AST) -> Iterator[tuple[ast.AST, ast.stmt]]:
    """Yield what can be changed, each with its statement; functions inside have their own turn."""
    for statement in getattr(function, "body", []):
        yield from _in_statement(statement)


def _in_statement(statement: ast.stmt) -> Iterator[tuple[ast.AST, ast.stmt]]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    if isinstance(statement, ast.If | ast.Raise):
        yield statement, statement
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield from _in_statement(child)
        elif isinstance(child, ast.expr):
            if isinstance(statement, ast.Expr) and isinstance(child, ast.Constant):
                continue  # a docstring
            for node in ast.walk(child):
                number = isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float)
                if (
                    number
                    or isinstance(node, ast.BoolOp)
                    or (isinstance(node, ast.Compare) and len(node.ops) == 1)
                ):
                    yield node, statement


def _change(node: ast.AST, statement: ast.stmt, function: ast.AST) -> str:
    """Change one place of a tree, and return how; "" where nothing of it would change."""
    if isinstance(node, ast.Compare):
        old = type(node.ops[0])
        node.ops[0] = TURNED[old]()
        return f"{old.__name__} is {TURNED[old].__name__}"
    if isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return f"and/or in {ast.unparse(node)[:60]}"
    if isinstance(node, ast.Constant):
        value = node.value
        node.value = (
            (not value) if isinstance(value, bool) else value + 1 if isinstance(value, int) else value * 2 + 1
        )
        return f"{value!r} is {node.value!r}"
    for parent in ast.walk(function):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(parent, field, None)
            if isinstance(block, list) and statement in block:
                block[block.index(statement)] = ast.Pass()
                return f"{type(statement).__name__.lower()} dropped"
    return ""


def killed(mutant: Mutant, *, python: str) -> str:
    """Return the first test folder that sees a mutant, or "" where none does."""
    room = mutant.path.relative_to(PACKAGE).parts[0]
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "tree"
        ignored = shutil.ignore_patterns(".git", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache")
        shutil.copytree(ROOT, copy, copy_function=os.link, ignore=ignored)
        target = copy / mutant.path.relative_to(ROOT)
        target.unlink()
        target.write_text(mutant.text, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        for folder in NEAREST[room]:
            if not (copy / folder).exists():
                continue
            command = [python, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", folder]
            try:
                done = subprocess.run(
                    command, cwd=copy, env=environment, capture_output=True, timeout=SECONDS, check=False
                )
            except subprocess.TimeoutExpired:
                return f"{folder} (time)"
            if done.returncode not in {0, 5}:
                return folder
    return ""


def main() -> int:
    """Plant mutants and print what becomes of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="", help="mutants whose name holds this text")
    parser.add_argument(
        "--against", type=Path, help="what another version printed: its mutants, and no others"
    )
    arguments = parser.parse_args()
    found = {
        mutant.name: mutant
        for room in NEAREST
        for path in sorted((PACKAGE / room).rglob("*.py"))
        for mutant in mutants_of(path)
        if arguments.only in mutant.name
    }
    before = {}
    if arguments.against:
        lines = arguments.against.read_text(encoding="utf-8").splitlines()
        before = {line["mutant"]: line["killed"] for line in map(json.loads, lines)}
        chosen = [found[name] for name in before if name in found]
        print(json.dumps({"gone": [name for name in before if name not in found]}), file=sys.stderr)
    else:
        chance = random.Random(arguments.seed)  # noqa: S311 - the same mutants for the same seed
        names = chance.sample(sorted(found), min(arguments.count, len(found)))
        chosen = [found[name] for name in names]
    worse = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        results = pool.map(lambda mutant: killed(mutant, python=sys.executable), chosen)
        for mutant, by in zip(chosen, results, strict=True):
            print(json.dumps({"mutant": mutant.name, "killed": by}), flush=True)
            worse += bool(before.get(mutant.name)) and not by
    return 1 if worse else 0


if __name__ == "__main__":
    raise SystemExit(main())
