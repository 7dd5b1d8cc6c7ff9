"""Large suites: what a thousand tests cost, whether a session grows, whether workers lose anything.

``python docs/benchmarks/bench_suite.py [linear] [failing] [layers] [growth] [rows] [parallel]``; all of them
without a word. Tests run a small model on the emulator. ``parallel`` ends with 1 where a golden, a
verdict or a report of 200 tests in 8 workers is lost, whatever pytest-xdist's ``--dist``.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

SHARED = Path("/dev/shm")  # noqa: S108 - looked at, not written to
LEAN = ("-p", "no:pytest-retry", "-p", "no:flaky", "-p", "no:asyncio")
MODES = ("load", "loadscope", "loadfile", "loadgroup", "worksteal", "each")
TESTS = """
import numpy as np
import pytest

@pytest.fixture
def image():
    return np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
"""
MARKED = """
{group}@pytest.mark.npu_dump
@pytest.mark.parametrize("k", range({begin}, {end}))
def test_{name}(npu_dump, image, k):
    with npu_dump.load_model("small.onnx") as model:
        model.run(image + np.float32(k))
"""
PLAIN = """
@pytest.mark.parametrize("k", range({tests}))
def test_plain(image, k):
    assert image.size
"""
SAMPLES = """
import json, os, threading
from pathlib import Path

SEEN = []

def pytest_runtest_logfinish():
    SEEN.append((int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
                 len(os.listdir("/proc/self/fd")), threading.active_count()))

def pytest_unconfigure():
    Path("samples.json").write_text(json.dumps(SEEN))
"""

HALF = """
@pytest.mark.npu_dump
@pytest.mark.parametrize("k", range(2000))
def test_half(npu_dump, image, k):
    with npu_dump.load_model(("small.onnx", "other.onnx")[k % 2]) as model:
        model.run(image)
"""
LAYERS = """
@pytest.mark.npu_dump
def test_layers(npu_dump, image):
    with npu_dump.load_model("small.onnx") as model:
        model.run(image)
"""
TIMES = """
import json, time
from pathlib import Path

TIMES = []

def pytest_runtest_logfinish():
    TIMES.append(time.process_time())

def pytest_unconfigure():
    Path("times.json").write_text(json.dumps([b - a for a, b in zip(TIMES, TIMES[1:])]))
"""


def small_model(change: float = 0.0) -> bytes:
    """Return two convolutions with a Relu between them; ``change`` goes into the second one's weights."""
    rng = np.random.default_rng(3)
    first = rng.normal(size=(4, 1, 3, 3)).astype(np.float32)
    second = (rng.normal(scale=0.1, size=(2, 4, 3, 3)) + change).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Conv", ["b", "w2"], ["out"], name="second"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, [1, 2, 4, 4])],
        [numpy_helper.from_array(first, "w1"), numpy_helper.from_array(second, "w2")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


def suite(folder: Path, source: str) -> None:
    """Write a project with these tests."""
    folder.mkdir(exist_ok=True)
    for name in ("small.onnx", "other.onnx"):
        (folder / name).write_bytes(small_model())
    (folder / "test_small.py").write_text(TESTS + source)
    (folder / "pytest.ini").write_text("[pytest]\nnpudump_runtime = emulator\n")


def session(folder: Path, *options: str) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Run pytest there; return its processor seconds, those of its workers included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environ = {name: value for name, value in os.environ.items() if name not in {"CI", "PYTEST_ADDOPTS"}}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *LEAN, *options],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        env=environ,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def linear(base: Path) -> None:
    """Print what 250, 500 and 1,000 marked tests cost, and as many plain ones."""
    say("| tests | collected | recorded | compared | plain tests |")
    say("|---|---|---|---|---|")
    for tests in (250, 500, 1000):
        folder, plain = base / f"linear{tests}", base / f"plain{tests}"
        suite(folder, MARKED.format(group="", begin=0, end=tests, name="small"))
        suite(plain, PLAIN.format(tests=tests))
        cells = []
        for where, options in (
            (folder, ("--collect-only",)),
            (folder, ("--npudump-update-golden",)),
            (folder, ()),
            (plain, ()),
        ):
            cpu, done = session(where, *options)
            assert done.returncode == 0, done.stdout[-2000:]
            cells.append(f"{cpu:.2f} s ({cpu / tests * 1e3:.2f} ms a test)")
        say(f"| {tests} | {' | '.join(cells)} |")


def failing(base: Path) -> None:
    """Print what tests cost that pass, fail, and fail with a second run; and whether a session slows down."""
    folder = base / "failing"
    suite(folder, MARKED.format(group="", begin=0, end=400, name="small"))
    session(folder, "--npudump-update-golden")
    passed, _ = session(folder)
    (folder / "small.onnx").write_bytes(small_model(change=0.01))
    seconds = [session(folder, *options)[0] for options in (("-o", "npudump_escalate=off"), ())]
    told = ", ".join(f"{one:.1f} s ({one / passed:.2f} x)" for one in seconds)
    say(f"400 tests: {passed:.1f} s pass; fail, and fail with a second run: {told}")
    folder = base / "half"
    suite(folder, HALF)
    (folder / "conftest.py").write_text(TIMES)
    session(folder, "--npudump-update-golden")
    (folder / "other.onnx").write_bytes(small_model(change=0.01))
    session(folder)
    times = json.loads((folder / "times.json").read_text())
    early, late = (sum(part) / len(part) for part in (times[200:400], times[-200:]))
    told = f"{1e3 * early:.1f} ms early, {1e3 * late:.1f} ms late ({late / early:.2f} x)"
    say(f"2,000 tests, half fail: a test {told}")


def layers(base: Path, count: int = 10_000) -> None:
    """Print what one test of 10,000 layers costs that passes, fails in all, and fails with a second run."""
    folder = base / "layers"
    suite(folder, LAYERS)

    def write(change: float) -> None:
        weight = numpy_helper.from_array(np.full((1, 1, 8, 8), 1 + change, np.float32), "w")
        names = ["image", *(f"t{number}" for number in range(count))]
        nodes = [
            helper.make_node("Add", [before, "w"], [after], name=f"layer{number}")
            for number, (before, after) in enumerate(pairwise(names))
        ]
        ends = [
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1, 8, 8])]
            for name in (names[0], names[-1])
        ]
        graph = helper.make_graph(nodes, "chain", *ends, [weight])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        (folder / "small.onnx").write_bytes(model.SerializeToString())

    write(0)
    session(folder, "--npudump-update-golden")
    passed, _ = session(folder)
    write(0.01)
    seconds = [session(folder, *options)[0] for options in (("-o", "npudump_escalate=off"), ())]
    told = ", ".join(f"{one:.1f} s ({one / passed:.2f} x)" for one in seconds)
    say(f"{count} layers: {passed:.1f} s pass; all fail, and fail with a second run: {told}")


def growth(base: Path, tests: int = 2000) -> None:
    """Print by how much a session of 2,000 tests grows after its first 200, and what is left of it."""
    folder, temporary = base / "growth", base / "growth-tmp"
    suite(folder, MARKED.format(group="", begin=0, end=tests, name="small"))
    (folder / "conftest.py").write_text(SAMPLES)
    temporary.mkdir()
    os.environ["TMPDIR"] = str(temporary)
    for options in (("--npudump-update-golden",), ()):
        shared = set(SHARED.iterdir())
        _, done = session(folder, *options)
        assert done.returncode == 0, done.stdout[-2000:]
        seen = json.loads((folder / "samples.json").read_text())
        (early, fds, threads), (late, fds_late, threads_late) = seen[199], seen[-1]
        left = [path for path in temporary.rglob("*") if path.is_file()]
        say(
            f"{tests} tests {' '.join(options) or 'compared'}: {early / 2**20:.1f} MiB after 200, "
            f"{(late - early) / 2**20:+.1f} MiB after all; descriptors {fds} and {fds_late}, threads "
            f"{threads} and {threads_late}; left: {len(left)} temporary files, "
            f"{len(set(SHARED.iterdir()) - shared)} in /dev/shm",
        )
    del os.environ["TMPDIR"]


def rows(base: Path, tensors: int = 100_000) -> None:
    """Print what a golden of 100,000 rows costs to write, to read and to compare with."""
    from pytest_npudump.compare.stats.tables import compare_tables
    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
    from pytest_npudump.dump.table import StatsTable
    from pytest_npudump.golden.store import read_golden, write_golden
    from pytest_npudump.record.record import Record

    path = base / "golden.yaml"
    values = np.random.default_rng(0).normal(size=(tensors, 4))
    table = StatsTable.from_records(
        [
            TensorRecord(
                TensorKey.parse(f"network/encoder/layer.{i // 40}/MatMul_{i}:output.0"),
                "MatMul",
                "float16",
                (1, 8, i % 64 + 1),
                path,
                stats=Stats(8 * (i % 64 + 1), *row, 0, 0, 0),
            )
            for i, row in enumerate(values.tolist())
        ]
    )
    steps = {
        "written": lambda: write_golden(path, Record("t", {}, table, path)),
        "read": lambda: read_golden(path),
        "compared": lambda: compare_tables(read_golden(path).table, table, Tolerances()),
    }
    for name, step in steps.items():
        start = time.process_time()
        step()
        say(
            f"{tensors} rows ({path.stat().st_size / 2**20:.1f} MiB) {name}: "
            f"{time.process_time() - start:.2f} s"
        )


def parallel(base: Path, tests: int = 200, workers: int = 8) -> None:
    """Record, compare and fail 200 tests in 8 workers, by each way to share them out; nothing may be lost."""
    alone, names = base / "alone", ("one", "two", "three", "four")
    share = tests // len(names)
    source = "".join(
        MARKED.format(group=f'@pytest.mark.xdist_group("{name}")\n', begin=0, end=share, name=name)
        for name in names
    )
    suite(alone, source)
    session(alone, "--npudump-update-golden")
    expected = _goldens(alone)
    assert len(expected) == tests
    for mode in MODES:
        folder, logged = base / f"parallel-{mode}", tests * (workers if mode == "each" else 1)
        suite(folder, source)
        options = (
            ("-n", str(workers), "--dist", mode)
            if mode != "each"
            else ("--dist=each", f"--tx={workers}*popen")
        )
        words = []
        for _ in range(2):  # the second update meets the goldens of the first
            cpu, done = session(folder, *options, "--npudump-update-golden")
            found = _goldens(folder)
            same = sum(found.get(name) == content for name, content in expected.items())
            words.append(f"{same} of {tests} goldens as those of one process")
            assert done.returncode == 0, done.stdout[-3000:]
            assert found == expected, mode
        cpu, done = session(folder, *options)
        assert f"{logged} passed" in done.stdout, done.stdout[-3000:]
        (folder / "small.onnx").write_bytes(small_model(change=0.01))
        cpu, done = session(folder, *options, "--npudump-output=dumps")
        reports = len([*(folder / "dumps").rglob("report.json")])
        assert f"{logged} failed" in done.stdout, done.stdout[-3000:]
        assert reports == logged, reports
        assert _goldens(folder) == expected, mode
        say(
            f"--dist {mode}: {', '.join(words)}; {logged} passed; with a change {logged} failed, "
            f"{reports} reports ({cpu:.0f} s of processor time)",
        )


def _goldens(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "golden").rglob("*") if path.is_file()}


if __name__ == "__main__":
    parts = {part.__name__: part for part in (linear, failing, layers, growth, rows, parallel)}
    with tempfile.TemporaryDirectory() as work:
        for wanted in sys.argv[1:] or parts:
            parts[wanted](Path(work))
