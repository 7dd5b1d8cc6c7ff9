"""Which files below the folder of goldens belong to a test, which to none, and which cannot be judged.

What is not known to be left over is never told to be: a test that was not collected is no test that is gone.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npudump.errors import GoldenError
from pytest_npudump.golden.applicable import variants_of
from pytest_npudump.golden.integrity import SUFFIX, TENSORS, files_below
from pytest_npudump.golden.pair import recorded_tensors, waiting_path
from pytest_npudump.golden.store import read_golden
from pytest_npudump.storage.atomic import STALE_SECONDS, locked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_RANK = re.compile(r"(?:^|[@_])rank[0-9]")


@dataclass(frozen=True, slots=True)
class Collection:
    """What a collection of tests has found.

    Attributes:
        root: the folder of goldens.
        rootdir: what names of test files are relative to.
        goldens: by golden file, the test it belongs to.
        files: test files all of whose tests are known.
        unclear: test functions, as users type them, of which cases may be hidden.
    """

    root: Path
    rootdir: Path
    goldens: Mapping[Path, str]
    files: frozenset[str]
    unclear: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Finding:
    """A file, and what was found of it.

    Attributes:
        path: the file.
        why: the reason, in words; of a file that is used, the test.
        stamp: inode, size and time of the file, which tell whether it is still the one that was judged.
    """

    path: Path
    why: str
    stamp: tuple[int, ...]

    def remove(self) -> None:
        """Remove the file.

        Raises:
            GoldenError: it cannot be removed, or is another one meanwhile; it is as it was.
        """
        with locked(self.path):
            if _stamp(self.path) != self.stamp:
                raise GoldenError(f"{self.path}: was written meanwhile: it is as it is; look again")
            try:
                self.path.unlink()
            except OSError as error:
                raise GoldenError(f"{self.path}: cannot be removed: {error.strerror or error}") from error


@dataclass(frozen=True, slots=True)
class Census:
    """The files below the folder of goldens.

    Attributes:
        used: goldens that tests have, with them.
        stale: files that nothing reads, in the order in which they may be removed: variants before the
            goldens that they differ from, goldens before tensors.
        unjudged: files of which neither is known.
    """

    used: tuple[Finding, ...]
    stale: tuple[Finding, ...]
    unjudged: tuple[Finding, ...]


def census(collection: Collection, variants: Sequence[str] = ()) -> Census:
    """Judge each file.

    Args:
        collection: of all tests.
        variants: names of the variants that runs select, as golden files spell them, besides those that a
            common golden names; none for any.

    Raises:
        OSError: a folder cannot be looked at.
    """
    if not collection.root.is_dir():
        return Census((), (), ())
    found: dict[str, list[Finding]] = {"used": [], "stale": [], "unjudged": []}
    kinds: dict[Path, str] = {}
    named: dict[Path, frozenset[str]] = {}
    places = {path.with_suffix("") for path in collection.goldens}
    files = sorted(files_below(collection.root), key=lambda path: "@" not in path.name)
    for path in (path for path in files if path.suffix == SUFFIX):
        chosen = [*variants, *_named_beside(path, named)] if variants else []
        kinds[path], why = _of_golden(path, collection, places, chosen)
        found[kinds[path]].append(_finding(path, why))
    for path in (path for path in files if path.suffix == TENSORS):
        kind, why = _of_tensors(path, kinds.get(path.with_suffix(SUFFIX), ""))
        if kind != "used":
            found[kind].append(_finding(path, why))
    for path, kind, why in _staged(collection.root, kinds):
        found[kind].append(_finding(path, why))
    return Census(*(tuple(found[kind]) for kind in ("used", "stale", "unjudged")))


def _named_beside(path: Path, known: dict[Path, frozenset[str]]) -> frozenset[str]:
    """Return the variants that the common golden of a variant names; none where it cannot be read."""
    place, sign, _ = path.stem.partition("@")
    if not sign:
        return frozenset()
    common = path.with_name(place + SUFFIX)
    if common not in known:
        try:
            known[common] = frozenset(variants_of(read_golden(common)))
        except GoldenError:
            known[common] = frozenset()
    return known[common]


def _of_golden(
    path: Path, collection: Collection, places: set[Path], variants: Sequence[str]
) -> tuple[str, str]:
    place, _, variant = path.stem.partition("@")
    if path.with_name(place) in places:
        if variants and variant and variant not in variants and not _RANK.search(variant):
            return "stale", f"the variant {variant!r}, which no run selects"
        return "used", collection.goldens.get(path.with_name(place + SUFFIX), "")
    try:
        return _of_test(read_golden(path).test, collection)
    except GoldenError as error:
        return "unjudged", str(error)


def _of_test(test: str, collection: Collection) -> tuple[str, str]:
    """Judge a golden that no collected test has, by the test that it names."""
    file = test.partition("::")[0]
    if test.partition("[")[0] in collection.unclear:
        return "unjudged", f"{test}: has no parameters on this machine, and may have some on another"
    if file in collection.files:
        return "stale", f"no test of {file} has this golden: {test}"
    if not (collection.rootdir / file).exists():
        return "stale", f"the test file is gone: {test}"
    return "unjudged", f"{file} was not collected: it is skipped as a whole, or lies outside of testpaths"


def _of_tensors(path: Path, golden: str) -> tuple[str, str]:
    """Judge tensors by what was found of the golden beside them, "" for none."""
    if not golden:
        return "stale", "tensors without a golden"
    if golden != "used":
        return golden, f"tensors of {path.stem}{SUFFIX}"
    try:
        read = recorded_tensors(read_golden(path.with_suffix(SUFFIX)))
    except GoldenError as error:
        return "unjudged", str(error)
    return ("used", "") if read else ("stale", f"tensors that {path.stem}{SUFFIX} does not name")


def _staged(root: Path, goldens: Mapping[Path, str]) -> Iterator[tuple[Path, str, str]]:
    """Yield what updates have left beside goldens, and whether that is stale."""
    waiting = {str(waiting_path(path.with_suffix(TENSORS))): path for path in goldens}
    for path in sorted([*root.rglob(f".npudump-*{TENSORS}"), *root.rglob(".npudump-*.tmp")]):
        real = os.path.realpath(path)
        golden = waiting.get(real)
        try:
            if golden is not None and str(recorded_tensors(read_golden(golden))) == real:
                continue
        except GoldenError as error:
            yield path, "unjudged", str(error)
            continue
        if path.lstat().st_mtime < time.time() - STALE_SECONDS:
            yield path, "stale", "left by an update that did not end"
        else:
            yield path, "unjudged", "may belong to an update that goes on: not a day old"


def _finding(path: Path, why: str) -> Finding:
    return Finding(path, why, _stamp(path))


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        found = path.lstat()
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns
