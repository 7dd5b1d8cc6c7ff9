"""State of models' files since a test loaded them: a path may be written again.

Looking at a file costs a call of the system, and where it is small its digest, once for each content. What
else a test did with the path shows later, where somebody wants to read it: what a run computed with is known
only of a file that is still the same.
"""

from __future__ import annotations

import hashlib
import mmap
import time
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from pytest_npudump.storage.regular_file import open_regular

_DIGESTED = 1 << 24
"""Size of the largest file whose digest is taken as it is loaded."""
_PIECE = 1 << 20
_TICK = 20_000_000
"""Nanoseconds in which a file system may give two changes of a file one time."""


@dataclass(frozen=True, slots=True)
class FileState:
    """A file at one moment.

    Attributes:
        marks: device, inode, size, and when content and inode changed; () where there was none.
        digest: SHA-256 of a small file's content; "" of a larger one, or one that cannot be read.
        at: when that was, in nanoseconds.
    """

    marks: tuple[int, ...]
    digest: str
    at: int

    @classmethod
    def of(cls, path: Path) -> FileState:
        """Look at a file."""
        now, marks = time.time_ns(), _marks(path)
        small = bool(marks) and marks[2] <= _DIGESTED
        return cls(marks, _digest(path, marks) if small else "", now)

    def holds(self, path: Path) -> bool:
        """Return whether the file has the content that it had."""
        now = _marks(path)
        if now == self.marks and not (self.digest and _is_fresh(self.marks, self.at)):
            return True
        return bool(self.digest and now) and self.digest == _digest(path, now)

    def holds_weights(self, path: Path) -> bool:
        """Return whether an ONNX model is unchanged, with all files that hold its weights."""
        if not self.holds(path):
            return False
        return all(0 < max(_marks(file)[3:], default=0) <= self.at for file in weight_files(path))


@dataclass(slots=True)
class LoadedFiles:
    """The files of the models that a run has loaded."""

    _states: dict[Path, list[FileState]] = field(default_factory=dict)

    def look(self, path: Path) -> dict[Path, FileState]:
        """Return the state of a model's file, and of the ONNX model beside it, before it is loaded."""
        return {file: FileState.of(file) for file in {path, path.with_suffix(".onnx")}}

    def add(self, looked: dict[Path, FileState]) -> None:
        """Remember files, in the state seen, as loaded."""
        for path, state in looked.items():
            self._states.setdefault(path, []).append(state)

    def add_if_untouched(self, before: dict[Path, FileState], after: dict[Path, FileState]) -> None:
        """Remember files that another process may have loaded at any moment between two looks."""
        self.add(
            {path: s if s.marks == after[path].marks else FileState((), "", 0) for path, s in before.items()}
        )

    def keeps_graph(self, path: Path) -> bool:
        """Return whether each load of a path was of its file's present graph and the ONNX model's."""
        return all(
            state.holds(file)
            for file in [file for file in self._states if file.with_suffix("") == path.with_suffix("")]
            for state in self._states.get(file, ())
        )

    def keeps_weights(self, path: Path) -> bool:
        """Return whether each load was of the weights that the ONNX model has, too."""
        return self.keeps_graph(path) and all(
            state.holds_weights(path) for state in self._states.get(path, ()) if path.suffix == ".onnx"
        )


def weight_files(path: Path) -> tuple[Path, ...]:
    """Return the files beside an ONNX model that hold weights of it."""
    return _weight_files(path, _marks(path))


@lru_cache(maxsize=64)
def _weight_files(path: Path, marks: tuple[int, ...]) -> tuple[Path, ...]:
    if not _has(path, marks, b"location"):  # the key of a place in another file
        return ()
    from pytest_npudump.onnxmodels.graph import every_tensor  # noqa: PLC0415 - only of such models
    from pytest_npudump.onnxmodels.sessions import onnx, read_model  # noqa: PLC0415 - the same

    external = onnx().TensorProto.EXTERNAL
    tensors = (one for one in every_tensor(read_model(path)) if one.data_location == external)
    places = (entry.value for one in tensors for entry in one.external_data if entry.key == "location")
    return tuple(path.parent / place for place in dict.fromkeys(places))


def model_digest(path: Path) -> str:
    """Return the SHA-256 of an ONNX file or an om and those of its weights; "" where one cannot be read.

    Raises:
        ModelError: it is no ONNX model.
        MissingExtraError: onnx, which says where weights are, is not installed.
    """
    if path.suffix == ".om":
        return "" if _has(path, marks := _marks(path), b"FileConstant") else _digest(path, marks)
    digests = [_digest(file, _marks(file)) for file in (path, *weight_files(path))]
    if len(digests) == 1 or not all(digests):
        return digests[0] if all(digests) else ""
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def _read(path: Path, _marks_of_it: tuple[int, ...]) -> str:
    digest = hashlib.sha256()
    try:
        with open_regular(path) as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
    except OSError:
        return ""
    return digest.hexdigest()


_kept_digest = lru_cache(maxsize=256)(_read)


def _digest(path: Path, marks: tuple[int, ...]) -> str:
    return (_read if _is_fresh(marks, time.time_ns()) else _kept_digest)(path, marks)


def _is_fresh(marks: tuple[int, ...], now: int) -> bool:
    """Return whether a file was changed so lately that the next change may leave it the same marks."""
    return bool(marks) and now - marks[-1] < _TICK


@lru_cache(maxsize=256)
def _has(path: Path, _marks_of_it: tuple[int, ...], word: bytes) -> bool:
    """Return whether a word is in a file, or the file cannot be read."""
    try:
        with open_regular(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(word) >= 0
    except (OSError, ValueError):
        return True


def _marks(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
