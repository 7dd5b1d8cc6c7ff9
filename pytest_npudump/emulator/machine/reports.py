"""Callbacks that run in a thread of the application (``aclrtLaunchCallback``, ``aclrtProcessReport``).

Sources: ``cb_subscribe.cc`` and ``api_impl_david.cc`` (``SubscribeReport``, ``ProcessReport``,
``CallbackLaunch``) of hicann/runtime. A callback is a step of its stream. When its turn comes it is handed to
the thread that is subscribed to the stream; a callback that blocks holds the stream up until it has run.
"""

from __future__ import annotations

import threading
import traceback
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.codes import RefusedError
from pytest_npudump.emulator.machine.streams import Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.emulator.machine.streams import Stream


@dataclass(slots=True)
class Report(Step):
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
    pending: deque[Report]
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
    """Which thread runs the callbacks of which stream.

    Attributes:
        threads: by stream, the id of its thread.
        pending: by thread, the callbacks whose turn has come.
    """

    threads: dict[Stream, int] = field(default_factory=dict)
    pending: dict[int, deque[Report]] = field(default_factory=dict)

    def add(self, thread: int, stream: Stream) -> None:
        """Subscribe a thread.

        Raises:
            RefusedError: 107011 for a stream that has a thread, 107012 for another device's thread.
        """
        if stream in self.threads:
            why = f"thread {self.threads[stream]} is subscribed to the stream"
            raise RefusedError(codes.RT_STREAM_SUBSCRIBE, why)
        others = {known.context.device for known, owner in self.threads.items() if owner == thread}
        if others - {stream.context.device}:
            why = f"thread {thread} serves a stream of device {others.pop()}"
            raise RefusedError(codes.RT_THREAD_SUBSCRIBE, why)
        self.threads[stream] = thread
        self.pending.setdefault(thread, deque())

    def check(self, thread: int, stream: Stream) -> None:
        """Whether a thread is subscribed.

        Raises:
            RefusedError: 107011 for a stream without a thread, 107012 for another thread's.
        """
        if stream not in self.threads:
            raise RefusedError(codes.RT_STREAM_SUBSCRIBE, "no thread is subscribed to the stream")
        if self.threads[stream] != thread:
            why = f"thread {self.threads[stream]} is subscribed to the stream"
            raise RefusedError(codes.RT_THREAD_SUBSCRIBE, why)

    def remove(self, stream: Stream) -> None:
        """End a stream's subscription; callbacks that its thread has not run yet never will."""
        thread = self.threads.pop(stream, None)
        if thread is not None and thread not in self.threads.values():
            del self.pending[thread]

    def report(
        self, stream: Stream, function: Callable[[object], object], argument: object, *, blocks: bool
    ) -> Report:
        """Return the callback to put on a stream.

        Raises:
            RefusedError: 107015 where no thread is subscribed to it.
        """
        thread = self.threads.get(stream)
        if thread is None:
            why = "no thread runs this stream's callbacks; call acl.rt.subscribe_report first"
            raise RefusedError(codes.RT_STREAM_NO_CB_REG, why)
        return Report(function, argument, blocks, thread, self.pending[thread])


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
