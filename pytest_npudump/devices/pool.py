"""Turns on the devices of a pool, for one process.

A process stays with the device of its first turn, since what it has loaded lies there. It claims that
device for as long as it lives, so that others choose another; a claim is a wish. What excludes is the turn:
it is taken for a test and given back behind it, or a worker of pytest-xdist that waits for its next test
would keep another from its own.

There is no deadlock: who needs one device waits while holding none. Who needs several keeps what it has got
so far, or tests that need one would always come first; of those there is one at a time on a machine.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pytest_npudump.devices.locks import DeviceLock
from pytest_npudump.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_PAUSE = 0.01
_PATIENCE = 2.0
_AGAIN = 60.0


class DevicePool:
    """Devices that one process uses in turns with others.

    Args:
        devices: by the id that CANN takes, what the machine calls each.
        folder: of the lock files.
        first: number of this process among those of its run; they begin with different devices.
        say: told why there is a wait, after 2 seconds and then each minute.

    Attributes:
        own: the device of this process, None before its first turn.
        waited: seconds, in all.
    """

    def __init__(
        self, devices: Mapping[int, int], folder: Path, first: int = 0, say: Callable[[str], None] = print
    ) -> None:
        ids = [*devices]
        at = first % len(ids)
        self._order = [*ids[at:], *ids[:at]]
        self._turns = {i: DeviceLock(folder / f"npu{devices[i]}.lock") for i in ids}
        self._claims = {i: DeviceLock(folder / f"npu{devices[i]}.claim") for i in ids}
        self._gate = DeviceLock(folder / "several.lock")
        self._say = say
        self.own: int | None = None
        self.waited = 0.0

    def __len__(self) -> int:
        """Return how many devices there are."""
        return len(self._order)

    def take(self, number: int, owner: str) -> tuple[int, ...]:
        """Wait for ``number`` devices and return their ids; the first is the same each time.

        Args:
            number: of devices.
            owner: for whom; shown to those who wait.

        Raises:
            DeviceError: the pool has fewer, or a lock cannot be taken.
        """
        if number > len(self):
            raise DeviceError(f"the test needs {number} devices, and --npudump-devices gives {len(self)}")
        started = time.monotonic()
        try:
            own = self._choose(owner)
            if number == 1:
                self._wait(lambda: self._turns[own].take(owner), (own,))
                return (own,)
            self._wait(lambda: self._gate.take(owner), ())
            try:
                return self._several(own, number, owner)
            finally:
                self._gate.give_back()
        except BaseException:
            self.give_back()
            raise
        finally:
            self.waited += time.monotonic() - started

    def give_back(self) -> None:
        """End the turn on all devices; the claim on the own one stays."""
        for turn in self._turns.values():
            turn.give_back()

    def close(self) -> None:
        """Give everything back."""
        self.give_back()
        for claim in self._claims.values():
            claim.give_back()

    def _choose(self, owner: str) -> int:
        """Return the own device: one that nobody claims, else the one at which this process begins."""
        if self.own is None:
            self.own = next((i for i in self._order if self._claims[i].take(owner)), self._order[0])
        else:
            self._claims[self.own].take(owner)  # whoever claimed it may have gone
        return self.own

    def _several(self, own: int, number: int, owner: str) -> tuple[int, ...]:
        self._wait(lambda: self._turns[own].take(owner), (own,))
        held, others = [own], self._others(own)

        def more() -> bool:
            for i in others:
                if len(held) < number and i not in held and self._turns[i].take(owner):
                    held.append(i)
            return len(held) == number

        self._wait(more, others)
        return tuple(held)

    def _others(self, own: int) -> list[int]:
        """Return the other devices, those that nobody claims first."""
        others = [i for i in self._order if i != own]
        free = set()
        for i in others:
            if self._claims[i].take(""):
                self._claims[i].give_back()
                free.add(i)
        return sorted(others, key=lambda i: i not in free)

    def _wait(self, taken: Callable[[], bool], devices: Sequence[int]) -> None:
        started, told = time.monotonic(), _PATIENCE
        while not taken():
            waited = time.monotonic() - started
            if waited >= told:
                told = waited + _AGAIN
                self._say(f"waiting for {self._whom(devices)}, {waited:.0f} s so far")
            time.sleep(_PAUSE)

    def _whom(self, devices: Sequence[int]) -> str:
        if not devices:
            return f"{self._gate.holder()}, whose test gathers several devices"
        turns = [(i, self._turns[i]) for i in devices]
        return "; ".join(f"device {i}, held by {turn.holder()}" for i, turn in turns if not turn.is_ours)
