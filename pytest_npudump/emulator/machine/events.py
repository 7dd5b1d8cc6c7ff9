"""Events: marks that a stream passes (``aclrtRecordEvent``), to wait for and to measure time with.

Source: ``event.cc`` of hicann/runtime. Times are taken when the mark's turn comes on its stream.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npudump.emulator.machine.streams import Step

if TYPE_CHECKING:
    from pytest_npudump.emulator.machine.streams import Stream

TIME_LINE = 0x8
"""Flag of an event that keeps the time (``ACL_EVENT_TIME_LINE``)."""
DEFAULT = 0xE
"""Flags of an event created without any (``RT_EVENT_DEFAULT``)."""


@dataclass(slots=True, eq=False)
class Record(Step):
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
        record: its last mark; None before the first.
        cleared: the mark that a reset has made void; None where none has.
        waiting: how many streams wait for it.
    """

    flags: int
    record: Record | None = None
    cleared: Record | None = None
    waiting: int = 0

    @property
    def recorded(self) -> bool:
        """Whether its last mark was passed."""
        return self.record is not None and self.record.done


@dataclass(slots=True)
class Wait(Step):
    """The step of a stream that waits for an event.

    Attributes:
        event: the event.
        record: the mark to be passed; None to wait for the next one, as after a reset.
    """

    event: Event
    record: Record | None

    def run(self) -> bool:
        """Whether the mark was passed."""
        if self.record is None and self.event.record is not self.event.cleared:
            self.record = self.event.record
        if self.record is None or not self.record.done:
            return False
        self.event.waiting -= 1
        return True

    def hopeless(self) -> str:
        """Return why the mark is never passed: the stream that it is on cannot go on."""
        steps = () if self.record is None else self.record.stream.steps
        return steps[0].hopeless() if steps else ""


@dataclass(slots=True)
class Reset(Step):
    """The step of a stream that makes an event's last mark void."""

    event: Event

    def run(self) -> bool:
        """Make it void."""
        self.event.cleared = self.event.record
        return True
