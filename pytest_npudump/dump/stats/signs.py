"""The signs of random projections, as any program can compute them.

A projection of a tensor is the sum of its elements, each with a sign. There are :data:`PROJECTIONS` of
them, k = 0 to 7. The signs come from SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
Generators, OOPSLA 2014), whose output j = 0, 1, 2 ... of a seed is, modulo 2**64::

    z = seed + (j + 1) * 0x9E3779B97F4A7C15
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    output = z ^ (z >> 31)

Element i, counted from 0 in C order, is in block b = i div 16384, there at place p = i mod 16384, and that
is in column c = p mod 496. With u = output p of seed 0, v = output c of seed 1 and w = output b of seed 2::

    turn = (w >> 8) & 7
    bit = (u ^ (v >> (k ^ turn)) ^ (w >> k)) & 1
    sign = -1 if bit else +1

So all blocks share 16,384 signs of places, and 8 x 496 signs of columns; each has a sign of its own for
each projection, and takes the columns' signs in an order of its own. Two elements that change places are
not seen by any projection where all eight of their signs agree: one pair in 200 of a block, and one of two
where they also have a column in common. Two whole blocks that do are seen unless their eight signs and
their turns agree: one pair in 2048.

An example: output 0 of seeds 0, 1 and 2 is 0xE220A8397B1DCDAF, 0x910A2DEC89025CC1 and 0x975835DE1C9756CE.
The signs of element 0 for k = 0 to 7 are ``+ - + + - - - +``, those of element 1 ``- - - + - + + +``. The
projections of 1, 2, 3, 4 are 6, -4, -8, 2, 4, 0, 8, 4; those of 40,000 zeros but for 1 at 16383, 10 at
16384 and 100 at 39999 are -89, -111, -109, 91, 91, -111, 91, -109.

Integers and bools have a checksum besides: it differs where any of them does, or where two change places.
Elements in C order are taken as bytes, little-endian, and these, with zeros behind them, as words w of 64
bits. With u and v, outputs p of seed 4 and b of seed 5, where word i, counted
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

if TYPE_CHECKING:
    from numpy.typing import NDArray

PROJECTIONS = 8
"""Number of sums per tensor."""

DIGITS = 9
"""Significant digits that a golden keeps of a projection of floats."""

BLOCK = 1 << 14
"""Elements of a block."""

COLUMNS = 16 * 31
"""Columns of a block. Elements of one column differ in the signs of their places only, which all projections
share: were 512 of them, those of a channel in the last axis might be alone in one, and cancel in all
projections at once. Few dimensions have the factor 31: others spread a channel over 31 columns or more."""

NEAR = 1 << 12
"""Elements of a last block that are added up without columns: a core's own cache holds their signs."""

_PLACES, _COLUMNS, _BLOCKS, _FACTORS = 0, 1, 2, 3
"""Seeds."""

_FACTORS_COUNT = 16381

_PAGE = 512
"""Blocks whose signs are kept."""

_TURN, _TURNS = 8, PROJECTIONS - 1
"""Lowest bit of the turn in a block's word, and its mask."""

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX = ((30, np.uint64(0xBF58476D1CE4E5B9)), (27, np.uint64(0x94D049BB133111EB)))
_LAST_SHIFT = np.uint64(31)


def splitmix64(seed: int, first: int, count: int) -> NDArray[np.uint64]:
    """Outputs ``first`` to ``first + count - 1`` of SplitMix64, uint64 of shape (count,)."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + (np.arange(first, first + count, dtype=np.uint64) + np.uint64(1)) * _GAMMA
        for shift, factor in _MIX:
            z = (z ^ (z >> np.uint64(shift))) * factor
        return np.asarray(z ^ (z >> _LAST_SHIFT))


@lru_cache(maxsize=1)
def factors() -> NDArray[np.float64]:
    """Factors of elements, between 1/2 and 3/2, of shape (16381,): those behind take them from the first on.

    Projections of elements by their factors tell apart what plain ones do not. That number is a prime, so
    that places of a block and of a row have many.
    """
    return splitmix64(_FACTORS, 0, _FACTORS_COUNT).astype(np.float64) / 2.0**64 + 0.5


@lru_cache(maxsize=1)
def place_signs() -> NDArray[np.float64]:
    """Signs of the places of a block: 1.0 and -1.0, of shape (BLOCK,)."""
    return _signs(splitmix64(_PLACES, 0, BLOCK))


@lru_cache(maxsize=1)
def column_signs() -> NDArray[np.float64]:
    """Signs of the columns for each projection, before a block's turn: of shape (PROJECTIONS, COLUMNS)."""
    return _signs(np.ascontiguousarray(_bits(splitmix64(_COLUMNS, 0, COLUMNS)).T))


@lru_cache(maxsize=1)
def near_signs() -> NDArray[np.float64]:
    """Signs of the first elements of a block, before its own signs and its turn: (PROJECTIONS, NEAR)."""
    signs = place_signs()[:NEAR] * column_signs()[:, np.arange(NEAR) % COLUMNS]
    signs.flags.writeable = False
    return signs


def block_signs(first: int, count: int) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Signs of ``count`` blocks from ``first`` on, and the rows of :func:`column_signs` that they take.

    Returns:
        Two arrays of shape (count * PROJECTIONS,). Rows are counted through all blocks: the second one has
        8 to 15.
    """
    page, start = divmod(first, _PAGE)
    if start + count > _PAGE:
        return _blocks(first, count)
    signs, rows = _page(page)
    chosen = slice(start * PROJECTIONS, (start + count) * PROJECTIONS)
    return signs[chosen], rows[chosen] - start * PROJECTIONS


@lru_cache(maxsize=4)
def _page(number: int) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """:func:`block_signs` of as many blocks as are computed at a time."""
    return _blocks(number * _PAGE, _PAGE)


def _blocks(first: int, count: int) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    words = splitmix64(_BLOCKS, first, count)
    turns = words[:, np.newaxis] >> np.uint64(_TURN) & np.uint64(_TURNS)
    rows = (np.arange(PROJECTIONS, dtype=np.uint64) ^ turns).astype(np.intp)
    rows += PROJECTIONS * np.arange(count, dtype=np.intp)[:, np.newaxis]
    return _signs(_bits(words).reshape(-1)), rows.reshape(-1)


def _bits(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Each word, shifted so that bit k of it is the lowest one, for each projection."""
    return np.asarray(words[:, np.newaxis] >> np.arange(PROJECTIONS, dtype=np.uint64))


def _signs(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """-1.0 where the lowest bit is set, else 1.0; read-only."""
    signs = np.where(bits & np.uint64(1), -1.0, 1.0)
    signs.flags.writeable = False
    return signs


WORD = 8
"""Bytes of a word."""
_CHECKED_PLACES, _CHECKED_BLOCKS = 4, 5
"""Seeds."""
_NOTHING, _ZEROS = np.empty(0, np.uint8), np.zeros(WORD, np.uint8)
SPREAD = 0x9E3779B97F4A7C15
"""What words are multiplied by, so that equal halves do not cancel each other."""
_SPREAD, _HALF = np.uint64(SPREAD), np.uint64(32)


@lru_cache(maxsize=1)
def place_factors() -> NDArray[np.uint64]:
    """Factors of the places of a block, of shape (BLOCK,)."""
    return np.asarray(splitmix64(_CHECKED_PLACES, 0, BLOCK) | np.uint64(1))


@lru_cache(maxsize=4)
def block_factors(page: int, count: int = _PAGE) -> NDArray[np.uint64]:
    """Factors of the blocks of a page, which has so many."""
    return np.asarray(splitmix64(_CHECKED_BLOCKS, page * count, count) | np.uint64(1))


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
