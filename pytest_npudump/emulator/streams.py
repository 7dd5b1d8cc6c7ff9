"""Streams: what was put on them, in order, and what holds it up: work, marks of events, and callbacks.

Sources: ``stream.cpp`` and ``callback.cpp`` of hicann/runtime's ``aclrt_impl``; ``api_impl.cc``,
``event.cc``, ``cb_subscribe.cc`` and ``api_impl_david.cc`` (``SubscribeReport``, ``ProcessReport``,
``CallbackLaunch``) of its ``runtime/core``.

A step runs as soon as nothing before it on its stream is left, in the thread that brought that about: nothing
holds up a stream but a callback that blocks it and an event that is not recorded yet. All streams of the
process run one at a time, whereas a device runs them side by side.

An event is a mark that a stream passes (``aclrtRecordEvent``), to wait for and to measure time with. A
callback runs in a thread of the application (``aclrtLaunchCallback``, ``aclrtProcessReport``): when its turn
comes it is handed to the thread that is subscribed to the stream.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pytest_npudump.emulator import codes
from pytest_npudump.emulator.codes import RefusedError

_LOOK_AGAIN = 0.1
"""Seconds between two looks at whether what a stream waits for can still come."""
DEFAULT_STREAM = 0
FOR_EVER = -1
"""The time limit of a wait without one; every other is in milliseconds."""
TIME_LINE = 0x8
"""Flag of an event that keeps the time (``ACL_EVENT_TIME_LINE``)."""
DEFAULT = 0xE
"""Flags of an event created without any (``RT_EVENT_DEFAULT``)."""


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
class DeviceContext:
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

    context: DeviceContext
    id: int
    steps: deque[Step] = field(default_factory=deque)
    failure: RefusedError | None = None

    def advance(self) -> bool:
        """Run the steps that are ready; return whether any ended."""
        moved = False
        while self.steps:
            try:
                ended = self.steps[0].run()
            except BaseException:
                self.steps.popleft()
                raise
            if not ended:
                break
            self.steps.popleft()
            moved = True
        return moved


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
        """Run the steps that are ready on every stream, those that another's end makes ready included."""
        with self.changed:
            if self._running:  # a step that puts another one on a stream
                return
            self._running = True
            try:
                while sum(stream.advance() for stream in self._held_up):
                    pass
                self._held_up = [stream for stream in self._held_up if stream.steps]
            finally:
                self._running = False
            self.changed.notify_all()

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

    def wait_until(self, stream: Stream, done: Callable[[], bool], milliseconds: int) -> str:
        """Wait for a stream's result; return why it has not come by that time, or never will, else ""."""
        reason = ""

        def ended() -> bool:
            nonlocal reason
            reason = stream.steps[0].hopeless() if stream.steps and not done() else ""
            return bool(reason) or done()

        return reason if self.wait(ended, milliseconds) else f"its tasks did not end within {milliseconds} ms"

    def close(self) -> None:
        """Let go of everything that waits, and of what is waited for."""
        with self.changed:
            self.closed = True
            for stream in self._held_up:
                stream.steps.clear()
            self._held_up.clear()
            self.changed.notify_all()


@dataclass(slots=True, eq=False)
class Mark(Step):
    """One mark, a step of a stream.

    Attributes:
        stream: the stream that passes it.
        done: whether it has.
        nanoseconds: when, on a clock of its own.
    """

    stream: Stream
    done: bool = False
    nanoseconds: int = 0

    def run(self) -> bool:
        """Pass the mark."""
        self.nanoseconds = time.perf_counter_ns()
        self.done = True
        return True


@dataclass(slots=True, eq=False)
class Event:
    """An event.

    Attributes:
        flags: as given when it was created.
        mark: its last one; None before the first.
        cleared: the mark that a reset has made void; None where none has.
        waiting: how many streams wait for it.
    """

    flags: int
    mark: Mark | None = None
    cleared: Mark | None = None
    waiting: int = 0

    @property
    def recorded(self) -> bool:
        """Return whether its last mark was passed."""
        return self.mark is not None and self.mark.done

    def clear(self) -> None:
        """Make its last mark void."""
        self.cleared = self.mark


@dataclass(slots=True)
class Wait(Step):
    """The step of a stream that waits for an event.

    Attributes:
        event: the event.
        mark: the one to be passed; None to wait for the next one, as after a reset.
    """

    event: Event
    mark: Mark | None

    def run(self) -> bool:
        """Return whether the mark was passed."""
        if self.mark is None and self.event.mark is not self.event.cleared:
            self.mark = self.event.mark
        if self.mark is None or not self.mark.done:
            return False
        self.event.waiting -= 1
        return True

    def hopeless(self) -> str:
        """Return why the mark is never passed: the stream that it is on cannot go on."""
        steps = () if self.mark is None else self.mark.stream.steps
        return steps[0].hopeless() if steps else ""


@dataclass(slots=True)
class Callback(Step):
    """One callback.

    Attributes:
        function, argument: what is called, and with what.
        blocks: whether its stream goes on only when it has run.
        thread: id of the thread that runs it.
        pending: where that thread finds it.
        posted: whether it is there, or was.
        done: whether it has run.
    """

    function: Callable[[object], object]
    argument: object
    blocks: bool
    thread: int
    pending: deque[Callback]
    posted: bool = False
    done: bool = False

    def run(self) -> bool:
        """Hand the callback to its thread, once; whether the stream may go on."""
        if not self.posted:
            self.posted = True
            self.pending.append(self)
        return self.done or not self.blocks

    def hopeless(self) -> str:
        """Return why the thread will never run it: it is the one that waits here, or it has ended."""
        if self.thread == threading.get_ident():
            return "the thread that waits for it is the one that its callbacks are to run in"
        if all(thread.ident != self.thread for thread in threading.enumerate()):
            return f"thread {self.thread}, which its callbacks are to run in, has ended"
        return ""


@dataclass(slots=True)
class Subscriptions:
    """Threads subscribed to the callbacks of streams.

    Attributes:
        threads: by stream, the id of its thread.
        pending: by thread, the callbacks whose turn has come.
    """

    threads: dict[Stream, int] = field(default_factory=dict)
    pending: dict[int, deque[Callback]] = field(default_factory=dict)

    def add(self, thread: int, stream: Stream) -> None:
        """Subscribe a thread; 107011 for a stream that has one, 107012 for another device's thread."""
        if stream in self.threads:
            raise RefusedError(
                codes.RT_STREAM_SUBSCRIBE, f"thread {self.threads[stream]} is subscribed to the stream"
            )
        others = {known.context.device for known, owner in self.threads.items() if owner == thread}
        if others - {stream.context.device}:
            raise RefusedError(
                codes.RT_THREAD_SUBSCRIBE, f"thread {thread} serves a stream of device {others.pop()}"
            )
        self.threads[stream] = thread
        self.pending.setdefault(thread, deque())

    def check(self, thread: int, stream: Stream) -> None:
        """Refuse a stream without a thread (107011), or with another one (107012)."""
        if stream not in self.threads:
            raise RefusedError(codes.RT_STREAM_SUBSCRIBE, "no thread is subscribed to the stream")
        if self.threads[stream] != thread:
            raise RefusedError(
                codes.RT_THREAD_SUBSCRIBE, f"thread {self.threads[stream]} is subscribed to the stream"
            )

    def remove(self, stream: Stream) -> None:
        """End a stream's subscription; callbacks that its thread has not run yet never will."""
        thread = self.threads.pop(stream, None)
        if thread is not None and thread not in self.threads.values():
            del self.pending[thread]

    def callback(
        self, stream: Stream, function: Callable[[object], object], argument: object, *, blocks: bool
    ) -> Callback:
        """Return the callback to put on a stream; 107015 where no thread is subscribed to it."""
        thread = self.threads.get(stream)
        if thread is None:
            raise RefusedError(
                codes.RT_STREAM_NO_CB_REG,
                "no thread runs this stream's callbacks; call acl.rt.subscribe_report first",
            )
        return Callback(function, argument, blocks, thread, self.pending[thread])


class ApplicationThread(threading.Thread):
    """A thread that runs one function.

    Attributes:
        problem: what the function raised, in the words of pyACL; empty where it returned.
    """

    def __init__(self, function: Callable[..., object], argument: object) -> None:
        super().__init__(daemon=True)
        self.problem = ""
        self._function = function
        self._arguments = () if argument is None else (argument,)

    def run(self) -> None:
        """Call the function; what it raises is printed, and kept for who joins the thread."""
        try:
            self._function(*self._arguments)
        except BaseException as error:  # noqa: BLE001 - pyACL keeps whatever it is
            traceback.print_exception(error)
            self.problem = f"exception={type(error).__qualname__},msg=thread call failed;"
