"""All benchmarks, one after the other, as tables: python tests/benchmarks/bench_all.py [--peer PYTHON]
[--against DIR].

PYTHON is an interpreter of an environment that has msprobe (``pip install mindstudio-probe torch``); the
other golden plugins are those installed here. DIR is a checkout of an older commit, which ``bench_types.py``
measures in turn with this one. Takes a quarter of an hour on an idle machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PARTS = ("bench_kernels.py", "bench_types.py", "bench_cli.py", "bench_golden.py")

OPTIONS = {"bench_cli.py": ("--peer",), "bench_types.py": ("--against",)}


def _given(option: str) -> list[str]:
    """The option and its value, if it was given."""
    if option not in sys.argv:
        return []
    place = sys.argv.index(option)
    return sys.argv[place : place + 2]


def main() -> None:
    for part in PARTS:
        sys.stdout.write(f"\n{part}\n\n")
        sys.stdout.flush()
        words = [word for option in OPTIONS.get(part, ()) for word in _given(option)]
        # BLAS shares the work of numpy's own figures between threads of its own otherwise.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        subprocess.run([sys.executable, Path(__file__).with_name(part), *words], check=True, env=environment)


if __name__ == "__main__":
    main()
