"""GE's graphs, as ATC's JSON and as protobuf text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.errors import FormatError
from pytest_npudump.graph.edges import UNKNOWN, Port
from pytest_npudump.graph.model_files import read_atc_json, read_ge_text

if TYPE_CHECKING:
    from pathlib import Path


TEXT = r"""graph {
  name: "ResNet-50_0"
  op {
    name: "data"
    type: "Data"
    input: ""
    attr {
      key: "name"
      value {
        s: "op { name: \"no operator\" }"
      }
    }
    dst_name: "conv1"
    output_desc {
      name: "y"
      attr {
        key: "input"
        value {
          s: "data:9"
        }
      }
    }
  }
  op {
    name: "dynamic_const_1"
    type: "Const"
  }
  op {
    name: "conv1conv1_relu"
    type: "Conv2D"
    input: "data:0"
    input: "dynamic_const_1:0"
    input: ""
    input: "sync:-1"
  }
  op {
    name: "scale\344\275\215"
    type: "Mul"
    input: "conv1conv1_relu:0"
    input: "elsewhere"
  }
}
"""


def test_text_has_operators_with_their_inputs(tmp_path: Path) -> None:
    path = tmp_path / "ge_proto_00000_graph_0_Build.txt"
    path.write_text(TEXT, encoding="utf-8")
    assert read_ge_text(path).feeds == {
        "data": (None,),
        "dynamic_const_1": (),
        "conv1conv1_relu": (Port("data"), None, None),
        "scale位": (Port("conv1conv1_relu"), UNKNOWN),
    }


@pytest.mark.parametrize("name", [r"\u4f4d", r"\x", r"\N{NO SUCH}"])
def test_a_name_that_is_no_string_of_protobuf_text_is_an_error_with_the_file(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / "ge_proto_00000_graph_0_Build.txt"
    path.write_text(TEXT.replace(r"scale\344", f"scale{name}"), encoding="utf-8")
    with pytest.raises(FormatError, match=r"_Build\.txt: .* is no string of protobuf text"):
        read_ge_text(path)


TORCHAIR = r"""name: "graph_1"
op {
  name: "arg0_1"
  type: "Data"
}
op {
  name: "Const"
  type: "Const"
  attr {
    key: "value"
    value {
      s: "op {\n"
    }
  }
}
op {
  name: "MatMul_1"
  type: "MatMul"
  input: "arg0_1:0"
  input: "Const:0"
  input_desc {
    name: "x1"
  }
}
op {
  name: "Relu_2"
  type: "Relu"
  input: "MatMul_1:0"
  input: "MatMul_1:-1"
}
"""
"""Text of the real ``GraphDef`` of TorchAir's ``ge_ir``, as its ``dump_graph`` writes it."""

TENSORBOARD = """node {
    name: "arg0_1"
    op: "Data"
}
node {
    name: "Const"
    op: "Const"
    attr {
        key: "value"
        value {
            s: 's: "op {\\\\n"\\n'
        }
    }
}
node {
    name: "MatMul_1"
    op: "MatMul"
    input: "arg0_1:0"
    input: "Const:0"
}
node {
    name: "Relu_2"
    op: "Relu"
    input: "MatMul_1:0"
    input: "^MatMul_1"
}
"""
"""The same as its ``_GraphPbtxt`` writes it."""


@pytest.mark.parametrize("text", [TORCHAIR, TENSORBOARD])
def test_graphs_of_torchair_have_operators_outermost(tmp_path: Path, text: str) -> None:
    path = tmp_path / "dynamo_optimized_graph_1_rank_0_pid_1_ts_2.txt"
    path.write_text(text, encoding="utf-8")
    assert read_ge_text(path).feeds == {
        "arg0_1": (),
        "Const": (),
        "MatMul_1": (Port("arg0_1"), None),
        "Relu_2": (Port("MatMul_1"),),
    }


@pytest.mark.each(
    ("text", "reason"),
    [
        ("", "holds no operator"),
        ("name: 1\n", "holds no operator"),
        ("}\n", "closes a brace"),
        (TEXT[:-30], "ends within graph"),
    ],
)
def test_what_is_no_text_of_a_graph_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "graph.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FormatError, match=reason):
        read_ge_text(path)


def operator(name: str, op_type: str, *inputs: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": op_type, "input": list(inputs), "attr": [], **more}


def test_json_has_the_same(tmp_path: Path) -> None:
    operators = [
        {"name": "boxes", "type": "Data", "input": [""]},
        {"name": "const", "type": "Const"},
        operator("cast", "Cast", "boxes:0"),
        operator("nms", "BatchMultiClassNonMaxSuppression", "cast:0", "const:0", "", "boxes:-1"),
        operator("gather", "GatherV2", "nms:2"),
    ]
    path = tmp_path / "model.json"
    path.write_text(json.dumps({"name": "", "graph": [{"name": "sub_model_NPU_0", "op": operators}]}))
    edges = read_atc_json(path)
    assert edges.feeds["nms"] == (Port("cast"), None, None)
    assert edges.feeds["gather"] == (Port("nms", 2),)
    assert edges.told_by == "model.json"


def test_what_an_inner_graph_puts_out_is_not_known(tmp_path: Path) -> None:
    graphs = [
        {
            "op": [
                operator("x", "Data", ""),
                operator("call", "PartitionedCall", "x:0"),
                operator("y", "Relu", "call:0"),
            ]
        },
        {"op": [operator("inner", "Data", ""), operator("conv", "Conv2D", "inner:0")]},
    ]
    path = tmp_path / "model.json"
    path.write_text(json.dumps({"graph": graphs}))
    found = read_atc_json(path).restricted(["x", "y", "conv"]).feeds
    assert UNKNOWN in found["y"]
    assert UNKNOWN in found["conv"]
    assert found["x"] == (None,)


@pytest.mark.each(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"graph": 1}',
        '{"graph": [1]}',
        '{"graph": [{"op": [{"name": 1}]}]}',
        "[" * 100_000,
    ],
    ids=len,
)
def test_what_is_no_json_of_an_om_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(FormatError):
        read_atc_json(path)
