from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.compare.table import StatsTable
from pytest_npudump.dump.dtypes import BY_CANN
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = Path(__file__).parent / "data" / "golden"


def _record(row: dict[str, str], path: Path) -> TensorRecord:
    dtype = BY_CANN[row["Data Type"].removeprefix("DT_")]
    number = int if dtype.exact else float
    key = TensorKey(row["Op Name"], row["Input/Output"].lower(), int(row["Index"]))
    stats = Stats(
        count=int(row["Count"]),
        max=number(row["Max Value"]),
        min=number(row["Min Value"]),
        avg=float(row["Avg Value"]),
        nan=int(row["Nan Count"]),
        neg_inf=int(row["Negative Inf Count"]),
        pos_inf=int(row["Positive Inf Count"]),
        digits=6,
    )
    shape = tuple(map(int, row["Shape"].split("x")))
    return TensorRecord(key, row["Op Type"], dtype.name, shape, path, stats=stats)


@pytest.fixture(scope="session")
def ppocr_cls() -> Callable[[str], StatsTable]:
    """Tables of a real model that CANN's dump code wrote: golden, regressed (one layer's weights), nan."""

    def load(name: str) -> StatsTable:
        path = DATA / f"ppocr_cls_{name}.csv"
        with path.open(newline="") as file:
            return StatsTable.from_records(_record(row, path) for row in csv.DictReader(file))

    return load


@pytest.fixture(scope="session")
def make_table() -> Callable[..., StatsTable]:
    """Table of ``(key, dtype, shape, {statistic: value})`` rows."""

    def make(*rows: tuple[str, str, tuple[int, ...] | None, dict[str, float | None]]) -> StatsTable:
        return StatsTable.from_records(
            TensorRecord(TensorKey.parse(key), "", dtype, shape, Path("d"), stats=Stats(**stats))
            for key, dtype, shape, stats in rows
        )

    return make
