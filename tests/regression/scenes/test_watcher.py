"""Snapshots of watched outputs, put in order and compared bit for bit."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_npudump.dump.records import Dump, Payload, TensorKey, TensorRecord
from pytest_npudump.errors import DumpError
from pytest_npudump.regression.scenes.watcher import SnapshotChange, compare_snapshots, find_tramplings
from pytest_npudump.request import DumpRequest

REQUEST = DumpRequest(scene="watcher", layers=("a/1", "b"), watcher_nodes=("c.0",))


class Memory:
    """Writes arrays to files and describes them as the reader does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def __call__(self, layer: str, array: np.ndarray, task: int, **changes: Any) -> TensorRecord:
        self.count += 1
        path = self.folder / f"{self.count}.bin"
        path.write_bytes(array.tobytes())
        key = TensorKey(layer, "output", 0, step=changes.pop("step", 0))
        return TensorRecord(
            key,
            "Relu",
            changes.pop("dtype", array.dtype.name),
            changes.pop("shape", array.shape),
            path,
            time=changes.pop("time", self.count),
            task=task,
            stream=changes.pop("stream", 3),
            payload=Payload(path, 0, array.nbytes),
        )


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path)


def run(*records: TensorRecord, request: DumpRequest = REQUEST) -> Any:
    return find_tramplings(Dump(Path("d"), records, raw_names=True), request)


NO_SNAPSHOT = "there is no snapshot of 'c.0' after {!r}: "
BEFORE = "'a/1' runs before 'c.0' and cannot trample its output: name operators behind it"
ABSENT = "watched operator 'c.0' is not in the dump: "
C, A, B = "c.0", "a/1_To_c.0", "b_To_c.0"
DUMPS: dict[str, tuple[str, Any, int, tuple[str, ...]]] = {
    "equal": (f"{C}=0@1 {A}=0@2 {B}=0@3", None, 2, ()),
    "whatever the order of the files": (f"{B}=1@3 {C}=0@1 {A}=0@2", ("b", "a/1", ""), 2, ()),
    "by time on several streams": (f"{C}=0@9/1 {A}=0@2/2 {B}=1@3/2", ("b", "a/1", ""), 2, ()),
    "by file names": ("c_0=0@1 a_1_To_c_0=1@2 b_To_c_0=1@3", ("a/1", "c.0", ""), 2, ()),
    "each step by itself": (
        f"{C}=0@1 {A}=0@2 {B}=0@3 {C}=1@1+1 {A}=2@2+1 {B}=2@3+1",
        ("a/1", "c.0", "step=1"),
        4,
        (),
    ),
    "before the watched operator": (f"{A}=5@1 {C}=0@2 {B}=0@3", None, 1, (BEFORE,)),
    "missing in a step": (
        f"{C}=0@1 {A}=0@2 {B}=0@3 {C}=0@1+1 {A}=0@2+1",
        None,
        3,
        (NO_SNAPSHOT.format("b"),),
    ),
    "without the watched operator": (
        f"{A}=0@2 {B}=0@3",
        None,
        0,
        ("watched operator 'c.0' was not dumped after itself: ",),
    ),
    "without a layer": (f"{C}=0@1 {B}=0@3", None, 1, (NO_SNAPSHOT.format("a/1"),)),
    "without the last layer": (f"{C}=0@1 {A}=0@2", None, 1, (NO_SNAPSHOT.format("b"),)),
    "nothing": ("", None, 0, (ABSENT,)),
}
"""Snapshots as ``layer=value@task/stream+step``, who tramples since when and where, and what is said."""


@pytest.mark.parametrize("dump", DUMPS.values(), ids=DUMPS)
def test_snapshots_are_put_in_order_and_what_cannot_be_compared_is_said(memory: Memory, dump: Any) -> None:
    text, found, compared, said = dump
    records = []
    for layer, value, task, stream, step in re.findall(r"(\S+)=(\d)@(\d)(?:/(\d))?(?:\+(\d))?", text):
        more = {"stream": int(stream or 3), "step": int(step or 0)}
        records.append(memory(layer, np.full(4, int(value), np.int32), int(task), **more))
    findings, problems, count = run(*records)
    assert [(one.by, one.since, one.place) for one in findings] == [found] * (found is not None)
    assert {one.node for one in findings} <= {"c.0"}
    assert (count, len(problems)) == (compared, len(said))
    assert all(problem.startswith(start) for problem, start in zip(problems, said, strict=True))


def test_without_layers_each_operator_behind_the_watched_one_is_looked_at(memory: Memory) -> None:
    every = DumpRequest(scene="watcher", watcher_nodes=("c.0", "x_To_c.0"))
    x = np.zeros(4, np.int32)
    records = [memory("c.0", x, 2), memory("x_To_c.0", x, 1)]
    (problem, other) = run(*records, memory("b_To_c.0", x, 1), request=every)[1]
    assert problem.startswith("there is no snapshot of 'c.0' after an operator behind it")
    assert other.startswith("there is no snapshot of 'x_To_c.0' after an operator behind it")
    behind = [memory("a_To_c.0", x, 3), memory("b_To_c.0", x + 1, 4), memory("a_To_x_To_c.0", x, 3)]
    (found,), problems, compared = run(*records, *behind, request=every)
    assert (found.by, found.since, found.node, problems, compared) == ("b", "a", "c.0", (), 3)


def test_a_collective_operator_s_file_of_inputs_is_no_snapshot(memory: Memory) -> None:
    x = np.zeros(4, np.int32)
    inputs = memory("c.0", x + 5, 1)
    inputs = replace(inputs, key=replace(inputs.key, io="input"))
    snapshots = memory("c.0", x, 1), memory("a/1_To_c.0", x, 2), memory("b_To_c.0", x, 3)
    assert run(inputs, *snapshots) == ((), (), 2)
    (problem,) = run(inputs, *snapshots[:2])[1]
    assert problem.startswith("there is no snapshot of 'c.0' after 'b': ")
    assert problem.endswith("; after a collective one it has none")


def test_changed_elements_are_counted_and_the_first_is_named(memory: Memory) -> None:
    x = np.zeros((64, 64), np.float32)
    y = x.copy()
    y[0, 12:49] = 7
    (found,), problems, _ = run(memory("c.0", x, 1), memory("a/1_To_c.0", y, 2), memory("b_To_c.0", y, 3))
    assert problems == ()
    assert (found.by, found.since, found.node) == ("a/1", "c.0", "c.0")
    assert (found.change.changed, found.change.count, found.change.first) == (37, 4096, (0, 12))
    assert (found.change.before, found.change.after) == (0.0, 7.0)


def test_elements_are_compared_bit_for_bit(memory: Memory) -> None:
    for before, after, changed in (
        (np.nan, np.nan, 0),
        (0.0, -0.0, 1),
        (1.0, np.nan, 1),
        (np.inf, np.inf, 0),
    ):
        one, other = (memory("x", np.array([1, value], np.float16), 1) for value in (before, after))
        assert compare_snapshots(one, other).changed == changed, (before, after)
    x = np.zeros((1200, 1000), np.float32)
    y = x.copy()
    y[-1, -1] = 1  # at the end of a large tensor
    change = compare_snapshots(memory("x", x, 1), memory("x", y, 1))
    assert (change.changed, change.first) == (1, (1199, 999))
    for form in (np.zeros(3, np.float32), np.zeros(4, np.int32)):
        with pytest.raises(DumpError, match="differ in form"):
            compare_snapshots(memory("x", np.zeros(4, np.float32), 1), memory("x", form, 1))


def test_elements_that_share_a_byte_are_told_apart_and_types_without_values_by_bytes(memory: Memory) -> None:
    one = memory("x", np.array([0x21, 0x43], np.uint8), 1, dtype="int4", shape=(4,))
    other = memory("x", np.array([0x21, 0x73], np.uint8), 1, dtype="int4", shape=(4,))
    change = compare_snapshots(one, other)
    assert (change.changed, change.count, change.first) == (1, 4, (3,))
    assert (change.before, change.after) == (4, 7)
    bits = (memory("x", np.array([byte], np.uint8), 1, dtype="uint1", shape=(8,)) for byte in (5, 7))
    assert compare_snapshots(*bits) == SnapshotChange(1, 8, (6,), 0, 1)  # the first in the highest
    data = np.arange(6, dtype=np.uint8)
    one, other = (memory("x", array, 1, dtype="float6_e3m2fn", shape=(8,)) for array in (data, data[::-1]))
    assert compare_snapshots(one, other).changed == 6
