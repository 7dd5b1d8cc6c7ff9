"""Which runtime a run uses, decided when the first marked test needs one."""

from __future__ import annotations

import importlib
from typing import Any

from pytest_npudump.errors import RuntimeUnavailableError
from pytest_npudump.runtime.pyacl import PyAclRuntime

_EMULATOR = "pytest_npudump.emulator.acl"


def select_runtime(choice: str, *, device: int, require_npu: bool) -> PyAclRuntime:
    """Return the adapter for ``choice``: ``acl``, ``emulator``, or ``auto`` for the first that works.

    Raises:
        RuntimeUnavailableError: the choice cannot work here, or an NPU is required and none answers.
    """
    if require_npu:
        require(choice)
    if choice != "emulator":
        acl, why = probe_acl()
        if acl is not None:
            return PyAclRuntime(acl, "acl", device)
        if choice == "acl":
            raise RuntimeUnavailableError(
                f"--npudump-runtime=acl: {why}; on a machine without an NPU use --npudump-runtime=emulator"
            )
    return PyAclRuntime(_emulator(), "emulator", device)


def require(choice: str) -> None:
    """Refuse to go on where no NPU answers: what ``--npudump-require-npu`` promises.

    Raises:
        RuntimeUnavailableError: says why.
    """
    if choice == "emulator":
        raise RuntimeUnavailableError("--npudump-require-npu excludes --npudump-runtime=emulator")
    acl, why = probe_acl()
    if acl is None:
        raise RuntimeUnavailableError(f"--npudump-require-npu: {why}")


def probe_acl() -> tuple[Any | None, str]:
    """Return the real module ``acl`` if a device answers, else None and the reason.

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
    count, code = acl.rt.get_device_count()
    if code != 0 or count < 1:
        return None, f"pyACL is installed but no device answers (get_device_count returned {count}, {code})"
    return acl, ""


def _emulator() -> Any:
    from pytest_npudump.emulator.install import install  # noqa: PLC0415 - only where it is chosen

    install()
    return importlib.import_module("acl")
