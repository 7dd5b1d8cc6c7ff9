"""What a child process tells its parent: messages appended to a file; a death loses the last at most."""

from __future__ import annotations

import copyreg
import io
import pickle
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LENGTH = 8


def _read_only(content: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    """Return a read-only view: the type of these has a name that pickle does not find."""
    return MappingProxyType(content)


class _Pickler(pickle.Pickler):
    dispatch_table = copyreg.dispatch_table.copy()
    dispatch_table[MappingProxyType] = lambda proxy: (_read_only, (dict(proxy),))


def dump_bytes(content: object) -> bytes:
    """Return ``content`` pickled, read-only mappings included.

    Raises:
        Exception: whatever an object raises that cannot be pickled.
    """
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(content)
    return buffer.getvalue()


def load_bytes(data: bytes) -> Any:
    """Return what :func:`dump_bytes` was given; only for files that this user's own processes wrote."""
    return pickle.loads(data)  # noqa: S301 - from a folder that only this user can write to


def post(path: Path, kind: str, content: object) -> None:
    """Append one message; it is with the operating system when this returns, whatever ends the process."""
    data = dump_bytes((kind, content))
    with path.open("ab") as file:
        file.write(len(data).to_bytes(_LENGTH, "little") + data)


def messages(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield every whole message in order; nothing where there is no file."""
    data = path.read_bytes() if path.exists() else b""
    position = 0
    while position + _LENGTH <= len(data):
        length = int.from_bytes(data[position : position + _LENGTH], "little")
        position += _LENGTH
        if position + length > len(data):
            return
        yield load_bytes(data[position : position + length])
        position += length
