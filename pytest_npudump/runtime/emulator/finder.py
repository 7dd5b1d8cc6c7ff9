"""``import acl`` as the emulator, for a session that chose it: nothing is loaded before a test imports it."""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType


class EmulatorFinder(MetaPathFinder, Loader):
    """Finds the emulator for the module name ``acl``."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Claim ``acl`` and nothing else."""
        del path, target
        return ModuleSpec(fullname, self) if fullname == "acl" else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Install the emulator and return it."""
        del spec
        from pytest_npudump.emulator.install import install  # noqa: PLC0415 - with the first `import acl`

        install()
        return sys.modules["acl"]

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing more."""
        del module  # it has been executed under its own name


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
