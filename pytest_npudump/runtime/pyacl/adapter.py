"""The adapter for pyACL: one code path for the real ``acl`` and for the emulator.

The dump has to be on before a test loads its model, but ``aclmdlInitDump`` wants ``aclInit`` first, and an
application under test may call ``acl.init`` itself and take the answer 100002 (already initialised) for
an error. So nothing is initialised early: for the duration of a marked test ``acl.init`` is replaced by a
function that initialises ACL and then switches the dump on, and that answers 0 where it is only this
adapter that had initialised ACL before.

The first exception dump that is on stays on until ``finalize_dump``, also one that ``acl.init`` has switched
on. So where the test asks for one, whatever is on is ended before.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.config.acl_keys import SCENE_TYPES
from pytest_npudump.config.cann import rules_version
from pytest_npudump.runtime.acl import (
    DUMP_NOT_RUN,
    ENDED_BY_TEST,
    MODE_UNKNOWN,
    REPEAT_INITIALIZE,
    SUCCESS,
    UNINITIALIZE,
    AclError,
    AclJson,
    check,
    look_at_mode,
    variable_facts,
)
from pytest_npudump.runtime.base import OperatorCall, RunActivity
from pytest_npudump.runtime.pyacl.model import PyAclModel, run_single_operator
from pytest_npudump.runtime.pyacl.observation import ModelDirectory, ObservedCalls, VariedModels
from pytest_npudump.runtime.replacement import VariedRuntime

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from pytest_npudump.runtime.graphs import CapturedGraphs

__tracebackhide__ = True  # in each of its functions: a failure is shown where the test calls


@dataclass(slots=True)
class PyAclRuntime(VariedRuntime, AclJson):
    """Runs models and dumps through the module ``acl``.

    Attributes:
        acl: the module, real or emulated.
        name: ``acl`` or ``emulator``.
        device: device id that models are loaded on.
    """

    seen_as_inputs = "those of each model that acl.mdl executes"

    acl: Any
    name: str
    device: int = 0
    activity: RunActivity = field(default_factory=RunActivity)
    _switch: DumpSwitch = field(init=False)
    _observed: ObservedCalls | None = None
    _models: dict[object, str] = field(default_factory=dict)
    _overflow: bool = False
    _graphs: CapturedGraphs | None = None
    _directory: ModelDirectory = field(default_factory=ModelDirectory)
    _varied: VariedModels = field(init=False)

    def __post_init__(self) -> None:
        """Begin with no dump, and nothing that varies."""
        self._varied = VariedModels(self.acl)
        self._switch = DumpSwitch(self.acl, self._mark_initialised)

    def producer(self) -> Mapping[str, str]:
        """Return runtime, SoC name and what variables switch, as a golden records them."""
        facts = {"runtime": self.name}
        if soc := self.acl.get_soc_name():
            facts["soc"] = str(soc)
        if self.name != "emulator":
            facts |= variable_facts()
        if not self.activity.programs:
            return facts
        from pytest_npudump.runtime.programs import origin_of_program  # noqa: PLC0415 - where one ran

        return origin_of_program(facts)

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
        self.activity = self.activity if resumed else RunActivity()
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
        if self._graphs is not None:
            self._graphs.stop()
        self._directory.stop()
        observed, self._observed = self._observed, None
        if observed is not None:
            observed.stop()
        # Once a run: whether the device's mode hides overflows, which the emulator sees in any.
        overflow, self._overflow = self._overflow and self.name != "emulator", False
        if overflow and (switch.on or self.activity.released):
            if self.activity.programs:
                self.activity.evidence.notes.append(MODE_UNKNOWN)
            else:
                look_at_mode(self.acl, self.activity.evidence)
        if switch.on or (self.activity.released and observed is not None and observed.dump_open):
            switch.finalize_dump()

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

    def _watch_graphs(self, config: Path, *, released: bool = False) -> None:
        """Watch graphs that torch_npu captures in this process, where that is used beside pyACL."""
        if self.name == "emulator":
            return
        from pytest_npudump.runtime.graphs import CapturedGraphs, GraphRules  # noqa: PLC0415 - of devices

        torch_npu, self._graphs = sys.modules.get("torch_npu"), self._graphs or CapturedGraphs()
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
        self._use_device()
        return run_single_operator(self.acl, call, compiled=self.name != "emulator")

    def _use_device(self) -> None:
        self._switch.initialise()
        check(self.acl, f"acl.rt.set_device({self.device})", self.acl.rt.set_device(self.device))
        self._switch.device_set = True

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


@dataclass(slots=True)
class DumpSwitch:
    """One process's initialisation of ACL, and the dump that it switches on.

    Attributes:
        acl: the module.
        opened: called whenever the dump has been switched on.
        on: whether a dump of ours is on.
        number: how many dumps have been switched on.
        initialised_here: whether it was this adapter that initialised ACL.
        device_set: whether this adapter has set its device since ACL was initialised.
        config: the acl.json of the dump that is on, or will be with the first ``acl.init``; None without one.
        released: the acl.json that was left to the test.
    """

    acl: Any
    opened: Callable[[], None]
    on: bool = False
    number: int = 0
    initialised_here: bool = False
    device_set: bool = False
    config: Path | None = None
    released: Path | None = None
    _acl_init: Callable[..., int] | None = None
    _init_arguments: tuple[Any, ...] = ()
    _answered: bool = False

    def start(self, config: Path, *, resumed: bool) -> None:
        """Switch the dump on under ``config`` where ACL is initialised, and else with the first ``acl.init``.

        Args:
            config: the acl.json.
            resumed: whether this goes on with the test that was dumped before.

        Raises:
            AclError: ACL refuses the configuration, or a dump is on already.
        """
        self.config = config
        self._answered = resumed and self._answered
        code = self.acl.mdl.init_dump()
        if code == REPEAT_INITIALIZE:
            detail = "a dump is on already: end it with acl.mdl.finalize_dump() before the marked test"
            raise AclError("acl.mdl.init_dump()", code, detail)
        if code != UNINITIALIZE:
            check(self.acl, "acl.mdl.init_dump()", code)
            self._end_other_exception_dump()
            self._set_dump()
        self._interpose()

    def release(self, config: Path | None) -> None:
        """Leave ``config`` to the test: whatever it gives ``acl.init`` counts from here on."""
        self.released = config
        self._interpose()

    def withdraw(self) -> None:
        """Give ``acl.init`` back to the application, and switch nothing on with it."""
        if self.acl.init == self._init_for_application:
            self.acl.init = self._acl_init
        self.config = self.released = None

    def finalize_dump(self) -> None:
        """Switch the dump off, also where the application under test has finalised ACL by now.

        Raises:
            AclError: ACL cannot end the dump, so that files may be missing.
        """
        self.on = False
        code = self.acl.mdl.finalize_dump()
        if code == UNINITIALIZE:
            self.initialised_here = self.device_set = False
            check(self.acl, "acl.init()", self.acl.init(*self._init_arguments))
            code = self.acl.mdl.finalize_dump()
            self.acl.finalize()
        if code == DUMP_NOT_RUN:
            raise AclError("acl.mdl.finalize_dump()", code, ENDED_BY_TEST)
        check(self.acl, "acl.mdl.finalize_dump()", code)

    def initialise(self) -> None:
        """Initialise ACL where nobody has, and with it the dump.

        Raises:
            AclError: ACL cannot be initialised, or refuses the configuration.
        """
        if (code := self._init()) == SUCCESS:
            self.initialised_here = True
        elif code != REPEAT_INITIALIZE:
            check(self.acl, "acl.init()", code)

    def dump_section(self) -> dict[str, Any]:
        """Return the key ``dump`` of the configuration; ACL refuses one without it."""
        try:
            root = json.loads(Path(str(self.config)).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        section = root.get("dump") if isinstance(root, dict) else None
        return section if isinstance(section, dict) else {}

    def _interpose(self) -> None:
        # A fixture that replaced acl.init during a test puts our function back when it is torn down.
        if self.acl.init != self._init_for_application:
            self._acl_init, self.acl.init = self.acl.init, self._init_for_application

    def _init_for_application(self, *arguments: Any) -> int:
        config = self.config or self.released
        if arguments and config is not None and same_file(arguments[0], config):
            # aclInit keeps the content of its first file for the process, and each run has a file of its
            # own: it is set as acl.mdl.set_dump would set it.
            self.config, arguments = config, ()
        code = self._init(*arguments)
        if code == REPEAT_INITIALIZE and self.initialised_here and not self._answered:
            code = SUCCESS
        self._answered = True
        return code

    def _init(self, *arguments: Any) -> int:
        code: int = (self._acl_init or self.acl.init)(*arguments)
        if code == SUCCESS:
            self._init_arguments = arguments
        if code in {SUCCESS, REPEAT_INITIALIZE} and self.config is not None and not self.on:
            self._open_dump(just_initialised=code == SUCCESS)
            self._set_dump()
        return code

    def _open_dump(self, *, just_initialised: bool) -> None:
        code = self.acl.mdl.init_dump()
        if code == REPEAT_INITIALIZE and just_initialised:
            # Left open by code that finalised ACL with its dump on: acl.finalize() does not end a dump.
            check(self.acl, "acl.mdl.finalize_dump()", self.acl.mdl.finalize_dump())
            code = self.acl.mdl.init_dump()
        check(self.acl, "acl.mdl.init_dump()", code)
        self._end_other_exception_dump()

    def _end_other_exception_dump(self) -> None:
        """End an exception dump that was on before, beside which CANN would ignore the test's."""
        if self.dump_section().get("dump_scene") in SCENE_TYPES:
            check(self.acl, "acl.mdl.finalize_dump()", self.acl.mdl.finalize_dump())
            check(self.acl, "acl.mdl.init_dump()", self.acl.mdl.init_dump())

    def _set_dump(self) -> None:
        path = str(self.config)
        if (code := self.acl.mdl.set_dump(path)) != SUCCESS:
            error = AclError.of(self.acl, f"acl.mdl.set_dump({path!r})", code)
            self.acl.mdl.finalize_dump()
            raise error
        self.on = True
        self.number += 1
        self.opened()


def same_file(argument: object, config: Path) -> bool:
    """Return whether an argument of the application's is the path of ``config``, however it is spelled."""
    return isinstance(argument, str) and Path(argument).resolve() == config.resolve()
