"""Weights that ranks share, against those of a golden of one rank: each part exact, whatever tolerances are.

``pytest_npudump.runtime.modules.shard_digests`` says what a text of a parameter is. Sums of the digests of
parts tell a value that is not the golden's; digests in order tell which rank has it, and elements in other
places where other layers of the kind have theirs in order.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from itertools import compress
from typing import NamedTuple

_SUM, _DIGEST = 6, 2
"""Characters of a sum, and of a digest."""
_BEGIN = {2: 8, 4: 12, 8: 20}
"""Where in a word the digests of so many parts begin."""


class _Fit(NamedTuple):
    """How the parts of a parameter fit the whole.

    Attributes:
        kind: what those of other layers have in common with it.
        whole: whether parts add up to it, or copies are equal.
        out: ranks whose part is not the one that is theirs in order; all where no order is known.
        ordered: whether the parts are surely in order.
    """

    kind: tuple[str, str, int]
    whole: bool
    out: list[str]
    ordered: bool


def other_weights(
    golden: Mapping[str, str], run: Mapping[str, Mapping[str, str]]
) -> tuple[dict[str, list[str]], list[str]]:
    """Return the parameters of which some rank has not its part, and those that are not compared.

    The first by name, with these ranks: with none where layers have their parts in an order of their own. Not
    compared are what no rank has, other types, shapes that do not add up along one axis, and layers with
    weights in 8-bit floats, which ranks may scale by their own extremes.

    Args:
        golden: the text of each parameter by its name, of one rank.
        run: by rank, the same of its parameters.
    """
    scaled = {name.rpartition(".")[0] for name, text in golden.items() if text.startswith("float8")}
    known = {name: text for name, text in golden.items() if text and name.rpartition(".")[0] not in scaled}
    found = {
        name: _fit(name, text, {rank: texts[name] for rank, texts in run.items() if texts.get(name)})
        for name, text in known.items()
    }
    fits = {name: fit for name, fit in found.items() if fit is not None}
    ordered = {fit.kind for fit in fits.values() if fit.ordered}
    return {
        name: fit.out if fit.kind in ordered or len(fit.out) < len(run) else []
        for name, fit in fits.items()
        if not fit.whole or (fit.out and fit.kind in ordered)
    }, [name for name in golden if name not in fits]


def _fit(name: str, text: str, parts: Mapping[str, str]) -> _Fit | None:
    """Return how the parts that ranks have fit a whole; None where types or shapes are of something else."""
    dtype, shape, *words = text.split(" ")
    held = [part.split(" ") for part in parts.values()]
    size, *shapes = [tuple(map(int, one.split("x"))) for one in (shape, *(part[1] for part in held))]
    if {part[0] for part in held} != {dtype} or {*map(len, shapes)} != {len(size)}:
        return None
    axes = [axis for axis, count in enumerate(size) if {one[axis] for one in shapes} != {count}]
    kind = re.sub(r"\d+(?![]\d])", "0", name), shape, axes[0] if axes else -1
    if not axes:
        out = [rank for rank, part in parts.items() if part != text]
        # Where ranks add up what they give, one of them adds a bias.
        if (
            name.endswith("bias")
            and len(out) == len(parts) - 1
            and not any(_sum(parts[one].split(" ")[2]) for one in out)
        ):
            out = []
        return _Fit(kind, not out, out, ordered=True)
    copies, rest = divmod(sum(one[axes[0]] for one in shapes), size[axes[0]])
    if rest or len(axes) > 1 or axes[0] >= len(words):
        return None
    word, own = words[axes[0]], [part[2 + axes[0]] for part in held]
    count = len(own) // copies
    begin = _BEGIN.get(count, len(word))
    told = [word[at : at + _DIGEST] for at in range(begin, begin + count * _DIGEST, _DIGEST)]
    # Copies follow each other so many in a row, as those of heads do, and groups of ranks in turns.
    rows = [row for row in range(1, copies + 1) if not copies % row]
    orders = [[told[at % (count * row) // row] for at in range(len(own))] for row in rows]
    digests = [one[_SUM : _SUM + _DIGEST] for one in own]
    wrong = ([*map(str.__ne__, digests, order)] for order in orders)
    out = [*compress(parts, min(wrong, key=sum))]
    whole = not (sum(map(_sum, own)) - copies * _sum(word)) % (1 << 6 * _SUM)
    return _Fit(kind, whole, out, ordered=whole and not out and len({*told}) == count)


def _sum(word: str) -> int:
    return int.from_bytes(urlsafe_b64decode(word[: _SUM + _DIGEST]), "big") >> 6 * _DIGEST
