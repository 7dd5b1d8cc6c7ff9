"""``npudump init``: look at a repository, and write what its first test needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import emit
from pytest_npudump.cli.init.additions import Addition, additions
from pytest_npudump.cli.init.attributes import DRIVER
from pytest_npudump.cli.init.first_test import FILE
from pytest_npudump.cli.init.survey import Survey, survey
from pytest_npudump.errors import RequestError
from pytest_npudump.language.shell import typed
from pytest_npudump.language.text_width import padded
from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence


def run(arguments: argparse.Namespace) -> int:
    """Write it, and say what was found, what was written, and what was not known; 0.

    Raises:
        RequestError: the folder is none, or a file cannot be read or written.
    """
    root = arguments.folder.absolute()
    if not root.is_dir():
        raise RequestError(
            _("{folder}: no such folder: name the folder of a repository").format(folder=arguments.folder)
        )
    try:
        found = survey(root)
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(
            _("{root}: cannot be looked at: {error}").format(root=root, error=error)
        ) from error
    planned = [*additions(found)]
    if not arguments.dry_run:
        for one in planned:
            one.write()
    emit(_lines(found, planned, dry=arguments.dry_run))
    return 0


def _lines(found: Survey, planned: Sequence[Addition], *, dry: bool) -> Iterator[str]:
    yield _("found:")
    yield "  " + _("CANN:     {cann}").format(cann=found.cann or _("none"))
    yield "  " + _("packages: {packages}").format(packages=", ".join(sorted(found.packages)) or _("none"))
    shown = ", ".join(map(str, found.models[:3])) + (", ..." if len(found.models) > 3 else "")  # noqa: PLR2004
    yield "  " + _("models:   {models}").format(models=shown or _("none"))
    yield _("would be written (--dry-run):") if dry else _("written:")
    for one in planned:
        if one.before is None or one.lines:
            yield f"  {padded(_(one.word) + ':', 10)} {one.path.relative_to(found.root)}"
            yield from (f"             {line}" for line in one.lines if one.before is not None)
    if kept := [str(one.path.relative_to(found.root)) for one in planned if one.before and not one.lines]:
        yield f"  {padded(_('as it is') + ':', 10)} {', '.join(kept)}"
    unknown = [words for one in planned for words in one.unknown]
    if not found.all_seen:
        unknown.append(_("whether there are more models: the repository has too many files to look at all"))
    if not found.has_git:
        unknown.append(_("where the repository's root is: there is no .git here"))
    if unknown:
        yield _("not known:")
        yield from (f"  {words}" for words in unknown)
    yield _("next:")
    if not found.root.samefile(Path.cwd()):
        yield f"  {typed('cd', found.root)}"
    if any(one.path.name == FILE and one.after for one in planned):
        test = next(one.path.relative_to(found.root) for one in planned if one.path.name == FILE)
        yield f"  {typed('pytest', '--npudump-update-golden', test)}"
        yield f"  {typed('pytest', test)}"
    yield from (f"  {line}" for line in DRIVER)
