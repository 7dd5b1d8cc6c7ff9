"""What it costs to pass 10,000 tensors: this package beside other golden plugins, each in its own process.

Run by hand: ``python docs/benchmarks/bench_golden.py [rounds]``. Peers that are not installed are named and
left out: ``pip install pytest-regressions pandas syrupy pytest-arraydiff``. The figures are CPU milliseconds
inside the test (median of the rounds; imports of the test module not counted) and what the check adds to the
peak RSS of pytest with numpy.

``python docs/benchmarks/bench_golden.py --sizes DIR`` compares the bytes of goldens of six models with those
that DIR, an older checkout, records.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

TENSORS = 10_000

COMMON = f"""
import json, os, resource, time
from contextlib import contextmanager
import numpy as np
import pytest

N = {TENSORS}
KEYS = tuple(f"network/encoder/layer.{{i // 40}}/MatMul_{{i}}:output.0" for i in range(N))
VALUES = np.random.default_rng(0).normal(size=(N, 7))
VALUES[:, :2] = VALUES[:, :2].astype(np.float16)
VALUES[:, 4:] = 0
NAMES = ("max", "min", "avg", "l2norm", "nan", "neg_inf", "pos_inf")
COLUMNS = {{name: VALUES[:, i].copy() for i, name in enumerate(NAMES)}}

@contextmanager
def measured():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    yield
    cpu = time.process_time() - start
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open(os.environ["BENCH_RESULT"], "w") as file:
        json.dump({{"cpu": cpu * 1e3, "rss": (after - before) / 1024}}, file)
"""

NPUDUMP = """
from pathlib import Path
from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.golden.store import read_golden, write_golden
from pytest_npudump.record.record import Record

GOLDEN = Path(__file__).with_name("golden.yaml")
RECORDS = [
    TensorRecord(
        TensorKey.parse(key), "MatMul", "float16", (1, 8, i % 64 + 1), GOLDEN,
        stats=Stats(8 * (i % 64 + 1), *row[:4], *map(int, row[4:])),
    )
    for i, (key, row) in enumerate(zip(KEYS, VALUES.tolist()))
]
TABLE = StatsTable.from_records(RECORDS)

def test_it():
    if not GOLDEN.exists():
        write_golden(Record("t", {}, TABLE, GOLDEN))
        return
    with measured():
        ACTUAL
        comparison = compare_tables(read_golden(GOLDEN).table, actual, Tolerances())
        assert comparison.ok and comparison.passed == N
"""


@dataclass(frozen=True)
class Case:
    """One way to check the same numbers: what it needs, its options and the test's text."""

    name: str
    package: str
    body: str
    options: tuple[str, ...] = ()
    update: tuple[str, ...] = ()


CASES = (
    Case("npudump, read + compare", "pytest_npudump", NPUDUMP.replace("ACTUAL", "actual = TABLE")),
    Case(
        "npudump, records to verdict",
        "pytest_npudump",
        NPUDUMP.replace("ACTUAL", "actual = StatsTable.from_records(RECORDS)"),
    ),
    Case(
        "regressions num",
        "pytest_regressions",
        "def test_it(num_regression):\n    with measured():\n        num_regression.check(COLUMNS)\n",
        update=("--force-regen",),
    ),
    Case(
        "regressions dataframe",
        "pytest_regressions",
        "import pandas as pd\nFRAME = pd.DataFrame(COLUMNS, index=list(KEYS))\n"
        "def test_it(dataframe_regression):\n"
        "    with measured():\n        dataframe_regression.check(FRAME)\n",
        update=("--force-regen",),
    ),
    Case(
        "regressions ndarrays, columns",
        "pytest_regressions",
        "def test_it(ndarrays_regression):\n"
        "    with measured():\n        ndarrays_regression.check(COLUMNS)\n",
        update=("--force-regen",),
    ),
    Case(
        "syrupy json",
        "syrupy",
        "from syrupy.extensions.json import JSONSnapshotExtension\n"
        "ROWS = {k: dict(zip(NAMES, row)) for k, row in zip(KEYS, VALUES.tolist())}\n"
        "def test_it(snapshot):\n    with measured():\n"
        "        assert ROWS == snapshot.use_extension(JSONSnapshotExtension)\n",
        update=("--snapshot-update",),
    ),
    Case(
        "arraydiff text",
        "pytest_arraydiff",
        "@pytest.fixture(autouse=True)\ndef around():\n    with measured():\n        yield\n"
        "@pytest.mark.array_compare(file_format='text', reference_dir='reference')\n"
        "def test_it():\n    return VALUES\n",
        options=("--arraydiff",),
        update=("--arraydiff-generate-path=reference",),
    ),
)


def run(case: Case, folder: Path, options: tuple[str, ...]) -> dict[str, float]:
    """Run the case's test once in its own process; gives what it measured of itself."""
    result = folder / "result.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "test_case.py"]
    environment = {k: v for k, v in os.environ.items() if k != "CI"} | {"BENCH_RESULT": str(result)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode and not (options and options == case.update):
        sys.exit(f"{case.name}: the check did not pass\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    measured: dict[str, float] = json.loads(result.read_text()) if result.exists() else {}
    return measured


def bench(case: Case, rounds: int) -> str:
    """One line of the report."""
    if importlib.util.find_spec(case.package) is None:
        return f"{case.name:32} not installed"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_case.py").write_text(COMMON + case.body)
        run(case, folder, case.update)
        found = [run(case, folder, case.options) for _ in range(rounds)]
    cpu = statistics.median(each["cpu"] for each in found)
    rss = statistics.median(each["rss"] for each in found)
    return f"{case.name:32} {cpu:8.0f} ms {rss:+8.1f} MiB"


SIZES = """
import pickle, pytest
from pathlib import Path
CASES = pickle.loads(Path("cases.pickle").read_bytes())

@pytest.mark.npu_dump
@pytest.mark.parametrize("name", CASES)
def test_it(npu_dump, name):
    with npu_dump.load_model(f"{name}.onnx") as model:
        model.run(*CASES[name])
"""


def sizes(trees: tuple[Path, Path]) -> None:
    """Print for each model the bytes of its golden by both checkouts, and their ratio."""
    sys.path.insert(0, str(Path(__file__).parent))
    from verdicts.unseen import MODELS

    found: list[dict[str, int]] = []
    for tree in trees:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            made = {model: make(folder / f"{model}.onnx")[1] for model, make in MODELS.items()}
            cases = {model: [*feeds.values()] for model, feeds in made.items() if "half" not in model}
            (folder / "cases.pickle").write_bytes(pickle.dumps(cases))
            (folder / "test_case.py").write_text(SIZES)
            (folder / "pytest.ini").write_text("[pytest]\nnpudump_runtime = emulator\n")
            environment = {k: v for k, v in os.environ.items() if k != "CI"} | {"PYTHONPATH": str(tree)}
            command = [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "--npudump-update-golden",
                "--npudump-output=out",
            ]
            subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
            paths = (folder / "golden").rglob("*.yaml")
            found.append({path.stem: path.stat().st_size for path in paths})
    for name, size in found[1].items():
        sys.stdout.write(f"{name:32} {found[0][name]:8} {size:8} {size / found[0][name]:.3f}\n")


def main() -> None:
    """Print a line for each case."""
    if sys.argv[1:2] == ["--sizes"]:
        sizes((Path(sys.argv[2]).resolve(), Path(__file__).parents[2].resolve()))
        return
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    sys.stdout.write(f"{TENSORS} tensors x 7 statistics, passing, median of {rounds}\n")
    for case in CASES:
        sys.stdout.write(bench(case, rounds) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
