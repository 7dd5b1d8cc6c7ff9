"""Checksum of integers and bools: it differs where any of them does, or where two change places.

Elements in C order are taken as bytes, little-endian, and these, with zeros behind them, as words w of 64
bits. With u and v, outputs p of seed 4 and b of seed 5 of :func:`.signs.splitmix64`, where word i, counted
from 0, is in block b = i div 16384, there at place p = i mod 16384, it is, modulo 2**64, the sum of::

    m = w * 0x9E3779B97F4A7C15
    (m ^ (m >> 32)) * (u | 1) * (v | 1)

A change within one word always shows, as factors are odd; of others, such as two words that change places,
all but one in 2**32.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.records import CHECKSUM
from pytest_npudump.dump.stats.signs import BLOCK, splitmix64

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORD = 8
"""Bytes of a word."""
_PLACES, _BLOCKS = 4, 5
"""Seeds."""
_NOTHING, _ZEROS = np.empty(0, np.uint8), np.zeros(WORD, np.uint8)
_PAGE = 512
"""Blocks whose factors are kept."""
SPREAD = 0x9E3779B97F4A7C15
"""What words are multiplied by, so that equal halves do not cancel each other."""
_SPREAD, _HALF = np.uint64(SPREAD), np.uint64(32)


@lru_cache(maxsize=1)
def place_factors() -> NDArray[np.uint64]:
    """Factors of the places of a block, of shape (BLOCK,)."""
    return np.asarray(splitmix64(_PLACES, 0, BLOCK) | np.uint64(1))


@lru_cache(maxsize=4)
def block_factors(page: int, count: int = _PAGE) -> NDArray[np.uint64]:
    """Factors of the blocks of a page, which has so many."""
    return np.asarray(splitmix64(_BLOCKS, page * count, count) | np.uint64(1))


def checksum_text(number: int) -> str:
    """Return a checksum as :data:`.records.ARGMAX` has it, from a number of any sign."""
    return f"{CHECKSUM}{number % (1 << 64):016x}"


class Checksum:
    """Adds up the checksum of one tensor, whose elements arrive piece by piece."""

    def __init__(self) -> None:
        self._sum = self._block = 0
        self._kept = _NOTHING

    def add(self, piece: np.ndarray) -> None:
        """Add a contiguous piece of shape (n,); it may be overwritten afterwards."""
        octets = piece.view(np.uint8)
        if self._kept.size:
            octets = np.concatenate([self._kept, octets])
        whole = octets.size - octets.size % (BLOCK * WORD)
        if whole:
            self._take(octets[:whole].view(np.uint64))
        self._kept = octets[whole:].copy()

    def text(self) -> str:
        """The checksum of all pieces, as :func:`checksum_text` has it; there are no more."""
        if self._kept.size:
            spare = -self._kept.size % WORD
            octets = np.concatenate([self._kept, _ZEROS[:spare]]) if spare else self._kept
            self._take(octets.view(np.uint64))
            self._kept = _NOTHING
        return checksum_text(self._sum)

    def _take(self, words: NDArray[np.uint64]) -> None:
        """Take whole blocks, or all that is left of the last one."""
        for start in range(0, words.size, BLOCK):  # in a core's own cache
            mixed = words[start : start + BLOCK] * _SPREAD
            mixed ^= mixed >> _HALF
            page, place = divmod(self._block, _PAGE)
            total = int(mixed.dot(place_factors()[: mixed.size]))
            self._sum += total * int(block_factors(page)[place])
            self._block += 1
