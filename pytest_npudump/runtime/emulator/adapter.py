"""The adapter of pyACL over the emulator, which knows what a device tells nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.emulator.process.state import process
from pytest_npudump.runtime.pyacl.adapter import PyAclRuntime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.emulator.dumps.recorder import Execution


class EmulatorRuntime(PyAclRuntime):
    """Runs models and dumps through the emulator."""

    __slots__ = ()

    def dumped(self) -> Sequence[Execution]:
        """Return what was dumped in this process, operators that left no file included."""
        return process().dumped
