"""Golden tensors beside the floor: memory-mapped npy files and numpy's assert_allclose.

Run by hand: ``python docs/benchmarks/bench_tensors.py [rounds]``. 50, 100 and 200 tensors of a million
float32 are checked as a marked test checks them, each way in a process of its own and in turns: equal to
the golden's bit for bit, and off by less than their tolerance; beside the golden, and in the cache of a
store, where hashes are verified. Figures are medians of processor seconds, and what the check adds to the
peak RSS of a process that has imported all it needs.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SIZE = 1_000_000
PREPARE = """
import sys
from hashlib import sha256
from pathlib import Path
import numpy as np
from pytest_npudump.golden.objects import ObjectCache
from pytest_npudump.golden.tensors import save_tensors

folder, number, size = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
rng = np.random.default_rng(0)
arrays = {f"layer_{i}:output.0": rng.normal(size=size).astype(np.float32) for i in range(number)}
save_tensors(folder / "golden.safetensors", {key: (array, "float32") for key, array in arrays.items()})
for i, array in enumerate(arrays.values()):
    ObjectCache(folder).write(sha256(array).hexdigest(), [array.data.cast("B")], "here")
    np.save(folder / f"golden{i}.npy", array)
    np.save(folder / f"equal{i}.npy", array)
    np.save(folder / f"near{i}.npy", array * np.float32(1 + 1e-6))
"""
MEASURED = """
import json, resource, sys, time
from pathlib import Path
import numpy as np

folder, number, size, kind = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]

def measured(check):
    check(0)
    before = int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0])
    Path("/proc/self/clear_refs").write_text("5")
    start = time.process_time()
    for i in range(number):
        check(i)
    cpu = time.process_time() - start
    peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
    after = int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0])
    print(json.dumps({"cpu": cpu, "peak": (peak - before) / 1024, "held": (after - before) / 1024}))
"""
FLOOR = """
def check(i):
    golden = np.load(folder / f"golden{i}.npy", mmap_mode="r")
    actual = np.load(folder / f"{kind}{i}.npy", mmap_mode="r")
    np.testing.assert_allclose(actual, golden, rtol=1e-5, atol=1e-8, equal_nan=True)
"""
OURS = """
from pytest_npudump.compare.tensors.tensor_pair import Pair, compare_pair
from pytest_npudump.dump.records import Payload, TensorKey, TensorRecord
from pytest_npudump.dump.records import Stats
from pytest_npudump.golden.tensors import StoredTensor

def golden(i, key):
    return StoredTensor(folder / "golden.safetensors", key)

def check(i):
    path = folder / f"{kind}{i}.npy"
    payload = Payload(path, 128, size * 4)
    stats = Stats(size, 0, 0, 0, 0, 0, 0, 0)  # the dump's reader has computed them by now
    key = f"layer_{i}:output.0"
    facts = {"format": "ND", "payload": payload, "stats": stats}
    record = TensorRecord(TensorKey.parse(key), "Conv2D", "float32", (size,), path, **facts)
    found = compare_pair(Pair(golden(i, key), record, "ND", 1e-5, 1e-8))
    assert found.difference is not None and found.difference.outside == 0, found
    assert (found.difference.max_abs == 0) == (kind == "equal")
"""
STORED = """
from hashlib import sha256
from pytest_npudump.record.rows import Pointer
from pytest_npudump.golden.stored_tensors import PointedTensor
from pytest_npudump.golden.stored_tensors import TensorStore

digests = [sha256(np.load(folder / f"golden{i}.npy")).hexdigest() for i in range(number)]

def golden(i, key):
    pointer = Pointer(key, "float32", (size,), digests[i], size * 4, "00000000")
    return PointedTensor(pointer, TensorStore("", str(folder)))
"""
MEASURE = "measured(check)\n"


def run(script: str, folder: Path, number: int, *words: str) -> str:
    """Run a script in a process of its own; return what it prints."""
    command = [sys.executable, "-c", script, str(folder), str(number), str(SIZE), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(rounds: int = 5) -> None:
    """Print the table."""
    say("| tensors | content | way | CPU | beside the floor | memory | held afterwards |")
    say("|---|---|---|---|---|---|---|")
    scripts = {"floor": FLOOR, "beside the golden": OURS, "stored": OURS + STORED}
    ways = {way: MEASURED + script + MEASURE for way, script in scripts.items()}
    for number in (50, 100, 200):
        with tempfile.TemporaryDirectory() as work:
            run(PREPARE, Path(work), number)
            for kind in ("equal", "near"):
                seen: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
                for _ in range(rounds):
                    for way, script in ways.items():
                        seen[way].append(json.loads(run(script, Path(work), number, kind)))
                for way, found in seen.items():
                    pairs = zip(found, seen["floor"], strict=True)
                    ratio = statistics.median(ours["cpu"] / floor["cpu"] for ours, floor in pairs)
                    cpu, peak, held = (
                        statistics.median(one[what] for one in found) for what in ("cpu", "peak", "held")
                    )
                    facts = f"{cpu:.2f} s | {ratio:.2f}x | {peak:.0f} MiB | {held:.0f} MiB"
                    say(f"| {number} | {kind} | {way} | {facts} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
