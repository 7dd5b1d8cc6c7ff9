"""The runtime of a session, chosen once and loaded when a test first needs it, and the devices of a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_npudump.errors import NpudumpError, said
from pytest_npudump.plugin.marker.item import request_of
from pytest_npudump.plugin.marker.marks import is_marked
from pytest_npudump.ranks.rank import current_rank
from pytest_npudump.runtime.registry import Choice, choose, load, why_no_npu

if TYPE_CHECKING:
    from pytest_npudump.runtime.base import Runtime
    from pytest_npudump.settings import Settings


HELD_DEVICES = pytest.StashKey[tuple[int, ...]]()
"""Ids of the devices that are held for a test, by this process or its parent."""


class SessionRuntime:
    """What runs the models of a session's marked tests.

    Args:
        settings: the options.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._choice: Choice | None = None
        self._loaded: Runtime | None = None

    def chosen(self) -> Choice:
        """Return which runtime it is, and why.

        Raises:
            RuntimeUnavailableError: none can be chosen.
        """
        if self._choice is None:
            self._choice = choose(self._settings.runtime, require_npu=self._settings.require_npu)
        return self._choice

    def loaded(self, device: int) -> Runtime:
        """Return the runtime on a device, which stays that of the first call.

        Raises:
            RuntimeUnavailableError: the one chosen cannot work here.
        """
        if self._loaded is None:
            self._loaded = load(self.chosen(), device)
        return self._loaded

    def why_skipped(self) -> str:
        """Return why marked tests are skipped: no NPU answers; "" where they are not."""
        if not self._settings.skip_without_npu:
            return ""
        return why_no_npu(self._settings.runtime, "--npudump-skip-without-npu")

    def announcement(self) -> str:
        """Return the line of the session's header."""
        try:
            if why := self.why_skipped():
                return said("npudump: marked tests are skipped: {why}", why=why)
            choice = self.chosen()
        except NpudumpError as error:
            return said("npudump: no runtime: {error}", error=str(error))
        return said("npudump: runtime {choice} ({why})", choice=choice.name, why=choice.why)

    def close(self) -> None:
        """Give the device back."""
        if self._loaded is not None:
            self._loaded.close()


def number_of_devices(item: pytest.Item) -> int:
    """Return how many devices a test uses."""
    if is_marked(item):
        try:
            return request_of(item).devices
        except NpudumpError:  # which the test fails with
            return 0
    return int("npu_device" in getattr(item, "fixturenames", ()))


def devices_of(item: pytest.Item, settings: Settings) -> tuple[int, ...]:
    """Return the ids of a test's devices, its process's own first."""
    held = item.stash.get(HELD_DEVICES, None)
    if held is not None:
        return held
    own = own_device(settings)
    return tuple(range(own, own + max(1, number_of_devices(item))))


def own_device(settings: Settings) -> int:
    """Return the id of this process's device where no pool gives it one."""
    if settings.device is not None:
        return settings.device
    rank = current_rank()
    return rank.local if rank is not None else 0
