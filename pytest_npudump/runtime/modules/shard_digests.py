"""Digests of the parameters that a rank holds, which add up to those of a model on one rank.

A text per parameter: its type, its shape, and a word for each of the first three axes. Each slice along an
axis has a hash of all its elements and their places in it. A word has the sum of these hashes, which those of
ranks add up to in whatever order; then a digest of them in order; and one of each part, were there 2, 4 or 8.
Zeros have the hash 0: padding changes no sum. :mod:`pytest_npudump.compare.shared_weights` reads it.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.runtime.modules.seen import bytes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]

_MOST = 1 << 32
"""Bytes of a rank's parameters beyond which their digests would take longer than loading them."""
_AXES = 3
_AT_ONCE = 1 << 20
"""Elements that are hashed at once."""
_SUM, _DIGEST = 36, 12
"""Bits of a sum, and of a digest."""
_PARTS = (1, 2, 4, 8)
_SIZES = frozenset({1, 2, 4, 8})


def shard_digests(model: Any) -> dict[str, str]:
    """Return a text for each parameter of a model by its path; of what a layer has joined, for each piece.

    None for more than 4 GiB of them, nor for those whose bytes cannot be had.
    """
    if not hasattr(model, "named_parameters"):
        return {}
    named = [one for one in model.named_parameters() if not hasattr(one[1], "materialize")]
    modules, found = dict(model.named_modules()), dict[str, str]()
    for path, one in named if sum(int(one.nbytes) for _, one in named) <= _MOST else ():
        with suppress(
            RuntimeError, TypeError, ValueError, AttributeError
        ):  # of tensors that stand for others
            size = one.element_size()
            array = np.frombuffer(bytes_of(one), f"u{size}").reshape(tuple(one.shape) or (1,))
            sizes = getattr(modules.get(path.rpartition(".")[0]), "output_partition_sizes", ())  # vLLM's
            cut = len(sizes) > 1 and sum(sizes) == len(array)
            parts = np.split(array, np.cumsum(sizes)[:-1]) if cut else [array]
            dtype = str(one.dtype).removeprefix("torch.")
            for at, part in enumerate(parts if size in _SIZES and array.size else ()):
                words = (dtype, "x".join(map(str, part.shape)), *map(_word, _hashes(part)))
                found[path.replace("_orig_mod.", "") + f"[{at}]" * cut] = " ".join(words)
    return found


def _hashes(array: NDArray[Any]) -> list[Hashes]:
    """Return the hashes of slices along each of the first axes."""
    found = [np.zeros(size, np.uint64) for size in array.shape[:_AXES]]
    row = array[0].size
    rows = max(1, _AT_ONCE // row)
    for first in range(0, len(array), rows):
        part = array[first : first + rows].astype(np.uint64)
        for axis, sums in enumerate(found):
            slices = np.moveaxis(part, axis, 0).reshape(part.shape[axis], -1)
            begin = first * (row // array.shape[axis]) if axis else 0
            held = slice(None) if axis else slice(first, first + rows)
            sums[held] += np.einsum("ij,j->i", slices, _factors(begin, slices.shape[1]))
    return [_mixed(sums) for sums in found]


def _factors(begin: int, count: int) -> Hashes:
    found = _mixed(np.arange(begin + 1, begin + count + 1, dtype=np.uint64))
    found |= np.uint64(1)
    return found


def _mixed(numbers: Hashes) -> Hashes:
    """Return numbers whose every bit depends on all bits of those given, by MurmurHash3's last step."""
    found: Hashes = numbers.copy()
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53, 1):
        found ^= found >> np.uint64(33)
        found *= np.uint64(factor)
    return found


def _word(hashes: Hashes) -> str:
    number, bits = int(hashes.sum()) % (1 << _SUM), _SUM
    for digest in _digests(hashes):
        number, bits = number << _DIGEST | digest, bits + _DIGEST
    return urlsafe_b64encode(number.to_bytes(bits // 8, "big")).decode()


def _digests(hashes: Hashes) -> Iterator[int]:
    for count in _PARTS:
        for part in np.split(hashes, count) if not len(hashes) % count else ():
            yield int((part * _factors(0, len(part))).sum()) >> (64 - _DIGEST)
