"""pyACL, and whatever stands in for it: where it is, and whether a device answers.

``adapter`` switches the dump, ``observation`` has calls of the test, ``model`` runs models and operators.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import RuntimeUnavailableError, said
from pytest_npudump.runtime.registry import Probe

if TYPE_CHECKING:
    from pytest_npudump.runtime.base import Runtime


_PROBED: set[str] = set()
"""``acl``, where it was this module that imported it, and no test."""


NPU = True
SOURCED = said("; is set_env.sh of CANN sourced?")
"""Question to who wants an NPU, and not where the emulator serves."""
REMEDY = "source set_env.sh of CANN on a machine with an NPU; until then use the emulator"


def find(option: str) -> str:
    """Return the number of devices that answer, in words."""
    acl, why = probe_acl()
    if acl is None:
        raise RuntimeUnavailableError(
            f"{option}: {why}; on a machine without an NPU use --npudump-runtime=emulator"
        )
    return why


def load(_option: str, device: int) -> Runtime:
    """Load the adapter over the module ``acl``."""
    from pytest_npudump.runtime.pyacl.adapter import PyAclRuntime  # noqa: PLC0415 - it needs numpy

    return PyAclRuntime(importlib.import_module("acl"), "acl", device)


def probe() -> Probe:
    """Count the devices, and ask for their chip."""
    acl, why = probe_acl()
    if acl is None:
        return Probe(works=False, why=why)
    return Probe(works=True, why=why, devices=acl.rt.get_device_count()[0], soc=acl.get_soc_name() or "")


def needs_process(_scene: str) -> bool:
    """ACL switches each scene's dump on and off within a process."""
    return False


def is_imported_by_tests() -> bool:
    """Return whether code besides :func:`probe_acl` has imported ``acl``."""
    return "acl" in sys.modules and "acl" not in _PROBED


def probe_acl() -> tuple[Any | None, str]:
    """Return the real module ``acl`` if a device answers, else None, and the reason in both cases.

    Counting devices needs no ``acl.init``, whose first call would settle the process's configuration.
    """
    if "acl" not in sys.modules:
        _PROBED.add("acl")
    try:
        acl = importlib.import_module("acl")
    except ModuleNotFoundError:
        return None, said("no module 'acl'") + SOURCED
    except ImportError as error:
        return None, f"the module 'acl' (CANN's pyACL) cannot be imported: {error}"
    if acl.__name__ == "pytest_npudump.emulator.acl":
        return None, "the module 'acl' of this process is the emulator"
    if not hasattr(getattr(acl, "rt", None), "get_device_count"):
        place = getattr(acl, "__file__", None) or list(getattr(acl, "__path__", ()))
        return None, f"the module 'acl' that Python finds is not CANN's pyACL but {place}"
    count, code = acl.rt.get_device_count()
    if code != 0 or count < 1:
        return None, f"pyACL is installed but no device answers (get_device_count returned {count}, {code})"
    return acl, "1 device answers" if count == 1 else f"{count} devices answer"
