"""Digests of the parameters that a rank holds, which add up to those of a model on one rank.

A text per parameter: its type, its shape, and a word for each of the first three axes. Each slice along an
axis has a hash of all its elements and their places in it. A word has the sum of these hashes, which those of
ranks add up to in whatever order; then a digest of them in order; and one of each part, were there 2, 4 or 8.
Zeros have the hash 0: padding changes no sum. :mod:`pytest_npudump.compare.shared_weights` reads it.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from contextlib import suppress
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.errors import said
from pytest_npudump.runtime.modules.statistics import bytes_of
from pytest_npudump.runtime.modules.wrappers import plain_path

if TYPE_CHECKING:
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


def shard_digests(model: Any) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Return by layer a text for each parameter by its name; of what a layer has joined, for each piece.

    There is none of parameters whose bytes cannot be had, and none at all of those that training has changed,
    which ranks round otherwise, and of more than 4 GiB, which a note says.
    """
    named = [one for one in getattr(model, "named_parameters", list)() if not hasattr(one[1], "materialize")]
    if any(one.grad is not None for _, one in named):
        return {}, []
    if (size := sum(int(one.nbytes) for _, one in named)) > _MOST:
        return {}, [said("weights not compared: {size}, limit 4 GiB", size=f"{size / (1 << 30):.3g} GiB")]
    modules, found = dict(model.named_modules()) if named else {}, dict[str, dict[str, str]]()
    for path, one in named:
        layer, _, leaf = path.rpartition(".")
        with suppress(AttributeError, RuntimeError, TypeError, ValueError):  # of stand-ins
            own = one.to_local() if hasattr(one, "to_local") else one  # torch's DTensor
            flat = np.frombuffer(bytes_of(own), f"u{own.element_size()}")
            array = flat.reshape(tuple(own.shape) or (1,))
            sizes = getattr(modules.get(layer), "output_partition_sizes", ())  # vLLM's
            cut = len(sizes) > 1 and sum(sizes) == len(array)
            parts = np.split(array, np.cumsum(sizes)[:-1]) if cut else [array]
            dtype = str(one.dtype).removeprefix("torch.")
            for at, part in enumerate(parts if array.size else ()):
                words = (dtype, "x".join(map(str, part.shape)), *map(_word, _hashes(part)))
                held = found.setdefault(plain_path(layer), {})
                held[leaf + f"[{at}]" * cut] = " ".join(words)
    return found, []


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
    return np.asarray(_mixed(np.arange(begin + 1, begin + count + 1, dtype=np.uint64)) | np.uint64(1))


def _mixed(numbers: Hashes) -> Hashes:
    """Return numbers whose every bit depends on all bits of those given, by MurmurHash3's last step."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53, 1):
        numbers = (numbers ^ (numbers >> np.uint64(33))) * np.uint64(factor)
    return numbers


def _word(hashes: Hashes) -> str:
    digests = [
        int((part * _factors(0, len(part))).sum()) >> (64 - _DIGEST)
        for count in _PARTS
        if not len(hashes) % count
        for part in np.split(hashes, count)
    ]
    number = reduce(lambda told, one: told << _DIGEST | one, digests, int(hashes.sum()) % (1 << _SUM))
    return urlsafe_b64encode(number.to_bytes((_SUM + _DIGEST * len(digests)) // 8, "big")).decode()
