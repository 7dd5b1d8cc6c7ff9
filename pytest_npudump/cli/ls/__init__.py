"""``npudump ls``: what a dump holds, without reading the values of its tensors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.options import add_executor_option, add_json_option, add_latest_option

if TYPE_CHECKING:
    import argparse

DESCRIPTION = (
    "List the tensors of a dump in execution order, without reading their values. Exit 0; 2 where a file "
    "cannot be read, after listing the others."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("dump", type=Path, metavar="TREE", help="a dump's directory, or one file of a dump")
    add_latest_option(parser)
    add_executor_option(parser)
    add_json_option(parser)
