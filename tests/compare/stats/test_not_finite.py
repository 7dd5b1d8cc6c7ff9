"""Tensors of which nothing is finite are named; what a mask is filled with is no fault."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pytest_npudump.compare.stats.unjudged import describe_not_finite
from pytest_npudump.dump.records import TensorKey, TensorRecord
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.dump.table import StatsTable

NAN, INF = np.nan, np.inf
CONTENTS = {
    (NAN, NAN): True,
    (NAN, -INF): True,
    (INF, INF): True,
    (INF, -INF): True,
    (-INF, -INF): False,
    (NAN, 0.0): False,
    (INF, 1.0): False,
    (0.0, 0.0): False,
    (): False,
}
WORDS = "1 of 2 tensors contain only NaN or infinities (first: odd:output.0): check the model and its inputs"


def test_tensors_without_a_finite_value_are_named() -> None:
    for acl in (False, True):
        for values, named in CONTENTS.items():
            arrays = {"good": np.ones(3, np.float32), "odd": np.array(values, np.float32)}
            table = StatsTable.from_records(
                TensorRecord(
                    TensorKey(name, "output", 0),
                    "",
                    "float32",
                    array.shape,
                    Path(),
                    stats=tensor_stats(array, acl=acl),
                )
                for name, array in arrays.items()
            )
            assert describe_not_finite(table) == (WORDS if named else ""), values
