"""What ``bench_cli.py`` times, held against numpy in float64, in a process whose memory is not measured.

    python docs/benchmarks/cli_truth.py compare|stats|convert DTYPE OFFSET TREE OTHER

OTHER is the tree of a comparison, or the folder of converted files.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

RTOL, ATOL = 1e-3, 1e-5
BOUNDS = ("--rtol", str(RTOL), "--atol", str(ATOL))
START = "import sys; from pytest_npudump.cli import main; sys.exit(main())"


def check_compare(golden: Path, actual: Path, dtype: str, offset: int) -> None:
    """Assert what is said of each pair: status, distance, norm, elements out of tolerance."""
    found = _printed("compare", golden, actual, *BOUNDS)["verdicts"]
    pairs = zip(_arrays(golden, dtype, offset), _arrays(actual, dtype, offset), strict=True)
    for verdict, (one, other) in zip(found, pairs, strict=True):
        distance, elements = np.abs(other - one), verdict["elements"]
        assert elements["outside"] == np.count_nonzero(distance > ATOL + RTOL * np.abs(one))
        assert (verdict["status"] == "pass") == (not elements["outside"])
        np.testing.assert_allclose(elements["max_abs"], distance.max(), rtol=1e-6)
        np.testing.assert_allclose(elements["norm"], np.linalg.norm(one), rtol=2e-6)
        relative = np.linalg.norm(distance) / np.linalg.norm(one)
        np.testing.assert_allclose(elements["relative_l2"], relative, rtol=1e-5)


def check_stats(tree: Path, dtype: str, offset: int) -> None:
    """Assert what is said of each tensor."""
    for row, array in zip(_printed("ls", "--stats", tree), _arrays(tree, dtype, offset), strict=True):
        found: Any = [row[name] for name in ("max", "min", "count", "nan", "zero")]
        assert found == [array.max(), array.min(), array.size, 0, np.count_nonzero(array == 0)]
        assert abs(row["avg"] - array.mean()) <= 1e-6 * np.abs(array).mean()
        np.testing.assert_allclose(row["l2norm"], np.linalg.norm(array), rtol=2e-6)


def check_converted(out: Path, tree: Path, offset: int) -> None:
    """Assert that each tensor is there, bit by bit."""
    for file, source in zip(sorted(out.rglob("*.npy")), sorted(tree.rglob("Relu*")), strict=True):
        assert np.load(file).tobytes() == source.read_bytes()[offset:]


def _arrays(tree: Path, dtype: str, offset: int) -> Iterator[np.ndarray]:
    for path in sorted(tree.rglob("Relu*")):
        kind = getattr(ml_dtypes, dtype, dtype)
        yield np.fromfile(path, kind, offset=offset).astype(np.float64)


def _printed(*words: str | Path) -> Any:
    command = [sys.executable, "-c", START, *map(str, words), "--json", "-"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    assert done.returncode in {0, 1}
    return json.loads(done.stdout)


def main() -> None:
    what, dtype, offset, *trees = sys.argv[1:]
    tree, other = map(Path, trees)
    if what == "compare":
        check_compare(tree, other, dtype, int(offset))
    elif what == "stats":
        check_stats(tree, dtype, int(offset))
    else:
        check_converted(other, tree, int(offset))


if __name__ == "__main__":
    main()
