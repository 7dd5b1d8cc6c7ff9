"""Hashes of tensors, where the producer computed them: they tell whether all bits are equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.stats.verdict import Reason
from pytest_npudump.dump.table import MEASURED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from pytest_npudump.compare.stats.pairs import Pairs
    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.dump.table import StatsTable

_ALONE = "must be equal, as no finite max, min, avg or l2norm is on both sides"
_LOST = "the golden has a hash, the dump has none"


@dataclass(frozen=True, slots=True)
class Digests:
    """What the hashes of n pairs say.

    Attributes:
        equal: (n,), those with a hash on both sides of which none differs: all bits are equal.
        differ: (n,), those with a hash that differs.
        reasons: why some of these fail, by position.
        remarks: which hashes were not compared.
    """

    equal: NDArray[np.bool_]
    differ: NDArray[np.bool_]
    reasons: Mapping[int, Reason]
    remarks: tuple[str, ...] = ()


def compare_digests(pairs: Pairs, judged: NDArray[np.bool_], tolerances: Tolerances) -> Digests:
    """Compare hashes of one kind.

    A hash that differs fails a tensor that has to be equal by its rule, and one that nothing else is known
    of. Elsewhere bits may differ as long as the statistics agree within tolerance. A hash that only the
    golden has fails its tensor, unless no tensor of the dump has one of that kind.

    Args:
        pairs: the n tensors.
        judged: (n, 7), which statistics are compared.
        tolerances: the rules.
    """
    equal, differ = np.zeros((2, len(pairs.here)), dtype=np.bool_)
    reasons: dict[int, Reason] = {}
    if not (pairs.golden.digests or pairs.actual.digests):
        return Digests(equal, differ, reasons)
    sides = [_parts(pairs.golden, pairs.here), _parts(pairs.actual, pairs.there)]
    approved, computed = (frozenset[str]().union(*side) for side in sides)
    finite = np.isfinite(pairs.golden.values[pairs.here])
    measured: NDArray[np.bool_] = np.asarray((judged & finite)[:, :MEASURED].any(axis=1))
    for row, (golden, actual) in enumerate(zip(*sides, strict=True)):
        shared = golden.keys() & actual.keys()
        different = sorted(name for name in shared if golden[name] != actual[name])
        lost = sorted((golden.keys() & computed) - shared)
        equal[row], differ[row] = bool(shared) and not different, bool(different)
        if different:
            name = different[0]
            rule = pairs.rule(row, "max", tolerances)
            if not measured[row] or not (rule.rtol or rule.atol):
                words = rule.describe() if measured[row] else _ALONE
                reasons[row] = Reason(name, golden[name], actual[name], None, words)
        elif lost:
            reasons[row] = Reason(lost[0], golden[lost[0]], None, None, _LOST)
    bare = [
        row
        for row, (golden, actual) in enumerate(zip(*sides, strict=True))
        if actual.keys() & approved - golden.keys()
    ]
    remarks = list(_remarks(approved, computed))
    if bare:
        first = pairs.key(bare[0])
        remarks.append(
            f"hash not compared, as the golden does not have it ({len(bare)} tensors, first: {first})"
        )
    return Digests(equal, differ, reasons, tuple(remarks))


def _parts(table: StatsTable, rows: NDArray[np.intp]) -> list[dict[str, str]]:
    """Hashes by their kind, of each of the ``rows``."""
    if not table.digests:
        return [{} for _ in rows]
    return [dict(part.split(":", 1) for part in table.digests[row].split()) for row in rows.tolist()]


def _remarks(approved: frozenset[str], computed: frozenset[str]) -> Iterator[str]:
    """Say which kinds of hashes only one side has."""
    if approved - computed:
        names = ", ".join(sorted(approved - computed))
        yield f"not compared, as no tensor of this dump has it but the golden does: {names}"
    if computed - approved:
        names = ", ".join(sorted(computed - approved))
        yield f"not compared, as no tensor of the golden has it: {names}"
