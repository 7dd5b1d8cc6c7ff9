"""All benchmarks, one after the other, as tables: python tests/benchmarks/bench_all.py [--peer PYTHON].

PYTHON is an interpreter of an environment that has msprobe (``pip install mindstudio-probe torch``); the
other golden plugins are those installed here. Takes twenty minutes on an idle machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PARTS = ("bench_start.py", "bench_kernels.py", "bench_cli.py", "bench_golden.py", "bench_emulator.py", "bench_files.py")


def main() -> None:
    for part in PARTS:
        sys.stdout.write(f"\n{part}\n\n")
        sys.stdout.flush()
        words = sys.argv[1:] if part == "bench_cli.py" else []
        # BLAS shares the work of numpy's own figures between threads of its own otherwise.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        subprocess.run([sys.executable, Path(__file__).with_name(part), *words], check=True, env=environment)


if __name__ == "__main__":
    main()
