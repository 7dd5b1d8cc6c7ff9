"""JSON of any depth: what nlohmann's parser, which is not recursive, reads and Python's cannot follow."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_BLANKS = re.compile(r"[ \t\n\r]*")
_CLOSING = {"[": "]", "{": "}"}


@dataclass(slots=True)
class DeepReader:
    """Reads one value without recursion.

    Attributes:
        text: the JSON.
        scan: reads a string, a number or a name (``true``) at a place, and returns it and where it ends;
            raises StopIteration where there is none.
    """

    text: str
    scan: Callable[[str, int], tuple[Any, int]]
    _at: int = 0
    _holders: list[Any] = field(default_factory=list)
    _keys: list[str] = field(default_factory=list)

    def read(self, start: int) -> tuple[Any, int]:
        """Return the value that begins at ``start``, and where it ends.

        Raises:
            JSONDecodeError: this is no JSON value.
        """
        self._at = start
        while True:
            opening = self.text[self._at : self._at + 1]
            if opening not in _CLOSING:
                value = self._scalar()
            elif self._opens(opening):
                continue
            else:
                value = _empty(opening)
            value, complete = self._placed(value)
            if complete:
                return value, self._at

    def _opens(self, opening: str) -> bool:
        """Step into an array or an object; False, and step over it, where it is empty."""
        self._skip(1)
        if self._mark == _CLOSING[opening]:
            self._at += 1
            return False
        self._holders.append(_empty(opening))
        if opening == "{":
            self._key()
        return True

    def _placed(self, value: Any) -> tuple[Any, bool]:
        """Put a value into the innermost holder, and each holder that ends here into the one around it.

        Returns:
            The last value that ended, and whether nothing is around it.
        """
        while self._holders:
            holder = self._holders[-1]
            is_object = isinstance(holder, dict)
            if is_object:
                holder[self._keys.pop()] = value
            else:
                holder.append(value)
            self._skip()
            if self._mark == ",":
                self._skip(1)
                if is_object:
                    self._key()
                return value, False
            if self._mark != ("}" if is_object else "]"):
                raise self._error("Expecting ',' delimiter")
            value = self._holders.pop()
            self._at += 1
        return value, True

    def _key(self) -> None:
        """Read the key of a member and its colon, up to its value."""
        if self._mark != '"':
            raise self._error("Expecting property name enclosed in double quotes")
        self._keys.append(self._scalar())
        self._skip()
        if self._mark != ":":
            raise self._error("Expecting ':' delimiter")
        self._skip(1)

    def _scalar(self) -> Any:
        try:
            value, self._at = self.scan(self.text, self._at)
        except StopIteration:
            raise self._error("Expecting value") from None
        return value

    @property
    def _mark(self) -> str:
        """The character at the place reached; "" at the end."""
        return self.text[self._at : self._at + 1]

    def _skip(self, characters: int = 0) -> None:
        """Step over so many characters, and blanks."""
        found = _BLANKS.match(self.text, self._at + characters)
        assert found is not None  # noqa: S101 - it matches nothing at all, too
        self._at = found.end()

    def _error(self, problem: str) -> json.JSONDecodeError:
        return json.JSONDecodeError(problem, self.text, self._at)


def _empty(opening: str) -> Any:
    return {} if opening == "{" else []
