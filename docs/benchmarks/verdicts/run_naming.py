"""python docs/benchmarks/verdicts/run_naming.py: which operator a failure names, and whether it is the one.

By its sources and walking back, and with operators alone on their inputs, at the sources and upstream;
how many healthy ones are convicted; and whether two faults at once are both named. Ten minutes of one core.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verdicts.naming import Counts

_DTYPES = ("float32", "float16", "bfloat16")


def main() -> None:
    """Measure and print."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from verdicts.held_out import held_out
    from verdicts.models import sources
    from verdicts.naming import Counts, Naming
    from verdicts.network import load

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=105, help="for each model and format")
    parser.add_argument("--pairs", type=int, default=20, help="of faults, for each model and format")
    parser.add_argument("--members", type=int, default=3, help="orders of addition")
    parser.add_argument("--dtypes", nargs="+", choices=_DTYPES, default=_DTYPES[:2])
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        groups = {"PP-OCR": sources(), "transformer, SE-ResNet": held_out(Path(folder))}
        for dtype in chosen.dtypes:
            for group, models in groups.items():
                counts = Counts()
                for source in models:
                    naming = Naming(load(source), dtype, counts)
                    naming.inject(chosen.faults, chosen.seed)
                    naming.pair(chosen.pairs, chosen.seed + 1)
                    naming.calm(chosen.members)
                sys.stdout.write("\n".join(_lines(f"{dtype}, {group}", counts)) + "\n")
                sys.stdout.flush()


def _lines(title: str, counts: Counts) -> Iterator[str]:
    from verdicts.naming import REACHES, TOLD, UPSTREAM

    titles = ["source", *(f"alone, {reach} upstream" for reach in REACHES)]
    yield f"\n| {title}: {counts.faults} faults | found | {' | '.join(titles)} | both of two |"
    yield f"|{'---|' * (len(titles) + 3)}"
    for told in TOLD:
        pairs = f"{counts.both[told, True]} of {counts.pairs[told]}"
        for repeats in (False, True):
            found = counts.found[told]
            named = [counts.named[told, repeats, reach] / max(found, 1) for reach in (None, *REACHES)]
            cells = " | ".join(f"{100 * share:.1f}" for share in named)
            words = f"{told}{', golden repeats' * repeats}"
            yield f"| {words} | {found} | {cells} | {pairs if repeats else ''} |"
    yield f"\nHealthy operators, up to {UPSTREAM} upstream and in other numerics:"
    for kind, verdicts in counts.healthy.items():
        yield f"{kind}: " + ", ".join(f"{number} {verdict}" for verdict, number in sorted(verdicts.items()))


if __name__ == "__main__":
    main()
