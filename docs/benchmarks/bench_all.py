"""All figures of docs/speed.md, as tables: whole commands and sessions, then the parts that have scripts.

    python docs/benchmarks/bench_all.py [--against TREE] [--peer PYTHON] [--only PART ...] [--quick]

TREE is a checkout of another commit (``git worktree add TREE COMMIT``), measured in turn with this one;
PYTHON an interpreter of an environment with msprobe (``pip install mindstudio-probe torch``). A figure is the
processor time of a whole process, its children's included, of some runs the least, with the largest resident
set in MiB. ``floor`` does the same with less: numpy of one thread in float64 (float32 where nothing fails),
Python's csv, git, onnxruntime, plain tests, or what the title has in brackets. The last column is the ratio
that is asked for. Takes ten minutes with TREE on two idle cores, and at most 2 GiB of files at a time. A
command that does not say what it must ends all; ``--quick`` only shows that all of them do, by a run of each
and a quarter of the tests and layers.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SAMPLES = (HERE / "samples.py",)
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
BOUNDS = ("--rtol", "1e-3", "--atol", "1e-5")
SERIAL = ("--executor", "serial")
ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
OFF = ("-o", "npudump_escalate=off")
FAILING = {
    "int8": (40, 3),
    "float16": (10, 3),
    "bfloat16": (10, 3),
    "float8_e4m3fn": (10, 3),
    "float32": (40, 2),
}
"""Tensors of 4 MiB, and the ratio that is asked for."""
CONTENTS = (
    "in another order",
    "sorted",
    "all NaN",
    "one value",
    "two values",
    "one row, two pieces exchanged",
)
SEARCHED = (
    "transposed",
    "sorted",
    "rounded",
    "pairs",
    "every other column",
    "zeros, but one in a hundred",
    "five axes in another order",
)
COUNTS = {"suite": 400, "layers": 10_000, "half": 2_000, "isolated": 8, "passing": 100}
"""Tests, or layers of one test."""
SCRIPTS = {
    "bench_small.py": ("--pairs", "1000", "--rounds", "3"),
    "bench_types.py": ("--mib", "8", "--rounds", "2", "--only", "plain,nan,lowest"),
    "bench_rows.py": ("--rows", "10000", "100000"),
    "bench_emulator.py": ("--rounds", "3", "--tests", "300"),
}
"""Parts that time what no command shows, with what keeps them short."""

NUMPY = """
import sys, numpy as np, ml_dtypes, pathlib
what, golden, actual, dtype = sys.argv[1:]
np.seterr(all="ignore")
kind = getattr(ml_dtypes, dtype, dtype)
for path in sorted(pathlib.Path(golden).rglob("Relu*")):
    offset = 8 + int.from_bytes(path.open("rb").read(8), "little")
    a = np.fromfile(path, kind, offset=offset)
    if what == "stats":
        found = a.max(), a.min(), a.mean(), np.linalg.norm(a)
        found += np.isnan(a).sum(), np.isinf(a).sum(), (a == 0).sum()
    elif what == "convert":
        np.save(path.name + ".npy", a)
    else:
        b = np.fromfile(pathlib.Path(actual) / path.relative_to(golden), kind, offset=offset)
        a, b = (one.astype(np.float32 if what == "compare" else np.float64) for one in (a, b))
        d = np.abs(a - b)
        found = d.max(), a @ b / np.sqrt((a @ a) * (b @ b)), np.sqrt((d @ d) / (a @ a))
        if what == "compare":
            found += (d <= 1e-3 * np.abs(a)).mean(),
        else:
            found += (d / np.abs(a)).max(), (d > 1e-3 * np.abs(a) + 1e-5).sum(), np.isnan(b).sum()
"""
ROWS = """
import csv, sys, pathlib
sides = []
for tree in sys.argv[1:]:
    with next(pathlib.Path(tree).rglob("*.csv")).open(newline="") as file:
        sides.append(list(csv.DictReader(file)))
off = 0
for one, other in zip(*sides, strict=True):
    for name in ("Max Value", "Min Value", "Avg Value", "L2Norm Value"):
        golden, actual = float(one[name]), float(other[name])
        off += abs(actual - golden) > 1e-3 * abs(golden)
print(len(sides[0]), "rows,", off, "off")
"""

PASSING = """
import numpy as np, pytest
from pytest_npudump.demo import MODEL
@pytest.mark.npu_dump{how}
@pytest.mark.parametrize("number", range({count}))
def test_it(npu_dump, number):
    with npu_dump.load_model(MODEL) as model:
        model.run(np.random.default_rng(0).standard_normal((1, 3, 48, 192), np.float32))
"""


@dataclass(frozen=True)
class Job:
    """A command, and what it is held against.

    Attributes:
        title: of the row.
        words: behind the interpreter.
        floor: likewise; () for none.
        says: a pattern that is found in what it prints; its group, if any, is shown.
        goal: the ratio to the floor that is asked for.
        folder: where both run, in the working directory; new files are removed behind each run.
        environment: of both.
        bare: runs a copy of the package without byte code, which writes none.
        rounds: how often, at most.
    """

    title: str
    words: tuple[str | Path, ...]
    floor: tuple[str | Path, ...] = ()
    says: str = ""
    goal: float | None = None
    folder: str = "."
    environment: dict[str, str] = field(default_factory=dict)
    bare: bool = False
    rounds: int = 9


@dataclass(frozen=True)
class Cost:
    """Processor seconds, MiB, and what was shown."""

    cpu: float
    memory: float
    shown: str

    def __str__(self) -> str:
        return f"{self.cpu:.3g} s ({self.memory:.0f}){self.shown}"


def npudump(*words: str | Path) -> tuple[str | Path, ...]:
    return ("-c", "import sys; from pytest_npudump.cli import main; sys.exit(main())", *words)


def run(
    words: tuple[str | Path, ...], tree: Path, folder: Path, environment: dict[str, str], says: str
) -> Cost:
    """Run Python, not from a checkout, as it looks for packages in the working directory first."""
    hidden = {"CI", "PYTHONDONTWRITEBYTECODE", "PYTEST_ADDOPTS"}
    environment = {
        **{name: value for name, value in os.environ.items() if name not in hidden},
        "PYTHONPATH": f"{tree}{os.pathsep}{folder}",
        "OPENBLAS_NUM_THREADS": "1",
        **environment,
    }
    interpreter = words[0] if isinstance(words[0], Path) and words[0].suffix != ".py" else sys.executable
    given = words[1:] if interpreter is words[0] else words
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(
            [str(interpreter), *map(str, given)], cwd=folder, env=environment, stdout=out, stderr=out
        )
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        said = out.read().decode(errors="replace")
    found = re.search(says, said)
    if child.returncode not in {0, 1} or found is None:
        sys.exit(
            f"{' '.join(map(str, words))[:300]}: exit {child.returncode}, expected {says!r}\n{said[-3000:]}"
        )
    shown = f", {found[1]}" if found.re.groups else ""
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, shown)


def prepare(work: Path, *words: str | Path, folder: str = ".", says: str = "") -> None:
    run((*(SAMPLES if words[0] not in {"-m", "-c"} else ()), *words), ROOT, work / folder, {}, says)


def starts(work: Path, _peer: Path | None) -> Iterator[Job]:
    prepare(work, "starts", work)
    yield Job("`npudump compare --help`", npudump("compare", "--help"), ("-c", "import numpy"), "usage")
    yield Job("`npudump ls`, one layer", npudump("ls", "one"), ("-c", "import numpy"), "1 layer")
    for count in (1, 1000):
        words = (*PYTEST, f"test_{count}.py", "-p")
        loaded, empty = (*words, "pytest_npudump.plugin"), (*words, "empty")
        says = f"{count} passed"
        yield Job(f"plugin unused, {count} tests (without it)", loaded, empty, says, environment=ALONE)
    prepare(work, *PYTEST, "--npudump-update-golden", "test_first.py", says="1 passed")
    first, floor = (*PYTEST, "test_first.py"), (*PYTEST, "test_floor.py")
    yield Job("first marked test, 1,000 operators", first, floor, "1 passed", 1.65, rounds=4)
    bare = {"PYTHONDONTWRITEBYTECODE": "1"}
    title = "first marked test, no byte code"
    yield Job(title, first, floor, "1 passed", 2.1, environment=bare, bare=True, rounds=3)


def tables(work: Path, peer: Path | None) -> Iterator[Job]:
    prepare(work, "statistics", work)
    says = "20000 of 20000 tensors compared, all within tolerance"
    for name, title in (("merged", "20,000 rows in one CSV"), ("long", "the same, names of 300 characters")):
        sides = f"{name}_golden", f"{name}_actual"
        yield Job(f"compare {title}", npudump("compare", *sides), ("-c", ROWS, *sides), says, 2)
    words = npudump("compare", "off_golden", "off_actual")
    off = "mismatches: 100000"
    yield Job("50,000 layers that all fail, in one CSV", words, (), off, rounds=2)
    title = "the same, all listed and as JSON (without)"
    yield Job(title, (*words, "-v", "--json", "off.json"), words, off, rounds=2)
    if peer:
        yield Job("msprobe, 20,000 rows", of_msprobe(peer, "peer_golden", "peer_actual"), rounds=1)
    for golden in ("csv_golden", "csv_golden.yaml"):
        words = npudump("compare", golden, "csv_actual")
        yield Job(f"compare {golden} with 10,000 files of statistics", words, (), says, rounds=3)


def of_msprobe(peer: Path, golden: str, actual: str) -> tuple[str | Path, ...]:
    start = ("-c", "from msprobe.msprobe import main; main()", "compare")
    return (peer, *start, "-tp", f"{actual}/dump.json", "-gp", f"{golden}/dump.json", "-o", "peer_out")


def tensors(work: Path, peer: Path | None) -> Iterator[Job]:
    for dtype in ("float16", "float32"):
        prepare(work, "tensors", work, dtype)
        golden, actual = (f"{dtype}_{side}" for side in ("golden", "actual"))
        for executor in ("serial", "threads", "processes:2"):
            words = npudump("compare", golden, actual, *BOUNDS, "--executor", executor)
            floor = ("-c", NUMPY, "compare", golden, actual, dtype) if executor == "serial" else ()
            title, says = f"compare 200 x 4 MiB, {dtype}, {executor}", "200 of 200 .* all within tolerance"
            yield Job(title, words, floor, says, rounds=3)
        stats = npudump("ls", "--stats", golden, *SERIAL)
        floor = ("-c", NUMPY, "stats", golden, actual, dtype)
        yield Job(f"statistics of 800 MiB, {dtype}", stats, floor, "relu_0199", rounds=2)
        title = "the same and projections (without them)"
        yield Job(title, (*stats, "--projections"), stats, "relu_0199", rounds=3)
        words = npudump("convert", golden, "-o", "converted", *SERIAL)
        floor = ("-c", NUMPY, "convert", f"../{golden}", "", dtype)
        folder = "converted_by"
        (work / folder).mkdir(exist_ok=True)
        words = npudump("convert", f"../{golden}", "-o", "converted", *SERIAL)
        yield Job(f"convert 800 MiB of {dtype} to npy", words, floor, folder=folder, rounds=3)
        if peer:
            run((peer, *SAMPLES, "peer", work, dtype), HERE, work, {}, "")
            words = of_msprobe(peer, f"peer_{dtype}_golden", f"peer_{dtype}_actual")
            yield Job(f"msprobe, 200 x 4 MiB, {dtype}", words, rounds=1)
    for mebibytes in (1, 64, 1024):
        for value, says in (("1", "all within tolerance"), ("2", "mismatches: 1|1 differ")):
            prepare(work, "large", work, str(mebibytes), value)
            words = npudump("compare", "one", "other", *SERIAL)
            title = f"compare one tensor of {mebibytes} MiB{', which fails' if value != '1' else ''}"
            yield Job(title, words, (), says, rounds=2)


def failing(work: Path, _peer: Path | None) -> Iterator[Job]:
    rows = [(dtype, "unrelated", *told) for dtype, told in FAILING.items()]
    rows += [("float32", content, *FAILING["float32"]) for content in CONTENTS]
    rows += [(dtype, content, *FAILING[dtype]) for dtype in ("int8", "float16") for content in CONTENTS[:2]]
    rows += [("float16", "64 Mi elements", 1, 3), ("float32", "64 Mi elements", 1, 2)]
    rows += [("int8", "pairs", 4, 3), ("int8", "two rows", 4, 3), ("float16", "pairs", 4, 3)]
    rows += [("float32", content, 20, 2) for content in SEARCHED]
    for dtype, content, count, goal in rows:
        prepare(work, "failing", work, dtype, str(count), content)
        sides = "failing_golden", "failing_actual"
        words = npudump("compare", *sides, *BOUNDS, *SERIAL)
        floor, says = ("-c", NUMPY, "failing", *sides, dtype), f"mismatches: {count}|{count} differ"
        yield Job(f"{count} x {dtype} fail, {content}", words, floor, says, goal, rounds=2)


def goldens(work: Path, _peer: Path | None) -> Iterator[Job]:
    prepare(work, "merge", work)
    copied = "import os, shutil, sys; shutil.copy('ours', 'merged'); "
    start = f"{copied}from pytest_npudump.cli import main; sys.exit(main())"
    words = ("-c", start, "golden", "merge", "base", "merged", "theirs")
    git = ("-c", f"{copied}os.execvp('git', ['git', 'merge-file', 'merged', 'base', 'theirs'])")
    yield Job("`golden merge`, 100,000 rows, 2,000 changed", words, git, rounds=3)
    lines = (work / "theirs").read_text().splitlines(keepends=True)
    name = lines[-1].split()[0]
    (work / "theirs").write_text("".join([*lines, lines[-1].replace(name, f"{name}_added", 1)]))
    yield Job("the same, one added", words, git, rounds=3)


def sessions(work: Path, _peer: Path | None) -> Iterator[Job]:
    count = COUNTS["suite"]
    suites = {
        f"{count} tests": ("suite", count, 1.3, 2.0),
        f"a test of {COUNTS['layers']:,} layers": ("layers", 1, None, 2.5),
    }
    for title, (kind, number, goal, second) in suites.items():
        passing, changed = work / kind, f"{kind}_changed"
        prepare(work, kind, work, str(COUNTS[kind]))
        prepare(work, *PYTEST, "--npudump-update-golden", folder=kind, says=f"{number} passed")
        prepare(work, "changed", passing)
        passes, fails = f"{number} passed", f"{number} failed"
        floor = (*PYTEST, "../test_plain.py") if kind == "suite" else ()
        yield Job(f"{title}: pass (as many plain ones)", PYTEST, floor, passes, folder=kind, rounds=2)
        original = (*PYTEST, "--rootdir", passing, "-c", passing / "pytest.ini", passing)
        yield Job(f"{title}: fail (pass)", (*PYTEST, *OFF), original, fails, goal, folder=changed, rounds=2)
        words = f"{title}: fail, second run (pass)"
        yield Job(words, PYTEST, original, fails, second, folder=changed, rounds=1)
    folder, count = work / "passing", COUNTS["passing"]
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\nnpudump_runtime = emulator\n")
    for kind, how in (("auto", ""), ("stats", "(acl_json={'dump_data': 'stats'})")):
        (folder / f"test_{kind}.py").write_text(PASSING.format(how=how, count=count))
    prepare(work, *PYTEST, "--npudump-update-golden", folder="passing", says=f"{2 * count} passed")
    tensors_by, stats_by = ((*PYTEST, f"test_{kind}.py") for kind in ("auto", "stats"))
    title = f"{count} passing tests of PP-OCR by tensors (by statistics)"
    yield Job(title, tensors_by, stats_by, f"{count} passed", 1.3, folder="passing", rounds=2)
    count = COUNTS["half"]
    prepare(work, "half", work, str(count))
    prepare(work, *PYTEST, "--npudump-update-golden", folder="half", says=f"{count} passed")
    words = npudump("golden", "status")
    yield Job(f"`golden status` of {count:,} goldens", words, (), "", folder="half", rounds=2)
    prepare(work, "changed", work / "half")
    says = r"(late/early \d+\.\d+)"
    yield Job(f"{count:,} tests, half fail", PYTEST, (), says, folder="half_changed", rounds=1)
    count = COUNTS["isolated"]
    prepare(work, "isolated", work, str(count))
    prepare(work, *PYTEST, "--npudump-update-golden", folder="isolated", says=f"{2 * count} passed")
    title = f"{count} tests in processes of their own (in pytest's)"
    apart, here = ((*PYTEST, f"test_{name}.py") for name in ("apart", "here"))
    yield Job(title, apart, here, f"{count} passed", folder="isolated", rounds=2)


PARTS = {part.__name__: part for part in (starts, tables, tensors, failing, goldens, sessions)}
"""Each yields its jobs, behind the making of what they read."""


def measured(job: Job, trees: dict[str, Path], work: Path, rounds: int) -> dict[str, Cost]:
    """Run the ways to do a job in turn; return the least cost of each."""
    ways = {name: (tree, job.words) for name, tree in trees.items()}
    if job.bare:
        ways = {name: (work / f"bare_{name}", job.words) for name in trees}
        for name, tree in trees.items():
            copy, hidden = work / f"bare_{name}/pytest_npudump", shutil.ignore_patterns("__pycache__")
            shutil.copytree(tree / "pytest_npudump", copy, ignore=hidden, dirs_exist_ok=True)
    if job.floor:
        ways["floor"] = trees["here"], job.floor
    folder, found = work / job.folder, dict[str, Cost]()
    if isinstance(job.words[0], Path):
        ways = {"here": ways["here"]}
    for _ in range(min(rounds, job.rounds)):
        for name, (tree, words) in ways.items():
            before = {*folder.iterdir()}
            says = job.says if name != "floor" else ""
            cost = run(words, tree, folder, job.environment, says)
            for path in {*folder.iterdir()} - before:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            found[name] = min(cost, found.get(name, cost), key=lambda one: one.cpu)
    return found


def row(*cells: object) -> None:
    sys.stdout.write(f"| {' | '.join(map(str, cells))} |\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--against", type=Path, metavar="TREE", help="a checkout of another commit")
    parser.add_argument("--peer", type=Path, metavar="PYTHON", help="an interpreter that has msprobe")
    names = (*PARTS, *SCRIPTS)
    parser.add_argument(
        "--only", nargs="+", default=names, choices=names, metavar="PART", help=" ".join(names)
    )
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="runs of a row, at most")
    parser.add_argument("--quick", action="store_true", help="one run of each, fewer tests and layers")
    parser.add_argument("--work", type=Path, metavar="DIR", help="where the files go")
    given = parser.parse_args()
    if given.quick:
        given.rounds = 1
        COUNTS.update({name: count // 4 for name, count in COUNTS.items()})
    trees = {"here": ROOT} | ({"before": given.against.absolute()} if given.against else {})
    row("", *trees, *(["here/before"] if given.against else []), "floor", "here/floor", "asked for")
    row(*["---"] * (len(trees) + (5 if given.against else 4)))
    for part in (PARTS[name] for name in given.only if name in PARTS):
        with tempfile.TemporaryDirectory(dir=given.work) as folder:
            for job in part(Path(folder), given.peer):
                found = measured(job, trees, Path(folder), given.rounds)
                here, floor = found["here"].cpu, found.get("floor")
                cells: list[object] = [found.get(name, "-") for name in trees]
                if given.against:
                    cells.append(f"{here / found['before'].cpu:.2f}" if "before" in found else "-")
                row(
                    job.title,
                    *cells,
                    *((floor, f"{here / floor.cpu:.2f}") if floor else "--"),
                    job.goal or "-",
                )
    against = ("--against", given.against.absolute()) if given.against else ()
    for script, words in SCRIPTS.items():
        if script in given.only:
            sys.stdout.write(f"\n{script} {' '.join(words)}\n\n")
            sys.stdout.flush()
            environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
            command = [sys.executable, HERE / script, *against, *words]
            subprocess.run(command, check=True, env=environment, cwd=tempfile.gettempdir())


if __name__ == "__main__":
    main()
