"""What the options of a command say may differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.compare.tolerances.tolerance import Tolerances

if TYPE_CHECKING:
    import argparse


def chosen_tolerances(arguments: argparse.Namespace) -> Tolerances:
    """Return what the options say; the preset of the command line goes before the file's.

    Raises:
        RequestError: an unknown preset, or a file that cannot be read or holds a rule that is refused.
    """
    base = Tolerances()
    if arguments.tolerances:
        from pytest_npudump.compare.tolerances.rules import load_tolerances  # noqa: PLC0415 - yaml only where asked for

        base = load_tolerances(arguments.tolerances)
    return Tolerances(arguments.preset or base.preset, base.rules).under(arguments.numerics)
