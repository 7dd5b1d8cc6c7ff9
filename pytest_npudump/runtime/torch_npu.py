"""The adapter for PyTorch on the NPU: ``torch_npu`` runs the operators, and switches the dump on and off.

The dump's three functions exist twice. Those of ``torch_npu.npu`` queue the calls until the device is first
used and ignore what ACL answers; those of ``torch_npu.npu.utils``, used here, initialise the device and
raise. Operators run asynchronously, so the device is synchronised before the dump is switched on, which
keeps earlier operators out of it, and before it is switched off: ``finalize_dump`` waits too, but a device
error there ends the process.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_npudump.config.acl_json import AclJson
from pytest_npudump.config.check import check_file
from pytest_npudump.config.installed import rules_version
from pytest_npudump.errors import ConfigError, RuntimeUnavailableError
from pytest_npudump.runtime.acl_calls import DUMP_NOT_RUN, REPEAT_INITIALIZE, AclError
from pytest_npudump.runtime.base import Evidence
from pytest_npudump.runtime.external import origin_of_program

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_UTILS = "torch_npu.npu.utils"
_QUEUEING = "torch_npu.npu.npu_config"
_CODE = re.compile(r"error code is (-?\d+)")
_PREFIX = re.compile(r"\[ERROR\] \S+ \(PID:[^)]*\)")
_IDLE = (
    "no operator ran on the NPU while the dump was on: make the test's tensors on the device 'npu', and run "
    "them inside the test or a function-scoped fixture (CANN writes no statistics for operators captured "
    "into a graph, and none of eager operators with dump_level='op')"
)
_RELEASED = (
    "the test took npu_dump.config_path or torchair_config(), so it has to switch the dump on itself: "
    "compile its model with that configuration, or call init_dump() and set_dump(path) of "
    "torch_npu.npu.utils, which raise where torch_npu.npu.set_dump says nothing. TorchAir reads "
    "dump_config_path only with the first graph of a process: give such tests isolation='process'"
)


@dataclass(slots=True)
class TorchNpuActivity:
    """What happened since the dump was asked for; operators and models are not counted."""

    initialised: bool = False
    models: tuple[Path, ...] = ()
    executions: int = 0
    released: bool = False
    programs: tuple[str, ...] = ()
    evidence: Evidence = field(default_factory=Evidence)

    @property
    def likely_cause(self) -> str:
        """What most likely left the dump empty."""
        return _RELEASED if self.released else _IDLE


@dataclass(slots=True)
class TorchNpuRuntime(AclJson):
    """Dumps what runs through ``torch_npu`` in this process.

    Attributes:
        torch_npu: the module.
        device: device id that is made the current one; with 0 the current device stays what it is.
        name: ``torch_npu``.
    """

    torch_npu: Any
    device: int = 0
    name: str = "torch_npu"
    activity: TorchNpuActivity = field(default_factory=TorchNpuActivity)
    _dumping: bool = False
    _device_set: bool = False
    _allocated: int | None = None

    def producer(self) -> Mapping[str, str]:
        """Return runtime, SoC name and the version of torch_npu, as a golden records them."""
        facts = {"runtime": self.name, "torch_npu": str(self.torch_npu.__version__)}
        with suppress(RuntimeError, AssertionError):  # a fact for the reader, on which nothing depends
            facts["soc"] = str(self.torch_npu.npu.get_device_name())
        return origin_of_program(facts) if self.activity.programs else facts

    def start(self, config: Path, *, resumed: bool = False) -> None:
        """Initialise the device and switch the dump on under ``config``.

        Args:
            config: the acl.json.
            resumed: whether this goes on with the test that was dumped before, for :attr:`activity`.

        Raises:
            ConfigError: ACL would refuse the file.
            AclError: ACL refuses it, or a dump is on already.
            RuntimeUnavailableError: the device cannot be used, or this torch_npu has no such functions.
        """
        verdict = check_file(config, "acl", version=rules_version())
        if not verdict.accepted:
            raise ConfigError(f"{config}: {verdict.message}")
        self.activity = self.activity if resumed else TorchNpuActivity()
        self._select_device()
        self._call("torch_npu.npu.synchronize")
        self._call(f"{_UTILS}.init_dump")
        self._dumping = True
        try:
            self._call(f"{_UTILS}.set_dump", str(config))
            self._check_initialised()
        except RuntimeUnavailableError:
            self._dumping = False
            with suppress(RuntimeUnavailableError):  # the first error is the one to read
                self._call(f"{_UTILS}.finalize_dump")
            raise
        self.activity.initialised = True
        self._allocated = self._allocations()

    def _allocations(self) -> int | None:
        """Return how many tensors were ever allocated on the current device; None where it cannot be told."""
        try:
            return int(self.torch_npu.npu.memory_stats()["allocation.all.allocated"])
        except (AttributeError, KeyError, RuntimeError):
            return None

    def _select_device(self) -> None:
        if self.device and not self._device_set:
            self._call("torch_npu.npu.set_device", self.device)
        self._device_set = True

    def _check_initialised(self) -> None:
        if not self.torch_npu.npu.is_initialized():
            raise RuntimeUnavailableError(
                f"{_UTILS}.set_dump returned although the NPU is not initialised, so that no dump is on"
            )

    def stop(self) -> None:
        """Wait for the current device and switch the dump off; does nothing where none is on.

        Raises:
            AclError: ACL cannot end the dump, so that files may be missing.
            RuntimeUnavailableError: an operator of the test failed on the device.
        """
        if not self._dumping:
            if self.activity.released:
                self._end_dump_of_test()
            return
        self._dumping = False
        self._call("torch_npu.npu.synchronize")
        before, now = self._allocated, self._allocations()
        if before is not None and now is not None and now > before:
            self.activity.evidence.shown.append(f"{now - before} tensors were allocated on the NPU")
        self._call(f"{_UTILS}.finalize_dump")

    def _end_dump_of_test(self) -> None:
        """End the dump that the test has switched on, if it has; TorchAir ends its own with the process."""
        if not self.torch_npu.npu.is_initialized():
            return
        self._call("torch_npu.npu.synchronize")
        try:
            self._call(f"{_UTILS}.finalize_dump")
        except AclError as error:
            if error.code != DUMP_NOT_RUN:
                raise

    def release(self) -> None:
        """Leave the dump to the code under test; asking again, with that code's own dump on, does nothing."""
        if self.activity.released and not self._dumping:
            return
        self.stop()
        self.activity.released = True

    def hand_over(self, program: str, models: tuple[Path, ...] = ()) -> None:
        """Leave the dump to a program of its own process."""
        self.release()
        self.activity.programs += (program,)
        self.activity.models += models

    def load_model(self, path: Path) -> NoReturn:
        """Refuse: models of torch are loaded by torch.

        Raises:
            RuntimeUnavailableError: always; it says what to do instead.
        """
        raise RuntimeUnavailableError(
            f"npu_dump.load_model({path.name!r}): the runtime torch_npu loads no model files. Build or load "
            f"the model with torch in the test and move it to the device 'npu', where the dump is on; for an "
            f".om file use --npudump-runtime=acl"
        )

    def close(self) -> None:
        """Switch the dump off; the device stays with torch, which gives it back when the process ends."""
        self.stop()

    def _call(self, name: str, *arguments: object) -> None:
        function = _function(self.torch_npu, name)
        text = f"{name}({', '.join(map(repr, arguments))})"
        try:
            function(*arguments)
        except (RuntimeError, OSError, AssertionError) as error:
            raise _refused(text, str(error)) from None


def _function(torch_npu: Any, name: str) -> Any:
    found: Any = torch_npu
    for part in name.split(".")[1:]:
        found = getattr(found, part, None)
    if found is None or getattr(found, "__module__", "") == _QUEUEING:
        raise RuntimeUnavailableError(
            f"torch_npu {getattr(torch_npu, '__version__', '')} has no {name} that reports errors; the dump "
            f"functions of torch_npu.npu ignore what ACL answers and are not used in its place"
        )
    return found


def _refused(call: str, words: str) -> RuntimeUnavailableError:
    """Return the error for what the client raised, with ACL's code where its text has one."""
    first, _, rest = words.partition("\n")
    match = _CODE.search(first)
    if match is None:
        return RuntimeUnavailableError(f"{call}: {' '.join(words.split())}")
    code = int(match[1])
    detail = " ".join(_PREFIX.sub("", rest).split())
    if code == REPEAT_INITIALIZE:
        detail = (
            "a dump is on already: end it with torch_npu.npu.utils.finalize_dump() before the marked test, "
            "and leave ACL_DUMP_DATA unset"
        )
    return AclError(call, code, detail)
