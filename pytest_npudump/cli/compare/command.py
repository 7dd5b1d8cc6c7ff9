"""``npudump compare``: two dumps, or a golden file and a dump, judged as the plugin judges them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.executors import add_executor_option, open_workers
from pytest_npudump.cli.common.layout_option import add_layout_option
from pytest_npudump.cli.common.output import add_json_option, emit, write_json
from pytest_npudump.cli.common.reading import add_latest_option, report_problems
from pytest_npudump.cli.compare.engine import compare_sides
from pytest_npudump.cli.compare.report import as_json, lines
from pytest_npudump.cli.compare.sides import read_dump_side, read_golden_side
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.errors import RequestError

if TYPE_CHECKING:
    import argparse

DESCRIPTION = (
    "Compare two dumps, or a golden file and a dump. Statistics are always compared; where both sides hold a "
    "tensor, its elements are too, in the host's layout, and a tensor passes only if both agree: no element "
    "is farther off than the extremes may be, and the tensor as a vector (relative_l2) no farther than rtol. "
    "With an ONNX model in place of GOLDEN the layers are compared with onnxruntime's. "
    "Exit 0: within tolerance; 1: a difference; 2: an unreadable or empty input, after printing the rest, or "
    "no value that could be compared."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("golden", type=Path, metavar="GOLDEN", help="a golden file, a dump, or an ONNX model")
    parser.add_argument(
        "actual", type=Path, metavar="ACTUAL", help="a dump's directory, or one file of a dump"
    )
    parser.add_argument("--preset", help="tolerance preset (default, exact, torch, ...)")
    parser.add_argument("--rtol", type=float, help="relative tolerance of floating-point values")
    parser.add_argument("--atol", type=float, help="absolute tolerance of floating-point values")
    parser.add_argument("--tolerances", type=Path, metavar="FILE", help="YAML file of tolerance rules")
    parser.add_argument("-v", "--verbose", action="store_true", help="list every failing tensor")
    parser.add_argument(
        "--inputs",
        type=Path,
        action="append",
        metavar="FILE.npz",
        help="what the ONNX model is given, an array an input; once for each execution in the dump",
    )
    parser.add_argument(
        "--map", type=Path, metavar="FILE", help="YAML file of layers that the ONNX model names otherwise"
    )
    add_latest_option(parser)
    add_layout_option(parser)
    add_executor_option(parser)
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare, print the verdict, and return 0, 1 or 2."""
    if arguments.golden.suffix == ".onnx":
        from pytest_npudump.cli.compare import reference as compare_reference  # noqa: PLC0415 - only for ONNX models

        return compare_reference.run(arguments)
    if arguments.inputs or arguments.map:
        raise RequestError("--inputs and --map: only with an ONNX model in place of GOLDEN")
    tolerances = _tolerances(arguments)
    with open_workers(arguments.executor) as workers:
        golden = read_golden_side(arguments.golden, workers, latest=arguments.latest)
        actual = read_dump_side(arguments.actual, workers, latest=arguments.latest)
        result = compare_sides(golden, actual, tolerances, workers, layout=arguments.layout)
    if arguments.json:
        write_json(as_json(result), arguments.json)
    if arguments.json != "-":
        emit(lines(result, verbose=arguments.verbose))
    report_problems(result.problems)
    if result.problems or result.comparison.nothing_judged:
        return 2
    return 1 if result.comparison.failing else 0


def _tolerances(arguments: argparse.Namespace) -> Tolerances:
    base = Tolerances()
    if arguments.tolerances:
        from pytest_npudump.compare.tolerances.rules import load_tolerances  # noqa: PLC0415 - yaml only where asked for

        base = load_tolerances(arguments.tolerances)
    tolerances = Tolerances(arguments.preset or base.preset, base.rules)
    for name in ("rtol", "atol"):
        value = getattr(arguments, name)
        if value is not None and not 0 <= value < float("inf"):
            raise RequestError(f"--{name} {value}: expected a finite number, 0 or greater")
    if arguments.rtol is None and arguments.atol is None:
        return tolerances
    return tolerances.extended([Rule(arguments.rtol or 0.0, arguments.atol or 0.0, source="command line")])
