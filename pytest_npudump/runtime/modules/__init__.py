"""Torch modules and MindSpore cells as layers, on any device: hooks in place of a dump of operators.

``capture`` has what one process does, without pytest, ``cells`` the same for MindSpore, ``statistics``
numbers and files of tensors; ``engine`` what the workers of vLLM do; ``worker`` is for other processes that a
test starts; ``adapter`` is the runtime of tests that dump nothing else, and has digests of what models
compute with. ``module_edges`` sees what feeds each module, ``shards`` tells which part of a tensor a rank
has, by the class of a layer, and compares digests of the parameters of ranks, ``strangers`` are modules that
run while nothing watches them, and ``wrappers`` those that torch puts around others.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from itertools import islice
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import RequestError, RuntimeUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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


_DEPTH, _MOST = 4, 10_000
"""How deep models are looked for in what a fixture returns, and among how many values."""


def parts_of(model: Any) -> dict[int, Any]:
    """Return a model and its parts by their identities; {} where nothing in it computes, as in a loss."""
    parts = [*model.modules()] if hasattr(model, "modules") else [one for _, one in model.cells_and_names()]
    own = len(parts) > 1 or any(
        getattr(model, name)() for name in ("state_dict", "parameters_dict") if hasattr(model, name)
    )
    return {id(one): one for one in parts if own}


def models_in(given: Mapping[str, object]) -> dict[str, object]:
    """Return the models among values, and those that containers or an object there hold, by their places.

    Of an object its attributes are looked at, not those of objects behind it. A model that is a part of
    another one is not in the result.
    """
    found = {name: value for name, value in given.items() if framework_of(value)}
    held: dict[str, dict[int, Any]] = {}
    inside = [(name, value, _DEPTH, False) for name, value in given.items() if name not in found]
    for name, value, depth, closed in inside:
        own: Iterable[tuple[object, object]] = ()
        if framework_of(value):
            held[name] = parts_of(value)
        elif isinstance(value, dict):
            own = value.items()
        elif isinstance(value, list | tuple):
            own = enumerate(value)
        elif not (closed or isinstance(value, type | FunctionType | ModuleType)):
            names = [*getattr(value, "__dict__", ()), *getattr(type(value), "__slots__", ())]
            own = [(one, getattr(value, one, None)) for one in names[:_MOST]]
        room = max(0, _MOST - len(inside)) if depth else 0
        others = closed or not isinstance(value, dict | list | tuple)
        inside += [(f"{name}.{key}", one, depth - 1, others) for key, one in islice(own, room)]
    known = {part for model in found.values() for part in parts_of(model)}
    for name, parts in sorted(held.items(), key=lambda one: -len(one[1])):  # wholes before their parts
        if parts and known.isdisjoint(parts):
            found[name] = next(iter(parts.values()))
            known |= {*parts}
    return found


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


def load(option: str, _device: int) -> Runtime:
    """Load the runtime; what runs the models is imported by tests."""
    from pytest_npudump.runtime.modules.adapter import ModulesRuntime  # noqa: PLC0415 - only where chosen

    find(option)
    return ModulesRuntime()


def needs_process(_scene: str) -> bool:
    """Hooks come and go within a process."""
    return False
