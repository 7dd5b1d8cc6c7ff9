from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.cli.conftest import dump_file

Run = Callable[..., Any]
TREES = Path(__file__).parents[1] / "data" / "trees"


def test_device_layouts_and_original_shapes_are_shown(run: Run, tmp_path: Path) -> None:
    array = np.zeros((1, 2, 2, 2, 16), np.float16)
    dump_file(tmp_path, "conv", array, layout="NC1HWC0", original=(1, 20, 2, 2))
    (row,) = run("ls", tmp_path, "--json", "-").json["tensors"]
    assert (row["layout"], row["shape"]) == ("NC1HWC0", [1, 2, 2, 2, 16])
    assert row["original_shape"] == [1, 20, 2, 2]
    assert row["bytes"] == array.nbytes


def test_long_names_stay_whole(run: Run, tmp_path: Path) -> None:
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


def test_a_name_that_is_not_printable_stays_in_its_row_as_an_escape(run: Run, tmp_path: Path) -> None:
    names = {"a\nb": r"a\nb", "tab\there": r"tab\there", "\x1b[31mred": r"\x1b[31mred", "\u202ex": r"\u202ex"}
    for name in names:
        np.save(tmp_path / f"{name}.npy", np.zeros(2))
    for more in ([], ["--stats"]):
        header, *rows = run("ls", tmp_path, *more).out.partition("\n\n")[0].splitlines()
        assert {row[: header.index("type")].rstrip() for row in rows} == {*names.values()}
