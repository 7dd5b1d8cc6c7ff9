"""Where inside of the second run's tensors they differ from the golden's, and how: patterns and pictures."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.compare.patterns.pattern_search import SEARCHED, find_pattern
from pytest_npudump.compare.tensors.picture import draw, draw_alone
from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.errors import DumpError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from pytest_npudump.dump.records import TensorRecord
    from pytest_npudump.regression.outcome import Finding

_AT_HAND = 16
"""Other tensors whose values a wrong one may turn out to hold."""


def with_patterns(
    findings: Sequence[Finding], records: Mapping[str, TensorRecord], tensors: Mapping[str, np.ndarray]
) -> tuple[Finding, ...]:
    """Add to the first findings what can be drawn of them, and where elements differ what explains that.

    Args:
        findings: one a failing tensor, in execution order.
        records: the second run's tensors by sanitised key.
        tensors: the golden's, the same way.
    """
    told = list(findings)
    differing = [at for at, f in enumerate(findings) if f.difference is not None and f.difference.outside]
    for at in differing[:SEARCHED]:
        name, difference = str(findings[at].key.sanitised), findings[at].difference
        record = records[name]
        actual = _loaded(record)
        if actual is None or difference is None:
            continue
        others = _others(name, actual, records, tensors)
        pattern = find_pattern(tensors[name], actual, difference, layout=record.format, others=others)
        picture = draw(tensors[name], actual, rtol=difference.rtol, atol=difference.atol)
        told[at] = replace(findings[at], pattern=pattern, picture=picture)
    alone = [at for at, finding in enumerate(findings) if finding.description is not None]
    for at in alone[:SEARCHED]:
        actual = _loaded(records[str(findings[at].key.sanitised)])
        told[at] = replace(findings[at], picture=None if actual is None else draw_alone(actual))
    return tuple(told)


def _others(
    name: str, actual: np.ndarray, records: Mapping[str, TensorRecord], tensors: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return tensors of the same type and size: those of this run, and the golden's."""
    found: dict[str, np.ndarray] = {}
    for key, record in records.items():
        alike = record.dtype == records[name].dtype and math.prod(record.shape or ()) == actual.size
        array = _loaded(record) if alike and key != name and len(found) < _AT_HAND else None
        if array is not None:
            found[str(record.key)] = array
    for key, array in tensors.items():
        same = array.dtype == actual.dtype and array.size == actual.size
        if same and key != name and len(found) < _AT_HAND:
            found[f"the golden's {key}"] = array
    return found


def _loaded(record: TensorRecord) -> np.ndarray | None:
    if record.payload is None:
        return None
    try:
        return load(record.payload, record.dtype, record.shape)
    except DumpError:
        return None  # a note of the finding says so
