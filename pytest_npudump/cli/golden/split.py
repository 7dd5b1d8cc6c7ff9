"""``npudump golden split``: variants become what differs from the common golden, which names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import emit, to_stderr
from pytest_npudump.errors import GoldenError
from pytest_npudump.golden.variant_files import split

if TYPE_CHECKING:
    import argparse


def run(arguments: argparse.Namespace) -> int:
    """Write them; 2 where one cannot be."""
    good = True
    for path in arguments.variants:
        try:
            part = split(path, arguments.by)
        except GoldenError as error:
            to_stderr(f"npudump: {error}")
            good = False
            continue
        facts = ", ".join(f"{name} {value}" for name, value in part.facts.items())
        count = f"{part.differing} of {part.tensors} tensors differ from {part.base.name}"
        emit([f"split: {path}: {count}, which names it for runs of {facts}"])
    return 0 if good else 2
