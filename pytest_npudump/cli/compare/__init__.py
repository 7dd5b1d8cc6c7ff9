"""``npudump compare``: two dumps, or a golden and a dump, judged outside of a test as the plugin judges them.

``command`` is the verb; ``sides`` reads what it is given, ``engine`` judges it, ``report`` and ``words`` say
it; ``what_if`` tries other tolerances; ``onnx_reference`` is the comparison with an ONNX model,
``kept_results`` that of two folders of kept results.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.options import (
    add_executor_option,
    add_json_option,
    add_latest_option,
    add_layout_option,
    add_tolerance_options,
    add_what_if_option,
)

if TYPE_CHECKING:
    import argparse

DESCRIPTION = (
    "Compare two dumps, or a golden file and a dump. Statistics are always compared; where both sides hold a "
    "tensor, its elements are too, in the host's layout, and a tensor passes only if both agree: no element "
    "is farther off than the extremes may be, and the tensor as a vector (relative_l2) no farther than rtol. "
    "Of two folders of kept results each test's statistics are compared, and what produced them comes first. "
    "With an ONNX model in place of GOLDEN the layers are compared with onnxruntime's. "
    "Exit 0: within tolerance; 1: a difference; 2: an unreadable or empty input, after printing the rest, or "
    "no value that could be compared."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "golden", type=Path, metavar="GOLDEN", help="a golden file, a dump, an ONNX model, or kept results"
    )
    parser.add_argument(
        "actual", type=Path, metavar="ACTUAL", help="a dump's directory, one file of a dump, or kept results"
    )
    add_tolerance_options(parser)
    add_what_if_option(parser)
    parser.add_argument("--rtol", type=float, help="relative tolerance of floating-point values")
    parser.add_argument("--atol", type=float, help="absolute tolerance of floating-point values")
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
    parser.add_argument(
        "--plots",
        type=Path,
        metavar="DIR",
        help="write pictures into this folder: run.svg, every tensor by error against tolerance, and for "
        "each of the first failing tensors whose elements both sides hold tensor-N.svg",
    )
    add_latest_option(parser)
    add_layout_option(parser)
    add_executor_option(parser)
    add_json_option(parser)
