"""Adapter of pyACL over the emulator, which has facts that a device lacks, and can vary its runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.emulator.process import process
from pytest_npudump.onnxmodels.variation import INPUTS, OPTIMISATION, THREADS, Variation, Varying
from pytest_npudump.runtime.pyacl.adapter import PyAclRuntime

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_npudump.emulator.dumps.recorder import DumpedExecution
    from pytest_npudump.runtime.pyacl.model import PyAclModel


class EmulatorRuntime(PyAclRuntime):
    """Runs models and dumps through the emulator."""

    __slots__ = ()

    varies = frozenset({INPUTS, THREADS, OPTIMISATION})
    seen_as_inputs = "those of each model that runs"

    def start(self, config: Path, *, resumed: bool = False) -> None:
        """Switch the dump on, as :meth:`PyAclRuntime.start` does."""
        super().start(config, resumed=resumed)
        process().inside = self.activity.evidence.inside

    def load_model(self, path: Path) -> PyAclModel:
        """Load a model, as :meth:`PyAclRuntime.load_model` does; ONNX has its own names for outputs."""
        __tracebackhide__ = True
        model = super().load_model(path)
        loaded = process().models[model.model_id]
        model.output_ports = tuple(loaded.written.get(port.name) for port in loaded.outputs)
        return model

    def dumped_executions(self, folder: Path) -> Sequence[DumpedExecution]:
        """Return the dumps of this process in a folder of a run, operators that left no file included."""
        roots = process().dumped.get(str(folder), {})
        return [one for some in roots.values() for one in some]

    def vary(self, variation: Variation) -> None:
        """Have models that are loaded or run from here on vary so.

        Threads and optimisation are of a model's load: one that a fixture keeps loaded keeps them.
        """
        process().varying.begin(variation)

    @property
    def varying(self) -> Varying:
        """Present variation, and the inputs that the last one has reached."""
        return process().varying
