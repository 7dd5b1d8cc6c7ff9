"""Which runtime a session uses: decided without loading it, loaded when the first marked test runs."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import MissingExtraError, RuntimeUnavailableError

if TYPE_CHECKING:
    from pytest_npudump.runtime.base import Runtime

_EMULATOR = "pytest_npudump.emulator.acl"
_ONCE_PER_PROCESS = frozenset({"mindspore"})
_PROBED: set[str] = set()
"""``acl``, where it was this module that imported it, and no test."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision for a runtime.

    Attributes:
        name: ``acl``, ``torch_npu``, ``mindspore`` or ``emulator``.
        why: what it was decided by.
    """

    name: str
    why: str

    @property
    def needs_process(self) -> bool:
        """Whether each run of a test needs a process of its own: the dump is configured once per process."""
        return self.name in _ONCE_PER_PROCESS

    def isolates(self, scene: str) -> bool:
        """Whether each run of a test of this scene needs a process of its own.

        Under torch_npu overflows do: CANN decides with a process's first operator whether they are dumped.
        """
        return self.needs_process or (self.name == "torch_npu" and scene == "overflow")


def choose(option: str, *, require_npu: bool = False) -> Choice:
    """Decide for a runtime, with ``auto`` for the first that works here.

    ``auto`` means ``torch_npu`` where the tests collected so far have imported it, and not ``acl``, and it
    has a device; torch is never imported to find that out. Else it means ``acl``, else ``emulator``. It never
    means ``mindspore``, which works without a device too: that has to be asked for.

    Raises:
        MissingExtraError: MindSpore was asked for and is not installed.
        RuntimeUnavailableError: the runtime that was asked for is not installed, or no device answers, or
            an NPU is required and ``auto`` finds none in this process.
    """
    if require_npu and option == "emulator":
        raise RuntimeUnavailableError("--npudump-require-npu excludes --npudump-runtime=emulator")
    if option == "emulator":
        return Choice("emulator", "--npudump-runtime=emulator")
    if option == "torch_npu":
        return _torch_npu_if_installed()
    if option == "mindspore":
        return _mindspore_if_installed()
    if option == "auto" and (why := _imported_torch_npu()):
        return Choice("torch_npu", f"--npudump-runtime=auto, {why}")
    acl, why = probe_acl()
    if acl is not None:
        return Choice("acl", f"--npudump-runtime={option}, {why}{_hint(option)}")
    if option == "acl":
        raise RuntimeUnavailableError(
            f"--npudump-runtime=acl: {why}; on a machine without an NPU use --npudump-runtime=emulator"
        )
    if require_npu:
        raise RuntimeUnavailableError(f"--npudump-require-npu: {why}")
    return Choice("emulator", f"--npudump-runtime=auto, {why}{_hint(option)}")


def _hint(option: str) -> str:
    """Return what to choose where ``auto`` has chosen what dumps nothing of the tests' own framework."""
    if option != "auto" or not _imported_mindspore():
        return ""
    return "; tests import mindspore, which --npudump-runtime=mindspore dumps"


def _torch_npu_if_installed() -> Choice:
    if "torch_npu" not in sys.modules and find_spec("torch_npu") is None:
        raise RuntimeUnavailableError("--npudump-runtime=torch_npu: no module 'torch_npu' can be imported")
    return Choice("torch_npu", "--npudump-runtime=torch_npu")


def _mindspore_if_installed() -> Choice:
    if not _imported_mindspore() and find_spec("mindspore") is None:
        raise MissingExtraError("--npudump-runtime=mindspore", "mindspore", "mindspore")
    return Choice("mindspore", "--npudump-runtime=mindspore")


def _imported_mindspore() -> bool:
    return "mindspore" in sys.modules


def _imported_torch_npu() -> str:
    """Return why the process is one of torch_npu's, "" if it is not."""
    torch_npu = sys.modules.get("torch_npu")
    if torch_npu is None or "acl" in sys.modules.keys() - _PROBED or not _has_device(torch_npu):
        return ""
    return "the tests have imported torch_npu and a device answers"


def _has_device(torch_npu: Any) -> bool:
    try:
        return bool(torch_npu.npu.is_available())
    except (AttributeError, RuntimeError):  # an import that failed half-way, or a driver that does not answer
        return False


def load(choice: Choice, device: int) -> Runtime:
    """Load the runtime that was decided for.

    Raises:
        MissingExtraError: the emulator's packages are not installed.
        RuntimeUnavailableError: torch_npu or MindSpore cannot be imported, or torch_npu finds no device.
    """
    if choice.name == "mindspore":
        from pytest_npudump.runtime.mindspore import adapter as mindspore  # noqa: PLC0415 - only where chosen

        return mindspore.MindSporeRuntime(mindspore.import_mindspore("--npudump-runtime=mindspore"), device)
    if choice.name == "torch_npu":
        from pytest_npudump.runtime.torch_npu.adapter import TorchNpuRuntime  # noqa: PLC0415 - only where chosen

        return TorchNpuRuntime(_load_torch_npu("--npudump-runtime=torch_npu"), device)
    from pytest_npudump.runtime.pyacl.adapter import PyAclRuntime  # noqa: PLC0415 - it needs numpy

    if choice.name == "emulator":
        from pytest_npudump.emulator.install import install  # noqa: PLC0415 - only where it is chosen

        install()
    return PyAclRuntime(importlib.import_module("acl"), choice.name, device)


def _load_torch_npu(option: str) -> Any:
    try:
        torch_npu = importlib.import_module("torch_npu")
    except (ImportError, OSError, RuntimeError) as error:
        words = " ".join(str(error).split())
        raise RuntimeUnavailableError(
            f"{option}: torch_npu cannot be imported: {words}; is set_env.sh of CANN sourced?"
        ) from error
    if not _has_device(torch_npu):
        raise RuntimeUnavailableError(f"{option}: torch_npu is installed but finds no NPU")
    return torch_npu


def require(option: str) -> None:
    """Refuse to go on where no NPU answers: what ``--npudump-require-npu`` promises.

    Raises:
        RuntimeUnavailableError: says why.
    """
    if option == "emulator":
        raise RuntimeUnavailableError("--npudump-require-npu excludes --npudump-runtime=emulator")
    if option == "torch_npu":
        _load_torch_npu("--npudump-require-npu")
        return
    if option == "mindspore":
        from pytest_npudump.runtime.mindspore.adapter import require_ascend  # noqa: PLC0415 - only where chosen

        require_ascend("--npudump-require-npu")
        return
    acl, why = probe_acl()
    if acl is None:
        raise RuntimeUnavailableError(f"--npudump-require-npu: {why}")


def probe_acl() -> tuple[Any | None, str]:
    """Return the real module ``acl`` if a device answers, else None, and the reason in both cases.

    Counting devices needs no ``acl.init``, whose first call would settle the process's configuration.
    """
    if "acl" not in sys.modules:
        _PROBED.add("acl")
    try:
        acl = importlib.import_module("acl")
    except ModuleNotFoundError:
        return None, "no module 'acl' (CANN's pyACL) can be imported; is set_env.sh of CANN sourced?"
    except ImportError as error:
        return None, f"the module 'acl' (CANN's pyACL) cannot be imported: {error}"
    if acl.__name__ == _EMULATOR:
        return None, "the module 'acl' of this process is the emulator"
    if not hasattr(getattr(acl, "rt", None), "get_device_count"):
        place = getattr(acl, "__file__", None) or list(getattr(acl, "__path__", ()))
        return None, f"the module 'acl' that Python finds is not CANN's pyACL but {place}"
    count, code = acl.rt.get_device_count()
    if code != 0 or count < 1:
        return None, f"pyACL is installed but no device answers (get_device_count returned {count}, {code})"
    return acl, f"{count} devices answer"
