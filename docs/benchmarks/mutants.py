"""Faults put into the package, and whether the tests see them: a line for each, comparable between trees.

    python docs/benchmarks/mutants.py --map FILE [--count N] [--seed N] [--rooms ROOM ...] [--tests PATH ...]
    python docs/benchmarks/mutants.py --map FILE --against RESULTS [--root DIR]

A comparison is turned around, a constant moved, a branch taken the other way, an error not raised, an
``and`` an ``or``: one at a time, in a copy of the package, drawn by the seed. Of the tests of the rooms those
run that execute its line, fastest first, until one fails. FILE keeps which do, and is made again where the
tree has changed. A line has what came of it (killed, time, alive, or unrun: no test gets there), where it is,
what is replaced by what, and the test that saw it. With RESULTS, such lines of another tree, the faults
that are seen there are tried in this one (or in DIR, another checkout), and those are told at the end that
are not seen here: the same by module, function and text, wherever they stand now. ``--jobs`` sets how many
run at once, ``--most`` how many seconds of tests a fault gets, fastest first.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import importlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import defaultdict
from contextlib import suppress
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import CodeType, FrameType


PACKAGE = "pytest_npudump"
ROOMS = ("compare", "golden", "record", "dump/columns.py", "dump/table.py", "dump/records.py", "regression")
TESTS = {
    "compare": ("tests/compare",),
    "golden": ("tests/golden", "tests/record"),
    "record": ("tests/golden", "tests/record"),
    "dump": ("tests/dump", "tests/record"),
    "regression": ("tests/regression", "tests/plugin/test_main_flow.py"),
}
"""Where the tests of a room are: all of those of the rooms that are looked at are tried on each mutant."""
WARM = ("numpy", "onnx", "onnxruntime", "hypothesis", "yaml", "rich.console", "rich.table", "filelock")
"""What tests import besides the package: once, before the processes of the mutants are forked."""
OPTIONS = (
    "-x", "-q", "-n0", "-m", "not e2e", "--hypothesis-seed=0", "-o", "addopts=", "--strict-markers",
    "--import-mode=importlib", "-p", "pytester", "-p", "no:asyncio", "-p", "no:pytest-retry",
    "-p", "no:flaky", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning",
)  # fmt: skip
"""Of a session: the repository's own but for workers; what is warm cannot be rewritten any more."""
ENOUGH = 500
"""Lines of a function that are looked at in one test."""
FIRST = 25
"""Tests that run first, in a process of their own; most mutants are seen by one of them."""
SEEN = {"killed", "time"}
TURNED = {
    ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


class Mutant(NamedTuple):
    """A piece of a module, and what takes its place.

    Attributes:
        module: its file below the package.
        function: qualified name of the function or class; "" for the module itself.
        before, after: the statement (of a block its first line) without and with the mutant.
        lines: of the piece, and the first of its statement.
        start, end, text: what is replaced, in bytes, and by what.
    """

    module: str
    function: str
    before: str
    after: str
    lines: tuple[range, int]
    start: int
    end: int
    text: str

    @property
    def identity(self) -> tuple[str, str, str, str]:
        return self.module, self.function, self.before, self.after


# ---------------------------------------------------------------------------------------------------------
# Mutants of a module
# ---------------------------------------------------------------------------------------------------------


def mutants(package: Path, module: Path) -> Iterator[Mutant]:
    """Yield all mutants of a module."""
    source = module.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    name = module.relative_to(package).as_posix()

    def walk(node: ast.AST, function: str, statement: ast.stmt | None) -> Iterator[Mutant]:
        if _is_no_code(node):
            return
        if isinstance(node, ast.stmt):
            statement = node
        changed = _changed(node)
        if changed is not None and statement is not None:
            assert isinstance(node, ast.expr | ast.stmt)
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            text = ast.unparse(changed)
            if isinstance(changed, ast.expr):
                text = f"({text})"  # as tight as what it replaces
            yield Mutant(
                name, function, _head(statement), _head(_replaced(statement, node, changed)),
                (range(node.lineno, node.end_lineno + 1), statement.lineno),
                starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset,
                text,
            )  # fmt: skip
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}".lstrip(".")
        decorators = getattr(node, "decorator_list", ())
        for child in ast.iter_child_nodes(node):
            if child not in decorators:
                yield from walk(child, function, statement)

    yield from walk(ast.parse(source), "", None)


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


def _replaced(statement: ast.stmt, node: ast.AST, changed: ast.AST) -> ast.AST:
    """Return a copy of a statement that has something else in the place of a node."""
    if statement is node:
        return changed

    class Replace(ast.NodeTransformer):
        def visit(self, at: ast.AST) -> Any:
            return changed if at is node else self.generic_visit(at)

    memo: dict[int, Any] = {id(node): node}  # which stays itself in the copy, to be found
    return Replace().visit(copy.deepcopy(statement, memo))  # type: ignore[no-any-return]


def _head(statement: ast.AST) -> str:
    """Return a statement in one line, of a block what is before the colon."""
    if getattr(statement, "body", None) and isinstance(statement, ast.stmt):
        statement = copy.copy(statement)
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            if hasattr(statement, block):
                setattr(statement, block, [ast.Pass()] if block == "body" else [])
    return " ".join(ast.unparse(statement).split())


def all_mutants(root: Path, rooms: Sequence[str]) -> list[Mutant]:
    """Return the mutants of rooms, in the order of their modules."""
    package = root / PACKAGE
    paths = [package / room for room in rooms]
    modules = [m for path in paths for m in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    return [mutant for module in modules if module.is_file() for mutant in mutants(package, module)]


def found_again(wanted: list[tuple[str, str, str, str]], here: list[Mutant]) -> list[Mutant | None]:
    """Return for each identity the mutant that it is here: in that module, that function, or anywhere."""
    tables: list[dict[tuple[str, ...], list[Mutant]]] = [defaultdict(list) for _ in range(3)]
    for mutant in here:
        for start, table in enumerate(tables):
            table[mutant.identity[start:]].append(mutant)

    def find(identity: tuple[str, str, str, str]) -> Mutant | None:
        for start, table in enumerate(tables):
            same = table.get(identity[start:], [])
            if len(same) == 1 or (same and not start):
                return same[0]
        return None

    return [find(identity) for identity in wanted]


# ---------------------------------------------------------------------------------------------------------
# Processes in which tests run
# ---------------------------------------------------------------------------------------------------------


def forked(root: Path, tree: Path, arguments: Sequence[str], plugin: object, limit: float) -> int | None:
    """Run pytest in a process forked off here, with the package of a tree; its code, None past the limit."""
    child = os.fork()
    if not child:
        try:
            os.setsid()
            multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
            null = os.open(os.environ.get("MUTANTS_OUTPUT", os.devnull), os.O_RDWR | os.O_CREAT | os.O_APPEND)
            for stream in range(3):
                os.dup2(null, stream)
            temporary = tree / "tmp"
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            os.chdir(root)
            os.environ.update(
                PYTHONPATH=str(tree),
                TMPDIR=str(temporary),
                HYPOTHESIS_STORAGE_DIRECTORY=str(tree / "hypothesis"),
            )
            tempfile.tempdir = None
            sys.path[:] = [str(tree), *(path for path in sys.path[1:] if path not in {str(root), ""})]
            code = int(pytest.main([*OPTIONS, *arguments], plugins=[plugin]))
            sys.stdout.flush()
            os._exit(code)
        except BaseException:  # noqa: BLE001 - told where the output goes, and by the code
            traceback.print_exc()
        os._exit(70)
    end = time.monotonic() + limit
    pause = 0.005
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            _kill(child)  # what it may have started
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause)
        pause = min(pause * 1.2, 0.05)
    _kill(child)
    os.waitpid(child, 0)
    return None


def _kill(session: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)


class Watch:
    """Plugin that notes the lines of the package that each test executes, and for how long it runs."""

    def __init__(self, package: Path, file: Path) -> None:
        self._package, self._file = f"{package}{os.sep}", file
        self._seen: dict[CodeType, set[int]] = {}
        self._events: dict[CodeType, int] = {}
        self._starts = False
        self._tests: dict[str, dict[str, Any]] = {}
        sys.addaudithook(self._audit)

    def _audit(self, event: str, _: object) -> None:
        if event in {"subprocess.Popen", "os.fork", "os.posix_spawn", "socket.connect"}:
            self._starts = True

    def _call(self, frame: FrameType, _event: str, _argument: object) -> Any:
        code = frame.f_code
        count = self._events.get(code, 0)
        if count > ENOUGH or (not count and not code.co_filename.startswith(self._package)):
            return None
        lines, events = self._seen.setdefault(code, set()), self._events
        events[code] = count + 1

        def line(frame: FrameType, _event: str, _argument: object) -> Any:
            lines.add(frame.f_lineno)
            events[code] += 1
            if events[code] > ENOUGH:  # of what is called so often or loops so long, all lines count
                lines.update(line for *_, line in code.co_lines() if line)
                frame.f_trace_lines = False
            return line

        return line

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._seen.clear()
        self._events.clear()
        self._starts = False
        start = time.perf_counter()
        threading.settrace(self._call)
        sys.settrace(self._call)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            seconds, executed = time.perf_counter() - start, defaultdict[str, set[int]](set)
            for code, lines in self._seen.items():
                executed[code.co_filename[len(self._package) :]] |= lines
            self._tests[item.nodeid] = {
                "seconds": round(seconds, 4),
                "starts": self._starts,
                "lines": {name: sorted(lines) for name, lines in executed.items()},
            }

    def pytest_sessionfinish(self) -> None:
        self._file.write_text(json.dumps(self._tests))


class Choose:
    """Plugin that runs these tests in this order, and writes down the first that fails."""

    def __init__(self, tests: Sequence[str], file: Path) -> None:
        self._places = {test: at for at, test in enumerate(tests)}
        self._file = file

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._places), key=lambda one: self._places[one.nodeid]
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self._file.exists():
            self._file.write_text(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self._file.exists():
            self._file.write_text(f"{report.nodeid} (import)")


class Tests:
    """Which tests execute which line of the package.

    Args:
        root: the checkout.
        paths: of tests, folders and files.
        file: keeps the answer; made anew where package or tests are others.
        tree: folder with the package, in which it is traced.
        most: seconds of tests that a mutant gets.
    """

    def __init__(self, root: Path, paths: Iterable[str], file: Path, tree: Path, most: float) -> None:
        self._most = most
        kept = json.loads(file.read_text()) if file.is_file() else {}
        folders = dict.fromkeys(paths)
        for folder in (name for name in folders if (root / name).exists()):
            sources = [*(root / PACKAGE).rglob("*.py"), root / "tests/conftest.py", root / folder]
            digest = hashlib.sha256()
            for path in sorted({*sources, *(root / folder).rglob("*.py")}):
                if path.is_file():
                    digest.update(path.read_bytes())
            if kept.get(folder, {}).get("digest") != digest.hexdigest():
                part = tree / "map.json"
                part.unlink(missing_ok=True)
                code = forked(root, tree, [folder, "--maxfail=100000"], Watch(tree / PACKAGE, part), 1800)
                told = json.loads(part.read_text()) if part.exists() else {}
                sys.stderr.write(f"{folder}: {len(told)} tests, exit code {code}\n")
                kept[folder] = {"digest": digest.hexdigest(), "tests": told}
                file.write_text(json.dumps(kept))
        parts = [kept[folder]["tests"] for folder in folders if folder in kept]
        self._tests: dict[str, Any] = {test: told for part in parts for test, told in part.items()}
        self._by_line: dict[tuple[str, int], set[str]] = defaultdict(set)
        self._by_module: dict[str, set[str]] = defaultdict(set)
        for test, told in self._tests.items():
            for module, lines in told["lines"].items():
                self._by_module[module].add(test)
                for line in lines:
                    self._by_line[module, line].add(test)
        self._starting = {test for test, told in self._tests.items() if told["starts"]}
        self._users: dict[str, set[str]] = defaultdict(set)
        for path in (root / PACKAGE).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, ast.ImportFrom) and node.module:
                    name = node.module.removeprefix(f"{PACKAGE}.").replace(".", "/")
                    self._users[f"{name}.py"].add(path.relative_to(root / PACKAGE).as_posix())

    def of(self, mutant: Mutant) -> list[str]:
        """Return the tests that execute a mutant, fastest first; of what runs at import those of users."""
        piece, first = mutant.lines
        found = set().union(*(self._by_line[mutant.module, line] for line in piece))
        found = found or self._by_line[mutant.module, first]
        if not mutant.function or not found:
            is_import = not mutant.function or mutant.function.rpartition(".")[2][:1].isupper()
            if is_import:
                users = {mutant.module, *self._users[mutant.module]}
                found = set().union(*(self._by_module[user] for user in users))
        ordered = sorted(found, key=self.seconds) + sorted(self._starting - found if found else ())
        ends = accumulate(map(self.seconds, ordered))
        return [
            test for test, end in zip(ordered, ends, strict=True) if end <= self._most or test == ordered[0]
        ]

    def seconds(self, test: str) -> float:
        return float(self._tests[test]["seconds"])


def verdict(mutant: Mutant, tests: Tests, tree: Path, root: Path) -> tuple[str, str]:
    """Return what comes of a mutant, and the test that saw it."""
    chosen = tests.of(mutant)
    if not chosen:
        return "unrun", ""
    path, failed = tree / PACKAGE / mutant.module, tree / "failed"
    failed.unlink(missing_ok=True)
    before = path.read_bytes()
    path.write_bytes(before[: mutant.start] + mutant.text.encode() + before[mutant.end :])
    when = time.time_ns()
    os.utime(path, ns=(when - 10**9 * (when % 10**8), when))  # what is compiled goes by time and size
    try:
        for part in (chosen[:FIRST], chosen[FIRST:]):
            if part:
                files = dict.fromkeys(test.partition("::")[0] for test in part)
                limit = 30 + 5 * sum(map(tests.seconds, part))
                code = forked(root, tree, [*files], Choose(part, failed), limit)
                if code is None:
                    return "time", ""
                if code:
                    return "killed", failed.read_text() if failed.exists() else f"exit code {code}"
    finally:
        path.write_bytes(before)
    return "alive", str(len(chosen))


_TREE: list[Path] = []


def _tree_of(root: Path, folder: Path) -> Path:
    """Return a folder with a copy of the package, of this process."""
    tree = Path(tempfile.mkdtemp(dir=folder))
    shutil.copytree(root / PACKAGE, tree / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    return tree


def _initialise(root: Path, folder: Path) -> None:
    _TREE.append(_tree_of(root, folder))


def _try(task: tuple[Mutant, Tests, Path]) -> str:
    mutant, tests, root = task
    start = time.perf_counter()
    came, by = verdict(mutant, tests, _TREE[0], root)
    return "\t".join(
        [came, *mutant.identity[:2], mutant.before, mutant.after, f"{time.perf_counter() - start:.1f} s", by]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rooms", nargs="+", default=ROOMS, metavar="ROOM")
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="these, not those of the rooms")
    parser.add_argument("--most", type=float, default=float("inf"), metavar="SECONDS")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--map", type=Path, required=True, metavar="FILE")
    parser.add_argument("--against", type=Path, metavar="RESULTS")
    parser.add_argument("--root", type=Path, default=Path(__file__).absolute().parents[2], metavar="DIR")
    parser.add_argument("--list", action="store_true", help="name the mutants, run nothing")
    given = parser.parse_args()
    root = given.root.absolute()
    here = all_mutants(root, given.rooms)
    if given.against is None:
        drawn = random.Random(given.seed).sample(here, min(given.count, len(here)))  # noqa: S311
    else:
        rows = [line.split("\t") for line in given.against.read_text().splitlines()]
        rows = [row for row in rows if row[0] in SEEN]  # what nobody has seen there tells nothing
        rows = [row for row in rows if any(map(PurePosixPath(row[1]).is_relative_to, given.rooms))]
        again = found_again([tuple(row[1:5]) for row in rows], here)  # type: ignore[misc]
        drawn = [mutant for mutant in again if mutant is not None]
        for mutant, row in zip(again, rows, strict=True):
            if mutant is None:
                sys.stdout.write("\t".join(["gone", *row[1:5]]) + "\n")
    if given.list:
        sys.stdout.writelines("\t".join(["", *mutant.identity]) + "\n" for mutant in drawn)
        return
    for name in WARM:
        with suppress(ImportError):
            importlib.import_module(name)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        rooms = sorted({mutant.module.partition("/")[0] for mutant in drawn})
        paths = given.tests or [path for room in rooms for path in TESTS[room]]
        tests = Tests(root, paths, given.map, _tree_of(root, Path(folder)), given.most)
        pool = multiprocessing.get_context("fork").Pool(given.jobs, _initialise, (root, Path(folder)))
        with pool:
            for line in pool.imap_unordered(_try, [(mutant, tests, root) for mutant in drawn]):
                results.append(line.split("\t"))
                sys.stdout.write(f"{line}\n")
                sys.stdout.flush()
    counts = {came: sum(row[0] == came for row in results) for came in ("killed", "time", "alive", "unrun")}
    sys.stdout.write(f"{counts} of {len(drawn)} of {len(here)}\n")
    lost = [row for row in results if row[0] not in SEEN] if given.against else []
    for row in lost:
        sys.stdout.write("\t".join(["lost", *row[1:5]]) + "\n")
    sys.exit(bool(lost))


if __name__ == "__main__":
    main()
