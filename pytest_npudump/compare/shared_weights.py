"""Weights that ranks share, against those of a golden of one rank: each part exact, whatever tolerances are.

``pytest_npudump.runtime.modules.shard_digests`` says what a text of a parameter is. Sums of the digests of
parts tell a value that is not the golden's; digests in order tell which rank has it, and elements in other
places where other layers of the kind have theirs in order.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Texts = Mapping[str, str]
    Sides = Mapping[str, Texts]

_SUM, _DIGEST = 6, 2
"""Characters of a sum, and of a digest."""
_BEGIN = {2: 8, 4: 12, 8: 20}
"""Where in a word the digests of so many parts begin."""


def without_parts(shards: Sides) -> dict[str, dict[str, str]]:
    """Return the texts of several ranks without digests of parts, which only one of all is compared by."""
    if len(shards) < 2:  # noqa: PLR2004 - one rank has all
        return {rank: {**texts} for rank, texts in shards.items()}
    return {rank: {name: _own(text) for name, text in texts.items()} for rank, texts in shards.items()}


def _own(text: str) -> str:
    dtype, shape, *words = text.split(" ")
    return " ".join((dtype, shape, *(word[: _SUM + _DIGEST] for word in words)))


class _Fit(NamedTuple):
    """How the parts of a parameter fit the whole: whether they add up, and the ranks out of order."""

    whole: bool
    out: list[str]
    ranks: int


def other_weights(golden: Sides, run: Sides) -> dict[str, list[str]]:
    """Return the parameters of which some rank has not its part of the golden's, with these ranks.

    Of a parameter that layers have in an order of their own, ranks are not known, and none is in the result.

    Args:
        golden: by rank, the texts of parameters by their names.
        run: the same of the run; nothing is compared where both are of one rank, or of other numbers.
    """
    sides = [_by_name(side) for side in (golden, run)]
    fits = dict[str, _Fit]()
    ranks = sorted(map(len, (golden, run)))
    for name, here in sides[0].items():
        there = sides[1].get(name)
        if there is None or ranks[1] == 1:
            continue
        if golden.keys() == run.keys():
            out = [rank for rank, text in there.items() if rank in here and _own(here[rank]) != _own(text)]
            fits[name] = _Fit(not out, out, len(there) + 1)
        elif ranks[0] == 1:
            whole, parts = (here, there) if len(golden) == 1 else (there, here)
            if (fit := _fit(next(iter(whole.values())), parts)) is not None:
                fits[name] = fit
    kinds = defaultdict[str, list[str]](list)
    for name in fits:
        kinds[re.sub(r"\d+", "0", name)].append(name)
    found = {}
    for names in kinds.values():
        in_order = any(fits[name].whole and not fits[name].out for name in names)
        for name in names:
            fit = fits[name]
            if not fit.whole or (fit.out and in_order):
                found[name] = fit.out if in_order or len(fit.out) < fit.ranks else []
    return {name: found[name] for name in fits if name in found}


def _by_name(side: Sides) -> dict[str, dict[str, str]]:
    found = defaultdict[str, dict[str, str]](dict)
    for rank, texts in side.items():
        for name, text in texts.items():
            found[name][rank] = text
    return found


def _fit(text: str, parts: Mapping[str, str]) -> _Fit | None:
    """Return how the parts that ranks have fit a whole; None where types or shapes are of something else."""
    dtype, shape, *words = text.split(" ")
    held = [part.split(" ") for part in parts.values()]
    shapes = [tuple(map(int, part[1].split("x"))) for part in held]
    size = tuple(map(int, shape.split("x")))
    if {part[0] for part in held} != {dtype} or {*map(len, shapes)} != {len(size)}:
        return None
    axes = [axis for axis, count in enumerate(size) if {one[axis] for one in shapes} != {count}]
    if not axes:
        out = [rank for rank, part in parts.items() if _own(part) != _own(text)]
        return _Fit(not out, out, len(parts) + 1)
    axis = axes[0]
    copies, rest = divmod(sum(one[axis] for one in shapes), size[axis])
    if rest or len(axes) > 1 or axis >= len(words):
        return None
    own = [part[2 + axis] for part in held]
    every = 1 << 6 * _SUM
    return _Fit(
        sum(map(_sum, own)) % every == copies * _sum(words[axis]) % every,
        _out_of_order(words[axis], [*zip(parts, own, strict=True)], copies),
        len(parts),
    )


def _sum(word: str) -> int:
    return int.from_bytes(urlsafe_b64decode(word[: _SUM + _DIGEST]), "big") >> 6 * _DIGEST


def _out_of_order(whole: str, own: Sequence[tuple[str, str]], copies: int) -> list[str]:
    """Return the ranks that have not their part, copies in a row or in turns; all where no order is."""
    count = len(own) // copies
    begin = _BEGIN.get(count, len(whole))
    told = [whole[at : at + _DIGEST] for at in range(begin, begin + count * _DIGEST, _DIGEST)]
    orders = [[at // copies for at in range(len(own))], [at % count for at in range(len(own))]]
    found = [
        [rank for (rank, word), at in zip(own, order, strict=True) if word[_SUM : _SUM + _DIGEST] != told[at]]
        for order in orders
    ]
    return min(found, key=len)
