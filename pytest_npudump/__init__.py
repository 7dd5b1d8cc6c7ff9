"""Numerical regression testing for Ascend NPUs, in pytest.

The names in ``__all__`` are what users may import from here. Which modules are public beside them is said in
one place, ``docs/reference/public-names.md``; every other one is internal. Each name is imported when it is
first asked for: a session without a marked test pays for none of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pytest_npudump.dump.records import Payload, Stats, TensorKey, TensorRecord
    from pytest_npudump.errors import NpudumpError
    from pytest_npudump.plugin.fixture import NpuDump
    from pytest_npudump.runtime.base import ModelSession
    from pytest_npudump.runtime.programs import ExternalRun

__version__ = "0.2.0"

__all__ = [
    "ExternalRun",
    "ModelSession",
    "NpuDump",
    "NpudumpError",
    "Payload",
    "Stats",
    "TensorKey",
    "TensorRecord",
]

_MODULES: Final = {
    "ExternalRun": "runtime.programs",
    "ModelSession": "runtime.base",
    "NpuDump": "plugin.fixture",
    "NpudumpError": "errors",
    "Payload": "dump.records",
    "Stats": "dump.records",
    "TensorKey": "dump.records",
    "TensorRecord": "dump.records",
}


def __getattr__(name: str) -> object:
    """Import a public name from the module that defines it.

    Raises:
        AttributeError: ``name`` is not public.
    """
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    """List the public names beside what has been imported."""
    return sorted({*globals(), *__all__})
