"""Hashes of tensors, where the producer computed them: they tell whether all bits are equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.table import MEASURED, layer_of
from pytest_npudump.compare.verdict import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from pytest_npudump.compare.pairing import Pairs
    from pytest_npudump.compare.tolerance import Tolerances

_ALONE = "must be equal, as no max, min, avg or l2norm is on both sides"


@dataclass(frozen=True, slots=True)
class Digests:
    """What the hashes of n pairs say.

    Attributes:
        equal: (n,), those with a hash on both sides of which none differs: all bits are equal.
        differ: (n,), those with a hash that differs.
        reasons: why some of these fail, by position.
    """

    equal: NDArray[np.bool_]
    differ: NDArray[np.bool_]
    reasons: Mapping[int, Reason]


def compare_digests(pairs: Pairs, judged: NDArray[np.bool_], tolerances: Tolerances) -> Digests:
    """Compare hashes of one kind.

    A hash that differs fails a tensor that has to be equal by its rule, and one that nothing else is known
    of. Elsewhere bits may differ as long as the statistics agree within tolerance.

    Args:
        pairs: the n tensors.
        judged: (n, 7), which statistics are compared.
        tolerances: the rules.
    """
    equal, differ = np.zeros((2, len(pairs.here)), dtype=np.bool_)
    reasons: dict[int, Reason] = {}
    if not (pairs.golden.digests and pairs.actual.digests):
        return Digests(equal, differ, reasons)
    measured = np.asarray(judged[:, :MEASURED].any(axis=1))
    for row, (here, there) in enumerate(zip(pairs.here.tolist(), pairs.there.tolist(), strict=True)):
        golden, actual = _parts(pairs.golden.digests[here]), _parts(pairs.actual.digests[there])
        shared = [name for name in golden if name in actual]
        different = [name for name in shared if golden[name] != actual[name]]
        equal[row], differ[row] = bool(shared) and not different, bool(different)
        if not different:
            continue
        rule = tolerances.decide(layer_of(pairs.golden.keys[here]), pairs.golden.dtypes[here], "max")
        name = different[0]
        if not measured[row]:
            reasons[row] = Reason(name, golden[name], actual[name], None, _ALONE)
        elif not rule.rtol and not rule.atol:
            reasons[row] = Reason(name, golden[name], actual[name], None, rule.describe())
    return Digests(equal, differ, reasons)


def _parts(digest: str) -> dict[str, str]:
    return dict(part.split(":", 1) for part in digest.split())
