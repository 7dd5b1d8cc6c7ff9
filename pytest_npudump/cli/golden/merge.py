"""``npudump golden merge``: git's merge driver for golden files."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import to_stderr
from pytest_npudump.errors import GoldenError, RequestError
from pytest_npudump.golden.approval_merge import merge
from pytest_npudump.language.excerpt import first_of
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.storage.atomic import refuse_link, write_whole
from pytest_npudump.storage.regular_file import read_regular

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

_SHOWN = 5
_FAILED = 128
"""Exit code of git from which on it has failed; below it is the number of conflicts."""


def run(arguments: argparse.Namespace) -> int:
    """Write the joined golden into OURS; 1 where there are conflicts, which have markers in it.

    Raises:
        OSError: a file cannot be read or written; OURS is as it was.
        GoldenError: OURS is a symbolic link.
        RequestError: neither this nor git can merge it; OURS is as it was.
    """
    name = arguments.name or arguments.ours
    refuse_link(arguments.ours)
    try:
        texts = [_text(path, name) for path in (arguments.base, arguments.ours, arguments.theirs)]
        merged = merge(name, *texts)
    except GoldenError as error:
        _merge_lines(arguments)
        to_stderr(
            _("npudump: {error}; its lines are merged by git itself: look at all of it").format(error=error)
        )
        return 1
    write_whole(arguments.ours, [merged.text.encode()])
    if not merged.conflicts:
        return 0
    shown = first_of(merged.conflicts, _SHOWN)
    to_stderr(_("npudump: {name}: conflict in {shown}").format(name=name, shown=shown))
    return 1


def _text(path: Path, name: Path) -> str:
    try:
        return read_regular(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise GoldenError(
            _("{name}: byte {offset} is not UTF-8").format(name=name, offset=error.start)
        ) from None


def _merge_lines(arguments: argparse.Namespace) -> None:
    """Have git put its markers into OURS: a file without any would look as if nothing of THEIRS were lost."""
    command = ["git", "merge-file", "-L", "ours", "-L", "base", "-L", "theirs"]
    files = [str(path) for path in (arguments.ours, arguments.base, arguments.theirs)]
    done = subprocess.run([*command, "--", *files], check=False)  # noqa: S603 - the git that has called this
    if not 0 <= done.returncode < _FAILED:
        raise RequestError(
            _("{ours}: git cannot merge it by lines: it is as it was; merge by hand").format(
                ours=arguments.ours
            )
        )
