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

from pytest_npudump.config.acl.acl_json import AclJson
from pytest_npudump.config.acl.adump_keys import SCENE_TYPES
from pytest_npudump.config.acl.installed import rules_version
from pytest_npudump.errors import RequestError
from pytest_npudump.runtime.base import Evidence
from pytest_npudump.runtime.external.run import origin_of_program
from pytest_npudump.runtime.pyacl.calls import (
    DUMP_NOT_RUN,
    ENDED_BY_TEST,
    REPEAT_INITIALIZE,
    SUCCESS,
    UNINITIALIZE,
    AclError,
    check,
)
from pytest_npudump.runtime.pyacl.model import PyAclModel
from pytest_npudump.runtime.pyacl.model_directory import ModelDirectory
from pytest_npudump.runtime.pyacl.observed import ObservedCalls
from pytest_npudump.runtime.pyacl.overflow_mode import MODE_UNKNOWN, look_at_mode
from pytest_npudump.runtime.pyacl.receiving import NOT_RELEASED, require_callback, stop_receiving
from pytest_npudump.runtime.torch_npu.graphs import CapturedGraphs, GraphRules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_npudump.dump.streaming.receiver import DumpReceiver


@dataclass(slots=True)
class PyAclActivity:
    """What happened since the dump was asked for."""

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

    acl: Any
    name: str
    device: int = 0
    activity: PyAclActivity = field(default_factory=PyAclActivity)
    _config: Path | None = None
    _released_config: Path | None = None
    _acl_init: Callable[..., int] | None = None
    _init_arguments: tuple[Any, ...] = ()
    _dumping: bool = False
    _initialised_here: bool = False
    _answered: bool = False
    _device_set: bool = False
    _observed: ObservedCalls | None = None
    _receiver: DumpReceiver | None = None
    _models: dict[object, str] = field(default_factory=dict)
    _dumps: int = 0
    _overflow: bool = False
    _graphs: CapturedGraphs = field(default_factory=CapturedGraphs)
    _directory: ModelDirectory = field(default_factory=ModelDirectory)

    def producer(self) -> Mapping[str, str]:
        """Return runtime and SoC name, as a golden records them."""
        facts = {"runtime": self.name}
        soc = self.acl.get_soc_name()
        if soc:
            facts["soc"] = str(soc)
        return origin_of_program(facts) if self.activity.programs else facts

    def start(self, config: Path, *, resumed: bool = False) -> None:
        """Switch the dump on under ``config``, at once or with the first ``acl.init``.

        Args:
            config: the acl.json.
            resumed: whether this goes on with the test that was dumped before, for :attr:`activity`.

        Raises:
            AclError: ACL refuses the configuration, or a dump is on already.
        """
        self._config = config
        self._overflow = self._section().get("dump_debug") == "on"
        self._answered = resumed and self._answered
        self.activity = self.activity if resumed else PyAclActivity()
        self._observe(config)
        self._watch_graphs(config)
        self._directory.watch(self.acl, self.activity.evidence, resumed=resumed)
        code = self.acl.mdl.init_dump()
        if code == REPEAT_INITIALIZE:
            detail = "a dump is on already: end it with acl.mdl.finalize_dump() before the marked test"
            raise AclError("acl.mdl.init_dump()", code, detail)
        if code != UNINITIALIZE:
            check(self.acl, "acl.mdl.init_dump()", code)
            self._end_other_exception_dump()
            self._set_dump()
        self._interpose()

    def receive_by(self, receiver: DumpReceiver) -> None:
        """Have the dump of the next :meth:`start` handed to ``receiver``, until it is stopped.

        Raises:
            RuntimeUnavailableError: this version of pyACL cannot do that.
        """
        require_callback(self.acl)
        self._receiver = receiver

    def stop(self) -> None:
        """Switch the dump off, also where the application under test has finalised ACL by now.

        Raises:
            AclError: ACL cannot end the dump, so that files may be missing.
        """
        if self.acl.init == self._init_for_application:
            self.acl.init = self._acl_init
        self._graphs.stop()
        self._directory.stop()
        observed, self._observed = self._observed, None
        if observed is not None:
            observed.stop()
        self._note_overflow_mode()
        self._config = self._released_config = None
        receiver, self._receiver = self._receiver, None
        if not self._dumping:
            if self.activity.released and observed is not None and observed.dump_open:
                self._finalize_dump()
            return
        self._dumping = False
        try:
            if receiver is not None:
                stop_receiving(self.acl, receiver, queued=self.name != "emulator")
        finally:
            self._finalize_dump()

    def _note_overflow_mode(self) -> None:
        """Note, once a run, whether the device's mode hides overflows; the emulator sees them in any."""
        overflow, self._overflow = self._overflow, False
        if not overflow or self.name == "emulator" or not (self._dumping or self.activity.released):
            return
        if self.activity.programs:
            self.activity.evidence.notes.append(MODE_UNKNOWN)
        else:
            look_at_mode(self.acl, self.activity.evidence)

    def _finalize_dump(self) -> None:
        code = self.acl.mdl.finalize_dump()
        if code == UNINITIALIZE:
            self._initialised_here = self._device_set = False
            check(self.acl, "acl.init()", self.acl.init(*self._init_arguments))
            code = self.acl.mdl.finalize_dump()
            self.acl.finalize()
        if code == DUMP_NOT_RUN:
            raise AclError("acl.mdl.finalize_dump()", code, ENDED_BY_TEST)
        check(self.acl, "acl.mdl.finalize_dump()", code)

    def release(self) -> None:
        """Leave the dump to the code under test, which has asked for acl.json to set it itself.

        Asking again, with that code's own dump on, does nothing.

        Raises:
            RequestError: the dump is to come by callback, which only this adapter's own can.
        """
        if self._released_config is not None:
            return
        if self._receiver is not None:
            raise RequestError(NOT_RELEASED)
        config, overflow = self._config, self._overflow
        self._overflow = False  # the mode counts in which the test runs its model, which is yet to come
        self.stop()
        self.activity.released, self._overflow = True, overflow
        self._released_config = config
        if config is not None:
            self._observe(config)
            self._watch_graphs(config, released=True)
            self._directory.watch(self.acl, self.activity.evidence, resumed=True)
        self._interpose()

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
        callback = self._receiver is not None
        rules = GraphRules.of(config, rules_version(), released=released, callback=callback)
        self._graphs.watch(torch_npu, rules, self.activity.evidence)

    def _observe(self, config: Path) -> None:
        if self._observed is not None:
            self._observed.stop()
        evidence = self.activity.evidence
        self._observed = ObservedCalls(
            self.acl, lambda path: _same_file(path, config), evidence, self._models, self._receiver
        )
        self._observed.watch()

    def _interpose(self) -> None:
        # A fixture that replaced acl.init during a test puts our function back when it is torn down.
        if self.acl.init != self._init_for_application:
            self._acl_init, self.acl.init = self.acl.init, self._init_for_application

    def _init_for_application(self, *arguments: Any) -> int:
        config = self._config or self._released_config
        if arguments and config is not None and _same_file(arguments[0], config):
            # aclInit keeps the content of its first file for the process, and each run has a file of its
            # own: it is set as acl.mdl.set_dump would set it.
            self._config, arguments = config, ()
        code = self._init(*arguments)
        if code == REPEAT_INITIALIZE and self._initialised_here and not self._answered:
            code = SUCCESS
        self._answered = True
        return code

    def _init(self, *arguments: Any) -> int:
        code: int = (self._acl_init or self.acl.init)(*arguments)
        if code == SUCCESS:
            self._init_arguments = arguments
        if code in {SUCCESS, REPEAT_INITIALIZE} and self._config is not None and not self._dumping:
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
        if self._section().get("dump_scene") in SCENE_TYPES:
            check(self.acl, "acl.mdl.finalize_dump()", self.acl.mdl.finalize_dump())
            check(self.acl, "acl.mdl.init_dump()", self.acl.mdl.init_dump())

    def _section(self) -> dict[str, Any]:
        """Return the key ``dump`` of the configuration; ACL says what is wrong with one that has none."""
        try:
            root = json.loads(Path(str(self._config)).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        section = root.get("dump") if isinstance(root, dict) else None
        return section if isinstance(section, dict) else {}

    def _set_dump(self) -> None:
        path, receiver = str(self._config), self._receiver
        call, code = "acl.mdl.dump_reg_callback()", SUCCESS
        if receiver is not None:
            code = self.acl.mdl.dump_reg_callback(receiver, 0)
        if code == SUCCESS:
            call, code = f"acl.mdl.set_dump({path!r})", self.acl.mdl.set_dump(path)
        if code != SUCCESS:
            error = AclError.of(self.acl, call, code)
            if receiver is not None:
                self.acl.mdl.dump_unreg_callback()
            self.acl.mdl.finalize_dump()
            raise error
        self._mark_dumping()

    def _mark_dumping(self) -> None:
        self._dumping = True
        self._dumps += 1
        self.activity.initialised = True

    def load_model(self, path: Path) -> PyAclModel:
        """Load the model at ``path``; its dump is on if one was started.

        Raises:
            AclError: ACL cannot be initialised, or cannot load the model.
        """
        __tracebackhide__ = True
        self._initialise()
        dump = self._dumps if self._dumping else 0
        model = PyAclModel.load(self.acl, path, on_run=partial(self._count, dump))
        self.activity.models += (path,)
        return model

    def _count(self, dump: int) -> None:
        """Count an execution of a model that was loaded under the dump ``dump``, if that is the one on."""
        if self._dumping and dump == self._dumps:
            self.activity.executions += 1

    def _initialise(self) -> None:
        __tracebackhide__ = True
        code = self._init()
        if code == SUCCESS:
            self._initialised_here = True
        elif code != REPEAT_INITIALIZE:
            check(self.acl, "acl.init()", code)
        check(self.acl, f"acl.rt.set_device({self.device})", self.acl.rt.set_device(self.device))
        self._device_set = True

    def close(self) -> None:
        """Give back the device, and finalise ACL where this adapter initialised it."""
        self.stop()
        if self._device_set:
            self.acl.rt.reset_device(self.device)
            self._device_set = False
        if self._initialised_here:
            self.acl.finalize()
            self._initialised_here = False


def _same_file(argument: object, config: Path) -> bool:
    return isinstance(argument, str) and Path(argument).resolve() == config.resolve()
