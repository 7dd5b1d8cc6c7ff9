"""``npudump overflow``: what the overflow records of a dump say, and which layer they are about."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.options import add_executor_option, add_json_option

if TYPE_CHECKING:
    import argparse

DESCRIPTION = (
    "Say what the overflow records of a dump (Opdebug.Node_OpDebug..., from dump_debug) report. The layer is "
    "found by the record's stream and task among the dump's files of the same device and model. Exit 0: no "
    "overflow; 1: an overflow; 2: an unreadable or empty input."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("dump", type=Path, metavar="PATH", help="a dump's directory, or one overflow record")
    add_executor_option(parser)
    add_json_option(parser)
