"""Raw names behind those of MindSpore's files, from what MindSpore leaves beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import sanitise
from pytest_npudump.dump.selection import mindspore_raw_names

DATA = Path(__file__).parents[2] / "data" / "trees"
TITLE = "NodeExecutionOrder-FullNameWithScope\n"


def order(root: Path, text: str, graph: int = 0, rank: int = 0) -> None:
    path = root / f"rank_{rank}" / "execution_order" / f"ms_execution_order_graph_{graph}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(TITLE + text, encoding="utf-8")


def graph(root: Path, *parameters: str) -> None:
    """Write names as ``ParameterProto.name`` of MindSpore's graphs has them: field 1, length-prefixed."""
    path = root / "rank_0" / "graphs" / "ms_output_trace_code_graph_0.pb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(b"\x0a" + bytes([len(name)]) + name.encode() for name in parameters))


@pytest.mark.parametrize("tree", ["control_flow_multigraph", "long_names_mapping", "op_fails_in_step_1"])
def test_every_operator_of_a_real_dump_has_a_raw_name(tree: str) -> None:
    root = DATA / f"mindspore-{tree}"
    layers = {record.key.layer for record in read_dump(root).records if record.op_type != "Parameter"}
    found = mindspore_raw_names(layers, root)
    assert found.keys() == layers
    for layer, names in found.items():
        assert all(sanitise(name) == layer for name in names)
        assert all("/" in name for name in names)


def test_the_number_is_the_file_s_where_the_list_has_another(tmp_path: Path) -> None:
    """MindSpore 2.10 lists Cast-op3 to Cast-op5 where files, and kernels, say 0 to 2."""
    order(tmp_path, "Default/Cast-op3\nDefault/Cast-op4\nDefault/a_b/Add-op0\n")
    found = mindspore_raw_names({"Default_Cast-op0", "Default_a_b_Add-op7"}, tmp_path)
    assert found == {
        "Default_Cast-op0": ("Default/Cast-op0",),
        "Default_a_b_Add-op7": ("Default/a_b/Add-op7",),
    }


def test_names_alike_in_files_come_all(tmp_path: Path) -> None:
    order(tmp_path, "Default/a_b/Add-op0\n")
    order(tmp_path, "Default/a/b/Add-op0\n", graph=1)
    order(tmp_path, "Default/a.b/Add-op0\n", rank=1)
    names = ("Default/a.b/Add-op0", "Default/a/b/Add-op0", "Default/a_b/Add-op0")
    assert mindspore_raw_names({"Default_a_b_Add-op0"}, tmp_path) == {"Default_a_b_Add-op0": names}


def test_parameters_are_named_by_the_graph(tmp_path: Path) -> None:
    order(tmp_path, "Default/Add-op0\n")
    graph(tmp_path, "fc1.weight", "fc1_bias", "x")
    assert mindspore_raw_names({"fc1_weight", "fc1_bias", "fc2_weight", "Default_Add-op0"}, tmp_path) == {
        "fc1_weight": ("fc1.weight",),
        "fc1_bias": ("fc1_bias",),
        "Default_Add-op0": ("Default/Add-op0",),
    }


def test_what_is_not_there_or_cannot_be_read_tells_nothing(tmp_path: Path) -> None:
    assert mindspore_raw_names({"Default_Add-op0", "w_b"}, tmp_path) == {}
    (tmp_path / "rank_0" / "execution_order" / "ms_execution_order_graph_0.csv").mkdir(parents=True)
    (tmp_path / "rank_0" / "graphs" / "ms_output_trace_code_graph_0.pb").mkdir(parents=True)
    assert mindspore_raw_names({"Default_Add-op0", "w_b"}, tmp_path) == {}
    assert mindspore_raw_names(set(), tmp_path / "absent") == {}
