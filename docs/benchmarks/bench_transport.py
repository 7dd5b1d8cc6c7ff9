"""What it costs to have a model's tensors judged: statistics by files, tensors by files, tensors by callback.

Run by hand: ``python docs/benchmarks/bench_transport.py [layers] [MiB of a tensor] [rounds]``. One model on
the emulator, one golden a case, each run in its own process. The seconds are those of the whole test (the
model, the dump and the judgement; median of the rounds), the memory is the peak RSS beyond that of the
cheapest case. CANN's own statistics are computed by the emulator here, where a device has its AI CPU for it:
compare the other two.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

CONFTEST = """
import json, os, resource, time
from pathlib import Path
import pytest

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol():
    cpu, wall = time.process_time(), time.perf_counter()
    result = yield
    found = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    found["rss"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    files = [p for p in Path("dumps").rglob("*") if p.is_file() and p.suffix != ".json"]
    found["written"] = sum(p.stat().st_size for p in files) / 2**20
    Path(os.environ["BENCH_RESULT"]).write_text(json.dumps(found))
    return result
"""

MODEL = """
import numpy as np, onnx, sys
from onnx import TensorProto, helper, numpy_helper

layers, size = int(sys.argv[1]), int(float(sys.argv[2]) * 2**20) // 4
step = numpy_helper.from_array(np.array([0.25], np.float32), "step")
nodes = [
    helper.make_node("Add" if i % 2 else "Sub", [f"t{i}", "step"], [f"t{i + 1}"], name=f"layer{i}")
    for i in range(layers)
]
ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [size]) for n in ("t0", f"t{layers}")]
graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], [step])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "chain.onnx")
"""

TEST = """
import numpy as np
import pytest

@pytest.mark.npu_dump({marker})
def test_chain(npu_dump):
    with npu_dump.load_model("chain.onnx") as model:
        model.run(np.random.default_rng(0).standard_normal({size}).astype(np.float32))
"""


@dataclass(frozen=True)
class Case:
    """One way: its name, the marker's arguments and the significant digits of its statistics."""

    name: str
    marker: str
    digits: str


CASES = (
    Case("dump_data=stats, files", "", "6"),
    Case("dump_data=tensor, files", 'dump_data="tensor"', "full"),
    Case("transport=callback", 'transport="callback"', "full"),
)


def run(folder: Path, *options: str) -> dict[str, float]:
    """Run the test once in its own process; gives what it measured of itself."""
    result = folder / "result.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--npudump-runtime=emulator"]
    command += ["--npudump-keep-dumps=all", "--npudump-dump-dir=dumps", *options, "test_chain.py"]
    environment = {k: v for k, v in os.environ.items() if k != "CI"} | {"BENCH_RESULT": str(result)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout[-3000:] + done.stderr[-2000:])
    subprocess.run(["rm", "-rf", "dumps"], cwd=folder, check=True)
    measured: dict[str, float] = json.loads(result.read_text())
    return measured


def bench(case: Case, folder: Path, size: int, rounds: int) -> dict[str, float]:
    """Record a golden, then pass it ``rounds`` times; the medians."""
    (folder / "test_chain.py").write_text(TEST.format(marker=case.marker, size=size))
    run(folder, "--npudump-update-golden")
    found = [run(folder) for _ in range(rounds)]
    return {name: statistics.median(each[name] for each in found) for name in found[0]}


def main() -> None:
    """Print a line for each case."""
    layers, mebibytes, rounds = (*sys.argv[1:4], *("24", "8", "3")[len(sys.argv) - 1 :])
    size = int(float(mebibytes) * 2**20) // 4
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "conftest.py").write_text(CONFTEST)
        subprocess.run([sys.executable, "-c", MODEL, layers, mebibytes], cwd=folder, check=True)
        found = {case: bench(case, folder, size, int(rounds)) for case in CASES}
    least = min(each["rss"] for each in found.values())
    sys.stdout.write(f"{layers} layers of {mebibytes} MiB of float32, median of {rounds}\n")
    for case, each in found.items():
        seconds = f"{each['cpu']:6.2f} s CPU {each['wall']:6.2f} s"
        bytes_ = f"{each['written']:7.1f} MiB written {each['rss'] - least:+7.1f} MiB peak"
        sys.stdout.write(f"{case.name:24} {seconds} {bytes_}  digits {case.digits}\n")


if __name__ == "__main__":
    main()
