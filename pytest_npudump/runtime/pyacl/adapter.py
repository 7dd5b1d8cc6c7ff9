"""The adapter for pyACL: one code path for the real ``acl`` and for the emulator."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_npudump.config.cann import rules_version
from pytest_npudump.runtime.acl import MODE_UNKNOWN, AclJson, check, look_at_mode, variable_facts
from pytest_npudump.runtime.base import Evidence
from pytest_npudump.runtime.graphs import CapturedGraphs, GraphRules
from pytest_npudump.runtime.perturbed_inputs import DEVICE_VARIES
from pytest_npudump.runtime.programs import origin_of_program
from pytest_npudump.runtime.pyacl.model import PyAclModel, run_single_operator
from pytest_npudump.runtime.pyacl.observed import ModelDirectory, ObservedCalls, VariedModels
from pytest_npudump.runtime.pyacl.switch import DumpSwitch, same_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from pytest_npudump.onnxmodels.variation import Variation, Varying
    from pytest_npudump.runtime.base import OperatorCall


@dataclass(slots=True)
class PyAclActivity:
    """What happened since the dump was asked for; see :class:`pytest_npudump.runtime.base.Activity`."""

    initialised: bool = False
    models: tuple[Path, ...] = ()
    executions: int = 0
    released: bool = False
    likely_cause: str = ""
    programs: tuple[str, ...] = ()
    evidence: Evidence = field(default_factory=Evidence)


@dataclass(slots=True)
class PyAclRuntime(AclJson):
    """Runs models and dumps through the module ``acl``.

    Attributes:
        acl: the module, real or emulated.
        name: ``acl`` or ``emulator``.
        device: device id that models are loaded on.
    """

    varies = DEVICE_VARIES
    seen_as_inputs = "those of each model that acl.mdl executes"

    acl: Any
    name: str
    device: int = 0
    activity: PyAclActivity = field(default_factory=PyAclActivity)
    _switch: DumpSwitch = field(init=False)
    _observed: ObservedCalls | None = None
    _models: dict[object, str] = field(default_factory=dict)
    _overflow: bool = False
    _graphs: CapturedGraphs = field(default_factory=CapturedGraphs)
    _directory: ModelDirectory = field(default_factory=ModelDirectory)
    _varied: VariedModels = field(init=False)

    def __post_init__(self) -> None:
        """Begin with no dump, and nothing that varies."""
        self._varied = VariedModels(self.acl)
        self._switch = DumpSwitch(self.acl, self._mark_initialised)

    def producer(self) -> Mapping[str, str]:
        """Return runtime, SoC name and what variables switch, as a golden records them."""
        facts = {"runtime": self.name}
        soc = self.acl.get_soc_name()
        if soc:
            facts["soc"] = str(soc)
        if self.name != "emulator":
            facts |= variable_facts()
        return origin_of_program(facts) if self.activity.programs else facts

    def start(self, config: Path, *, resumed: bool = False) -> None:
        """Switch the dump on under ``config``, at once or with the first ``acl.init``.

        Args:
            config: the acl.json.
            resumed: whether this goes on with the test that was dumped before, for :attr:`activity`.

        Raises:
            AclError: ACL refuses the configuration, or a dump is on already.
        """
        self._switch.config = config
        self._overflow = self._switch.dump_section().get("dump_debug") == "on"
        self.activity = self.activity if resumed else PyAclActivity()
        self._observe(config)
        self._watch_graphs(config)
        self._directory.watch(self.acl, self.activity.evidence, resumed=resumed)
        self._switch.start(config, resumed=resumed)

    def _mark_initialised(self) -> None:
        self.activity.initialised = True

    def stop(self) -> None:
        """Switch the dump off, also where the application under test has finalised ACL by now.

        Raises:
            AclError: ACL cannot end the dump, so that files may be missing.
        """
        switch = self._switch
        switch.withdraw()
        self._graphs.stop()
        self._directory.stop()
        observed, self._observed = self._observed, None
        if observed is not None:
            observed.stop()
        self._note_overflow_mode()
        if switch.on or (self.activity.released and observed is not None and observed.dump_open):
            switch.finalize_dump()

    def _note_overflow_mode(self) -> None:
        """Note, once a run, whether the device's mode hides overflows; the emulator sees them in any."""
        overflow, self._overflow = self._overflow, False
        if not overflow or self.name == "emulator" or not (self._switch.on or self.activity.released):
            return
        if self.activity.programs:
            self.activity.evidence.notes.append(MODE_UNKNOWN)
        else:
            look_at_mode(self.acl, self.activity.evidence)

    def release(self) -> None:
        """Leave the dump to the code under test, which has asked for acl.json to set it itself.

        Asking again, with that code's own dump on, does nothing.
        """
        if self._switch.released is not None:
            return
        config, overflow = self._switch.config, self._overflow
        self._overflow = False  # the mode counts in which the test runs its model, which is yet to come
        self.stop()
        self.activity.released, self._overflow = True, overflow
        if config is not None:
            self._observe(config)
            self._watch_graphs(config, released=True)
            self._directory.watch(self.acl, self.activity.evidence, resumed=True)
        self._switch.release(config)

    def hand_over(self, program: str, models: tuple[Path, ...] = ()) -> None:
        """Leave the dump to a program of its own process."""
        self.release()
        self._graphs.stop()
        self.activity.programs += (program,)
        self.activity.models += models

    def _watch_graphs(self, config: Path, *, released: bool = False) -> None:
        """Watch graphs that torch_npu captures in this process, where that is used beside pyACL."""
        torch_npu = sys.modules.get("torch_npu")
        if self.name == "emulator":
            return
        rules = GraphRules.of(config, rules_version(), released=released)
        self._graphs.watch(torch_npu, rules, self.activity.evidence)

    def _observe(self, config: Path) -> None:
        if self._observed is not None:
            self._observed.stop()
        evidence = self.activity.evidence
        self._observed = ObservedCalls(self.acl, lambda path: same_file(path, config), evidence, self._models)
        self._observed.watch()

    def load_model(self, path: Path) -> PyAclModel:
        """Load the model at ``path``; its dump is on if one was started.

        Raises:
            AclError: ACL cannot be initialised, or cannot load the model.
        """
        __tracebackhide__ = True
        self._use_device()
        dump = self._switch.number if self._switch.on else 0
        model = PyAclModel.load(self.acl, path, on_run=partial(self._count, dump))
        self.activity.models += (path,)
        return model

    def run_operator(self, call: OperatorCall) -> list[NDArray[Any]]:
        """Run a single operator through ``acl.op``; its dump is on if one was started.

        Raises:
            RequestError: a type or an attribute is none that ACL takes.
            AclError: ACL refuses, or the operator fails on the device.
        """
        __tracebackhide__ = True
        self._use_device()
        return run_single_operator(self.acl, call, compiled=self.name != "emulator")

    def _use_device(self) -> None:
        __tracebackhide__ = True
        self._switch.initialise()
        check(self.acl, f"acl.rt.set_device({self.device})", self.acl.rt.set_device(self.device))
        self._switch.device_set = True

    def vary(self, variation: Variation) -> None:
        """Have what models are fed from here on vary so."""
        self._varied.vary(variation)

    @property
    def varying(self) -> Varying:
        """What varies, and which inputs the last variation has reached."""
        return self._varied.varying

    def _count(self, dump: int) -> None:
        """Count an execution of a model that was loaded under the dump ``dump``, if that is the one on."""
        if self._switch.on and dump == self._switch.number:
            self.activity.executions += 1

    def close(self) -> None:
        """Give back the device, and finalise ACL where this adapter initialised it."""
        self.stop()
        switch = self._switch
        if switch.device_set:
            self.acl.rt.reset_device(self.device)
            switch.device_set = False
        if switch.initialised_here:
            self.acl.finalize()
            switch.initialised_here = False
