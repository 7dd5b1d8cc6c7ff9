"""Protobuf messages by field numbers, of which models in an om consist."""

from __future__ import annotations

from typing import Any


def message(*fields: tuple[int, Any]) -> bytes:
    """Return a protobuf message of numbers, texts and messages."""

    def varint(number: int) -> bytes:
        found = bytearray()
        while number > 0x7F:
            found.append(number & 0x7F | 0x80)
            number >>= 7
        return bytes([*found, number])

    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts.append(varint(number << 3) + varint(value))
        else:
            content = value.encode() if isinstance(value, str) else value
            parts.append(varint(number << 3 | 2) + varint(len(content)) + content)
    return b"".join(parts)
