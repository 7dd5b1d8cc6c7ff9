"""The command ``npudump``: what the plugin does, for dumps collected elsewhere, without CANN or pytest."""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import TYPE_CHECKING

from pytest_npudump import __version__
from pytest_npudump.errors import NpudumpError

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = ("stats", "compare", "config", "demo")
"""Modules of this package, each with SUMMARY, configure(parser) and run(arguments) -> exit code."""

UNREADABLE = 2
"""Exit code where an input cannot be read or a call makes no sense; 1 means a difference."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 good, 1 a difference, 2 an unreadable or wrong input."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="npudump", description=__doc__)
    parser.add_argument("--version", action="version", version=f"npudump {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        module = importlib.import_module(f"pytest_npudump.cli.{name}")
        command = commands.add_parser(name, help=module.SUMMARY, description=module.SUMMARY)
        module.configure(command)
        command.set_defaults(run=module.run)
    arguments = parser.parse_args(words)
    try:
        code: int = arguments.run(arguments)
    except NpudumpError as error:
        print(f"npudump: {error}", file=sys.stderr)
        return UNREADABLE
    except BrokenPipeError:
        sys.stderr.close()  # nobody reads the rest, and the interpreter would complain of it at exit
        return UNREADABLE
    return code
