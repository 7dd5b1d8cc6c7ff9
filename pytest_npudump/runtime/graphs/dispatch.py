"""Whether an operator ran on the NPU, seen where torch dispatches its operators.

A healthy run leaves no file in some scenes, and then only this tells a model on the NPU from one that was
left on the CPU. What moves, views or fills data shows nothing: the test's input goes to the NPU in either
case.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from pytest_npudump.runtime.graphs.lowest_mode import LowestMode

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
        self._mode = LowestMode("NpudumpOperators", self._run)

    def start(self) -> None:
        """Look at the operators from now on; torch has to be imported by now."""
        self._mode.start()

    def stop(self) -> None:
        """Look no more; nothing happens where nobody looks."""
        self._mode.stop()

    def _run(self, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        result = function(*arguments, **named)
        self._see(function, (*arguments, *named.values()), result)
        return result

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
