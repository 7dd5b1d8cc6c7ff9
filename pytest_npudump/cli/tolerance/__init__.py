"""``npudump tolerance``: which bound each statistic of a golden has, and how wide it is.

``command`` prints them; ``kept_run`` knows what a golden does not tell.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.options import add_json_option, add_tolerance_options

if TYPE_CHECKING:
    import argparse

DESCRIPTION = (
    "Say which tolerance each statistic of a golden file has, where it comes from, and how wide it is: in "
    "steps of the tensor's type, and in percent of its magnitude. Without LAYER one line for each rule, with "
    "the tensor it is widest for. Exit 0; 2 where a file cannot be read or a rule matches nothing."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    summary = "which bound each statistic has, and why"
    explain = actions.add_parser("explain", help=summary, description=DESCRIPTION)
    explain.add_argument("golden", type=Path, metavar="GOLDEN", help="a golden file")
    explain.add_argument("layer", nargs="?", default="", metavar="LAYER", help="a layer's name or glob")
    add_tolerance_options(explain)
    explain.add_argument(
        "--results",
        type=Path,
        metavar="RESULTS",
        help="the folder of a session's results: the last run of the golden's test says which operators it "
        "has, for rules that name op_type, and what produced it; without it that is what produced the golden",
    )
    add_json_option(explain)
