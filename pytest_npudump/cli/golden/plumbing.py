"""Verbs for git and scripts: ``npudump golden merge``, ``split``, ``fold``, ``remote`` and ``init``."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import complain, emit, to_stderr
from pytest_npudump.cli.common.project import golden_files
from pytest_npudump.cli.common.pytest_config import golden_folder, tensor_place
from pytest_npudump.cli.common.work import progress
from pytest_npudump.cli.init import DRIVER, git_attributes
from pytest_npudump.errors import GoldenError, RequestError
from pytest_npudump.golden.approval_merge import merge
from pytest_npudump.golden.census import SUFFIX, named_objects, pull, push
from pytest_npudump.golden.variants import Part, fold, split
from pytest_npudump.language.text import first_of
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.storage.atomic import refuse_link, write_whole
from pytest_npudump.storage.regular_file import read_regular

if TYPE_CHECKING:
    import argparse


def init(arguments: argparse.Namespace) -> int:
    """Add missing lines to ``.gitattributes``; 0.

    Raises:
        RequestError: the goldens lie outside of this folder.
        ConfigError: pytest's configuration, which may name their folder, cannot be read.
    """
    root = Path.cwd()
    folder = Path(os.path.normpath(root / (arguments.golden_dir or golden_folder(root))))
    if not folder.is_relative_to(root):
        raise RequestError(
            f"{folder}: lies outside of {root}, whose .gitattributes says nothing of it: run this in the "
            "folder of its repository"
        )
    addition = git_attributes(root, folder.relative_to(root).as_posix(), lfs=arguments.lfs)
    addition.write()
    emit([f"{_(addition.word)}: {addition.path.name}", *(f"  {line}" for line in addition.lines)])
    commands = (*DRIVER, *(["git lfs install"] if arguments.lfs else []))
    emit(["in each clone:", *(f"  {line}" for line in commands)])
    return 0


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
        # git puts its markers into OURS: a file without any would look as if nothing of THEIRS were lost
        labels = ("-L", "ours", "-L", "base", "-L", "theirs", "--")
        files = (arguments.ours, arguments.base, arguments.theirs)
        command = ["git", "merge-file", *labels, *map(str, files)]
        done = subprocess.run(command, check=False)  # noqa: S603 - the git that has called this
        if not 0 <= done.returncode < _FAILED:
            words = "git cannot merge it by lines: it is as it was; merge by hand"
            raise RequestError(f"{arguments.ours}: {words}") from error
        to_stderr(f"npudump: {error}; its lines are merged by git itself: look at all of it")
        return 1
    write_whole(arguments.ours, [merged.text.encode()])
    if not merged.conflicts:
        return 0
    shown = first_of(merged.conflicts)
    to_stderr(f"npudump: {name}: conflict in {shown}")
    return 1


def _text(path: Path, name: Path) -> str:
    try:
        return read_regular(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise GoldenError(f"{name}: byte {error.start} is not UTF-8") from None


def split_all(arguments: argparse.Namespace) -> int:
    """Write variants as what differs; 2 where one cannot be."""
    good = True
    for path in arguments.variants:
        try:
            part = split(path, arguments.by)
        except GoldenError as error:
            complain([error])
            good = False
            continue
        facts = ", ".join(f"{name} {value}" for name, value in part.facts.items())
        emit([f"split: {path}: {_differing(part)}, which names it for runs of {facts}"])
    return 0 if good else 2


def _differing(part: Part) -> str:
    return f"{part.differing} of {part.tensors} tensors differ from {part.base.name}"


def fold_all(arguments: argparse.Namespace) -> int:
    """Take variants back; 1 where one waits for ``--yes``, 2 where one cannot be."""
    return max(_folded(path, whole=arguments.whole, yes=arguments.yes) for path in arguments.variants)


def _folded(path: Path, *, whole: bool, yes: bool) -> int:
    try:
        part = fold(path, whole=whole, dry=True)
        count = _differing(part)
        if part.differing and not (yes or whole):
            emit([f"would be removed with --yes: {path}: {count}, with which its runs are compared then"])
            return 1
        fold(path, whole=whole)
    except GoldenError as error:
        complain([error])
        return 2
    words = "a golden of its own" if whole else f"removed; its runs are compared with {part.base.name}"
    emit([f"folded: {path}: {words} ({count})"])
    return 0


_SHOWN = 5


def remote(arguments: argparse.Namespace) -> int:
    """Do it; 1 where something is not where it is to be, 2 where a golden cannot be read.

    Raises:
        RequestError: there is no store, or no golden.
        NpudumpError: the store cannot be asked.
    """
    paths = arguments.paths or [golden_folder(Path.cwd())]
    store = tensor_place(paths[0], arguments.store, arguments.cache)
    if not store.url:
        raise RequestError(
            "no store of golden tensors is named: set npudump_tensor_store in pytest's ini file, or "
            "give --store, such as s3://bucket/folder"
        )
    files = [path for path in golden_files(paths) if path.suffix == SUFFIX]
    named, unread = named_objects(files)
    complain(unread)
    store.objects.look()
    if arguments.action == "push":
        with progress("putting tensors into the store") as steps:
            results = push(named, store, steps, anew=arguments.replace)
        words = "{count} put into the store, {before} there before"
    else:
        with progress("fetching tensors") as steps:
            results = pull(named, store, steps)
        words = "{count} fetched, {before} cached before"
    failed = [result for result in results if isinstance(result, str)]
    complain(failed[:_SHOWN])
    if len(failed) > _SHOWN:
        to_stderr(f"npudump: ... and {len(failed) - _SHOWN} more")
    count = sum(result is True for result in results)
    rest = f", {len(failed)} failed" if failed else ""
    emit([words.format(count=count, before=len(results) - count - len(failed)) + rest])
    return 2 if unread else 1 if failed else 0
