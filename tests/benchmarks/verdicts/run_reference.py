"""python tests/benchmarks/verdicts/run_reference.py: faults found against an ONNX model, and false alarms."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

_DTYPES = ("float32", "float16", "bfloat16")
_COLUMNS = ("0.01", "0.001", "0.0001", "1e-05", "structure", "one element", "permutation")


def main() -> None:
    """Measure and print."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from verdicts.models import sources
    from verdicts.network import load
    from verdicts.three_ways import RULES, Counts, ThreeWays

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=210, help="for each model and format")
    parser.add_argument("--members", type=int, default=5, help="orders of addition")
    parser.add_argument("--models", type=int, default=9, help="the first so many")
    parser.add_argument("--dtypes", nargs="+", choices=_DTYPES, default=_DTYPES)
    chosen = parser.parse_args()
    for dtype in chosen.dtypes:
        counts = Counts()
        for source in sources()[: chosen.models]:
            judge = ThreeWays(load(source), dtype, counts)
            judge.inject(chosen.faults, 1)
            judge.calm(chosen.members)
        faults = sum(counts.faults.values())
        sys.stdout.write(f"\n| {dtype}: {faults} faults | {' | '.join(_COLUMNS)} | all | named first |\n")
        for rule in RULES:
            for full in (False, True):
                found = [counts.found[rule, full, column] for column in _COLUMNS]
                shares = [
                    100 * n / max(counts.faults[column], 1) for n, column in zip(found, _COLUMNS, strict=True)
                ]
                shares += [100 * sum(found) / faults, 100 * counts.right[rule, full] / max(sum(found), 1)]
                cells = " | ".join(f"{share:.0f}" for share in shares)
                alarms = ", ".join(
                    f"{kind} {counts.alarms[rule, full, kind]} of {runs}"
                    for kind, runs in counts.runs.items()
                )
                sys.stdout.write(f"| {rule}{', tensor' * full} | {cells} | {alarms}\n")


if __name__ == "__main__":
    main()
