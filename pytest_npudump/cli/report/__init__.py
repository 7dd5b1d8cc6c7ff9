"""``npudump report``: the results of a session as a page to look at, or as data of a graph viewer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.options import add_place_options

if TYPE_CHECKING:
    import argparse

DESCRIPTION = (
    "Write what a session kept of its tests as a page: index.html in the folder DIR, one file that needs no "
    "network. Tensors are judged by the goldens as they are here; what the second run of a failing test "
    "showed is read from the dumps, where they still are. Exit 0: written, whatever the tests came to; 2: "
    "results that cannot be read, after writing the rest."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("results", type=Path, metavar="RESULTS", help="the folder of a session's results")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="write the page into this folder")
    parser.add_argument(
        "--node-data",
        type=Path,
        metavar="DIR",
        help="write a file a test with which Model Explorer colours the ONNX model by error",
    )
    add_place_options(parser)
