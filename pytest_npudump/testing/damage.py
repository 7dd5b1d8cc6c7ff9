"""Ways in which a file is cut off or damaged."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from pytest_npudump.errors import MissingExtraError

try:
    from hypothesis import strategies as st
except ModuleNotFoundError as error:
    raise MissingExtraError("pytest_npudump.testing", "hypothesis", "testing") from error

if TYPE_CHECKING:
    from collections.abc import Iterable

_ALL = 512
"""Bytes of a file that is small enough to be cut everywhere."""
_SOME = 128
_NEAR = 2

_EDGES = {size: (0, 1, (1 << 8 * size - 1) - 1, 1 << 8 * size - 1, (1 << 8 * size) - 1) for size in (4, 8)}
LENGTHS: Final = (
    *(number.to_bytes(size, "little") for size, numbers in _EDGES.items() for number in numbers),
    struct.pack("<d", float("nan")),
    b"9" * 20,
)
"""What stands for a length or a number in a hostile file."""


def cuts(size: int, near: Iterable[int] = ()) -> tuple[int, ...]:
    """Return the lengths at which a file of ``size`` bytes is cut off, each smaller than that.

    Args:
        size: of the whole file.
        near: places around which every length is taken: where tensors begin and end, say.
    """
    if size <= _ALL:
        return tuple(range(size))
    chosen = {*range(64), *range(0, size, size // _SOME + 1), *range(size - _NEAR, size)}
    for place in near:
        chosen |= {*range(place - _NEAR, place + _NEAR + 1)}
    return tuple(sorted(length for length in chosen if 0 <= length < size))


def damaged(content: bytes) -> st.SearchStrategy[bytes]:
    """Return a strategy for damaged ``content``: bytes changed, taken out or repeated, or a length forged."""
    place = st.integers(0, max(len(content) - 1, 0))

    def changed(at: int, value: int) -> bytes:
        return content[:at] + bytes([value]) + content[at + 1 :]

    def forged(at: int, number: bytes) -> bytes:
        return content[:at] + number + content[at + len(number) :]

    def without(at: int, count: int) -> bytes:
        return content[:at] + content[at + count :]

    def repeated(at: int, count: int) -> bytes:
        return content[: at + count] + content[at:]

    few = st.integers(1, 64)
    return st.one_of(
        st.builds(changed, place, st.integers(0, 255)),
        st.builds(forged, place, st.sampled_from(LENGTHS)),
        st.builds(without, place, few),
        st.builds(repeated, place, few),
        st.binary(max_size=64),
    )
