"""Which runtime a session uses: decided without loading it, loaded when the first marked test runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npudump.errors import RuntimeUnavailableError
from pytest_npudump.runtime.mindspore import provider as mindspore
from pytest_npudump.runtime.pyacl import provider as pyacl
from pytest_npudump.runtime.registry import provider_of
from pytest_npudump.runtime.torch_npu import provider as torch_npu

if TYPE_CHECKING:
    from pytest_npudump.runtime.base import Runtime

_REQUIRED = "--npudump-require-npu"


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision for a runtime.

    Attributes:
        name: as in ``--npudump-runtime``, but never ``auto``.
        why: what it was decided by.
    """

    name: str
    why: str

    def isolates(self, scene: str) -> bool:
        """Whether each run of a test of this scene needs a process of its own."""
        return provider_of(self.name).needs_process(scene)


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
    asked = f"--npudump-runtime={option}"
    if require_npu and option == "emulator":
        raise RuntimeUnavailableError(f"{_REQUIRED} excludes {asked}")
    if option == "auto":
        name, why = _first_that_works(require_npu=require_npu)
    else:
        name, why = option, provider_of(option).find(asked)
    return Choice(name, ", ".join(filter(None, (asked, why))))


def _first_that_works(*, require_npu: bool) -> tuple[str, str]:
    if not pyacl.is_imported_by_tests() and torch_npu.is_imported_with_device():
        return "torch_npu", "the tests have imported torch_npu and a device answers"
    acl, why = pyacl.probe_acl()
    if acl is None and require_npu:
        raise RuntimeUnavailableError(f"{_REQUIRED}: {why}")
    # What dumps nothing of the tests' own framework has been chosen.
    hint = "; tests import mindspore, which --npudump-runtime=mindspore dumps"
    return "emulator" if acl is None else "acl", f"{why}{hint if mindspore.is_imported() else ''}"


def why_no_npu(runtime: str, option: str) -> str:
    """Return why no NPU answers, as the reason for what an option then does; "" where one answers.

    Args:
        runtime: as in ``--npudump-runtime``.
        option: that asks.
    """
    try:
        if runtime != "auto":
            provider_of(runtime).require(option)
            return ""
        name, why = _first_that_works(require_npu=False)
    except RuntimeUnavailableError as error:
        return str(error)
    return f"{option}: {why}" if name == "emulator" else ""


def load(choice: Choice, device: int) -> Runtime:
    """Load the runtime that was decided for.

    Raises:
        MissingExtraError: the emulator's packages are not installed.
        RuntimeUnavailableError: torch_npu or MindSpore cannot be imported, or torch_npu finds no device.
    """
    return provider_of(choice.name).load(f"--npudump-runtime={choice.name}", device)


def require(option: str) -> None:
    """Refuse to go on where no NPU answers: what ``--npudump-require-npu`` promises.

    Raises:
        RuntimeUnavailableError: says why.
    """
    provider_of("acl" if option == "auto" else option).require(_REQUIRED)
