"""``npudump golden init``: tell git how goldens are merged, and their tensors kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import emit
from pytest_npudump.cli.init.additions import git_attributes
from pytest_npudump.cli.init.attributes import DRIVER
from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    import argparse


def run(arguments: argparse.Namespace) -> int:
    """Add what ``.gitattributes`` lacks; 0."""
    addition = git_attributes(Path.cwd(), arguments.golden_dir, lfs=arguments.lfs)
    addition.write()
    emit([f"{_(addition.word)}: {addition.path.name}", *(f"  {line}" for line in addition.lines)])
    emit(
        [
            _("in each clone:"),
            *(f"  {line}" for line in (*DRIVER, *(["git lfs install"] if arguments.lfs else []))),
        ]
    )
    return 0
