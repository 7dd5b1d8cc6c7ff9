from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pytest_npudump.dump.stats.projections import project
from pytest_npudump.storage.archive import pack
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
    (tmp_path / "run1").mkdir()
    pack(tmp_path / "tree", tmp_path / "run1" / "dump")
    for tree in (tmp_path / "tree", tmp_path / "run1" / "dump", tmp_path / "run1"):
        assert run("ls", "--stats", tree).code == 2
        done = run("ls", tree)
        assert done.code == 2
        assert "net/Softmax@0" in done.out
        inner = tmp_path / "run1" / "dump" if "run1" in str(tree) else tree
        assert str(inner / path.relative_to(tmp_path / "tree")) in done.err


def test_a_name_that_is_not_printable_stays_in_its_row_as_an_escape(run: Run, tmp_path: Path) -> None:
    names = {"a\nb": r"a\nb", "tab\there": r"tab\there", "\x1b[31mred": r"\x1b[31mred", "\u202ex": r"\u202ex"}
    for name in names:
        np.save(tmp_path / f"{name}.npy", np.zeros(2))
    for more in ([], ["--stats"]):
        header, *rows = run("ls", tmp_path, *more).out.partition("\n\n")[0].splitlines()
        assert {row[: header.index("type")].rstrip() for row in rows} == {*names.values()}


Run = Callable[..., Any]
TREES = Path(__file__).parents[1] / "data" / "trees"


def test_json_goes_to_a_file_beside_the_table_and_one_file_of_a_dump_is_enough(
    run: Run, tmp_path: Path
) -> None:
    tree, target = TREES / "acl-tensor", tmp_path / "out.json"
    done = run("ls", "--stats", tree, "--json", target)
    assert done.out.startswith("layer")
    whole = run("ls", "--stats", tree, "--json", "-")
    assert target.read_text() == whole.out
    done = run("ls", "--stats", tree, "--json", tmp_path / "no" / "out.json")
    assert (done.code, "cannot be written" in done.err) == (2, True)
    one = run("ls", "--stats", next(tree.rglob("MatMul*")), "--json", "-").json["tensors"]
    assert one == [row for row in whole.json["tensors"] if row["op_type"] == "MatMul"]


@pytest.mark.each("pattern", ["acl-stats/**/Softmax*.csv", "mindspore-dtypes/**/*.npy", "*/statistic.csv"])
def test_one_file_of_each_kind_is_read(run: Run, pattern: str) -> None:
    path = min(TREES.glob(pattern))
    done = run("ls", "--stats", path, "--json", "-")
    assert done.code == 0
    assert done.json


def test_nothing_to_read_is_an_error_and_prints_no_table(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "odd").mkdir()
    path = tmp_path / "odd" / "A.b.1.2.1795228705872229.csv"
    path.write_text("nonsense")
    done = run("ls", "--stats", path.parent)
    assert (done.code, done.out, str(path) in done.err) == (2, "", True)
    for name in ("missing", "empty"):
        for words in (("ls", "--stats"), ("ls",)):
            done = run(*words, tmp_path / name)
            assert (done.code, done.out, str(tmp_path / name) in done.err) == (2, "", True)


def test_a_tensor_without_statistics_says_why(run: Run, tmp_path: Path) -> None:
    dump_file(tmp_path, "a", np.zeros(8, np.uint8), dtype="qint8")
    (row,) = run("ls", "--stats", tmp_path, "--json", "-").json["tensors"]
    assert row["max"] is None
    assert "QINT8" in row["note"]


def test_zeros_are_counted_where_the_values_are_there(run: Run, tmp_path: Path) -> None:
    values = np.array([0.0, -0.0, 1.5, np.nan, 0.0], np.float16)
    dump_file(tmp_path, "a", values)
    dump_file(tmp_path, "b", np.zeros(4, np.uint8), dtype="resource", shape=(4,), number=2)
    rows = run("ls", "--stats", tmp_path, "--json", "-").json["tensors"]
    assert rows[0]["zero"] == int(np.count_nonzero(values == 0))
    assert "zero" not in rows[1]
    header, first, second = run("ls", "--stats", tmp_path).out.splitlines()
    assert header.split()[-1] == "zero"
    assert (first.split()[-1], second.split()[-1]) == ("3", "-")


@pytest.mark.parametrize("executor", ["serial", "threads:2", "processes:1"])
def test_acls_own_quirks_are_reproduced_where_asked_for(run: Run, tmp_path: Path, executor: str) -> None:
    dump_file(tmp_path, "first", np.array([np.nan, 1, 2], np.float32), number=1)
    dump_file(tmp_path, "later", np.array([1, np.nan, 2], np.float32), number=2)
    dump_file(tmp_path, "brain", np.array([1, 2], ml_dtypes.bfloat16), number=3)
    dump_file(tmp_path, "int", np.array([3, 7], np.int8), number=4)
    sane = run("ls", "--stats", tmp_path, "--json", "-", "--executor", executor).json["tensors"]
    acl = run("ls", "--stats", tmp_path, "--json", "-", "--acl", "--executor", executor).json["tensors"]
    assert [(row["max"], row["min"]) for row in sane] == [(2, 1), (2, 1), (2, 1), (7, 3)]
    np.testing.assert_equal(
        [(row["max"], row["min"]) for row in acl], [(math.nan, math.nan), (2, 1), (None, None), (7, 3)]
    )
    assert [row["count"] for row in acl] == [3, 3, None, 2]
    one = run("ls", "--stats", next(tmp_path.glob("*first*")), "--json", "-", "--acl").json["tensors"]
    np.testing.assert_equal(one, acl[:1])


def test_projections_of_files_are_those_of_the_array(run: Run, tmp_path: Path) -> None:
    for dtype in ("float32", "float16", "bfloat16", "int8", "uint8", "int32", "complex64"):
        kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
        values = np.random.default_rng(1).integers(-50, 50, 20_000).astype(np.int8).astype(kind)
        dump_file(tmp_path / dtype, "net/a", values, dtype=dtype)
        row, *_ = run("ls", "--stats", tmp_path / dtype, "--projections", "--json", "-").json["tensors"]
        assert row["projections"] == list(project(values)), dtype
    lines = run("ls", "--stats", TREES / "acl-stats", "--projections").out.splitlines()
    assert lines[0].split()[-8:] == [f"p{place}" for place in range(8)]
    assert lines[1].split()[-8:] == ["-"] * 8  # where there are no values
    assert run("ls", "--stats", TREES / "acl-tensor", "--projections").out.splitlines()[1].split()[-1] != "-"
