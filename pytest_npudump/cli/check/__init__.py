"""``npudump check``: the results of a session judged again, without a device and without running.

``command`` judges by what counts, ``other_terms`` by what else is asked for; ``unmatched_rules`` names rules
that decide about no tensor.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.options import (
    NUMERICS,
    add_json_option,
    add_place_options,
    add_what_if_option,
)

if TYPE_CHECKING:
    import argparse

DESCRIPTION = (
    "Judge what a session kept of its tests once more: by the goldens as they are here, or by other "
    "tolerances. Without options every test has the verdict of its run. Exit 0: within tolerance; 1: a "
    "difference; 2: a test that could not be judged, or results that cannot be read, after printing the rest."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("results", type=Path, metavar="RESULTS", help="the folder of a session's results")
    add_place_options(parser)
    parser.add_argument("--preset", default="", help="a tolerance preset in place of each test's")
    parser.add_argument(
        "--numerics",
        choices=NUMERICS,
        default="",
        help="which bounds the preset 'default' stands for, in place of what decided in each run",
    )
    parser.add_argument(
        "--tolerances",
        type=Path,
        metavar="FILE",
        help="YAML file of tolerance rules, in place of that of the runs; rules of a marker stay",
    )
    add_what_if_option(parser)
    parser.add_argument(
        "--expect",
        metavar="TESTS",
        help="a number, or a file with a test a line, as pytest --collect-only -q prints them: exit 2 where "
        "fewer tests were compared, or not all of these",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="show every failing tensor of each test")
    add_json_option(parser)
