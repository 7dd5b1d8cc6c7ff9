"""What git has to do with goldens: ``npudump golden init``, ``merge`` and ``log``."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.output import emit, present, to_stderr
from pytest_npudump.cli.init import DRIVER, git_attributes
from pytest_npudump.doctor.pytest_config import golden_folder
from pytest_npudump.dump.selection import layers_meant
from pytest_npudump.dump.table import layer_of
from pytest_npudump.errors import GoldenError, RequestError
from pytest_npudump.golden.approval_merge import merge
from pytest_npudump.golden.origin import Change, changes
from pytest_npudump.language.text import first_of
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.record.record import REASON
from pytest_npudump.record.text import parse
from pytest_npudump.storage.atomic import refuse_link, write_whole
from pytest_npudump.storage.regular_file import read_regular

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pytest_npudump.record.record import Record


def init(arguments: argparse.Namespace) -> int:
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
            "in each clone:",
            *(f"  {line}" for line in (*DRIVER, *(["git lfs install"] if arguments.lfs else []))),
        ]
    )
    return 0


def _folder_below(root: Path, named: Path | None) -> str:
    """Return the folder of the goldens as git names it here."""
    folder = Path(os.path.normpath(root / (named or golden_folder(root))))
    if not folder.is_relative_to(root):
        raise RequestError(
            f"{folder}: lies outside of {root}, whose .gitattributes says nothing of it: run this in the "
            "folder of its repository"
        )
    return folder.relative_to(root).as_posix()


_SHOWN = 5
_FAILED = 128
"""Exit code of git from which on it has failed; below it is the number of conflicts."""


def merge_files(arguments: argparse.Namespace) -> int:
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
        to_stderr(f"npudump: {error}; its lines are merged by git itself: look at all of it")
        return 1
    write_whole(arguments.ours, [merged.text.encode()])
    if not merged.conflicts:
        return 0
    shown = first_of(merged.conflicts, _SHOWN)
    to_stderr(f"npudump: {name}: conflict in {shown}")
    return 1


def _text(path: Path, name: Path) -> str:
    try:
        return read_regular(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise GoldenError(f"{name}: byte {error.start} is not UTF-8") from None


def _merge_lines(arguments: argparse.Namespace) -> None:
    """Have git put its markers into OURS: a file without any would look as if nothing of THEIRS were lost."""
    command = ["git", "merge-file", "-L", "ours", "-L", "base", "-L", "theirs"]
    files = [str(path) for path in (arguments.ours, arguments.base, arguments.theirs)]
    done = subprocess.run([*command, "--", *files], check=False)  # noqa: S603 - the git that has called this
    if not 0 <= done.returncode < _FAILED:
        raise RequestError(f"{arguments.ours}: git cannot merge it by lines: it is as it was; merge by hand")


_COMMIT = "\x01"
_FORMAT = f"--format={_COMMIT}%h%x00%as%x00%an%x00%s"


@dataclass(frozen=True, slots=True)
class _Revision:
    """The golden as one commit has it; None where it is gone or cannot be read, and why."""

    commit: str
    date: str
    author: str
    subject: str
    golden: Record | None
    why: str = ""


def log(arguments: argparse.Namespace) -> int:
    """Print the history, or write JSON, the latest first; 0.

    Raises:
        RequestError: it is a folder, git does not know the file, or no tensor of the history is of the layer.
    """
    if arguments.golden.is_dir():
        raise RequestError(f"{arguments.golden}: is a folder: name one golden file")
    told = [*_told(arguments.golden, arguments.layer)]
    if not told:
        layers = f"; no revision touches {arguments.layer}" if arguments.layer else ""
        raise RequestError(f"{arguments.golden}: no history{layers}: name a golden that is committed")
    lines = (line for one in told for line in _lines(*one, arguments.limit))
    present(arguments, lambda: [_as_json(*one) for one in told], lines)
    return 0


def _told(path: Path, layer: str | None) -> Iterator[tuple[_Revision, tuple[Change, ...]]]:
    """Yield each revision with what it changed, of one layer where one is named."""
    revisions = [*_revisions(path)]
    keys = {key for one in revisions if one.golden is not None for key in one.golden.table.keys}
    named = layers_meant([layer] if layer else [], map(layer_of, keys))
    for revision, before in pairwise([*revisions, None]):
        assert revision is not None  # noqa: S101 - only the last one is
        if revision.golden is None:
            found: tuple[Change, ...] = ()
        else:
            found = changes(before.golden if before else None, revision.golden)
        if layer and revision.golden is not None:
            first = before is None or before.golden is None
            told = [Change(key, "recorded") for key in revision.golden.table.keys] if first else found
            found = tuple(one for one in told if one.key and layer_of(one.key) in named)
        if found or not layer:
            yield revision, found


def _revisions(path: Path) -> Iterator[_Revision]:
    log = _git(path, "log", "--follow", _FORMAT, "--name-only", "--", path.name)
    for entry in log.split(_COMMIT)[1:]:
        facts, _, name = entry.strip().partition("\n\n")
        commit, date, author, subject = facts.split("\0")
        try:
            text = _git(path, "show", f"{commit}:{name.strip()}")
            yield _Revision(commit, date, author, subject, parse(text, Path(f"{commit}:{name.strip()}")))
        except (GoldenError, RequestError) as error:
            yield _Revision(commit, date, author, subject, None, str(error))


def _git(path: Path, *words: str) -> str:
    place = ["-C", str(path.absolute().parent)]
    command = ["git", "-c", "core.quotePath=off", "--literal-pathspecs", *place, *words]
    done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8", errors="replace")  # noqa: S603 - the user's own git
    if done.returncode:
        raise RequestError(f"{path}: git tells nothing of it: {done.stderr.strip() or done.returncode}")
    return done.stdout


def _lines(revision: _Revision, found: tuple[Change, ...], limit: int) -> Iterator[str]:
    yield f"{revision.commit} {revision.date} {revision.author}: {revision.subject}"
    if revision.golden is None:
        yield f"  cannot be read: {revision.why}"
    elif reason := revision.golden.extra.get(REASON):
        yield f"  reason: {reason}"
    for change in found[: limit or None]:
        yield f"  {change.key + ': ' if change.key else ''}{change.words}"
    if limit and len(found) > limit:
        yield f"  ... and {len(found) - limit} more"


def _as_json(revision: _Revision, found: tuple[Change, ...]) -> dict[str, Any]:
    return {
        "commit": revision.commit,
        "date": revision.date,
        "author": revision.author,
        "subject": revision.subject,
        "reason": revision.golden.extra.get(REASON) if revision.golden else None,
        "unreadable": revision.why or None,
        "changes": [{"key": one.key or None, "words": one.words} for one in found],
    }
