"""JSON as text: an object in lines, and each item of a list in one, however many there are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def json_text(data: Any, default: Callable[[Any], Any] | None = None) -> str:
    """Return ``data`` as JSON, with a newline behind it.

    Lists of a million verdicts are what takes time: :mod:`json` lays out with ``indent`` in Python alone, at
    ten times the cost. NaN and infinities are written as that module does: ``NaN``, ``Infinity``.

    Args:
        data: plain data.
        default: makes plain data of anything else; None where there is nothing else.

    Raises:
        TypeError: something is no plain data.
    """
    encode = json.JSONEncoder(default=default).encode
    return "".join(_pieces(data, encode, "\n")) + "\n"


def _pieces(data: Any, encode: Callable[[Any], str], newline: str) -> Iterator[str]:
    inner = f"{newline} "
    if data and isinstance(data, dict):
        separator = f"{{{inner}"
        for name, value in data.items():
            yield f"{separator}{encode(str(name))}: "
            yield from _pieces(value, encode, inner)
            separator = f",{inner}"
        yield f"{newline}}}"
    elif data and isinstance(data, list):
        yield f"[{inner}"
        yield f",{inner}".join(map(encode, data))
        yield f"{newline}]"
    else:
        yield encode(data)
