"""``npudump compare``: two dumps, or a golden file and a dump, judged as the plugin judges them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.reading import add_json_option, read_tree, write_json
from pytest_npudump.compare.rules import load_tolerances
from pytest_npudump.compare.stats import compare_tables
from pytest_npudump.compare.table import StatsTable
from pytest_npudump.compare.tolerance import Rule, Tolerances
from pytest_npudump.errors import DumpError, RequestError
from pytest_npudump.golden.store import read_golden
from pytest_npudump.report.verdicts import COLUMNS, row, sentence, table

if TYPE_CHECKING:
    import argparse

    from pytest_npudump.compare.verdict import Comparison

SUMMARY = (
    "compare two dumps, or a golden file and a dump; exit 0 within tolerance, 1 a difference, 2 unreadable"
)
_SHOWN = 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("golden", type=Path, metavar="GOLDEN", help="a golden file, or a dump path")
    parser.add_argument("actual", type=Path, metavar="ACTUAL", help="a dump path")
    parser.add_argument("--preset", help="tolerance preset (default, exact, torch, ...)")
    parser.add_argument("--rtol", type=float, help="relative tolerance of floating-point statistics")
    parser.add_argument("--atol", type=float, help="absolute tolerance of floating-point statistics")
    parser.add_argument("--tolerances", type=Path, metavar="FILE", help="YAML file of tolerance rules")
    parser.add_argument("--latest", action="store_true", help="of several runs in a directory take the last")
    parser.add_argument("-v", "--verbose", action="store_true", help="list every failing tensor")
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare, print the verdict, and return 0 or 1."""
    tolerances = _tolerances(arguments)
    golden = _read(arguments.golden, latest=arguments.latest)
    actual = StatsTable.from_records(read_tree(arguments.actual, latest=arguments.latest).records)
    comparison = compare_tables(golden, actual, tolerances)
    if arguments.json:
        write_json(comparison.to_json(), arguments.json)
    if arguments.json != "-":
        _print(comparison, None if arguments.verbose else _SHOWN)
    return 1 if comparison.failing else 0


def _tolerances(arguments: argparse.Namespace) -> Tolerances:
    base = load_tolerances(arguments.tolerances) if arguments.tolerances else Tolerances()
    tolerances = Tolerances(arguments.preset or base.preset, base.rules)
    for name in ("rtol", "atol"):
        value = getattr(arguments, name)
        if value is not None and not 0 <= value < float("inf"):
            raise RequestError(f"--{name} {value}: expected a finite number, 0 or greater")
    if arguments.rtol is None and arguments.atol is None:
        return tolerances
    return tolerances.extended([Rule(arguments.rtol or 0.0, arguments.atol or 0.0, source="command line")])


def _read(path: Path, *, latest: bool) -> StatsTable:
    if path.is_dir():
        return StatsTable.from_records(read_tree(path, latest=latest).records)
    golden: StatsTable = read_golden(path).table
    if not golden.keys:
        raise DumpError(f"{path} holds no tensors")
    return golden


def _print(comparison: Comparison, limit: int | None) -> None:
    failing = comparison.failing
    for note in comparison.notes:
        print(f"note: {note}")
    if not failing:
        print(f"{comparison.compared} of {comparison.expected} tensors compared, all within tolerance")
        return
    print(f"{len(failing)} of {comparison.expected} tensors differ")
    if comparison.first is not None:
        print(f"first diverging layer: {sentence(comparison.first)}")
    for line in table([row(verdict) for verdict in failing[:limit]], COLUMNS):
        print(line)
    if limit is not None and len(failing) > limit:
        print(f"  ... and {len(failing) - limit} more (-v lists all)")
