"""A dispatch mode of torch beneath those of the test, in which each operator is run by a function of ours."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class LowestMode:
    """A mode of the thread that calls :meth:`start`, and of the backward passes it starts.

    Operators inside a graph of ``torch.compile`` are left alone.

    Args:
        name: of its class, as torch's stack of modes shows it.
        run: is called with an operator, its arguments and its named ones; returns what the operator does.
    """

    def __init__(self, name: str, run: Run) -> None:
        self._name = name
        self._run = run
        self._mode: Any = None

    def start(self) -> None:
        """Switch it on; nothing happens where it is. torch has to be imported by now."""
        if self._mode is None:
            self._mode = _mode(self._name, self._run)
            # Beneath the modes of the test: each takes the uppermost mode off, whichever it is, when it ends.
            _with_others_off(self._mode.__enter__)

    def stop(self) -> None:
        """Switch it off; nothing happens where it is not on."""
        mode, self._mode = self._mode, None
        if mode is not None and any(other is mode for other in _modes()):
            _with_others_off(lambda: mode.__exit__(None, None, None), mode)


def leaves_graphs_alone() -> bool:
    """Whether this torch still compiles functions while such a mode is on; torch 2.13 does."""
    return hasattr(_torch_modes().TorchDispatchMode, "ignore_compile_internals")


def _mode(name: str, run: Run) -> Any:
    def dispatch(_: Any, function: Any, __: Any, arguments: Any = (), named: Any = None) -> Any:
        return run(function, arguments, named or {})

    members = {
        "__torch_dispatch__": dispatch,
        # Without it torch.compile would run every function as if it were not compiled.
        "ignore_compile_internals": classmethod(lambda _: True),
    }
    return type(name, (_torch_modes().TorchDispatchMode,), members)()


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
