"""Hooks on torch modules: microseconds a call of a module, and a step of a transformer of 12 blocks.

    python docs/benchmarks/bench_modules.py [--msprobe FOLDER]

Processor time, the least of some rounds in turns: without hooks, with those of captures (statistics on the
host, reductions of the device run on the CPU), and with msprobe's PrecisionDebugger at level L0, which FOLDER
has (``pip install --no-deps --target FOLDER mindstudio-probe``). Needs torch.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import redirect_stdout, suppress
from functools import partial
from io import StringIO
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from types import SimpleNamespace
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "data" / "modules"))
import models

from pytest_npudump.runtime.modules.capture import Capture

STEPS, ROUNDS, CALLS = 20, 9, 99
"""Of a round, of all, and calls of modules in a step."""


def captured(folder: str, model: Any, given: Any, *, on_host: bool) -> None:
    """Make steps under a capture, whose files are written, and stay as those of msprobe do."""
    with Capture(model, Path(mkdtemp(dir=folder)), on_host=on_host):
        plain(model, given)


def plain(model: Any, given: Any) -> None:
    """Make steps."""
    for _ in range(STEPS):
        model(given)


def by_msprobe(debugger: Any, model: Any, given: Any) -> None:
    """Make steps under msprobe's debugger, statistics of modules; it says each on the standard output."""
    with redirect_stdout(StringIO()):
        for _ in range(STEPS):
            debugger.start(model=model)
            model(given)
            debugger.stop()
            debugger.step()


def msprobe_in(folder: str, dump: str) -> Any:
    """Return msprobe's debugger."""
    sys.path.append(folder)
    sys.modules.setdefault(
        "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=type("Writer", (), {}))
    )  # of its monitor
    from msprobe.pytorch import PrecisionDebugger

    return PrecisionDebugger(task="statistics", level="L0", dump_path=dump)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--msprobe")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    ways: dict[str, Any] = {"without": plain}
    with TemporaryDirectory() as dump:
        ways |= {name: partial(captured, dump, on_host=name == "host") for name in ("host", "device")}
        if asked.msprobe:
            ways["msprobe L0"] = partial(by_msprobe, msprobe_in(asked.msprobe, dump))
        print(f"hidden size{''.join(f'{way:>12}' for way in ways)}   us per call of a module beyond without")
        for size in (16, 256):
            models.DIM = size
            given, least = models.words(), dict.fromkeys(ways, inf)
            own = {way: models.transformer(12) for way in ways}  # msprobe leaves hooks behind
            for _ in range(ROUNDS):
                for way, run in ways.items():
                    begun = time.process_time()
                    run(own[way], given)
                    least[way] = min(least[way], (time.process_time() - begun) / STEPS / CALLS * 1e6)
            beyond = [one - least["without"] * (way != "without") for way, one in least.items()]
            print(f"{size:11}{''.join(f'{one:12.1f}' for one in beyond)}")
            print(f"{'ms a step':>11}{''.join(f'{one * CALLS / 1000:12.2f}' for one in beyond)}")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
