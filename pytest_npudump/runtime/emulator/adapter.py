"""The adapter of pyACL over the emulator, which knows what a device tells nobody, and can vary its runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.emulator.process.state import process
from pytest_npudump.runtime.pyacl.adapter import PyAclRuntime

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pytest_npudump.emulator.dumps.recorder import Execution
    from pytest_npudump.onnxmodels.variation import Variation


class EmulatorRuntime(PyAclRuntime):
    """Runs models and dumps through the emulator."""

    __slots__ = ()

    def dumped(self) -> Sequence[Execution]:
        """Return what was dumped in this process, operators that left no file included."""
        return process().dumped

    def vary(self, variation: Variation) -> None:
        """Have models that are loaded or run from here on vary so.

        Threads and optimisation are of a model's load: one that a fixture keeps loaded keeps them.
        """
        process().varying.variation = variation

    @property
    def unperturbed(self) -> Collection[str]:
        """Names of model inputs that were left as they are, as they hold no floating-point values."""
        return frozenset(process().varying.unperturbed)
