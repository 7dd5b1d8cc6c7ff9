"""``npudump trend``: layers' statistics over several kept sessions, drawn by ``sparkline``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.options import add_json_option

if TYPE_CHECKING:
    import argparse

STATISTICS = ("max", "min", "avg", "l2norm", "nan", "neg_inf", "pos_inf")
"""As :mod:`pytest_npudump.dump.table` knows them, which needs numpy."""

DESCRIPTION = (
    "Show how the statistics of layers went over several runs, each a folder of kept results, in the order "
    "given. Nothing is judged. Exit 0: shown; 2: results that cannot be read, after printing the rest, or "
    "nothing to show."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "results", type=Path, nargs="+", metavar="RESULTS", help="folders of kept results, the oldest first"
    )
    parser.add_argument(
        "--test",
        action="append",
        default=[],
        metavar="TEST",
        help="a test's name or glob; may be given several times; default: all",
    )
    parser.add_argument(
        "--layer",
        action="append",
        default=[],
        metavar="LAYER",
        help="a layer's name or glob; may be given several times; default: all",
    )
    parser.add_argument(
        "--statistic",
        action="append",
        default=[],
        choices=STATISTICS,
        help="which statistic; may be given several times; default: max, min, avg and l2norm",
    )
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="show all, in the order of execution, also what is constant",
    )
    add_json_option(parser)
