"""MindSpore: where it is, and which device it runs on; ``adapter`` dumps its graphs."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pytest_npudump.errors import MissingExtraError
from pytest_npudump.runtime.registry import Probe, imported

if TYPE_CHECKING:
    from pytest_npudump.runtime.base import Runtime


NPU = False
REMEDY = "pip install 'pytest-npudump[mindspore]', if the tests use it"


def find(option: str) -> str:
    """Look for the module."""
    if not is_imported() and find_spec("mindspore") is None:
        raise MissingExtraError(option, "mindspore", "mindspore")
    return ""


def load(option: str, device: int) -> Runtime:
    """Import MindSpore and load its adapter."""
    from pytest_npudump.runtime.mindspore.adapter import MindSporeRuntime  # noqa: PLC0415 - only where chosen

    return MindSporeRuntime(imported("mindspore", option), device)


def probe() -> Probe:
    """Import MindSpore, and ask for its device.

    Raises:
        RuntimeUnavailableError: it is not installed, or cannot be imported.
    """
    option = "--npudump-runtime=mindspore"
    find(option)
    facts = load(option, 0).producer()
    why = f"MindSpore {facts['mindspore']} runs on {facts['device_target']}"
    return Probe(works=True, why=why, soc=facts.get("soc", ""))


def needs_process(_scene: str) -> bool:
    """MindSpore reads one dump configuration a process."""
    return True


def is_imported() -> bool:
    """Return whether MindSpore has been imported."""
    return "mindspore" in sys.modules
