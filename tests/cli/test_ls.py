from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Run = Callable[..., Any]
TREES = Path(__file__).parents[1] / "data" / "trees"


def test_a_tree_of_tensors_is_listed_with_its_files(run: Run) -> None:
    done = run("ls", TREES / "acl-tensor")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].split() == [
        *("layer", "type", "tensor", "dtype", "shape", "layout", "bytes", "holds", "file")
    ]
    cells = lines[1].split()
    assert cells[:8] == ["net/MatMul@0", "MatMul", "input.0", "float16", "1x200", "ND", "400", "tensor"]
    assert (TREES / "acl-tensor" / cells[8]).is_file()
    assert lines[-1] == "4 tensors, 2 layers, 2 files, 0 with statistics, 4 with data (412 B)"


def test_statistics_are_listed_as_such(run: Run) -> None:
    done = run("ls", TREES / "acl-stats", "--json", "-")
    assert len(done.json["tensors"]) == 54
    assert {row["holds"] for row in done.json["tensors"]} == {"statistics"}


def test_device_layouts_and_original_shapes_are_shown(run: Run, tmp_path: Path, dump_file: Run) -> None:
    array = np.zeros((1, 2, 2, 2, 16), np.float16)
    dump_file(tmp_path, "conv", array, layout="NC1HWC0", original=(1, 20, 2, 2))
    (row,) = run("ls", tmp_path, "--json", "-").json["tensors"]
    assert (row["layout"], row["shape"]) == ("NC1HWC0", [1, 2, 2, 2, 16])
    assert row["original_shape"] == [1, 20, 2, 2]
    assert row["bytes"] == array.nbytes


def test_a_dump_of_overflow_records_is_listed(run: Run) -> None:
    done = run("ls", TREES / "acl-overflow")
    assert done.code == 1
    assert "1 overflow record beside" in done.out


def test_long_names_stay_whole(run: Run, tmp_path: Path, dump_file: Run) -> None:
    name = "scope/" * 30 + "relu"
    path = dump_file(tmp_path / "x", "a", np.zeros(4, np.float32))
    path.unlink()
    dump_file(tmp_path, name, np.zeros(4, np.float32))
    assert name in run("ls", tmp_path).out


def test_unreadable_files_are_named_after_the_listing(run: Run, tmp_path: Path) -> None:
    shutil.copytree(TREES / "acl-tensor", tmp_path / "tree")
    path = next((tmp_path / "tree").rglob("MatMul*"))
    path.write_bytes(b"")
    done = run("ls", tmp_path / "tree")
    assert done.code == 2
    assert "net/Softmax@0" in done.out
    assert str(path) in done.err
