"""The emulator as the module ``acl``; it needs no device, and is none."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING

from pytest_npudump.errors import MissingExtraError, RuntimeUnavailableError
from pytest_npudump.language.translation import said
from pytest_npudump.runtime.registry import Probe

if TYPE_CHECKING:
    from pytest_npudump.runtime.base import Runtime


NPU = False
REMEDY = said("pip install 'pytest-npudump[emulator]', to run tests without an NPU")


def find(option: str) -> str:
    """Return at once: loading says whether its packages are installed."""
    del option
    return ""


def load(option: str, device: int) -> Runtime:
    """Put the emulator in place and load the adapter of pyACL over it.

    Raises:
        MissingExtraError: what it runs models with is not installed.
    """
    del option
    for name in ("onnx", "onnxruntime"):  # found, not imported: a test that needs neither has no use of them
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            raise MissingExtraError("the emulator", name, "emulator")
    from pytest_npudump.emulator.install import install  # noqa: PLC0415 - only where it is chosen
    from pytest_npudump.runtime.emulator.adapter import EmulatorRuntime  # noqa: PLC0415 - it needs numpy

    install()
    return EmulatorRuntime(importlib.import_module("acl"), "emulator", device)


def require(option: str) -> None:
    """Refuse: it is no NPU."""
    raise RuntimeUnavailableError(f"{option} excludes --npudump-runtime=emulator")


def probe() -> Probe:
    """Look for what the emulator runs models with.

    Raises:
        MissingExtraError: it is not installed.
    """
    from pytest_npudump.onnxmodels.sessions import onnx, onnxruntime  # noqa: PLC0415 - only where it is asked for

    return Probe(works=True, why=f"onnxruntime {onnxruntime().__version__}, onnx {onnx().__version__}")


def needs_process(scene: str) -> bool:
    """It switches each scene's dump on and off within a process."""
    del scene
    return False
