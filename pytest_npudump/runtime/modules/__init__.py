"""Torch modules and MindSpore cells as layers, on any device: hooks in place of a dump of operators.

``capture`` has what one process does, without pytest, ``cells`` the same for MindSpore, ``seen`` statistics
and files of tensors; ``engine`` what the workers of vLLM do; ``worker`` is for other processes that a test
starts; ``adapter`` is the runtime of tests that dump nothing else. ``module_edges`` sees what feeds each
module, ``parameters`` has digests of what models compute with, and ``shards`` tells which part of a tensor a
rank has, by the class of a layer.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import RequestError, RuntimeUnavailableError

if TYPE_CHECKING:
    from pytest_npudump.runtime.base import Runtime
    from pytest_npudump.runtime.modules.capture import Capture


_MODELS = {"torch": "Module", "mindspore": "Cell"}


def framework_of(value: object) -> str:
    """Return the framework of a model; "" for a value of neither."""
    for framework, kind in _MODELS.items():
        nn = getattr(sys.modules.get(framework), "nn", None)
        if isinstance(value, getattr(nn, kind, ())):
            return framework
    return ""


def capture_of(model: object, *given: Any, **asked: Any) -> Capture:
    """Return a capture of a model, which is to be started.

    Raises:
        RequestError: it is no model, or has no module of a name.
    """
    if framework_of(model) == "mindspore":
        from pytest_npudump.runtime.modules.cells import CellCapture  # noqa: PLC0415 - where there is one

        return CellCapture(model, *given, **asked)
    from pytest_npudump.runtime.modules.capture import Capture  # noqa: PLC0415 - where there is torch

    if asked.pop("operators", False):
        raise RequestError("npu_dump.modules(operators=True) takes a mindspore.nn.Cell")
    return Capture(model, *given, **asked)


def find(option: str) -> str:
    """Look for torch, or MindSpore."""
    if not any(name in sys.modules or find_spec(name) is not None for name in _MODELS):
        raise RuntimeUnavailableError(f"{option}: neither torch nor mindspore is installed")
    return ""


def load(option: str, device: int) -> Runtime:
    """Load the runtime; what runs the models is imported by tests."""
    from pytest_npudump.runtime.modules.adapter import ModulesRuntime  # noqa: PLC0415 - only where chosen

    del device
    find(option)
    return ModulesRuntime()


def needs_process(scene: str) -> bool:
    """Hooks come and go within a process."""
    del scene
    return False
