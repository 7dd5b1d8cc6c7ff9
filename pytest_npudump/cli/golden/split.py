"""Variants as what differs from a common golden: ``npudump golden split`` and ``fold``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import emit, to_stderr
from pytest_npudump.errors import GoldenError
from pytest_npudump.golden.variants import fold, split
from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    import argparse
    from pathlib import Path


def split_all(arguments: argparse.Namespace) -> int:
    """Write variants as what differs; 2 where one cannot be."""
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


def fold_all(arguments: argparse.Namespace) -> int:
    """Take variants back; 1 where one waits for ``--yes``, 2 where one cannot be."""
    codes = [_folded(path, whole=arguments.whole, yes=arguments.yes) for path in arguments.variants]
    return max(codes)


def _folded(path: Path, *, whole: bool, yes: bool) -> int:
    try:
        part = fold(path, whole=whole, dry=True)
        count = _("{differing} of {tensors} tensors differ from {name}").format(
            differing=part.differing, tensors=part.tensors, name=part.base.name
        )
        waits = bool(part.differing) and not (yes or whole)
        if waits:
            emit(
                [
                    _(
                        "would be removed with --yes: {path}: {count}, with which its runs are compared then"
                    ).format(path=path, count=count)
                ]
            )
            return 1
        fold(path, whole=whole)
    except GoldenError as error:
        to_stderr(f"npudump: {error}")
        return 2
    words = (
        _("a golden of its own")
        if whole
        else _("removed; its runs are compared with {name}").format(name=part.base.name)
    )
    emit([_("folded: {path}: {words} ({count})").format(path=path, words=words, count=count)])
    return 0
