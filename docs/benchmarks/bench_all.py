"""All benchmarks, one after the other, as tables.

    python docs/benchmarks/bench_all.py [--peer PYTHON] [--against DIR]

PYTHON is an interpreter of an environment that has msprobe (``pip install mindstudio-probe torch``); the
other golden plugins are those installed here. DIR is a checkout of an older commit, measured in turn with
this one. Takes an hour on an idle machine, another one with DIR.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

AGAINST = "--against"
PEER = "--peer"
PARTS = {
    "bench_start.py": AGAINST,
    "bench_kernels.py": None,
    "bench_types.py": AGAINST,
    "bench_small.py": AGAINST,
    "bench_projections.py": None,
    "bench_cli.py": PEER,
    "bench_files.py": AGAINST,
    "bench_executor.py": None,
    "bench_golden.py": None,
    "bench_rows.py": AGAINST,
    "bench_emulator.py": AGAINST,
    "bench_suite.py": None,
    "bench_tensors.py": None,
    "bench_isolation.py": None,
    "bench_alternatives.py": None,
    "verdicts/run.py": None,
}
"""The benchmarks, and the option that each of them takes over."""


def main() -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process compiles what it imports
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(PEER, metavar="PYTHON")
    parser.add_argument(AGAINST, metavar="DIR")
    given = vars(parser.parse_args())
    for part, option in PARTS.items():
        sys.stdout.write(f"\n{part}\n\n")
        sys.stdout.flush()
        value = given[option.removeprefix("--")] if option else None
        words = [option, value] if option and value else []
        # BLAS shares the work of numpy's own figures between threads of its own otherwise.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        subprocess.run([sys.executable, Path(__file__).parent / part, *words], check=True, env=environment)


if __name__ == "__main__":
    main()
