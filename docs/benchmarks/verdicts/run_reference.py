"""python docs/benchmarks/verdicts/run_reference.py: faults found against an ONNX model, and false alarms."""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from verdicts.three_ways import Counts

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
            sys.stderr.write(f"{dtype}: {source.name} is counted\n")
        sys.stdout.write("\n".join(_table(dtype, counts, RULES)) + "\n")
        sys.stdout.flush()


def _table(dtype: str, counts: Counts, rules: Sequence[str]) -> Iterator[str]:
    faults = sum(counts.faults.values())
    yield f"\n| {dtype}: {faults} faults | {' | '.join(_COLUMNS)} | all | named first | failed for nothing |"
    for rule, full in itertools.product(rules, (False, True)):
        found = {column: counts.found[rule, full, column] for column in _COLUMNS}
        shares = [100 * number / max(counts.faults[column], 1) for column, number in found.items()]
        named = 100 * counts.right[rule, full] / max(sum(found.values()), 1)
        cells = [f"{share:.0f}" for share in (*shares, 100 * sum(found.values()) / faults, named)]
        alarms = [f"{kind} {counts.alarms[rule, full, kind]} of {runs}" for kind, runs in counts.runs.items()]
        yield f"| {rule}{', tensor' * full} | {' | '.join(cells)} | {', '.join(alarms)} |"


if __name__ == "__main__":
    main()
