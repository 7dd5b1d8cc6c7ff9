"""Whether an operator ran on the NPU, seen where torch dispatches its operators.

A healthy run leaves no file in some scenes, and then only this tells a model on the NPU from one that was
left on the CPU. What moves, views or fills data shows nothing: the test's input goes to the NPU in either
case.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_COPIES = frozenset(
    {
        "_to_copy",
        "clone",
        "copy_",
        "copy",
        "contiguous",
        "npu_format_cast",
        "npu_format_cast_",
        "copy_memory_",
    }
)
_FILLS = frozenset({"zero_", "zero", "fill_", "fill", "uniform_", "normal_", "random_", "bernoulli_"})
_HOLDERS = frozenset({"set_", "resize_", "resize_as_", "record_stream", "_unsafe_view", "_reshape_copy"})
_FACTORIES = ("new_", "empty")
_LIKE = "_like"
_COMMUNICATION = frozenset({"c10d", "_c10d_functional", "c10d_functional"})


class DispatchedOperators:
    """The operators that torch dispatches to one kind of device, between :meth:`start` and :meth:`stop`.

    Those of the thread that calls :meth:`start` are seen, and those of the backward passes it starts: torch
    keeps its dispatch modes by thread. Operators inside a graph of ``torch.compile`` are left alone.

    Attributes:
        first: name of the first operator that was seen, as ``aten.add.Tensor``; "" if none was.

    Args:
        device: type of the device, as ``torch.Tensor.device`` has it.
        recording: whether operators are only recorded into a graph at present, and do not run.
    """

    def __init__(self, device: str = "npu", recording: Callable[[], bool] = lambda: False) -> None:
        self.first = ""
        self._device = device
        self._recording = recording
        self._mode: Any = None

    def start(self) -> None:
        """Look at the operators from now on; torch has to be imported by now."""
        if self._mode is None:
            self._mode = _mode_that_tells(self._see)
            # Beneath the modes of the test: each takes the uppermost mode off, whichever it is, when it ends.
            _with_others_off(self._mode.__enter__)

    def stop(self) -> None:
        """Look no more; nothing happens where nobody looks."""
        mode, self._mode = self._mode, None
        if mode is not None and any(other is mode for other in _modes()):
            _with_others_off(lambda: mode.__exit__(None, None, None), mode)

    @property
    def leaves_graphs_alone(self) -> bool:
        """Whether this torch still compiles functions while operators are looked at; torch 2.13 does."""
        return hasattr(_torch_modes().TorchDispatchMode, "ignore_compile_internals")

    def _see(self, function: Any, arguments: Iterable[object], result: object) -> None:
        if self.first or not self._is_operator(function):
            return
        given = list(self._on_device(arguments))
        made = list(self._on_device((result,)))
        if not given or not (made or _schema(function).is_mutable) or self._recording():
            return
        if _name(function) not in _COPIES or _is_cast(given, made):
            self.first = str(function)

    @staticmethod
    def _is_operator(function: Any) -> bool:
        """Whether a function runs a kernel of its own that computes or, as a cast, may."""
        schema = _schema(function)
        if schema is None or function.namespace in _COMMUNICATION:
            return False
        name = _name(function)
        if name in _FILLS | _HOLDERS or name.startswith(_FACTORIES) or name.endswith(_LIKE):
            return False
        views = [value.alias_info for value in schema.returns if value.alias_info is not None]
        return all(alias.is_write for alias in views)

    def _on_device(self, values: Iterable[object]) -> Iterator[Any]:
        torch = sys.modules["torch"]
        fake = getattr(sys.modules.get("torch._subclasses.fake_tensor"), "FakeTensor", ())
        for value in values:
            if isinstance(value, list | tuple):
                yield from self._on_device(value)
            elif isinstance(value, torch.Tensor) and not isinstance(value, fake) and self._is_there(value):
                yield value

    def _is_there(self, tensor: Any) -> bool:
        return bool(tensor.device.type == self._device)


def _schema(function: Any) -> Any:
    """Return the schema of an operator; None of a higher-order one, whose parts are dispatched themselves."""
    return getattr(function, "_schema", None)


def _name(function: Any) -> str:
    name: str = _schema(function).name.rpartition("::")[2]
    return name


def _is_cast(given: list[Any], made: list[Any]) -> bool:
    """Whether a copy stays on the device and changes the type, which can overflow."""
    types = {tensor.dtype for tensor in [*given, *made]}
    return len(given) + len(made) > 1 and len(types) > 1


def _mode_that_tells(see: Callable[[Any, Iterable[object], object], None]) -> Any:
    def dispatch(_: Any, function: Any, __: Any, arguments: Any = (), named: Any = None) -> Any:
        named = named or {}
        result = function(*arguments, **named)
        see(function, (*arguments, *named.values()), result)
        return result

    members = {
        "__torch_dispatch__": dispatch,
        # Without it torch.compile would run every function as if it were not compiled.
        "ignore_compile_internals": classmethod(lambda _: True),
    }
    return type("NpudumpOperators", (_torch_modes().TorchDispatchMode,), members)()


def _torch_modes() -> Any:
    return importlib.import_module("torch.utils._python_dispatch")


def _modes() -> list[Any]:
    """Return the modes of this thread that are no part of torch's own machinery, the uppermost last."""
    every = _torch_modes()._get_current_dispatch_mode_stack()  # noqa: SLF001 - torch has no other name for it
    return [mode for mode in every if getattr(mode, "_mode_key", None) is None]


def _with_others_off(action: Callable[[], object], mode: Any = None) -> None:
    """Call ``action`` while no mode above ``mode`` is on; without one, while none is."""
    base = _torch_modes().TorchDispatchMode
    modes = _modes()
    place = next((index + 1 for index, other in enumerate(modes) if other is mode), 0)
    for other in reversed(modes[place:]):
        base.__exit__(other, None, None, None)
    try:
        action()
    finally:
        for other in modes[place:]:
            base.__enter__(other)
