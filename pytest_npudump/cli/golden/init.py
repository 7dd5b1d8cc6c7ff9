"""``npudump golden init``: tell git how goldens are merged, and their tensors kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import emit
from pytest_npudump.cli.common.pytest_settings import golden_folder
from pytest_npudump.cli.init.additions import git_attributes
from pytest_npudump.cli.init.attributes import DRIVER
from pytest_npudump.errors import RequestError
from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    import argparse


def run(arguments: argparse.Namespace) -> int:
    """Add what ``.gitattributes`` lacks; 0.

    Raises:
        RequestError: the goldens lie outside of this folder.
        ConfigError: pytest's configuration, which may name their folder, cannot be read.
    """
    addition = git_attributes(Path.cwd(), _folder_below(Path.cwd(), arguments.golden_dir), lfs=arguments.lfs)
    addition.write()
    emit([f"{_(addition.word)}: {addition.path.name}", *(f"  {line}" for line in addition.lines)])
    emit(
        [
            _("in each clone:"),
            *(f"  {line}" for line in (*DRIVER, *(["git lfs install"] if arguments.lfs else []))),
        ]
    )
    return 0


def _folder_below(root: Path, named: Path | None) -> str:
    """Return the folder of the goldens as git names it here."""
    folder = Path(os.path.normpath(root / (named or golden_folder(root))))
    if not folder.is_relative_to(root):
        raise RequestError(
            _(
                "{folder}: lies outside of {root}, whose .gitattributes says nothing of it: run this in the "
                "folder of its repository"
            ).format(folder=folder, root=root)
        )
    return folder.relative_to(root).as_posix()
