"""``npudump init``: what a repository needs for its first test, written beside what is there.

``survey`` looks at the repository, ``pytest_keys`` adds keys to pytest's configuration, ``first_test`` and
``ci_job`` are the texts of new files, ``model_inputs`` runs a model for the former, ``attributes`` is what
git is told of goldens; ``additions`` writes all that.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "folder", type=Path, nargs="?", default=Path(), metavar="DIR", help="the repository; default: here"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be written, and write nothing")
