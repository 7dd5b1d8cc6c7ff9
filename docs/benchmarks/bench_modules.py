"""Hooks on torch modules: microseconds a call of a module, and a step of a transformer of 12 blocks.

    python docs/benchmarks/bench_modules.py [--msprobe FOLDER]

Processor time, the least of some rounds, in turns: without hooks, with those of captures (statistics on the
host, reductions of the device run on the CPU), and with msprobe's PrecisionDebugger at level L0, which FOLDER
has (``pip install --no-deps --target FOLDER mindstudio-probe``). Needs torch.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "data" / "modules"))
import models

from pytest_npudump.runtime.modules.capture import Capture

STEPS, ROUNDS = 20, 5


def timed(model: Any, given: Any, around: Any) -> float:
    """Return the least processor time of a step, with what ends it."""
    found = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        around(lambda: [model(given) for _ in range(STEPS)])
        found.append((time.process_time() - begun) / STEPS)
    return min(found)


def captured(model: Any, on_host: object, steps: Any) -> None:
    """Make steps under a capture, whose files are written."""
    with TemporaryDirectory() as folder, Capture(model, Path(folder), on_host=bool(on_host)):
        steps()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--msprobe")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print(
        "hidden size  modules  without    host  device  msprobe L0   (us a call of a module beyond without; "
        "times 0.099: ms a step)"
    )
    for size in (16, 256):
        models.DIM = size
        model, given = models.transformer(12), models.words()
        plain = timed(model, given, lambda steps: steps())
        told = [timed(model, given, partial(captured, model, on_host)) - plain for on_host in (True, False)]
        if asked.msprobe:
            sys.path.insert(0, asked.msprobe)
            told.append(of_msprobe(model, given) - plain)
        calls = 99
        cells = "  ".join(f"{1e6 * one / calls:7.1f}" for one in told)
        print(f"{size:11}  {calls:7}  {1e6 * plain / calls:7.1f}  {cells}")


def of_msprobe(model: Any, given: Any) -> float:
    """Return what a step takes under msprobe's debugger, statistics of modules."""
    sys.modules.setdefault(
        "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=type("Writer", (), {}))
    )  # of its monitor
    from msprobe.pytorch import PrecisionDebugger

    with TemporaryDirectory() as folder:
        debugger = PrecisionDebugger(task="statistics", level="L0", dump_path=folder)

        def step() -> None:
            debugger.start(model=model)
            model(given)
            debugger.stop()
            debugger.step()

        found = []
        for _ in range(ROUNDS):
            begun = time.process_time()
            for _ in range(STEPS // 5):
                step()
            found.append((time.process_time() - begun) / (STEPS // 5))
    return min(found)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
