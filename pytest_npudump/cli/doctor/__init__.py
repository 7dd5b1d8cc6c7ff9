"""``npudump doctor``: what is installed, which runtimes work, and whether a dump can be written here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.options import add_json_option

if TYPE_CHECKING:
    import argparse

DESCRIPTION = (
    "Say what is installed (CANN, driver, SoC, torch_npu, TorchAir, MindSpore), which runtimes work, whether "
    "pytest insists on this plugin, and whether a dump can be written here. Exit status: 0 at least one "
    "runtime works and a dump can be written, 1 otherwise, 2 wrong usage, or a pytest configuration that "
    "cannot be read."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--dump-dir",
        type=Path,
        metavar="DIR",
        help="folder that dumps go to, as for --npudump-dump-dir; default where tests run here would dump",
    )
    add_json_option(parser)
