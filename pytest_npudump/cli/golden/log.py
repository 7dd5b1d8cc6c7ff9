"""``npudump golden log``: a golden's history, as git has it."""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from pytest_npudump.cli.common.output import present
from pytest_npudump.cli.common.project import golden_named
from pytest_npudump.dump.selection import layers_called, suggest
from pytest_npudump.dump.table import layer_of
from pytest_npudump.errors import GoldenError, RequestError
from pytest_npudump.golden.origin import Change, changes
from pytest_npudump.record.record import REASON, Record
from pytest_npudump.record.text import parse
from pytest_npudump.report.verdicts import shown

_COMMIT = "\x01"
_TITLE = "{commit} {date} {author}: {subject}"
_FORMAT = f"--format={_COMMIT}%h%x00%as%x00%an%x00%s"


_Revision = tuple[dict[str, str], Record | None, str]
"""Facts of a commit, and the golden as it has it; None where it is gone or cannot be read, and why."""


def run(arguments: argparse.Namespace) -> int:
    """Print the history, or write JSON, the latest first; 0.

    Raises:
        RequestError: git does not know the file, it is a folder, or no tensor of the history is of the layer.
    """
    golden = golden_named(arguments.golden)
    if golden.is_dir():
        raise RequestError(f"{golden}: is a folder: name a golden file, or the test that it is of")
    told = [*_told(golden, arguments.layer)]
    if not told:
        raise RequestError(f"{golden}: no history: name a golden that is committed")
    lines = (line for one in told for line in _lines(*one, arguments.limit))
    present(arguments, lambda: [_as_json(*one) for one in told], lines)
    return 0


def _told(path: Path, layer: str | None) -> Iterator[tuple[_Revision, tuple[Change, ...]]]:
    """Yield each revision with what it changed, of one layer where one is named."""
    revisions = [*_revisions(path)]
    keys = (key for _, golden, _ in revisions if golden is not None for key in golden.table.keys)
    layers = dict.fromkeys(map(layer_of, keys))
    named = layers_called([layer] if layer else [], layers)
    if layer and revisions and not named:
        raise RequestError(
            f"{path}: no revision has a layer {layer!r}; {suggest(layer, layers, 'the golden')}"
        )
    for revision, before in pairwise([*revisions, None]):
        assert revision is not None  # noqa: S101 - only the last one is
        golden, earlier = revision[1], before[1] if before else None
        found = () if golden is None else changes(earlier, golden)
        if layer and golden is not None:
            told = [Change(key, "recorded") for key in golden.table.keys] if earlier is None else found
            found = tuple(one for one in told if one.key and layer_of(one.key) in named)
        if found or not layer:
            yield revision, found


def _revisions(path: Path) -> Iterator[_Revision]:
    log = _git(path, "log", "--follow", _FORMAT, "--name-status", "--", path.name)
    for entry in log.split(_COMMIT)[1:]:
        facts, _, names = entry.strip().partition("\n\n")
        told = dict(zip(("commit", "date", "author", "subject"), facts.split("\0"), strict=True))
        kind, *_before, name = names.strip().split("\t")
        place = f"{told['commit']}:{name}"
        try:
            yield told, parse(_git(path, "show", place), Path(place)), ""
        except (GoldenError, RequestError) as error:
            yield told, None, str(error)
        if kind.startswith("C"):  # git follows a copy, too, though the other golden has a test of its own
            return


def _git(path: Path, *words: str) -> str:
    path = path.absolute()
    command = ["git", "-C", str(path.parent), "-c", "core.quotePath=off", "--literal-pathspecs", *words]
    english = os.environ | {"LC_ALL": "C"}  # of git's reasons
    done = subprocess.run(  # noqa: S603 - the user's own git
        command, check=False, capture_output=True, encoding="utf-8", errors="replace", env=english
    )
    if done.returncode:
        reason = done.stderr.strip().removeprefix("fatal: ") or f"git ended with {done.returncode}"
        if "does not have any commits yet" in reason:
            reason = "the repository has no commit yet: commit the goldens first"
        raise RequestError(f"{shown(path)}: no history: {reason}")
    return done.stdout


def _lines(revision: _Revision, found: tuple[Change, ...], limit: int) -> Iterator[str]:
    told, golden, why = revision
    yield _TITLE.format(**told)
    if golden is None:
        yield f"  cannot be read: {why}"
    elif reason := golden.extra.get(REASON):
        yield f"  reason: {reason}"
    for change in found[: limit or None]:
        yield f"  {change.key + ': ' if change.key else ''}{change.words}"
    if limit and len(found) > limit:
        yield f"  ... and {len(found) - limit} more"


def _as_json(revision: _Revision, found: tuple[Change, ...]) -> dict[str, Any]:
    told, golden, why = revision
    return {
        **told,
        "reason": golden.extra.get(REASON) if golden else None,
        "unreadable": why or None,
        "changes": [{"key": one.key or None, "words": one.words} for one in found],
    }
