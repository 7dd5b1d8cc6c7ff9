"""The comparison of unequal data in numpy beside other ways to compute the same: a table of GB/s.

    python docs/benchmarks/bench_alternatives.py [--mib N] [--rounds N]

Each other way is there where it is installed: numba, onnxruntime, and a C compiler (``cc``). All give the
elements out of tolerance, the pairs with a NaN or an infinity, the largest distance, and the norms of the
golden tensor and of the distances; numpy's way, which is this package's, gives all else that a verdict says,
so that the others are told too fast, not too slow. Rates are of one side, of one thread, from the least
processor time of all rounds. Each result is compared with numpy's in float64 before it is timed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from alternatives import Found, Way, with_c, with_numba, with_onnxruntime
from bench_types import ATOL, RTOL, Data, _data, _least

CASES = (
    ("float32", "plain"),
    ("bfloat16", "plain"),
    ("bfloat16", "lowest"),
    ("float16", "nan"),
    ("int8", "plain"),
)


def with_numpy(_: str, __: Path) -> Way:
    from pytest_npudump.compare.tensors.difference import compare_tensors

    def compare(golden: Any, actual: Any) -> Found:
        found = compare_tensors(golden, actual, rtol=RTOL, atol=ATOL)
        norm = float(found.norm)
        return found.outside, found.special, float(found.max_abs), norm, float(found.relative_l2) * norm

    return compare


WAYS = {"numpy (this package)": with_numpy, "C": with_c, "numba": with_numba, "onnxruntime": with_onnxruntime}


def check(found: Found, golden: Any, actual: Any) -> None:
    """Assert what was found against numpy in float64."""
    with np.errstate(all="ignore"):
        g, a = golden.astype(np.float64), actual.astype(np.float64)
        finite = np.isfinite(g) & np.isfinite(a)
        same = (g == a) | (np.isnan(g) & np.isnan(a))
        distance = np.abs(a - g)
        near = np.abs(distance - (ATOL + RTOL * np.abs(g))) <= 1e-6 * np.abs(
            g
        )  # what float32 may decide otherwise
        outside = np.sum(finite & ~(distance <= ATOL + RTOL * np.abs(g))) + np.sum(~finite & ~same)
    assert abs(found[0] - outside) <= np.sum(near & finite)
    assert found[1] == np.sum(~finite)
    expected = distance[finite].max(), np.linalg.norm(g[finite]), np.linalg.norm(distance[finite])
    np.testing.assert_allclose(found[2:], expected, rtol=1e-4)


def rate(way: Way | None, data: Data, rounds: int) -> str:
    """Check a way and time it."""
    if way is None:
        return "-"
    check(way(data.golden, data.other), data.golden, data.other)
    return f"{data.golden.nbytes / 1e9 / _least(lambda: way(data.golden, data.other), rounds):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--mib", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    sys.stdout.write(f"| type, content | {' | '.join(WAYS)} |\n| --- |{' --- |' * len(WAYS)}\n")
    with tempfile.TemporaryDirectory() as folder:
        for name, content in CASES:
            data = _data(name, content, given.mib << 20)
            cells = [rate(prepare(name, Path(folder)), data, given.rounds) for prepare in WAYS.values()]
            sys.stdout.write(f"| {name}, {content} | {' | '.join(cells)} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
