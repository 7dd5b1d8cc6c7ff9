"""The option ``--layout`` of commands that convert tensors to the host's layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.dump.arrays.host import LAYOUTS

if TYPE_CHECKING:
    import argparse


def add_layout_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--layout``."""
    parser.add_argument(
        "--layout",
        choices=LAYOUTS,
        default="ND",
        help="host layout to convert to; ND, the default, leaves host layouts as they are and makes NCHW (or "
        "NCDHW) of device layouts that split C. The header of a dump does not tell the order of the "
        "original shape's axes: it is taken to be that of the layout given here",
    )
