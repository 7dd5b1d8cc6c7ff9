"""What a repository gets: new files, and lines added to those that are there; nothing is overwritten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npudump.cli.init import attributes
from pytest_npudump.cli.init.ci_job import ci_job
from pytest_npudump.cli.init.first_test import FILE, first_test
from pytest_npudump.cli.init.pytest_keys import values_for, with_keys
from pytest_npudump.errors import RequestError
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import mark
from pytest_npudump.storage.atomic import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_npudump.cli.init.survey import Survey


@dataclass(frozen=True, slots=True)
class Addition:
    """One file.

    Attributes:
        path: the file.
        before: its text; None where there is none.
        after: its text with what is added; as before where nothing is.
        lines: what is added to a file that is there.
        unknown: what was not known, or is left to do, in words.
    """

    path: Path
    before: str | None
    after: str
    lines: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """What becomes of the file: ``new``, ``added to`` or ``as it is``."""
        if self.before is None:
            return mark("new")
        return mark("as it is") if self.before == self.after else mark("added to")

    def write(self) -> None:
        """Write it, where anything is added, and nobody has written it since it was read.

        Raises:
            RequestError: it is another file meanwhile, or cannot be written; it is as it was.
        """
        if self.before == self.after:
            return
        try:
            if read(self.path) != self.before:
                raise RequestError(
                    _("{path}: was written meanwhile: it is as it is; run this again").format(path=self.path)
                )
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, [self.after.encode()])
        except OSError as error:
            raise RequestError(
                _("{path}: cannot be written: {error}").format(path=self.path, error=error.strerror or error)
            ) from error


def read(path: Path) -> str | None:
    """Return the text of a file, line ends as they are; None where there is none.

    Raises:
        RequestError: it cannot be read as text, or is a symbolic link, which writing would replace.
    """
    if path.is_symlink():
        raise RequestError(
            _("{path}: is a symbolic link: put a file in its place, and run this again").format(path=path)
        )
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(_("{path}: cannot be read: {error}").format(path=path, error=error)) from error


def git_attributes(root: Path, golden_dir: str = "golden", *, lfs: bool = False) -> Addition:
    """Return what ``.gitattributes`` gets."""
    path = root / attributes.FILE
    before = read(path)
    after, lines = attributes.with_goldens(before or "", golden_dir, lfs=lfs)
    return Addition(path, before, after, lines)


def additions(found: Survey) -> Iterator[Addition]:
    """Yield what a repository gets."""
    yield _configuration(found)
    test = first_test(found)
    yield _new(found.tests / FILE, test.text, test.unknown)
    yield git_attributes(found.root, found.golden_dir)
    path, text, unknown = ci_job(found)
    yield _new(path, text, unknown)


def _configuration(found: Survey) -> Addition:
    path, keys = found.configuration, values_for(found.configuration, found.section)
    before = read(path)
    if not found.section:
        told = ", ".join(f"{name} = {value}" for name, value in keys.items())
        left = _("left to you: pytest's keys in {path} stand in no section of their own, add {keys}")
        return Addition(path, before, before or "", unknown=(left.format(path=path.name, keys=told),))
    after, lines = with_keys(before or "", found.section, keys)
    left = _("left to you: add pytest-npudump to required_plugins in {path}, which names other plugins")
    unknown = () if found.requires else (left.format(path=path.name),)
    return Addition(path, before, after, lines, unknown)


def _new(path: Path, text: str, unknown: tuple[str, ...]) -> Addition:
    before = read(path)
    if before is not None:
        return Addition(path, before, before)
    return Addition(path, None if text else "", text, unknown=unknown)
