"""The tensors of a test for the page's table: packed columns, as ten thousand rows of HTML take megabytes."""

from __future__ import annotations

import base64
import json
import math
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_npudump.dump.table import STATISTICS
from pytest_npudump.report.verdicts import number, numbers, plain
from pytest_npudump.report.view import IDENTICAL, STATES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.report.view import TensorView

INFINITE, ABSENT = -1, -2
"""Stand for a share that is infinite, and for none."""


@dataclass(slots=True)
class _Words:
    """Words that recur, each written once."""

    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, word: str) -> int:
        return self.numbers.setdefault(plain(word), len(self.numbers))


def payload(tensors: Sequence[TensorView], most_statistics: int) -> str:
    """Return tensors as JSON, deflated, in base 64.

    ``words`` has each recurring text; ``rows`` has a list a column; ``statistics`` both sides' values by
    position, of what is not identical.

    Args:
        tensors: in order of execution.
        most_statistics: tensors with statistics; the worst come first, and the others are in report.json.
    """
    words = _Words()
    data = {
        "names": STATISTICS,
        "states": STATES,
        "key": [plain(str(one.key)) for one in tensors],
        "state": [STATES.index(one.state) for one in tensors],
        "share": [_share(one.share) for one in tensors],
        "type": [words.number(one.op_type) for one in tensors],
        "kind": [words.number(f"{one.dtype} {one.shape}") for one in tensors],
        "decided": [words.number(one.decided) for one in tensors],
        "rule": [words.number(one.rule) for one in tensors],
        "statistics": {str(at): _statistics(tensors[at]) for at in _told(tensors, most_statistics)},
    }
    text = json.dumps(data | {"words": [*words.numbers]}, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _told(tensors: Sequence[TensorView], most: int) -> list[int]:
    """Return positions whose statistics are told: what is not identical, the worst first."""
    differing = [at for at, one in enumerate(tensors) if one.state != IDENTICAL]
    return sorted(sorted(differing, key=lambda at: STATES.index(tensors[at].state))[:most])


def _statistics(tensor: TensorView) -> list[Any]:
    if not (tensor.golden and tensor.actual):
        return [[*map(number, side)] for side in (tensor.golden, tensor.actual)]
    return [*zip(*map(numbers, tensor.golden, tensor.actual), strict=True)]


def _share(share: float) -> float | int:
    if math.isnan(share):
        return ABSENT
    return INFINITE if math.isinf(share) else float(f"{share:.3g}")
