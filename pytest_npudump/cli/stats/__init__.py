"""``npudump stats``: the statistics of every tensor of a dump, with projections beside them or not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.options import add_executor_option, add_json_option, add_latest_option

if TYPE_CHECKING:
    import argparse

DESCRIPTION = (
    "Print the statistics of every tensor of a dump, in execution order: those its files tell, computed from "
    "the tensors where they tell none. Exit 0; 2 where a file cannot be read, after printing the others."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("dump", type=Path, metavar="PATH", help="a dump's directory, or one file of a dump")
    parser.add_argument(
        "--acl",
        action="store_true",
        help="compute the statistics of tensors as ACL does on the device: NaN for max and min where the "
        "first element is NaN, and none for types that it leaves out (bf16, fp8, int4, complex and others)",
    )
    parser.add_argument(
        "--projections",
        action="store_true",
        help="add eight sums of the elements of each tensor under fixed random signs, in which permuted "
        "rows, swapped channels, shifts and single elements show that the other statistics do not see",
    )
    add_latest_option(parser)
    add_executor_option(parser)
    add_json_option(parser)
