"""A golden whose tensors lie in a store: the file and its tensors belong together, whoever fails when."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_npudump.errors import GoldenError, StoreError
from pytest_npudump.golden.approval_merge import merge
from pytest_npudump.golden.census import faults
from pytest_npudump.golden.objects import ObjectStore
from pytest_npudump.golden.origin import Change, changes
from pytest_npudump.golden.store import read_golden, source_layers
from pytest_npudump.golden.stored_tensors import (
    TensorStore,
    fetch_tensors,
    read_tensors,
    stage_stored,
    stored_tensors,
)
from pytest_npudump.record.record import Record
from pytest_npudump.record.text import parse, render
from tests.conftest import table_of

KEYS = ("conv:output.0", "relu:output.0", "fc:output.0")
Values = dict[str, float]


@pytest.fixture
def store(tmp_path: Path) -> TensorStore:
    (tmp_path / "store").mkdir()
    return TensorStore(f"file://{tmp_path}/store", str(tmp_path / "cache"))


@pytest.fixture
def record(tmp_path: Path, store: TensorStore) -> Callable[..., Any]:
    """Stage a golden of three tensors, each of one value."""

    def make(conv: float = 1, relu: float = 2, fc: float = 3, **stage: Any) -> Any:
        values = dict(zip(KEYS, (conv, relu, fc), strict=True))
        table = table_of(*((key, "float32", (2,), {"max": value}) for key, value in values.items()))
        golden = Record("test_a.py::test_a", {"scene": "model"}, table, tmp_path / "a.yaml")
        arrays = {key: (np.full(2, value, np.float32), "float32") for key, value in values.items()}
        return stage_stored(
            golden, stage.get("tensors", arrays), stage.get("left_out", ()), store, stage.get("sources", ())
        )

    return make


def held(golden: Record, store: TensorStore) -> dict[str, float]:
    """Return the value of each tensor that belongs to a golden."""
    return {key.partition(":")[0]: float(array[1]) for key, array in read_tensors(golden, store).items()}


def test_what_is_recorded_is_read(record: Any, store: TensorStore, tmp_path: Path) -> None:
    record().commit()
    golden = read_golden(tmp_path / "a.yaml")
    assert golden.extra == {"golden_tensors": {"stored": "sha256"}}
    assert held(golden, store) == {"conv": 1.0, "relu": 2.0, "fc": 3.0}
    digest = sha256(np.full(2, 3, np.float32).tobytes()).hexdigest()
    line = golden.path.read_text().splitlines()[-1]
    assert line.startswith(f"  fc:output.0 float32 2 sha256:{digest} 8 ")
    assert (tmp_path / "store" / "sha256" / digest[:2] / digest).read_bytes() == b"\0\0\x40\x40" * 2
    assert parse(render(golden), golden.path).blocks == golden.blocks


def test_the_golden_is_as_it_was_where_a_tensor_does_not_reach_the_store(
    record: Any, store: TensorStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record().commit()
    before = (tmp_path / "a.yaml").read_bytes()
    written: list[str] = []

    def one_only(self: ObjectStore, digest: str, source: Path, size: int) -> None:
        written.append(digest)
        if len(written) > 1:
            raise StoreError(f"{self.url}: cannot be read or written now: gone, {source} of {size}")

    monkeypatch.setattr(ObjectStore, "write", one_only)
    with pytest.raises(StoreError, match="cannot be read or written now: gone"):
        record(conv=4, relu=5, fc=6)
    assert len(written) == 2
    assert (tmp_path / "a.yaml").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".npudump")] == []
    assert held(read_golden(tmp_path / "a.yaml"), store) == {"conv": 1.0, "relu": 2.0, "fc": 3.0}


def test_recording_that_is_discarded_changes_nothing_and_verify_needs_no_store(
    record: Any, store: TensorStore, tmp_path: Path
) -> None:
    record(left_out=["a_b"]).commit()
    record(conv=4).discard()
    assert held(read_golden(tmp_path / "a.yaml"), store)["conv"] == 1.0
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    assert list(faults([tmp_path / "a.yaml"])) == []


OTHERS = r"the stored tensor {}:output\.0 was recorded with other statistics"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("golden_tensors: {stored: sha256}\n", "", "do not go together, expected both or neither"),
        ("stored: sha256", "stored: md5", r"a mapping with recording \(text\), or stored \(sha256\)"),
        ("{stored: sha256}", "{stored: sha256, recording: ab}", "expected a mapping with recording"),
        ("sha256:", "sha1:", "is no stored tensor, expected: key dtype shape sha256:DIGEST"),
        ("conv float32 2 1 ", "conv float32 2 7 ", OTHERS.format("conv")),
        ("  fc float32 2 3 - - - - - -\n", "", OTHERS.format("fc")),
    ],
)
def test_a_golden_that_tells_it_wrongly_is_refused(
    *, record: Any, store: TensorStore, tmp_path: Path, old: str, new: str, words: str
) -> None:
    record().commit()
    path = tmp_path / "a.yaml"
    path.write_text(path.read_text().replace(old, new))
    (fault,) = faults([path])
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(fault.reason)
    if "7" in new:
        with pytest.raises(GoldenError, match=rf"a\.yaml: {words}"):
            stored_tensors(read_golden(path), store=store)


def test_tensors_beside_a_golden_that_has_its_own_in_a_store_are_told(record: Any, tmp_path: Path) -> None:
    record().commit()
    (tmp_path / "a.safetensors").write_bytes(b"")
    (fault,) = faults([tmp_path / "a.yaml"])
    assert "belongs to no recording that a.yaml names" in fault.reason


def test_only_layers_that_are_named_are_fetched(record: Any, store: TensorStore, tmp_path: Path) -> None:
    record().commit()
    elsewhere = replace(store, folder=str(tmp_path / "other"))
    found = stored_tensors(read_golden(tmp_path / "a.yaml"), store=elsewhere)
    assert fetch_tensors(found.values(), ["re*", "conv"]) == 2
    assert fetch_tensors(found.values(), ["re*", "conv"]) == 0
    assert fetch_tensors(found.values()) == 1


def approved(record: Any, path: Path, *recordings: dict[str, Any]) -> list[str]:
    """The golden's text behind each of several recordings."""
    texts = []
    for given in recordings:
        record(**given).commit()
        texts.append(path.read_text())
    return texts


def test_approvals_of_different_layers_are_merged_with_their_tensors(
    record: Any, store: TensorStore, tmp_path: Path
) -> None:
    """Two of one tensor are a conflict."""
    path = tmp_path / "a.yaml"
    merged = merge(path, *approved(record, path, {}, {"conv": 10.0}, {"conv": 20.0}))
    assert (merged.conflicts, merged.text.count("<<<<<<<")) == (("conv:output.0",), 2)
    merged = merge(path, *approved(record, path, {}, {"conv": 10.0}, {"fc": 30.0}))
    assert merged.conflicts == ()
    path.write_text(merged.text)
    assert list(faults([path])) == []
    assert held(read_golden(path), store) == {"conv": 10.0, "relu": 2.0, "fc": 30.0}


def test_elements_that_changed_under_the_same_statistics_are_told(record: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    record().commit()
    before = read_golden(path)
    kept = {key: (np.full(2, value, np.float32), "float32") for value, key in enumerate(KEYS, 1)}
    turned = {key: (array * np.float32([1, -1]), "float32") for key, (array, _) in kept.items()}
    record(tensors={**turned, KEYS[0]: kept[KEYS[0]]}).commit()
    assert changes(before, read_golden(path)) == (
        Change("relu:output.0", "stored tensor"),
        Change("fc:output.0", "stored tensor"),
    )


def test_sources_of_failures_that_both_sides_add_are_those_of_both(record: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    first: dict[str, Any] = {"sources": ["relu"]}
    ours: dict[str, Any] = {"conv": 10.0, "sources": ["conv", "relu"]}
    theirs: dict[str, Any] = {"fc": 30.0, "sources": ["fc", "relu"]}
    merged = merge(path, *approved(record, path, first, ours, theirs))
    assert merged.conflicts == ()
    path.write_text(merged.text)
    assert source_layers(read_golden(path)) == ("conv", "relu", "fc")


CHILD = """
import json, sys
from pathlib import Path
import numpy as np
from killed import killed
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.record.record import Record
from pytest_npudump.golden.stored_tensors import read_tensors
from pytest_npudump.golden.stored_tensors import stage_stored
from pytest_npudump.golden.stored_tensors import TensorStore
from pytest_npudump.golden.store import read_golden

folder = Path(sys.argv[1])
folder.joinpath("store").mkdir()

def place(cache):
    return TensorStore(f"file://{folder}/store", str(folder / cache))

def write(path, value):
    stats = Stats(2, value, value, value, value, 0, 0, 0)
    record = TensorRecord(TensorKey("conv", "output", 0), "Conv", "float32", (2,), path, stats=stats)
    golden = Record("test_a.py::test_a", {"scene": "model"}, StatsTable.from_records([record]), path)
    tensors = {"conv:output.0": (np.full(2, value, np.float32), "float32")}
    stage_stored(golden, tensors, (), place("cache")).commit()

def read(path, cache):
    golden = read_golden(path)
    return [golden.table.value(0, 0), float(read_tensors(golden, place(cache))["conv:output.0"][0])]

place("cache").objects  # what it imports is no step
states = []
for step in range(1, 100):
    path = folder / f"{step}.yaml"
    write(path, 1.0)
    value = 2.0 + step  # a content that no step before has put there
    status = killed(lambda: write(path, value), step, ".npudump-", "sha256")
    here, elsewhere = read(path, "cache"), read(path, f"other{step}")
    write(path, value)
    states.append([status, value, here, elsewhere, read(path, "cache")])
    if status == 0:
        break
print(json.dumps(states))
"""


def test_a_kill_before_any_step_leaves_a_golden_whose_tensors_all_machines_have(
    tmp_path: Path, where_killed: Callable[..., Any]
) -> None:
    *cut, whole = where_killed(CHILD, tmp_path)
    assert whole[0] == 0
    assert whole[2] == whole[3] == whole[4] == [whole[1], whole[1]]
    assert len(cut) >= 8
    for status, value, here, elsewhere, again in cut:
        assert status == signal.SIGKILL
        assert here == elsewhere
        assert here in ([1.0, 1.0], [value, value])
        assert again == [value, value]
