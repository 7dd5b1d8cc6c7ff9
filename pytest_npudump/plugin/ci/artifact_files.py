"""Files that a session's tree of artifacts may hold, and which of them there is room for."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.errors import NpudumpError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from pytest_npudump.report.ci import Judged
    from pytest_npudump.results.folder import ResultsFolder

_TEXT = frozenset({".txt", ".json", ".csv", ".md", ".html"})
"""Kept before anything else: dumps are worth little without them, and they are small."""
_LEAST_ROOM = 2
"""Files that cannot be copied before the others are not tried: a full disk has no room for these either."""


@dataclass(frozen=True, slots=True)
class ArtifactFile:
    """A file of the tree, or a folder that is of use as a whole.

    Attributes:
        path: where it lies.
        name: where it goes, relative to the folder of the session.
        size: in bytes.
    """

    path: Path
    name: str
    size: int

    @property
    def rank(self) -> tuple[bool, int]:
        """Text and what is in place first, then the smallest: the largest are left out first."""
        return self.path.suffix not in _TEXT and not self.path.is_dir(), self.size


def walk(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield the files below a folder with their sizes; links are not followed."""
    for parent, _, names in os.walk(folder):
        for name in sorted(names):
            path = Path(parent, name)
            with suppress(OSError):  # it has gone meanwhile
                if not path.is_symlink():
                    yield path, path.stat().st_size


def bytes_below(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(size for _, size in walk(folder))


def written(folder: Path) -> Iterator[ArtifactFile]:
    """Yield what was made in the folder of a session itself: a folder in it counts as one."""
    for path in sorted(folder.iterdir()):
        yield ArtifactFile(path, path.name, bytes_below(path) if path.is_dir() else path.stat().st_size)


def of_tests(tests: Sequence[Judged]) -> Iterator[ArtifactFile]:
    """Yield what failing tests have left."""
    for test in tests:
        details = test.result.get("details")
        if test.good or not details:
            continue
        directory = Path(details).parent
        for path, size in walk(directory):
            name = f"tests/{directory.name}/{path.relative_to(directory).as_posix()}"
            yield ArtifactFile(path, name, size)


def cann_logs(since: float) -> Iterator[ArtifactFile]:
    """Yield what CANN has logged since a time of the clock: by default it logs below the home directory."""
    base = Path(os.environ.get("ASCEND_PROCESS_LOG_PATH") or Path.home() / "ascend" / "log")
    for path, size in walk(base):
        with suppress(OSError):
            if path.stat().st_mtime >= since:
                yield ArtifactFile(path, f"log/{path.relative_to(base).as_posix()}", size)


def golden_tensors(source: ResultsFolder, tests: Collection[str]) -> Iterator[ArtifactFile]:
    """Yield golden tensors of tests that wait for a decision, by where an approval looks for them."""
    with suppress(NpudumpError):  # told where the results themselves are copied
        entries = [entry for entry in source.read().entries if entry.test in tests]
        for digest in {one: None for entry in entries for one in entry.objects}:
            path = source.tensors.cache.path(digest)
            if path.is_file():
                name = path.relative_to(source.path).as_posix()
                yield ArtifactFile(path, f"results/{name}", path.stat().st_size)


def within(files: Sequence[ArtifactFile], limit: int) -> tuple[list[ArtifactFile], list[ArtifactFile]]:
    """Return the files that fit, and those that do not, the largest first."""
    kept, dropped = [], []
    for file in sorted(files, key=lambda file: file.rank):
        if file.size <= limit:
            kept.append(file)
            limit -= file.size
        else:
            dropped.append(file)
    return kept, sorted(dropped, key=lambda file: -file.size)


def place(kept: Sequence[ArtifactFile], dropped: Sequence[ArtifactFile], folder: Path) -> list[str]:
    """Copy what is kept to the folder of a session, and take out of it what is not; return what failed."""
    problems: list[str] = []
    for file in dropped:
        if file.path.parent == folder:
            shutil.rmtree(file.path) if file.path.is_dir() else file.path.unlink()
    for file in kept:
        target = folder / file.name
        if target == file.path:
            continue
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.path, target)
        except OSError as error:
            target.unlink(missing_ok=True)
            problems.append(f"{file.path} cannot be copied: {error.strerror or error}")
            if len(problems) > _LEAST_ROOM:
                break
    return problems
