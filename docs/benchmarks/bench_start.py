"""What starting costs: a command, pytest with this plugin loaded and not used, and the first marked test.

    python docs/benchmarks/bench_start.py [--against TREE] [--runs N]

TREE is another checkout of this repository; its figures are of the same minutes, run by run in turn. All are
user and system seconds of a whole process, of N runs the fastest; of pytest the difference between the
fastest with the plugin and the fastest with an empty one in its place, no other being loaded. The first
marked test is a session on the emulator, with all plugins that are installed, beside one that runs the same
net in onnxruntime.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SAMPLE = """Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,L2Norm Value
output,0,4096,DT_FLOAT,ND,32x32,1,-1,0.5,2
"""
NAME = "Relu.net_relu.1.2.1795230010397198.csv"
START = "import sys; from pytest_npudump.cli import main; sys.exit(main())"
COMMANDS = {
    "npudump compare --help": ("compare", "--help"),
    "npudump compare, one layer": ("compare", "golden", "golden"),
    "npudump ls, one layer": ("ls", "golden"),
}
EXPECTED = {"compare": b"1 of 1 tensors compared, all within tolerance", "ls": b"1 tensors, 1 layers"}

NET = """
import onnx
from onnx import TensorProto, helper
steps = (("Neg", "Relu")[n % 2] for n in range(1000))
nodes = [helper.make_node(step, [f"t{n}"], [f"t{n + 1}"], name=f"op{n}") for n, step in enumerate(steps)]
ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8]) for name in ("t0", "t1000")]
graph = helper.make_graph(nodes, "net", ports[:1], ports[1:])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "net.onnx")
"""
FIRST = """
import numpy as np
import pytest

@pytest.mark.npu_dump
def test_first(npu_dump):
    with npu_dump.load_model("net.onnx") as model:
        model.run(np.ones(8, np.float32))
"""
FLOOR = """
import numpy as np
import onnx
import onnxruntime

def test_floor():
    model, options = onnx.load("net.onnx"), onnxruntime.SessionOptions()
    model.graph.output.extend(onnx.helper.make_tensor_value_info(f"t{n}", 1, [8]) for n in range(1, 1000))
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    assert len(session.run(None, {"t0": np.ones(8, np.float32)})) == 1000
"""


def cost(
    tree: Path, folder: Path, *words: str, expected: bytes = b"", alone: bool = True, writes: bool = True
) -> float:
    """Run Python and return its seconds; what it prints has to hold ``expected``.

    ``alone`` leaves out the plugins of pytest that are installed; ``writes`` is of byte code.
    """
    environment = {**os.environ, "PYTHONPATH": str(tree), "OPENBLAS_NUM_THREADS": "1"}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} if alone else {}
    environment["PYTHONDONTWRITEBYTECODE"] = "" if writes else "1"
    environment.pop("CI", None)
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(
            [sys.executable, *words], cwd=folder, env=environment, stdout=out, stderr=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        assert child.returncode == 0
        assert expected in out.read()
    return usage.ru_utime + usage.ru_stime


def bench_commands(trees: dict[str, Path], folder: Path, runs: int) -> None:
    run = folder / "golden" / "20260101000000" / "0" / "net" / "1" / "0"
    run.mkdir(parents=True)
    (run / NAME).write_text(SAMPLE)
    for title, words in COMMANDS.items():
        expected = b"" if "--help" in words else EXPECTED[words[0]]
        found: dict[str, list[float]] = {name: [] for name in trees}
        for _ in range(runs):
            for name, tree in trees.items():
                found[name].append(cost(tree, folder, "-c", START, *words, expected=expected))
        row(title, {name: min(seconds) for name, seconds in found.items()})
    row("python -c 'import numpy'", {"": min(cost(ROOT, folder, "-c", "import numpy") for _ in range(runs))})


def bench_collection(trees: dict[str, Path], folder: Path, runs: int) -> None:
    """``npudump config show`` beside the collection of its test, with all plugins that are installed."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_b.py").write_text(
        "import pytest\n@pytest.mark.npu_dump(layers=['a'])\ndef test_b(npu_dump): pass\n"
    )
    ways = {
        "npudump config show": (b"dump_path", ("-c", START, "config", "show", "test_b.py::test_b")),
        "pytest --collect-only": (b"1 test collected", ("-m", "pytest", "--collect-only", "-q", "test_b.py")),
    }
    found: dict[tuple[str, str], list[float]] = {(way, name): [] for way in ways for name in trees}
    for _ in range(runs):
        for (way, name), seconds in found.items():
            expected, words = ways[way]
            seconds.append(cost(trees[name], folder, *words, expected=expected, alone=False))
    for way in ways:
        row(way, {name: min(found[way, name]) for name in trees})


def bench_pytest(trees: dict[str, Path], folder: Path, runs: int) -> None:
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "empty.py").touch()
    for count in (1, 1000):
        text = f"import pytest\n@pytest.mark.parametrize('n', range({count}))\ndef test_a(n): pass\n"
        (folder / "test_a.py").write_text(text)
        words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_a.py")
        expected = f"{count} passed".encode()
        found: dict[str, list[float]] = {name: [] for name in ("without", *trees)}
        for _ in range(runs):
            for name, tree in {"without": ROOT, **trees}.items():
                plugin = "empty" if name == "without" else "pytest_npudump.plugin"
                found[name].append(cost(tree, folder, *words, "-p", plugin, expected=expected))
        least = {name: min(seconds) for name, seconds in found.items()}
        without = least.pop("without")
        title = f"plugin, {count} unmarked tests ({1000 * without:.0f} ms without)"
        row(title, {name: seconds - without for name, seconds in least.items()})


def bench_first(trees: dict[str, Path], folder: Path, runs: int) -> None:
    """The first marked test of a process, of 1,000 operators: with our byte code cached, and without."""
    (folder / "pytest.ini").write_text("[pytest]\nnpudump_runtime = emulator\n")
    (folder / "test_first.py").write_text(FIRST)
    (folder / "test_floor.py").write_text(FLOOR)
    subprocess.run([sys.executable, "-c", NET], cwd=folder, check=True)
    pytest = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
    cost(ROOT, folder, *pytest, "--npudump-update-golden", "test_first.py", alone=False)
    for words, writes in (("no byte code", False), ("byte code cached", True)):
        places = trees
        if not writes:
            places = {name: folder / name for name in trees}
            for name, place in places.items():
                hidden = shutil.ignore_patterns("__pycache__")
                shutil.copytree(trees[name] / "pytest_npudump", place / "pytest_npudump", ignore=hidden)
        ways = {
            "onnxruntime": (ROOT, "test_floor.py"),
            **{k: (v, "test_first.py") for k, v in places.items()},
        }
        found: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(1 + runs // 3):
            for name, (tree, file) in ways.items():
                seconds = cost(tree, folder, *pytest, file, expected=b"1 passed", alone=False, writes=writes)
                found[name].append(seconds)
        row(f"first marked test, {words}", {name: min(seconds[1:]) for name, seconds in found.items()})


def row(title: str, seconds: dict[str, float]) -> None:
    figures = [f"{name} {1000 * value:.1f} ms".strip() for name, value in seconds.items()]
    sys.stdout.write(f"| {title} | {' | '.join(figures)} |\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, metavar="TREE", help="another checkout, for paired runs")
    parser.add_argument("--runs", type=int, default=15)
    arguments = parser.parse_args()
    trees = {"before": arguments.against.absolute()} if arguments.against else {}
    trees["now"] = ROOT
    with tempfile.TemporaryDirectory() as folder:
        bench_commands(trees, Path(folder), arguments.runs)
        bench_collection(trees, Path(folder), arguments.runs)
        bench_pytest(trees, Path(folder), arguments.runs)
        bench_first(trees, Path(folder), arguments.runs)


if __name__ == "__main__":
    main()
