"""Long work shows itself on standard error: by a bar on a terminal, elsewhere by a line a minute."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from threading import Event, Lock, Thread, Timer
from time import monotonic
from typing import TYPE_CHECKING, TextIO

from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rich.progress import Progress, TaskID
    from typing_extensions import Self

PATIENCE = 1.0
"""Seconds of a command before a bar is shown, whatever it did in them."""
BLINK = 0.2
"""Seconds that a piece of work may take without a bar however long the command has taken."""
SILENCE = 60.0
"""Seconds between two lines where there is no terminal."""
_BEGUN = monotonic()
"""When the command began, or near to it."""


class _Bar:
    """Counts from the beginning, and is drawn from the moment :meth:`show` is called."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = Lock()
        self._done, self._total = 0, 0
        self._bar: tuple[Progress, TaskID] | None = None
        self._closed = False

    def update(self, done: int, total: int) -> None:
        """Take ``done`` of ``total`` steps."""
        with self._lock:
            self._done, self._total = done, total
            if self._bar is not None:
                bar, task = self._bar
                bar.update(task, completed=done, total=total)

    def show(self) -> None:
        """Draw the bar, unless the work has ended meanwhile."""
        from rich.console import Console  # noqa: PLC0415 - only where work takes long
        from rich.progress import MofNCompleteColumn, Progress  # noqa: PLC0415 - the same

        with self._lock:
            if self._closed:
                return
            shown = (*Progress.get_default_columns(), MofNCompleteColumn())
            bar = Progress(*shown, console=Console(stderr=True), transient=True)
            task = bar.add_task(self._what, completed=self._done, total=self._total or None)
            bar.start()
            self._bar = (bar, task)

    def close(self) -> None:
        """Remove the bar."""
        with self._lock:
            self._closed = True
            if self._bar is not None:
                self._bar[0].stop()


class _Lines:
    """Tells in whole lines how far the work is, for logs that somebody reads while it goes on."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._so_far = _("{done} of {total}")  # a thread speaks no language of its own
        self._reached = (0, 0)
        self._ended = Event()
        self._thread = Thread(target=self._tell, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def update(self, done: int, total: int) -> None:
        """Take ``done`` of ``total`` steps."""
        self._reached = (done, total)

    def _tell(self) -> None:
        while not self._ended.wait(SILENCE):
            done, total = self._reached
            if sys.stderr is not None:
                so_far = f": {self._so_far.format(done=done, total=total)}" if total else ""
                sys.stderr.write(f"npudump: {self._what}{so_far}\n")
                sys.stderr.flush()


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Give a function to call with (steps done, steps in all); ``what`` is shown before the bar."""
    if not (_is_terminal(sys.stdout) and _is_terminal(sys.stderr)):
        with _Lines(what) as lines:
            yield lines.update
        return
    bar = _Bar(what)
    timer = Timer(max(PATIENCE - (monotonic() - _BEGUN), min(PATIENCE, BLINK)), bar.show)
    timer.daemon = True
    timer.start()
    try:
        yield bar.update
    finally:
        timer.cancel()
        bar.close()


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
        """Take note that ``done`` steps of ``piece`` are done, those told before included."""
        with self._lock:
            self._done += done - self._pieces.get(piece, 0)
            self._pieces[piece] = done
            self._report(self._done, self._total)


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()  # None where it was closed from the beginning: ``>&-``
