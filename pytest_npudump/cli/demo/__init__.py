"""``npudump demo``: record a golden, pass, change one weight, and see which layer is named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "folder",
        type=Path,
        nargs="?",
        default=Path("npudump-demo"),
        metavar="DIR",
        help="folder for the project, new or empty; default npudump-demo",
    )
