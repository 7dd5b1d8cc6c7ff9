"""Torch modules as layers, on any device: hooks in place of a dump of operators.

``capture`` has what one process does, without pytest; ``engine`` what the workers of vLLM do; ``worker``
is for other processes that a test starts; ``adapter`` is the runtime of tests that dump nothing else, and
``parameters`` has digests of what models compute with.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pytest_npudump.errors import RuntimeUnavailableError

if TYPE_CHECKING:
    from pytest_npudump.runtime.base import Runtime


def find(option: str) -> str:
    """Look for torch."""
    if "torch" not in sys.modules and find_spec("torch") is None:
        raise RuntimeUnavailableError(f"{option}: torch is not installed")
    return ""


def load(option: str, device: int) -> Runtime:
    """Load the runtime; torch is imported by tests."""
    from pytest_npudump.runtime.modules.adapter import ModulesRuntime  # noqa: PLC0415 - only where chosen

    del device
    find(option)
    return ModulesRuntime()


def needs_process(scene: str) -> bool:
    """Hooks come and go within a process."""
    del scene
    return False
