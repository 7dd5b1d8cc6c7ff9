"""Files of goldens that no test has: removed whole, in an order that leaves no golden without its tensors."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_npudump.errors import GoldenError
from pytest_npudump.golden.census import Collection, census, faults, files_below, of_test
from pytest_npudump.golden.store import read_golden, stage_pair, tensors_path, waiting_path
from pytest_npudump.golden.stored_tensors import TensorStore, stage_stored
from pytest_npudump.record.record import Record
from tests.conftest import table_of


@pytest.fixture
def golden(tmp_path: Path) -> Callable[[str], Path]:
    """Write a golden with a tensor beside it, whose test is gone."""

    def make(name: str) -> Path:
        table = table_of(("conv:output.0", "float32", (2,), {"max": 1.0}))
        path = tmp_path / "golden" / name
        recording = Record(f"test_gone.py::{name}", {"scene": "model"}, table, path)
        stage_pair(recording, {"conv:output.0": (np.ones(2, np.float32), "float32")}, {}).commit()
        return path

    return make


def of(root: Path) -> Collection:
    return Collection(root / "golden", root, {}, frozenset())


def test_a_file_that_was_written_meanwhile_stays(golden: Callable[[str], Path], tmp_path: Path) -> None:
    path = golden("a.yaml")
    found = census(of(tmp_path)).stale
    text = path.read_text()
    path.write_text(text + "\n")
    with pytest.raises(GoldenError, match="was written meanwhile"):
        found[0].remove()
    assert path.read_text() == text + "\n"


def test_tensors_that_wait_for_their_place_are_in_use(golden: Callable[[str], Path], tmp_path: Path) -> None:
    path = golden("a.yaml")
    waiting = tensors_path(path).rename(waiting_path(tensors_path(path)))
    os.utime(waiting, (0, 0))
    found = census(Collection(tmp_path / "golden", tmp_path, {path: "t"}, frozenset()))
    assert ([one.path for one in found.used], found.stale, found.unjudged) == ([path], (), ())


@pytest.mark.each(
    ("test", "kind"),
    [
        ("test_here.py::test_misplaced", "unjudged"),  # the only golden of its test
        ("test_here.py::test_copied", "stale"),
        ("test_here.py::test_gone", "stale"),
        ("test_here.py::test_cases[a]", "unjudged"),  # which another machine may have
        *(("test_here.py::test_cases", "unjudged"), ("test_here.py::test_cases_of_others[a]", "stale")),
        *(("test_skipped.py::test_gone", "unjudged"), ("test_gone.py::test_gone", "stale")),
    ],
)
def test_only_what_is_known_to_be_of_no_test_is_stale(tmp_path: Path, test: str, kind: str) -> None:
    for name in ("test_here.py", "test_skipped.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "golden").mkdir()
    unclear = frozenset({"test_here.py::test_cases"})
    (tmp_path / "golden" / "test_copied.yaml").write_text("")
    names = ("test_misplaced", "test_copied")
    goldens = {tmp_path / "golden" / f"{name}.yaml": f"test_here.py::{name}" for name in names}
    collection = Collection(tmp_path / "golden", tmp_path, goldens, frozenset({"test_here.py"}), unclear)
    found, why = of_test(test, collection)
    assert found == kind
    assert ("reads" in why) is (test.rpartition("::")[2] in names)


@pytest.mark.each(
    ("configuration", "file", "kind"),
    [
        (None, "test_far.py", "stale"),  # below this rootdir, by whose configuration it is run
        ("[pytest]\n", "test_far.py", "unjudged"),  # it or an option may name the folder
        ("[pytest]\n", "deeper/test_far.py", "stale"),
        (None, "../far/test_far.py", "unjudged"),
        (None, "../deeper/test_far.py", "stale"),
    ],
)
def test_a_test_file_of_another_rootdir_that_may_share_the_goldens_keeps_them(
    tmp_path: Path, configuration: str | None, file: str, kind: str
) -> None:
    for name in ("test_far.py", "far/test_far.py"):
        path = tmp_path / "other" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    if configuration is not None:
        (tmp_path / "other" / "pytest.ini").write_text(configuration)
    collection = Collection(tmp_path / "golden", tmp_path, {}, frozenset())
    found, why = of_test(f"{file}::test_a", collection)
    assert (found, "from another rootdir" in why) == (kind, kind == "unjudged")


def test_a_folder_without_goldens_has_none(tmp_path: Path) -> None:
    found = census(of(tmp_path))
    assert (found.used, found.stale, found.unjudged) == ((), (), ())
    with pytest.raises(FileNotFoundError):
        files_below(tmp_path / "golden")


CHILD = """
import os, sys
from pathlib import Path
from typing import Any
from pytest_npudump.golden.census import Collection, census
root, left = Path(sys.argv[1]), [int(sys.argv[2])]
stale = census(Collection(root / "golden", root, {}, frozenset())).stale
def hook(event, arguments):
    if event == "os.remove":
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), 9)
sys.addaudithook(hook)
for one in stale:
    one.remove()
"""


@pytest.mark.e2e
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="nothing is killed like that here")
def test_a_kill_at_any_removal_leaves_whole_goldens_or_none(golden: Any, tmp_path: Path, warm: Any) -> None:
    (tmp_path / "test_here.py").write_text("")
    for step in range(1, 20):
        paths = [golden("a.yaml"), golden("b.yaml")]
        code, *_ = warm.run("-c", CHILD, str(tmp_path), str(step))
        for path in filter(Path.exists, paths):
            assert [*faults([path])] == []
        for one in census(of(tmp_path)).stale:
            one.remove()
        assert files_below(tmp_path / "golden") == []
        if code == 0:
            break
        assert code == -signal.SIGKILL
    else:
        pytest.fail("it was killed each time")
    assert step > 4


def test_tensors_beside_a_golden_that_has_its_own_in_a_store_are_stale(golden: Any, tmp_path: Path) -> None:
    path = golden("a.yaml")
    (tmp_path / "store").mkdir()
    held = read_golden(path)
    stored = TensorStore(f"file://{tmp_path}/store", str(tmp_path / "cache"))
    stage_stored(held, {"conv:output.0": (np.ones(2, np.float32), "float32")}, (), stored).commit()
    found = census(Collection(tmp_path / "golden", tmp_path, {path: "t"}, frozenset()))
    assert ([one.path for one in found.used], found.unjudged) == ([path], ())
    assert [(one.path, one.why) for one in found.stale] == [
        (tensors_path(path), "tensors that a.yaml does not name")
    ]
