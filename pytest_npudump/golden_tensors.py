"""One test's golden tensors: written by an update's second run, read to compare element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.compare.stats import compare_tables
from pytest_npudump.compare.table import StatsTable
from pytest_npudump.compare.verdict import FAIL
from pytest_npudump.dump.decode import load
from pytest_npudump.dump.records import TensorKey, TensorRecord
from pytest_npudump.dump.stats import tensor_stats
from pytest_npudump.golden.tensors import load_tensors, save_tensors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import numpy as np

    from pytest_npudump.compare.tolerance import Tolerances
    from pytest_npudump.goldens import Goldens

_OTHER_EXTENT = {"dtype", "count"}
"""Properties whose difference means that the statistics are of other bytes, such as of alignment behind."""


def write_tensors(goldens: Goldens, records: Iterable[TensorRecord]) -> None:
    """Keep the tensors of ``records`` beside the golden file.

    Raises:
        DumpError: a tensor's bytes have no values that could be kept.
        GoldenError: the file cannot be written.
    """
    tensors = {
        str(record.key): (load(record.payload, record.dtype, record.shape), record.dtype)
        for record in records
        if record.payload is not None
    }
    save_tensors(goldens.tensors, tensors, {"test": goldens.test})


def stored_keys(goldens: Goldens) -> tuple[Path | None, dict[str, str]]:
    """Return the file of the golden tensors and its keys by sanitised key; None and nothing without one.

    Raises:
        GoldenError: the file is there but cannot be read.
    """
    paths = [path.with_suffix(".safetensors") for path in (goldens.variant, goldens.common) if path]
    found = next((path for path in paths if path.exists()), None)
    keys = load_tensors(found) if found else {}
    return found, {str(TensorKey.parse(key).sanitised): key for key in keys}


def read_tensors(goldens: Goldens) -> dict[str, np.ndarray]:
    """Map the golden tensors by sanitised key; nothing where none are kept.

    Raises:
        GoldenError: the file is there but cannot be read.
    """
    path, keys = stored_keys(goldens)
    tensors = load_tensors(path) if path else {}
    return {sanitised: tensors[key] for sanitised, key in keys.items()}


def stale_tensors(
    goldens: Goldens, tensors: Mapping[str, np.ndarray], table: StatsTable, tolerances: Tolerances
) -> tuple[str, ...]:
    """Say which golden tensors no longer go with the golden's statistics, as after an update by hand.

    Args:
        goldens: where they lie.
        tensors: by sanitised key.
        table: the golden's statistics.
        tolerances: what the statistics may differ by.
    """
    records = [
        TensorRecord(
            TensorKey.parse(key),
            op_type="",
            dtype=array.dtype.name,
            shape=array.shape,
            path=goldens.tensors,
            stats=tensor_stats(array, acl=bool(table.digits.any())),
        )
        for key, array in tensors.items()
    ]
    comparison = compare_tables(table, StatsTable.from_records(records), tolerances, approved=False)
    return tuple(
        f"the golden tensor {verdict.key} has other statistics than the golden file: record both anew"
        for verdict in comparison.failing
        if verdict.status == FAIL and not {reason.statistic for reason in verdict.reasons} & _OTHER_EXTENT
    )
