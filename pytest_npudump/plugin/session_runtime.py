"""The runtime of one session: chosen once, and loaded when a test first needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.errors import NpudumpError
from pytest_npudump.plugin import _compat
from pytest_npudump.plugin.marker.item import request_of
from pytest_npudump.plugin.runtest.item_case import only_setup
from pytest_npudump.runtime.registry import Choice, choose, load, why_no_npu
from pytest_npudump.scene import SCENES

if TYPE_CHECKING:
    import pytest

    from pytest_npudump.runtime.base import Runtime
    from pytest_npudump.settings import Settings


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
                return f"npudump: marked tests are skipped: {why}"
            choice = self.chosen()
        except NpudumpError as error:
            return f"npudump: no runtime: {error}"
        return f"npudump: runtime {choice.name} ({choice.why})"

    def isolates(self, item: pytest.Item) -> bool:
        """Whether the test runs in processes of its own: its marker says, else its scene or the runtime."""
        if only_setup(item) or _compat.may_be_skipped(item):
            return False
        try:
            choice = self.chosen()
        except NpudumpError:  # the test's setup will say it
            return False
        request = request_of(item)
        if request.isolation is not None:
            return request.isolation == "process"
        timed = request.timeout is not None
        wanted = timed or self._settings.isolation == "process" or SCENES[request.scene].own_process
        return wanted or choice.isolates(request.scene)

    def close(self) -> None:
        """Give the device back."""
        if self._loaded is not None:
            self._loaded.close()
