"""Functions of a module or class with others in their place, for as long as their calls are looked at."""

from __future__ import annotations

from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_MARK = "_npudump_original"


class Replaced:
    """What is replaced from :meth:`put` to :meth:`put_back`."""

    def __init__(self) -> None:
        self._put: list[tuple[Any, str, Any]] = []

    def __bool__(self) -> bool:
        """Whether anything is replaced."""
        return bool(self._put)

    def put(self, owner: Any, name: str, call: Callable[..., Any]) -> None:
        """Have ``call`` called in the place of a function, with the function before its arguments.

        Nothing happens where the owner has no such function, or cannot be changed.

        Args:
            owner: a module or a class; None for one that a client does not have.
            name: of the function.
            call: takes the function and what it was called with, and returns what the caller gets.
        """
        current = getattr(owner, name, None)
        if current is None:
            return
        # A fixture that replaced the function may have put an earlier one of ours back.
        original = getattr(current, _MARK, current)

        @wraps(original)
        def replacement(*arguments: Any, **named: Any) -> Any:
            return call(original, *arguments, **named)

        setattr(replacement, _MARK, original)
        with suppress(AttributeError, TypeError):
            setattr(owner, name, replacement)
            self._put.append((owner, name, replacement))

    def put_back(self) -> None:
        """Put every function back, but those that something else has replaced meanwhile."""
        put, self._put = self._put, []
        for owner, name, replacement in put:
            if getattr(owner, name, None) is replacement:
                setattr(owner, name, getattr(replacement, _MARK))
