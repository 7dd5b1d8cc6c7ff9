"""Puts the emulator in the place of pyACL's module ``acl``, and takes it away again."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from pytest_npudump.emulator.process import reset

__all__ = ["install", "reset", "uninstall"]

_PACKAGE = "pytest_npudump.emulator.acl"
_EMULATED = ("rt", "mdl", "op", "util")
_ABSENT = ("media", "blas", "prof", "himpi", "fv")
_replaced: dict[str, ModuleType | None] = {}


def install() -> None:
    """Make ``import acl`` and ``import acl.rt`` give the emulator.

    What was in ``sys.modules`` under these names is remembered; a second call does nothing.
    """
    package = importlib.import_module(_PACKAGE)
    if sys.modules.get("acl") is package:
        return
    modules = {"acl": package}
    modules |= {f"acl.{name}": importlib.import_module(f"{_PACKAGE}.{name}") for name in _EMULATED}
    modules |= {f"acl.{name}": getattr(package, name) for name in _ABSENT}
    for name, module in modules.items():
        _replaced[name] = sys.modules.get(name)
        sys.modules[name] = module


def uninstall() -> None:
    """Put back what :func:`install` replaced; does nothing where it was not called."""
    for name, module in _replaced.items():
        if module is None:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = module
    _replaced.clear()
