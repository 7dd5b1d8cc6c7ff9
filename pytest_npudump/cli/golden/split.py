"""``npudump golden split``: variants become what differs from the common golden, which names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import emit, to_stderr
from pytest_npudump.errors import GoldenError
from pytest_npudump.golden.variant_files import split
from pytest_npudump.language.translation import gettext as _

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
        count = _("{differing} of {tensors} tensors differ from {name}").format(
            differing=part.differing, tensors=part.tensors, name=part.base.name
        )
        emit(
            [
                _("split: {path}: {count}, which names it for runs of {facts}").format(
                    path=path, count=count, facts=facts
                )
            ]
        )
    return 0 if good else 2
