"""Golden tensors judged in the first run, where its dump holds tensors too (``dump_data="tensor"``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.compare.stats.order import ABSENT
from pytest_npudump.compare.tensors.element_verdict import with_elements
from pytest_npudump.compare.tensors.tensor_pair import Pair, compare_pair
from pytest_npudump.dump.records import TensorKey
from pytest_npudump.dump.selection import layers_meant
from pytest_npudump.dump.table import layer_of
from pytest_npudump.errors import GoldenError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_npudump.compare.stats.verdict import Comparison
    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.dump.records import TensorRecord
    from pytest_npudump.golden.tensors import GoldenTensor


def judge_elements(
    comparison: Comparison,
    stored: Mapping[str, GoldenTensor],
    patterns: Sequence[str],
    records: Sequence[TensorRecord],
    tolerances: Tolerances,
) -> Comparison:
    """Add to a comparison of statistics what the elements of tensors say that both sides hold.

    A permutation, or a sign flipped in a tensor that is symmetric, leaves all statistics as they were.

    Args:
        comparison: of the golden's statistics with those of ``records``, row by row.
        stored: golden tensors by sanitised key.
        patterns: names and globs of the layers that the marker wants compared.
        records: what the first run dumped, in the order of the comparison's actual side.
        tolerances: the rules that decide.

    Raises:
        GoldenError: elements that are to be compared cannot be read.
    """
    if not stored or not any(record.payload is not None for record in records):
        return comparison
    keys = comparison.golden.keys
    wanted = layers_meant(patterns, map(layer_of, keys))
    tolerances = tolerances.for_layers_of(keys, comparison.actual.keys)
    rows = zip(comparison.alignment.golden.tolist(), comparison.alignment.actual.tolist(), strict=True)
    elements = {}
    for position, (here, there) in enumerate(rows):
        if ABSENT in {here, there} or records[there].payload is None:
            continue
        key = TensorKey.parse(keys[here])
        tensor = stored.get(str(key.sanitised))
        if tensor is not None and key.layer in wanted:
            record = records[there]
            rtol, atol = tolerances.elements(key.layer, record.dtype, str(key), record.op_type)
            found = compare_pair(Pair(tensor, record, "ND", rtol, atol))
            if found.problems:
                raise GoldenError(f"the elements of {key} cannot be compared: {found.problems[0].reason}")
            elements[position] = found
    return with_elements(comparison, elements, tolerances)
