"""What the ranks of one machine tell each other, through files in a private folder of the system's own.

There are messages, one a rank and name, and decisions, one a name: whoever decides first decides for all.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from pytest_npudump.ranks.meeting_place import has_joined, is_present, join

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pytest_npudump.ranks.rank import Rank

PATIENCE = 60.0
"""Seconds that a rank waits for others which live and say nothing, and once for those that have not come."""
LAST = "results"
"""Name of a rank's last message: whoever has posted it says nothing more."""

_ABSENT = "absent"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.05


class Exchange:
    """One rank's part in the talk of all ranks.

    Attributes:
        rank: this process's.
        folder: where the messages of this run lie; nothing of any other run does.
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
        self.folder = join(rank) if folder is None else folder

    @property
    def absent(self) -> frozenset[int]:
        """The ranks that have not come in time, for all ranks and the whole run."""
        return frozenset(self.decided(_ABSENT) or ())

    def lives(self, number: int) -> bool:
        """Whether a rank has come, in time, and its process has not ended."""
        return is_present(self.folder, number) and number not in self.absent

    def has_come(self, number: int) -> bool:
        """Whether a rank takes part, or did."""
        return has_joined(self.folder, number) and number not in self.absent

    def has_ended(self, number: int, last: str | None = LAST) -> bool:
        """Whether the process of a rank has ended, or it has told the ``last`` that there is to tell."""
        return not self.lives(number) or (last is not None and self._has(last, number))

    def post(self, name: str, content: Any) -> None:
        """Tell the others ``content``, plain JSON data, under ``name``, once for all."""
        self._draft(content).replace(self._path(name, self.rank.number))

    def decide(self, name: str, content: Any) -> Any:
        """Settle the question ``name`` for all ranks, unless one of them has; return what is settled.

        Args:
            name: of the question.
            content: plain JSON data, not None.
        """
        draft = self._draft(content)
        with suppress(FileExistsError):
            os.link(draft, self._path(name))
        draft.unlink()
        return self.decided(name)

    def decided(self, name: str) -> Any:
        """Return what is settled of the question ``name``, None as long as nothing is."""
        try:
            return json.loads(self._path(name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def gather(
        self,
        name: str,
        *,
        patience: float | None = None,
        of: Iterable[int] | None = None,
        unless: str | None = None,
        last: str | None = LAST,
    ) -> dict[int, Any]:
        """Wait until every rank has told something under ``name``, or will not any more.

        Args:
            name: of the message.
            patience: seconds; None for :data:`PATIENCE`, after which ranks that have not come are absent.
            of: the ranks to hear; None for all.
            unless: a question that makes the message needless once it is decided; None for no such.
            last: a message behind which this one cannot come; None where it can.

        Returns:
            What was told, by rank; a rank that said nothing in time is left out.
        """
        until = time.monotonic() + (PATIENCE if patience is None else patience)
        wanted = set(range(self.rank.size) if of is None else of)
        told: dict[int, Any] = {}
        pause = _FIRST_PAUSE
        while True:
            # Looked at before the messages: what a rank says last must not be missed.
            mute = {number for number in wanted if self._is_mute(number, last)}
            heard = {number for number in wanted - told.keys() if self._has(name, number)}
            told |= {number: self._told(name, number) for number in heard}
            if wanted - told.keys() <= mute or (unless and self.decided(unless) is not None):
                return told
            if time.monotonic() > until:
                if patience is None:
                    self._leave_out_absent()
                return told
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _is_mute(self, number: int, last: str | None) -> bool:
        """Whether a rank says nothing more: it is absent, has ended, or has told ``last``."""
        if number in self.absent:
            return True
        return has_joined(self.folder, number) and self.has_ended(number, last)

    def _leave_out_absent(self) -> None:
        missing = [number for number in range(self.rank.size) if not has_joined(self.folder, number)]
        if missing:
            self.decide(_ABSENT, missing)

    def _has(self, name: str, number: int) -> bool:
        return self._path(name, number).exists()

    def _told(self, name: str, number: int) -> Any:
        return json.loads(self._path(name, number).read_text(encoding="utf-8"))

    def _draft(self, content: Any) -> Path:
        """Write ``content`` where nobody looks, so that a message is there whole or not at all."""
        draft = self.folder / f"draft-{self.rank.number}"
        draft.write_text(json.dumps(content), encoding="utf-8")
        return draft

    def _path(self, name: str, number: int | None = None) -> Path:
        digest = name if name.isidentifier() else blake2b(name.encode(), digest_size=10).hexdigest()
        return self.folder / f"{digest}.{'decided' if number is None else number}"
