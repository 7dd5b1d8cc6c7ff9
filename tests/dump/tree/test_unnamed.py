from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from pytest_npudump.dump.reader import read_dump

if TYPE_CHECKING:
    from pathlib import Path


STAMP = 1795228705872229
MINDSPORE = f"Add.z.3.5.{STAMP}.output.0.DefaultFormat.Float32.npy"


@pytest.mark.each(
    "name",
    [
        "x.npy",
        "Add.z.3.5.output.0.npy",
        f"Add.z.3.5.{STAMP}.output.0.DefaultFormat.Float32.x.npy",
        f"Add.z.3.5.{STAMP}.result.0.DefaultFormat.npy",
        "x.csv",
        "my_statistic.csv",
        f"Add.z.3.5.{STAMP}.csv.csv",
        f"Add.z.3.5.{STAMP}1",
        "Add.z.3.5.1795228705872",
        f"Add.3.{STAMP}",
    ],
)
def test_a_file_that_looks_like_data_and_has_no_tensor_is_a_problem(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "rank_0" / "Net" / "0" / "0"
    folder.mkdir(parents=True)
    (folder / name).write_bytes(b"not a tensor of any kind")
    (alone,) = read_dump(tmp_path).problems
    assert str(folder / name) in str(alone)
    np.save(folder / MINDSPORE, np.float32([1]))
    dump = read_dump(tmp_path)
    assert [problem.path for problem in dump.problems] == [alone.path]
    assert len(dump.records) == 1


@pytest.mark.each(
    "path",
    [
        "ops.json",
        "notes.txt",
        "plog.log",
        "net.om",
        "graph.pbtxt",
        "add_1.pt",
        f"Add.z.3.5.{STAMP}.output.0.6.float32.ND.bin",
        f"Opdebug.Node_OpDebug.3.5.{STAMP}.output.0.json",
        "libascendcl.so.8.2.1",
        "rank_0/execution_order/ms_execution_order_graph_0.csv",
        "rank_0/execution_order/ms_global_execution_order_graph_0.csv",
    ],
)
def test_a_file_that_is_none_of_a_dump_s_is_no_problem(tmp_path: Path, path: str) -> None:
    np.save(tmp_path / MINDSPORE, np.float32([1]))
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_bytes(b"0\n")
    dump = read_dump(tmp_path)
    assert not dump.problems
    assert len(dump.records) == 1


def test_mindspore_s_lists_are_known_from_inside_a_rank_too(tmp_path: Path) -> None:
    orders = tmp_path / "rank_0" / "execution_order"
    orders.mkdir(parents=True)
    (orders / "ms_execution_order_graph_0.csv").write_text("NodeExecutionOrder-FullNameWithScope\n")
    folder = tmp_path / "rank_0" / "Net" / "0" / "0"
    folder.mkdir(parents=True)
    np.save(folder / MINDSPORE, np.float32([1]))
    assert not read_dump(tmp_path / "rank_0").problems
