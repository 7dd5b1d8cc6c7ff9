"""Streams: what was put on them, in order, and what holds it up.

Sources: ``stream.cpp`` and ``callback.cpp`` of hicann/runtime's ``aclrt_impl``, ``api_impl.cc`` and
``event.cc`` of its ``runtime/core``.

A step runs as soon as nothing before it on its stream is left, in the thread that brought that about: nothing
holds up a stream but a callback that blocks it and an event that is not recorded yet. All streams of the
process run one at a time, whereas a device runs them side by side.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pytest_npudump.emulator.machine.codes import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_AGAIN = 0.1
"""Seconds between two looks at whether what a stream waits for can still come."""
DEFAULT_STREAM = 0
FOR_EVER = -1
"""The time limit of a wait without one; every other is in milliseconds."""


class Step(Protocol):
    """Something put on a stream."""

    def run(self) -> bool:
        """Do it, or as much as can be done now; false while it has to be asked again."""

    def hopeless(self) -> str:
        """Return why it can never end; empty where it may, as where it never waits."""
        return ""


@dataclass(slots=True)
class Work(Step):
    """A step that needs nothing but its turn.

    Attributes:
        stream: what a failure is kept with, until something waits for the stream.
        do: what is done; what fails on the device is a RefusedError.
    """

    stream: Stream
    do: Callable[[], object]

    def run(self) -> bool:
        """Do it; the first failure is the one that is kept."""
        try:
            self.do()
        except RefusedError as error:
            self.stream.failure = self.stream.failure or error
        return True


@dataclass(slots=True, eq=False)
class Context:
    """A runtime context of one device.

    Attributes:
        device: the device's number.
        stream: its default stream, which the handle 0 stands for.
    """

    device: int
    stream: Stream = field(init=False)

    def __post_init__(self) -> None:
        """Create the default stream."""
        self.stream = Stream(self, DEFAULT_STREAM)


@dataclass(slots=True, eq=False)
class Stream:
    """A stream of one context.

    Attributes:
        context: the context it was created in.
        id: stream id as dump files carry it.
        steps: what has not run yet, in order.
        failure: what went wrong and was not told yet.
    """

    context: Context
    id: int
    steps: deque[Step] = field(default_factory=deque)
    failure: RefusedError | None = None

    def advance(self) -> bool:
        """Run what can run now; whether anything ended."""
        moved = False
        while self.steps and self._run_first():
            self.steps.popleft()
            moved = True
        return moved

    def _run_first(self) -> bool:
        try:
            return self.steps[0].run()
        except BaseException:
            self.steps.popleft()
            raise

    def take_failure(self) -> RefusedError | None:
        """Return what went wrong since this was asked last."""
        failure, self.failure = self.failure, None
        return failure


@dataclass(slots=True, eq=False)
class Streams:
    """All streams that something was put on, and the waiting for them.

    Attributes:
        changed: held while steps run; notified after every change.
        closed: whether the process they belong to is over, so that nothing is waited for any more.
    """

    changed: threading.Condition = field(default_factory=lambda: threading.Condition(threading.RLock()))
    closed: bool = False
    _held_up: list[Stream] = field(default_factory=list)
    _running: bool = False

    def put(self, stream: Stream, step: Step) -> None:
        """Put ``step`` on a stream and run what can run."""
        with self.changed:
            stream.steps.append(step)
            if stream not in self._held_up:
                self._held_up.append(stream)
            self.settle()

    def settle(self) -> None:
        """Run what can run on every stream, also what one stream's end lets another begin."""
        with self.changed:
            if self._running:  # a step that puts another one on a stream
                return
            self._running = True
            try:
                while self._advance():
                    pass
                self._held_up = [stream for stream in self._held_up if stream.steps]
            finally:
                self._running = False
            self.changed.notify_all()

    def _advance(self) -> bool:
        moved = [stream.advance() for stream in self._held_up]
        return any(moved)

    def wait(self, done: Callable[[], bool], milliseconds: int) -> bool:
        """Wait until ``done``, at most so long (-1 for ever); whether it is.

        Nothing is waited for once the process is closed.
        """
        end = None if milliseconds == FOR_EVER else time.monotonic() + milliseconds / 1000
        with self.changed:
            while not done():
                left = _LOOK_AGAIN if end is None else min(end - time.monotonic(), _LOOK_AGAIN)
                if left <= 0 or self.closed:
                    return False
                self.changed.wait(left)
        return True

    def wait_for(self, stream: Stream, milliseconds: int) -> str:
        """Wait until a stream is empty; why it is not after that time, or never will be, else nothing."""
        return self.wait_until(stream, lambda: not stream.steps, milliseconds)

    def wait_until(self, stream: Stream, done: Callable[[], bool], milliseconds: int) -> str:
        """Wait for what a stream brings about, as :meth:`wait_for` does."""
        reason = ""

        def ended() -> bool:
            nonlocal reason
            reason = stream.steps[0].hopeless() if stream.steps and not done() else ""
            return bool(reason) or done()

        if self.wait(ended, milliseconds):
            return reason
        return f"its tasks did not end within {milliseconds} ms"

    def close(self) -> None:
        """Let go of everything that waits, and of what is waited for."""
        with self.changed:
            self.closed = True
            for stream in self._held_up:
                stream.steps.clear()
            self._held_up.clear()
            self.changed.notify_all()
