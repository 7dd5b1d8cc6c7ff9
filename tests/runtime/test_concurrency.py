from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest

from pytest_npudump.dump.records import TensorKey, TensorRecord
from pytest_npudump.runtime.concurrency import loads_without_order

ONE, OTHER = Thread(name="one"), Thread(name="other")


def record(key: str, place: str) -> TensorRecord:
    path = Path("dump", "20261121051811", place, "0", "Conv.conv1.1.2.1795228705872229")
    return TensorRecord(TensorKey.parse(key), "Conv", "float32", (2,), path)


TWICE = [record("conv1:output.0", "0/net/4"), record("conv1#load=1:output.0", "0/net/7")]


@pytest.mark.each(
    ("records", "loaders", "told"),
    [
        (TWICE, {"4": ONE, "7": OTHER}, 1),
        (TWICE, {"4": ONE, "7": ONE}, 0),
        (TWICE, {"4": ONE}, 0),
        ([TWICE[0], record("conv1#device=1:output.0", "1/net/7")], {"4": ONE, "7": OTHER}, 0),
        ([TWICE[0], record("conv1#model=b:output.0", "0/b/7")], {"4": ONE, "7": OTHER}, 0),
        ([TWICE[0], record("conv1#capture=a:output.0", "0/net/7")], {"4": ONE, "7": OTHER}, 0),
        ([TWICE[0]] * 2, {"4": ONE, "7": OTHER}, 0),
    ],
)
def test_only_loads_that_nothing_but_their_order_tells_apart_need_one_thread(
    records: list[TensorRecord], loaders: dict[str, Thread], told: int
) -> None:
    found = list(loads_without_order(records, loaders))
    assert len(found) == told
    assert all("the model net was loaded by several threads (one, other)" in words for words in found)
