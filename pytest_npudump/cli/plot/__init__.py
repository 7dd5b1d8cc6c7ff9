"""``npudump plot``: the charts of a comparison as pictures, for papers, tickets and slides."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.options import (
    add_executor_option,
    add_latest_option,
    add_layout_option,
    add_tolerance_options,
)

if TYPE_CHECKING:
    import argparse

DESCRIPTION = (
    "Compare two dumps, or a golden file and a dump, as npudump compare does, and draw what came of it: "
    "run.png and run.svg, every tensor by error against tolerance, and for the first failing tensors that "
    "both sides hold, tensor-N.png and tensor-N.svg: values, errors and where these are. Exit 0: drawn, "
    "whatever differs; 2: an unreadable or empty input."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("golden", type=Path, metavar="GOLDEN", help="a golden file, or a dump")
    parser.add_argument(
        "actual", type=Path, metavar="ACTUAL", help="a dump's directory, or one file of a dump"
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", required=True, help="write the pictures into this folder"
    )
    add_tolerance_options(parser)
    add_latest_option(parser)
    add_layout_option(parser)
    add_executor_option(parser)
