"""Statistics and comparison by type, by content and by size of tensor, beside an older checkout.

Run by hand: ``python docs/benchmarks/bench_types.py [--against DIR] [--mib N] [--rounds N] [--only WORDS]``.
DIR is a tree of an older commit. Each side runs in a process of its own, and the two take turns case by
case, so that what else the machine does falls on both. Rates are of one side, from the least processor time
of all rounds. Before it is timed, each result is compared with numpy's in float64.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from sides import Side, answer_all

RTOL, ATOL = 1e-3, 1e-5
STEP = "20261120080910/0/model/1/0"
STAMP = 1795228705872229
FLOATS = ("float32", "float16", "bfloat16")
CONTENTS = ("lowest", "inf", "nan", "nan and inf", "tiny", "subnormal", "all exponents", "any bits")
"""A quarter of the elements is that; of ``nan and inf`` a quarter each, of the last three all."""
PLAIN = (
    *FLOATS,
    *("float64", "int8", "uint8", "bool", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float8_e4m3fn", "float8_e5m2"),
    *("float8_e8m0fnu", "complex64", "complex128"),
)
CASES = [(name, "plain") for name in PLAIN] + [(name, content) for name in FLOATS for content in CONTENTS]
CASES += [("uint64", "any bits"), ("complex64", "nan"), ("complex128", "nan")]
PACKED = {"int4": 4, "int2": 2, "uint1": 1, "uint2": 2, "float4_e2m1fn": 4, "hifloat8": 8, "complex32": 32}
"""Types that numpy lacks, with their bits."""
SIZES = (1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20)
PAIRS = 400


class Data(NamedTuple):
    """A golden tensor, the same again, one with noise, and one that has nothing to do with it."""

    golden: Any
    equal: Any
    noisy: Any
    other: Any


def _data(name: str, content: str, nbytes: int) -> Data:
    dtype, rng = np.dtype(getattr(ml_dtypes, name, None) or name), np.random.default_rng(0)
    count = nbytes // dtype.itemsize
    with np.errstate(all="ignore"):
        golden = _values(dtype, content, count, rng)
        masked = rng.random(count) < 0.25
        if content == "lowest":
            golden[masked] = ml_dtypes.finfo(dtype).min
        elif content in {"inf", "nan", "nan and inf"}:
            golden[masked] = -np.inf if content == "inf" else np.nan
            if "and" in content:
                golden[rng.random(count) < 0.25] = np.inf
        if dtype.kind in "biu":
            noisy = golden.copy()
            bit = 8 * dtype.itemsize - 6 if content == "any bits" else 0
            noisy[::3] = noisy[::3] ^ np.array([1 << bit]).astype(dtype)
        else:
            noisy = (golden * (1 + RTOL * rng.standard_normal(count))).astype(dtype)
            if content == "lowest":
                noisy[masked] = golden[masked]
    return Data(golden, golden.copy(), noisy, golden[::-1].copy())


def _values(dtype: Any, content: str, count: int, rng: np.random.Generator) -> Any:
    """Elements without a mask, of shape (count,)."""
    if content in {"all exponents", "any bits"}:
        found = np.frombuffer(rng.bytes(count * dtype.itemsize), dtype).copy()
        if content == "all exponents":
            found[~np.isfinite(found.astype(np.float64))] = 1
        return found
    values: Any = rng.standard_normal(count) * (20 if dtype.kind in "iu" else 1)
    if dtype.kind == "c":
        values = values + 1j * rng.standard_normal(count)
    if dtype.kind in "bu" or dtype.name == "float8_e8m0fnu":
        values = np.abs(values)
    return (values * {"tiny": 1e-16, "subnormal": 1e-40}.get(content, 1)).astype(dtype)


def _check(golden: Any, actual: Any, compare: Any, stats: Any) -> None:
    """Assert the verdict and the measures of a comparison, and the statistics."""
    found, summary = compare(golden, actual, rtol=RTOL, atol=ATOL), stats(golden)
    with np.errstate(all="ignore"):
        wide = np.complex128 if golden.dtype.kind == "c" else np.float64
        g, a = golden.astype(wide), actual.astype(wide)
        finite = np.isfinite(g) & np.isfinite(a)
        same = (np.isnan(g) & np.isnan(a)) | (g == a)
        distance = np.abs(a - g)
        if golden.dtype.kind in "iu":  # modulo two to the number of bits, the gap is exact
            gap = np.maximum(golden, actual) - np.minimum(golden, actual)
            distance = gap.view(f"u{gap.itemsize}").astype(np.float64)
        outside = (~finite & ~same) | (finite & ~(distance <= ATOL + RTOL * np.abs(g)))
        norm = np.linalg.norm(g[finite])
    assert found.outside == np.count_nonzero(outside)
    assert (found.special, found.special_different) == (np.sum(~finite), np.sum(~finite & ~same))
    np.testing.assert_allclose(float(found.max_abs), distance[finite].max(initial=0), rtol=1e-6)
    np.testing.assert_allclose(found.norm, norm, rtol=2e-6)
    np.testing.assert_allclose(found.relative_l2 * norm, np.linalg.norm(distance[finite]), rtol=3e-6)
    assert (summary.nan, summary.zero) == (np.isnan(g).sum(), np.sum(g == 0))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(summary.l2norm, np.linalg.norm(g), rtol=2e-6)


def _least(function: Any, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def _types(name: str, content: str, nbytes: int, rounds: int) -> list[float]:
    """GB/s of statistics, of equal data, of noise, of unrelated data."""
    from pytest_npudump.compare.tensors.difference import compare_tensors
    from pytest_npudump.dump.stats.tensor import tensor_stats

    data = _data(name, content, nbytes)
    found = [nbytes / 1e9 / _least(lambda: tensor_stats(data.golden), rounds)]
    for actual in data[1:]:
        _check(data.golden, actual, compare_tensors, tensor_stats)

        def compare(actual: Any = actual) -> None:
            compare_tensors(data.golden, actual, rtol=RTOL, atol=ATOL)

        found.append(nbytes / 1e9 / _least(compare, rounds))
    return found


def _packed(name: str, nbytes: int, folder: Path, rounds: int) -> list[float]:
    """GB/s of files: statistics, of equal data, of every third byte off, of unrelated data."""
    from pytest_npudump.compare.tensors.tensor_pair import Pair, compare_pair
    from pytest_npudump.dump.arrays.decode import load
    from pytest_npudump.dump.records import Payload, TensorKey, TensorRecord

    rng, count = np.random.default_rng(0), nbytes * 8 // PACKED[name]
    if name == "complex32":
        golden = rng.standard_normal(2 * count).astype(np.float16).view(np.uint8)
    else:
        golden = rng.integers(0, 0x60 if name == "hifloat8" else 256, nbytes, np.uint8)
    noisy = golden.copy()
    noisy[::3] ^= 1
    other = golden.view(np.uint32)[::-1] if name == "complex32" else golden[::-1]
    records, values = [], []
    for side, octets in (("golden", golden), ("equal", golden), ("noisy", noisy), ("other", other)):
        (folder / side).write_bytes(octets.tobytes())
        payload, key = Payload(folder / side, 0, nbytes), TensorKey("conv", "output", 0)
        records.append(TensorRecord(key, "Conv", name, (count,), payload.path, "ND", payload=payload))
        wide = np.complex128 if name == "complex32" else np.float64
        values.append(load(payload, name, (count,)).astype(wide))
    found = [nbytes / 1e9 / _least(lambda: compare_pair(Pair(records[0], None, "ND")), rounds)]
    for record, actual in zip(records[1:], values[1:], strict=True):
        pair = Pair(records[0], record, "ND", RTOL, ATOL)
        difference, distance = compare_pair(pair).difference, np.abs(actual - values[0])
        assert difference is not None
        assert difference.outside == np.count_nonzero(distance > ATOL + RTOL * np.abs(values[0]))
        np.testing.assert_allclose(float(difference.max_abs), distance.max(), rtol=1e-6)
        np.testing.assert_allclose(difference.norm, np.linalg.norm(values[0]), rtol=2e-6)
        np.testing.assert_allclose(
            difference.relative_l2 * difference.norm, np.linalg.norm(distance), rtol=3e-6
        )
        found.append(nbytes / 1e9 / _least(lambda pair=pair: compare_pair(pair), rounds))
    return found


def _sizes(name: str, nbytes: int, folder: Path, rounds: int) -> list[float]:
    """Microseconds a pair of tensor files: to read what they hold, and to compare."""
    from samples import write_tensor

    from pytest_npudump.compare.tensors.tensor_pair import Pair, compare_pair
    from pytest_npudump.dump.reader import read_dump

    pairs = max(min(PAIRS, (32 << 20) // nbytes), 8)
    dtype = np.dtype(name)
    golden = np.random.default_rng(0).standard_normal(nbytes // dtype.itemsize).astype(dtype)
    actual = (golden * (1 + 2 * np.finfo(dtype).resolution)).astype(dtype)
    for side, array in (("golden", golden), ("actual", actual)):
        for number in range(pairs):
            path = folder / side / STEP / f"Relu.relu_{number:04d}.{number}.3.{STAMP + number}"
            write_tensor(path, f"relu_{number:04d}", array)

    def read() -> Any:
        return [read_dump(folder / side, stats=False).records for side in ("golden", "actual")]

    sides = read()

    def compare() -> Any:
        return [compare_pair(Pair(one, other, "ND", RTOL, 0.0)) for one, other in zip(*sides, strict=True)]

    one, other = golden.astype(float), actual.astype(float)
    expected = np.count_nonzero(np.abs(other - one) > RTOL * np.abs(one))
    for found in compare():
        assert found.difference is not None
        assert found.difference.outside == expected
    return [_least(part, rounds) / pairs * 1e6 for part in (read, compare)]


def _answer(kind: str, arguments: list[Any]) -> list[float]:
    """What one case takes."""
    if kind == "types":
        return _types(*arguments)
    with tempfile.TemporaryDirectory() as folder:
        part = _packed if kind == "packed" else _sizes
        return part(*arguments[:2], Path(folder), arguments[2])


def _row(words: str, found: list[list[float]], digits: int) -> None:
    cells = []
    for values in zip(*found, strict=True):
        ratio = f" ({values[0] / values[1]:.1f} x)" if len(values) > 1 else ""
        cells.append(f"{values[0]:8.{digits}f}{ratio:>9}")
    sys.stdout.write(f"{words:26}{''.join(cells)}\n")
    sys.stdout.flush()


def main() -> None:
    """Print both tables; with ``--against`` each figure has the older checkout's ratio beside it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--against", type=Path)
    parser.add_argument("--mib", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="rows whose name holds one of these words, comma between")
    parser.add_argument("--work", action="store_true")
    options = parser.parse_args()
    if options.work:
        answer_all(_answer)
        return
    words = options.only.split(",")
    trees = [Path(__file__).parents[2], *([options.against] if options.against else [])]
    sides = [Side(__file__, tree) for tree in trees]
    sys.stdout.write(f"{'GB/s':26}{'stats':>17}{'equal':>17}{'noise':>17}{'unrelated':>17}\n")
    for name, content in CASES:
        if not any(word in f"{name} {content}" for word in words):
            continue
        case = (name, content, options.mib << 20, options.rounds)
        _row(f"{name} {content}", [side.ask("types", case) for side in sides], 2)
    for name in (name for name in PACKED if any(word in f"{name} packed" for word in words)):
        case = (name, (options.mib << 20) // 4, options.rounds)
        _row(f"{name}, packed, in a file", [side.ask("packed", case) for side in sides], 2)
    sys.stdout.write(f"\n{'us a pair of files':26}{'read':>17}{'compare':>17}\n")
    for name in ("float32", "float16"):
        for size in SIZES:
            if any(word in f"{name} {size >> 10} KiB" for word in words):
                found = [side.ask("sizes", (name, size, options.rounds)) for side in sides]
                _row(f"{name} {size >> 10} KiB", found, 0)


if __name__ == "__main__":
    main()
