"""Many pairs at once: small tensors of one type and size are compared by one call for all of them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from pytest_npudump.compare.tensors.difference import TOGETHER, examine_small, small_pair
from pytest_npudump.compare.tensors.tensor_pair import (
    WORST,
    Elements,
    examine_pair,
    open_pair,
    unreadable,
    with_examined,
)
from pytest_npudump.errors import NpudumpError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np

    from pytest_npudump.compare.tensors.tensor_pair import OpenPair, Pair

    _Small = tuple[OpenPair, tuple[np.ndarray, np.ndarray]]


def compare_pairs(pairs: Sequence[Pair]) -> list[Elements]:
    """What ``compare_pair`` finds of each pair, in order."""
    found: dict[int, Elements] = {}
    waiting: defaultdict[tuple[np.dtype, int], list[tuple[int, _Small]]] = defaultdict(list)
    for at, pair in enumerate(pairs):
        opened = _opened(pair)
        if isinstance(opened, Elements):
            found[at] = opened
            continue
        sample = opened[1][0]
        group = waiting[sample.dtype, sample.size]
        group.append((at, opened))
        if len(group) * sample.size >= TOGETHER:
            found.update(_examined(group))
            group.clear()
    for group in filter(None, waiting.values()):
        found.update(_examined(group))
    return [found[at] for at in range(len(pairs))]


def _opened(pair: Pair) -> _Small | Elements:
    """A pair whose tensors can be compared with others alike; what is found of another."""
    try:
        opened = open_pair(pair)
        if isinstance(opened, Elements):
            return opened
        small = _small(opened)
        return examine_pair(opened) if small is None else (opened, small)
    except NpudumpError as error:
        return unreadable(pair, error)


def _small(opened: OpenPair) -> tuple[np.ndarray, np.ndarray] | None:
    """The elements of two small tensors; None of those that are compared alone, or not at all."""
    golden, actual = opened.values
    return small_pair(golden, actual) if golden.shape == actual.shape else None


def _examined(group: Sequence[tuple[int, _Small]]) -> Iterator[tuple[int, Elements]]:
    opened = [one for _, (one, _) in group]
    results = examine_small(
        [small for _, (_, small) in group],
        [one.values[0].shape for one in opened],
        [(one.pair.rtol, one.pair.atol) for one in opened],
        worst=WORST,
    )
    for (at, _), one, examined in zip(group, opened, results, strict=True):
        yield at, with_examined(one, examined)
