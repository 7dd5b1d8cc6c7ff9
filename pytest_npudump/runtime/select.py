"""Which runtime a session uses: decided without loading it, loaded when the first marked test runs."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import RuntimeUnavailableError

if TYPE_CHECKING:
    from pytest_npudump.runtime.pyacl import PyAclRuntime

_EMULATOR = "pytest_npudump.emulator.acl"


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision for a runtime.

    Attributes:
        name: ``acl`` or ``emulator``.
        why: what it was decided by.
    """

    name: str
    why: str


def choose(option: str) -> Choice:
    """Decide for ``acl``, ``emulator``, or with ``auto`` for the first of them that works here.

    Raises:
        RuntimeUnavailableError: ``acl`` was asked for, and no device answers.
    """
    if option == "emulator":
        return Choice("emulator", "--npudump-runtime=emulator")
    acl, why = probe_acl()
    if acl is not None:
        return Choice("acl", f"--npudump-runtime={option}, {why}")
    if option == "acl":
        raise RuntimeUnavailableError(
            f"--npudump-runtime=acl: {why}; on a machine without an NPU use --npudump-runtime=emulator"
        )
    return Choice("emulator", f"--npudump-runtime=auto, {why}")


def load(choice: Choice, device: int) -> PyAclRuntime:
    """Load the runtime that was decided for.

    Raises:
        MissingExtraError: the emulator's packages are not installed.
    """
    from pytest_npudump.runtime.pyacl import PyAclRuntime  # noqa: PLC0415 - it needs numpy

    if choice.name == "emulator":
        from pytest_npudump.emulator.install import install  # noqa: PLC0415 - only where it is chosen

        install()
    return PyAclRuntime(importlib.import_module("acl"), choice.name, device)


def require(option: str) -> None:
    """Refuse to go on where no NPU answers: what ``--npudump-require-npu`` promises.

    Raises:
        RuntimeUnavailableError: says why.
    """
    if option == "emulator":
        raise RuntimeUnavailableError("--npudump-require-npu excludes --npudump-runtime=emulator")
    acl, why = probe_acl()
    if acl is None:
        raise RuntimeUnavailableError(f"--npudump-require-npu: {why}")


def probe_acl() -> tuple[Any | None, str]:
    """Return the real module ``acl`` if a device answers, else None, and the reason in both cases.

    Counting devices needs no ``acl.init``, whose first call would settle the process's configuration.
    """
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
