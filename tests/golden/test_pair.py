"""Golden file and tensors are one: killed anywhere, what is read belongs together."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from pytest_npudump.errors import GoldenError, MisplacedTensorsError
from pytest_npudump.golden import store
from pytest_npudump.golden.store import (
    Recording,
    left_out,
    read_golden,
    recorded_tensors,
    stage_golden,
    stage_pair,
    tensors_path,
    write_golden,
)
from pytest_npudump.golden.stored_tensors import KeptTensors, stored_tensors
from pytest_npudump.golden.tensors import save_tensors
from pytest_npudump.record.record import Record
from pytest_npudump.storage import atomic
from pytest_npudump.storage.atomic import move_file
from tests.conftest import table_of
from tests.golden.tensor_files import load_tensors

Make = Any


@pytest.fixture
def recording(tmp_path: Path) -> Make:
    """Golden and tensors of one value; the statistics of every recording are alike but for ``max``."""

    def make(value: float, rows: float = 1.0) -> tuple[Record, dict[str, tuple[np.ndarray, str]]]:
        table = table_of(("conv:output.0", "float32", (2,), {"max": rows}))
        golden = Record("test_a.py::test_a", {"scene": "model"}, table, tmp_path / "a.yaml")
        return golden, {"conv:output.0": (np.full(2, value, np.float32), "float32")}

    return make


def held(path: Path) -> float:
    """Return the value of the tensors that belong to the golden file at ``path``."""
    tensors = recorded_tensors(read_golden(path))
    assert tensors is not None
    return float(load_tensors(tensors)["conv:output.0"][0])


CHILD = """
import json, sys
from pathlib import Path
import numpy as np
from killed import killed
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.golden.store import recorded_tensors, stage_pair
from pytest_npudump.golden.store import read_golden
from pytest_npudump.golden.tensors import TensorFile
from pytest_npudump.record.record import Record

folder = Path(sys.argv[1])

def write(path, value):
    stats = Stats(2, value, value, value, value, 0, 0, 0)
    record = TensorRecord(TensorKey("conv", "output", 0), "Conv", "float32", (2,), path, stats=stats)
    golden = Record("test_a.py::test_a", {"scene": "model"}, StatsTable.from_records([record]), path)
    stage_pair(golden, {"conv:output.0": (np.full(2, value, np.float32), "float32")}, {}).commit()

def read(path):
    golden = read_golden(path)
    tensors = recorded_tensors(golden)
    return [golden.table.value(0, 0), None if tensors is None else
            float(TensorFile.read(tensors).tensor("conv:output.0")[0])]

states = []
for step in range(1, 100):
    path = folder / f"{step}.yaml"
    write(path, 1.0)
    status = killed(lambda: write(path, 2.0), step, ".npudump-")
    between = read(path)
    killed(lambda: write(path, 3.0), step, ".npudump-")
    again = read(path)
    write(path, 4.0)
    end = read(path)
    fresh = folder / f"fresh{step}.yaml"
    killed(lambda: write(fresh, 2.0), step, ".npudump-")
    begun = read(fresh) if fresh.exists() else None
    states.append([status, between, again, end, begun])
    if status == 0:
        break
print(json.dumps(states))
"""


def test_a_kill_before_any_step_leaves_the_old_pair_or_the_new_one(tmp_path: Path, where_killed: Any) -> None:
    *cut, whole = where_killed(CHILD, tmp_path)
    assert whole[:4] == [0, [2.0, 2.0], [3.0, 3.0], [4.0, 4.0]]
    assert len(cut) >= 5
    assert all(status == signal.SIGKILL for status, *_ in cut)
    assert all(between in ([1.0, 1.0], [2.0, 2.0]) for _, between, *_ in cut)
    assert all(again in ([1.0, 1.0], [2.0, 2.0], [3.0, 3.0]) for _, _, again, *_ in cut)
    assert all(end == [4.0, 4.0] for *_, end, _ in cut)
    assert all(begun in (None, [2.0, 2.0]) for *_, begun in cut)
    assert {tuple(between) for _, between, *_ in cut} == {(1.0, 1.0), (2.0, 2.0)}


def test_the_same_recording_gives_the_same_two_files(tmp_path: Path, recording: Make) -> None:
    stage_pair(*recording(1.0), {}).commit()
    files = [path.read_bytes() for path in sorted(tmp_path.iterdir())]
    again = stage_pair(*recording(1.0), {})
    assert again.staged is None
    again.commit()
    assert [path.read_bytes() for path in sorted(tmp_path.iterdir())] == files


OTHERS = r"recorded with other statistics than a\.yaml.*update-golden"


def test_tensors_of_another_recording_are_refused(tmp_path: Path, recording: Make) -> None:
    """A permutation leaves all statistics as they are; those of a golden may be changed by hand."""
    golden, tensors = recording(1.0)
    stage_pair(golden, tensors, KeptTensors(tensors).metadata(golden)).commit()
    assert [*stored_tensors(read_golden(golden.path))] == ["conv:output.0"]
    text, old = golden.path.read_text("utf-8"), tensors_path(golden.path).read_bytes()
    golden.path.write_text(text.replace(" 2 1 ", " 2 3 "), "utf-8")
    assert read_golden(golden.path).table.value(0, 0) == 3.0
    with pytest.raises(GoldenError, match=OTHERS):
        stored_tensors(read_golden(golden.path))
    stage_pair(*recording(2.0), {}).commit()
    tensors_path(tmp_path / "a.yaml").write_bytes(old)
    with pytest.raises(GoldenError, match=OTHERS):
        recorded_tensors(read_golden(golden.path))


def test_tensors_of_a_recording_are_not_of_a_golden_that_names_none_but_earlier_ones_are(
    recording: Make,
) -> None:
    golden, tensors = recording(1.0)
    stage_pair(golden, tensors, {}).commit()
    write_golden(golden)
    assert recorded_tensors(read_golden(golden.path)) is None
    save_tensors(tensors_path(golden.path), tensors, {"golden": "fingerprint"})
    assert held(golden.path) == 1.0


def test_a_damaged_file_of_tensors_is_replaced_by_one_of_its_permissions(
    tmp_path: Path, recording: Make
) -> None:
    path = tmp_path / "a.yaml"
    stage_pair(*recording(1.0), {}).commit()
    tensors_path(path).chmod(0o640)
    for value, content in ((2.0, b""), (3.0, b"\xff" * 100)):
        tensors_path(path).write_bytes(content)
        with pytest.raises(GoldenError, match="not a file of golden tensors"):
            recorded_tensors(read_golden(path))
        stage_pair(*recording(value), {}, ["a_b"]).commit()
        assert (held(path), left_out(read_golden(path))) == (value, ("a_b",))
        assert tensors_path(path).stat().st_mode & 0o777 == 0o640


def test_a_golden_that_cannot_be_written_leaves_the_old_pair(
    tmp_path: Path, recording: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage_pair(*recording(1.0), {}).commit()

    def full(_golden: Record) -> None:
        raise GoldenError("no space left on device")

    monkeypatch.setattr(store, "stage_golden", full)
    with pytest.raises(GoldenError, match="no space left"):
        stage_pair(*recording(2.0), {}).commit()
    assert held(tmp_path / "a.yaml") == 1.0
    assert {path.name for path in tmp_path.iterdir()} == {"a.yaml", "a.safetensors"}


def test_a_directory_in_place_of_either_file_is_refused(tmp_path: Path, recording: Make) -> None:
    """Of the tensors before anything is written; it may have taken the golden's place meanwhile."""
    tensors_path(tmp_path / "a.yaml").mkdir()
    with pytest.raises(GoldenError, match=r"a\.safetensors: cannot be written: it is a directory; move it"):
        stage_pair(*recording(1.0), {}).commit()
    assert not (tmp_path / "a.yaml").exists()
    tensors_path(tmp_path / "a.yaml").rmdir()
    found = stage_pair(*recording(1.0), {})
    (tmp_path / "a.yaml").mkdir()
    with pytest.raises(
        GoldenError, match=r"a\.yaml: cannot be written: it is a directory; move it elsewhere"
    ):
        found.commit()
    assert (tmp_path / "a.yaml").is_dir()
    assert beside(tmp_path) == {"a.yaml"}


@pytest.mark.parametrize("name", ["a.yaml", "a.safetensors"])
@pytest.mark.parametrize("there", [True, False], ids=["to a file", "to nothing"])
def test_a_linked_file_is_refused_and_what_it_leads_to_stays(
    tmp_path: Path, recording: Make, name: str, *, there: bool
) -> None:
    stage_pair(*recording(1.0), {}).commit()
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / name).rename(real / name)
    content = (real / name).read_bytes()
    if not there:
        (real / name).unlink()
    (tmp_path / name).symlink_to(real / name)
    with pytest.raises(GoldenError, match="is a symbolic link"):
        stage_pair(*recording(2.0), {}).commit()
    assert (tmp_path / name).is_symlink()
    assert [path.read_bytes() for path in real.iterdir()] == [content] * there
    assert {path.name for path in tmp_path.iterdir()} == {"a.yaml", "a.safetensors", "real"}


@pytest.mark.parametrize("value", ["text", "{recording: 3}", "{left_out: a_b}", "{left_out: [3]}"])
def test_another_form_of_what_is_said_of_the_tensors_is_refused(recording: Make, value: str) -> None:
    golden, _ = recording(1.0)
    write_golden(golden)
    text = golden.path.read_text().replace("columns:", f"golden_tensors: {value}\ncolumns:")
    golden.path.write_text(text)
    with pytest.raises(GoldenError, match=r"golden_tensors is .*expected a mapping.*update-golden"):
        left_out(read_golden(golden.path))


def beside(path: Path) -> set[str]:
    return {found.name for found in path.iterdir()}


def test_a_recording_counts_when_it_is_committed_and_leaves_nothing_discarded(
    tmp_path: Path, recording: Make
) -> None:
    stage_pair(*recording(1.0), {}).discard()
    assert beside(tmp_path) == set()
    stage_pair(*recording(1.0), {}).commit()
    old = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    stage_pair(*recording(2.0), {}).discard()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == old
    found = stage_pair(*recording(2.0), {})
    assert held(tmp_path / "a.yaml") == 1.0
    assert {name: (tmp_path / name).read_bytes() for name in old} == old
    found.commit()
    assert held(tmp_path / "a.yaml") == 2.0
    assert beside(tmp_path) == set(old) == {"a.yaml", "a.safetensors"}


def test_a_commit_excludes_other_writers_of_what_it_replaces(recording: Make) -> None:
    def locked(staged: Recording) -> list[str]:
        taken: list[str] = []

        @contextmanager
        def noted(path: Path) -> Iterator[Path]:
            with atomic.locked(path) as target:
                taken.append(path.name)
                yield target

        with mock.patch.object(store, "locked", noted):
            staged.commit()
        return taken

    assert locked(stage_pair(*recording(1.0), {})) == ["a.safetensors", "a.yaml"]
    assert locked(stage_pair(*recording(1.0), {})) == ["a.safetensors"]
    alone = stage_golden(recording(1.0, rows=2.0)[0])
    assert locked(alone) == ["a.yaml"]


def test_what_another_recording_took_the_place_of_cannot_be_committed(
    tmp_path: Path, recording: Make
) -> None:
    """It is swept by the next; and one that found the golden unchanged is held against it again."""
    gone = r"a\.yaml: what was recorded is not there any more: another run"
    lost, next_one = stage_pair(*recording(2.0), {}), stage_pair(*recording(1.0), {})
    with pytest.raises(GoldenError, match=gone):
        lost.commit()
    next_one.commit()
    assert beside(tmp_path) == {"a.yaml", "a.safetensors"}
    with pytest.raises(GoldenError, match="was written meanwhile"):
        stage_pair(*recording(2.0), {}).commit(replacing="the digest of another")
    assert beside(tmp_path) == {"a.yaml", "a.safetensors"}
    assert held(tmp_path / "a.yaml") == 1.0
    unchanged, again = (stage_pair(*recording(1.0), {}) for _ in range(2))
    assert unchanged.staged is None
    unchanged.commit()
    write_golden(recording(1.0, rows=3.0)[0])
    with pytest.raises(GoldenError, match=gone):
        again.commit()


@pytest.mark.parametrize("first", [0, 1], ids=["first", "second"])
def test_two_runs_that_record_same_at_once_are_both_good(tmp_path: Path, recording: Make, first: int) -> None:
    stage_pair(*recording(1.0), {}).commit()
    runs = [stage_pair(*recording(2.0), {}), stage_pair(*recording(2.0), {})]
    runs[first].commit()
    runs[1 - first].commit()
    assert held(tmp_path / "a.yaml") == 2.0
    assert beside(tmp_path) == {"a.yaml", "a.safetensors"}


def test_tensors_that_cannot_be_moved_into_place_are_said_to_be_aside_and_are_read_there(
    tmp_path: Path, recording: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage_pair(*recording(1.0), {}).commit()
    found = stage_pair(*recording(2.0, rows=2.0), {})

    def refuse(source: Path, target: Path) -> None:
        if target.suffix == ".safetensors":
            raise GoldenError(f"{target}: cannot be replaced by {source.name} beside it: in use")
        move_file(source, target)

    monkeypatch.setattr(store, "move_file", refuse)
    with pytest.raises(MisplacedTensorsError, match=r"a\.yaml is recorded and counts, but .*: in use; move"):
        found.commit()
    assert held(tmp_path / "a.yaml") == 2.0
    monkeypatch.undo()
    stage_pair(*recording(2.0, rows=2.0), {}).commit()
    assert beside(tmp_path) == {"a.yaml", "a.safetensors"}
