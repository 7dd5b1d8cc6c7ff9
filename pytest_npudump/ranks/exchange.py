"""What the ranks of one machine tell each other, through files in a private folder of the system's own.

A rank takes part as long as its process lives; what an earlier run left behind counts for nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_npudump.ranks.rank import Rank

PATIENCE = 60.0
"""Seconds that a rank waits for others which live and say nothing."""

_RUN = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "WORLD_SIZE", "RANK_SIZE")
_PAUSE = 0.02


class Exchange:
    """One rank's part in the talk of all ranks.

    Attributes:
        rank: this process's.
        folder: where the messages of this run lie.
    """

    def __init__(self, rank: Rank, folder: Path | None = None) -> None:
        """Join the run.

        Args:
            rank: this process's.
            folder: of the run, where the parent of this process has joined it for it; None to join.

        Raises:
            ConfigError: the folder cannot be made, or is somebody else's.
        """
        self.rank = rank
        self.folder = folder or _folder(rank)
        if folder is None:
            _forget(self.folder.parent)
            self._clear()
            self.post("here", os.getpid())

    def _clear(self) -> None:
        for old in self.folder.glob(f"*.{self.rank.number}"):
            old.unlink(missing_ok=True)

    def post(self, name: str, content: Any) -> None:
        """Tell the others ``content``, plain JSON data, under ``name``, once for all."""
        path = self._path(name, self.rank.number)
        draft = path.with_suffix(f".{self.rank.number}-new")
        draft.write_text(json.dumps(content), encoding="utf-8")
        draft.replace(path)

    def posted(self, name: str) -> bool:
        """Whether this rank has told anything under ``name``."""
        return self._path(name, self.rank.number).exists()

    def gather(
        self, name: str, *, patience: float | None = None, of: Iterable[int] | None = None
    ) -> dict[int, Any]:
        """Wait until every rank has told something under ``name``, or does not live any more.

        Args:
            name: of the message.
            patience: seconds; None for :data:`PATIENCE`.
            of: the ranks to hear; None for all.

        Returns:
            What was told, by rank; a rank that said nothing in time is left out.
        """
        until = time.monotonic() + (PATIENCE if patience is None else patience)
        told: dict[int, Any] = {}
        silent = set(range(self.rank.size) if of is None else of)
        while silent:
            lives = {number for number in silent if self._lives(number)}
            for number in lives:
                if (path := self._path(name, number)).exists():
                    told[number] = json.loads(path.read_text(encoding="utf-8"))
            silent -= told.keys()
            if time.monotonic() > until or self._hopeless(silent, lives):
                break
            time.sleep(_PAUSE if silent else 0)
        return told

    def _hopeless(self, silent: set[int], lives: set[int]) -> bool:
        """Whether every silent rank had joined, and has ended."""
        return all(number not in lives and self._path("here", number).exists() for number in silent)

    def _lives(self, number: int) -> bool:
        try:
            process = json.loads(self._path("here", number).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return _is_alive(process)

    def _path(self, name: str, number: int) -> Path:
        digest = name if name.isidentifier() else blake2b(name.encode(), digest_size=10).hexdigest()
        return self.folder / f"{digest}.{number}"


def _folder(rank: Rank, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the run: its ranks have one launcher, and one address to meet at."""
    facts = [environment.get(name, "") for name in _RUN]
    digest = blake2b(json.dumps([*facts, os.getppid(), rank.size]).encode(), digest_size=10).hexdigest()
    base = Path(tempfile.gettempdir()) / f"npudump-ranks-{os.getuid()}"
    try:
        base.mkdir(mode=0o700, exist_ok=True)
        if base.is_symlink() or base.stat().st_uid != os.getuid():
            raise ConfigError(f"{base}: expected a folder of this user's own; remove it, or set TMPDIR")
        folder = base / digest
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{base}: the ranks cannot meet there: {error.strerror}; set TMPDIR") from error
    return folder


def _forget(base: Path) -> None:
    """Remove the folders of runs whose processes have all ended."""
    for folder in base.iterdir():
        if not any(_is_alive(process) for process in _processes(folder)):
            age = time.time() - folder.stat().st_mtime if folder.exists() else 0.0
            if age > PATIENCE:
                shutil.rmtree(folder, ignore_errors=True)


def _processes(folder: Path) -> Iterator[int]:
    for path in folder.glob("here.*"):
        with suppress(OSError, ValueError):
            yield int(path.read_text(encoding="utf-8"))


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
