"""Dispatch modes, in a stack a thread as torch keeps them; leaving one takes the uppermost off."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

_local = threading.local()


def _stack() -> list[TorchDispatchMode]:
    stack: list[TorchDispatchMode] = _local.__dict__.setdefault("stack", [])
    return stack


class TorchDispatchMode:
    """Sees the operators while it is on."""

    def __enter__(self) -> Self:
        _stack().append(self)
        return self

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return False

    def __exit__(self, *_: object) -> None:
        _stack().pop()


def _get_current_dispatch_mode_stack() -> list[TorchDispatchMode]:
    return list(_stack())
