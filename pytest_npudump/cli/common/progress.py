"""Long work shows itself on standard error: by a bar on a terminal, elsewhere by a line a minute."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic

from pytest_npudump.language.translation import gettext as _

PATIENCE = 1.0
"""Seconds of a command before a bar is shown, whatever it did in them."""
BLINK = 0.2
"""Seconds that a piece of work may take without a bar however long the command has taken."""
SILENCE = 60.0
"""Seconds between two lines where there is no terminal."""
_FRAME = 0.1
"""Seconds between two pictures of the bar."""
_BEGUN = monotonic()
"""When the command began, or near to it."""


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Give a function to call with (steps done, steps in all); ``what`` is shown before the bar."""
    ended, reached = Event(), [0, 0]
    so_far = _("{done} of {total}")  # a thread speaks no language of its own

    def update(done: int, total: int) -> None:
        reached[:] = done, total

    def draw() -> None:
        """Show a bar once the command has taken long."""
        if ended.wait(max(PATIENCE - (monotonic() - _BEGUN), min(PATIENCE, BLINK))):
            return
        from rich.console import Console  # noqa: PLC0415 - only where work takes long
        from rich.progress import MofNCompleteColumn, Progress  # noqa: PLC0415 - the same

        shown = (*Progress.get_default_columns(), MofNCompleteColumn())
        with Progress(*shown, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=None)
            while not ended.wait(_FRAME):
                bar.update(task, completed=reached[0], total=reached[1] or None)

    def tell() -> None:
        """Write a line now and then, for logs that somebody reads while it goes on."""
        while not ended.wait(SILENCE):
            done, total = reached
            if sys.stderr is not None:
                words = f": {so_far.format(done=done, total=total)}" if total else ""
                sys.stderr.write(f"npudump: {what}{words}\n")
                sys.stderr.flush()

    # A stream is None where it was closed from the beginning: ``>&-``.
    on_terminal = all(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr))
    thread = Thread(target=draw if on_terminal else tell, daemon=True)
    thread.start()
    try:
        yield update
    finally:
        ended.set()
        thread.join()


class Tally:
    """Adds up how far each of several pieces of work is, which threads may be doing at the same time."""

    def __init__(self, report: Callable[[int, int], None], total: int) -> None:
        """Report to ``report`` with the sum of all pieces and ``total``."""
        self._report = report
        self._total = total
        self._lock = Lock()
        self._done = 0
        self._pieces: dict[Path, int] = {}

    def reached(self, piece: Path, done: int) -> None:
        """Count ``done`` steps of ``piece``, those reported before included."""
        with self._lock:
            self._done += done - self._pieces.get(piece, 0)
            self._pieces[piece] = done
            self._report(self._done, self._total)
