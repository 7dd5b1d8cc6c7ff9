"""The emulator as the module ``acl``, loaded when a test imports that; it needs no device, and is none."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

from pytest_npudump.errors import MissingExtraError
from pytest_npudump.runtime.registry import Probe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from pytest_npudump.runtime.base import Runtime


NPU = False
REMEDY = "pip install 'pytest-npudump[emulator]', to run tests without an NPU"


def find(_option: str) -> str:
    """Return at once: loading checks its packages."""
    return ""


def load(_option: str, device: int) -> Runtime:
    """Put the emulator in place and load the adapter of pyACL over it.

    Raises:
        MissingExtraError: what it runs models with is not installed.
    """
    for name in ("onnx", "onnxruntime"):  # found, not imported: a test that needs neither has no use of them
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            raise MissingExtraError("the emulator", name, "emulator")
    from pytest_npudump.emulator.install import install  # noqa: PLC0415 - only where it is chosen
    from pytest_npudump.runtime.emulator.adapter import EmulatorRuntime  # noqa: PLC0415 - it needs numpy

    install()
    return EmulatorRuntime(importlib.import_module("acl"), "emulator", device)


def probe() -> Probe:
    """Probe the packages that the emulator needs.

    Raises:
        MissingExtraError: it is not installed.
    """
    from pytest_npudump.onnxmodels.sessions import onnx, onnxruntime  # noqa: PLC0415 - only where it is asked for

    return Probe(works=True, why=f"onnxruntime {onnxruntime().__version__}, onnx {onnx().__version__}")


def needs_process(_scene: str) -> bool:
    """It switches each scene's dump on and off within a process."""
    return False


class EmulatorFinder(MetaPathFinder, Loader):
    """Finds the emulator for the module name ``acl``."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Claim ``acl`` and nothing else."""
        return ModuleSpec(fullname, self) if fullname == "acl" else None

    def create_module(self, _spec: ModuleSpec) -> ModuleType:
        """Install the emulator and return it."""
        from pytest_npudump.emulator.install import install  # noqa: PLC0415 - with the first `import acl`

        install()
        return sys.modules["acl"]

    def exec_module(self, _module: ModuleType) -> None:
        """Do nothing more: it has been executed under its own name."""


def offer_emulator() -> Callable[[], None]:
    """Make ``import acl`` find the emulator; return the function that undoes it."""
    finder = EmulatorFinder()
    sys.meta_path.insert(0, finder)

    def withdraw() -> None:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
        if "pytest_npudump.emulator.install" in sys.modules:
            from pytest_npudump.emulator.install import uninstall  # noqa: PLC0415 - it is loaded already

            uninstall()

    return withdraw
