"""Faults put into the package, and whether the nearest tests see them: a line for each that none sees.

    python docs/benchmarks/mutants.py [--count N] [--seed N] [--rooms ROOM ...] [--tests DIR] [--list]

A comparison is turned around, a constant moved, a branch taken the other way, an error not raised, an
``and`` an ``or``: one at a time, in a copy of the package, drawn by the seed. DIR is a checkout whose tests
are run in place of this one's: the same mutants under the tests of before and after. ``--list`` runs nothing.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).absolute().parents[2]
PACKAGE = "pytest_npudump"
ROOMS = ("compare", "golden", "record", "dump/columns.py", "dump/table.py", "dump/records.py", "regression")
ALSO = {"regression": ["tests/plugin/runtest/test_main_flow.py"], "dump": ["tests/golden/content"]}
"""Tests beside those of a room's own folder."""
TURNED = {
    ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
START = "import runpy, sys; sys.path.pop(0); runpy.run_module('pytest', run_name='__main__', alter_sys=True)"


class Mutant(NamedTuple):
    """A piece of a module, and what takes its place."""

    module: str
    line: int
    start: int
    end: int
    text: str

    def __str__(self) -> str:
        """Return where it is, and what stands there."""
        return f"{PACKAGE}/{self.module}:{self.line}: {' '.join(self.text.split())}"


def mutants(module: Path) -> Iterator[Mutant]:
    """Yield all mutants of a module."""
    source = module.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tree = ast.parse(source)
    tops = [top for top in ast.walk(tree) if _is_no_code(top)]
    tops += [top for node in ast.walk(tree) for top in getattr(node, "decorator_list", ())]
    written = {id(node) for top in tops for node in ast.walk(top)}
    for node in ast.walk(tree):
        changed = None if id(node) in written else _changed(node)
        if changed is not None and isinstance(node, ast.expr | ast.stmt):
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            text = ast.unparse(changed)
            if isinstance(changed, ast.expr):
                text = f"({text})"  # as tight as what it replaces
            name = module.relative_to(ROOT / PACKAGE).as_posix()
            yield Mutant(name, node.lineno, start, end, text)


def _is_no_code(node: ast.AST) -> bool:
    """Whether all below it is annotation, text or only for the type checker."""
    return (
        isinstance(node, ast.Expr | ast.arguments | ast.AnnAssign | ast.JoinedStr)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Yield | ast.YieldFrom))
    ) or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))


def _changed(node: ast.AST) -> ast.AST | None:
    """Return what takes a node's place, None if it stays."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in TURNED:
        return ast.Compare(node.left, [TURNED[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    if isinstance(node, ast.BoolOp):
        return ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values)
    if isinstance(node, ast.Constant) and type(node.value) in {int, float, bool}:
        return ast.Constant(not node.value if isinstance(node.value, bool) else node.value * 2 + 1)
    if isinstance(node, ast.IfExp):
        return ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    if isinstance(node, ast.Raise):
        return ast.Pass()
    return None


def tests_of(module: str, root: Path) -> list[str]:
    """Return the tests nearest to a module: of its name, or of the innermost folder that has tests."""
    path = Path("tests") / module
    named = path.with_name(f"test_{path.name}")
    folder = next(parent for parent in path.parents if (root / parent).is_dir())
    also = ALSO.get(path.parts[1], [])
    own = folder if len(folder.parts) > 1 or not (root / named).is_file() else named
    return [str(own), *(name for name in also if (root / name).exists())]


def seen(mutant: Mutant, tree: Path, root: Path, number: int) -> bool:
    """Whether a test fails, or never ends, with the mutant in its place."""
    path = tree / PACKAGE / mutant.module
    before = path.read_bytes()
    path.write_bytes(before[: mutant.start] + mutant.text.encode() + before[mutant.end :])
    os.utime(path, (10**9 + 2 * number, 10**9 + 2 * number))  # what is compiled goes by time and size
    command = [sys.executable, "-c", START, "-x", "-q", "-n0", "-p", "no:cacheprovider", "-m", "not e2e"]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    try:
        done = subprocess.run(
            [*command, *tests_of(mutant.module, root)],
            cwd=root, env=environment, capture_output=True, timeout=600, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return True
    finally:
        path.write_bytes(before)
    return done.returncode != 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rooms", nargs="+", default=ROOMS, metavar="ROOM")
    parser.add_argument("--tests", type=Path, default=ROOT, metavar="DIR")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    paths = [ROOT / PACKAGE / room for room in given.rooms]
    modules = [m for path in paths for m in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    all_of_them = [mutant for module in modules if module.is_file() for mutant in mutants(module)]
    drawn = random.Random(given.seed).sample(all_of_them, min(given.count, len(all_of_them)))  # noqa: S311
    if given.list:
        sys.stdout.writelines(f"{mutant}\n" for mutant in drawn)
        return
    survived = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        shutil.copytree(ROOT / PACKAGE, tree / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
        for number, mutant in enumerate(drawn):
            if not seen(mutant, tree, given.tests.absolute(), number):
                survived += 1
                sys.stdout.write(f"{mutant}\n")
                sys.stdout.flush()
    sys.stdout.write(f"{len(drawn) - survived} of {len(drawn)} mutants of {len(all_of_them)} are seen\n")


if __name__ == "__main__":
    main()
