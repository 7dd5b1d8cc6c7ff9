"""``npudump golden VERB``: the verb's own module does the work."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def run(arguments: argparse.Namespace) -> int:
    """Run the verb and return its exit code."""
    verb = importlib.import_module(f"pytest_npudump.cli.golden.{arguments.verb}")
    code: int = verb.run(arguments)
    return code
