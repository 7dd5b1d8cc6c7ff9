"""The fault table: python docs/benchmarks/verdicts/run.py [--faults N] [--members N] [--dtypes ...].

Which share of faults each rule finds, how often the first tensor that fails is the faulted operator's, and
how often a rule fails runs that only compute in another order or format. About ten minutes of one core.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

_DTYPES = ("float32", "float16", "bfloat16")


def main() -> None:
    """Measure and print."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from verdicts.calibration import calibrated_rule, lines, trial
    from verdicts.experiment import Bench, Results
    from verdicts.models import sources
    from verdicts.network import load
    from verdicts.rules import RULES
    from verdicts.tables import tables

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=210, help="for each model and format")
    parser.add_argument(
        "--members", type=int, default=5, help="orders of addition, and sets of fused tensors"
    )
    parser.add_argument("--dtypes", nargs="+", choices=_DTYPES, default=_DTYPES)
    parser.add_argument("--models", type=Path, help="a folder of other PP-OCR models than the wheel's")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--calibration", type=int, default=20, help="members, and unseen runs; 0 for none")
    parser.add_argument(
        "--bounds", type=int, default=10, help="members whose bounds judge float32's faults too; 0 for none"
    )
    parser.add_argument("--only-calibration", action="store_true", help="leave the faults out")
    chosen = parser.parse_args()
    if chosen.calibration:
        trials = [
            (source.name, preset, trial(load(source), preset, chosen.calibration, chosen.calibration))
            for source in sources(chosen.models)
            for preset in ("same", "ascend-abs")
        ]
        sys.stdout.write("\n".join(lines(trials)) + "\n\n")
    if chosen.only_calibration:
        return
    results = Results()
    for source in sources(chosen.models):
        network = load(source)
        for dtype in chosen.dtypes:
            start = time.process_time()
            measured = chosen.bounds and dtype == "float32"
            own = [calibrated_rule(network, "same", chosen.bounds)] if measured else []
            bench = Bench(network, dtype, (*RULES, *own), results)
            bench.inject(chosen.faults, chosen.seed)
            bench.calm(chosen.members)
            took = time.process_time() - start
            sys.stderr.write(f"{source.name}, {len(bench.golden.tensors)} tensors, {dtype}: {took:.0f} s\n")
    sys.stdout.write("\n".join(tables(results)) + "\n")


if __name__ == "__main__":
    main()
