"""GE's graphs, as ATC's JSON and as protobuf text."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.errors import FormatError
from pytest_npudump.graph.model_files import (
    _READERS,
    edges_at_hand,
    read_atc_json,
    read_ge_text,
    read_ir,
    read_om,
    read_onnx,
)
from pytest_npudump.record.edges import UNKNOWN, Edges, Port
from pytest_npudump.request import GRAPH_SUFFIXES
from tests.graph.conftest import message

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


@pytest.mark.each(
    ("text", "reason"),
    [
        ("", "holds no operator"),
        ("name: 1\n", "holds no operator"),
        ("}\n", "closes a brace"),
        (TEXT[:-30], "ends within graph"),
        *(
            (TEXT.replace(r"scale\344", f"scale{name}"), r"graph\.txt: .* is no string of protobuf text")
            for name in (r"\u4f4d", r"\x", r"\N{NO SUCH}")
        ),
    ],
)
def test_what_is_no_text_of_a_graph_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "graph.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FormatError, match=reason):
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


@pytest.mark.each("text", [TORCHAIR, TENSORBOARD])
def test_graphs_of_torchair_have_operators_outermost(tmp_path: Path, text: str) -> None:
    path = tmp_path / "dynamo_optimized_graph_1_rank_0_pid_1_ts_2.txt"
    path.write_text(text, encoding="utf-8")
    outermost = {"arg0_1": (), "Const": (), "MatMul_1": (Port("arg0_1"), None), "Relu_2": (Port("MatMul_1"),)}
    assert read_ge_text(path).feeds == outermost


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
    call = (operator("call", "PartitionedCall", "x:0"), operator("y", "Relu", "call:0"))
    inner = [operator("inner", "Data", ""), operator("conv", "Conv2D", "inner:0")]
    path = tmp_path / "model.json"
    path.write_text(json.dumps({"graph": [{"op": [operator("x", "Data", ""), *call]}, {"op": inner}]}))
    found = read_atc_json(path).restricted(["x", "y", "conv"]).feeds
    assert UNKNOWN in found["y"]
    assert UNKNOWN in found["conv"]
    assert found["x"] == (None,)


NO_JSON = ["", "{", "[]", "{}", '{"graph": 1}', '{"graph": [1]}', '{"graph": [{"op": [{"name": 1}]}]}']


@pytest.mark.each("text", [*NO_JSON, "[" * 100_000], ids=len)
def test_what_is_no_json_of_an_om_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(FormatError):
        read_atc_json(path)


def om(*operators: tuple[str, str, list[str]], weights: bytes = b"w" * 500) -> bytes:
    every = (
        (6, message((1, name), (2, op_type), *((5, one) for one in inputs), (21, number)))
        for number, (name, op_type, inputs) in enumerate(operators)
    )
    definition = message((1, "root"), (2, 3), (7, message((1, "root"), (4, "x:0"), *every)))
    table = struct.pack("<7Q", 2, 2, 0, len(weights), 0, len(weights), len(definition))
    return b"IMOD".ljust(256, b"\0") + table + weights + definition


OPERATORS = [
    ("x", "Data", [""]),
    ("weights", "Const", []),
    ("conv" * 50, "Conv2D", ["x:0", "weights:0", "x:-1"]),
    ("split", "Split", ["conv" * 50 + ":0"]),
    ("add", "Add", ["split:1", "split:0"]),
]


def test_the_graph_is_found_behind_the_table_of_partitions(tmp_path: Path) -> None:
    path = tmp_path / "model.om"
    path.write_bytes(om(*OPERATORS))
    assert read_om(path).feeds == {
        "x": (None,),
        "weights": (),
        "conv" * 50: (Port("x"), None),
        "split": (Port("conv" * 50),),
        "add": (Port("split", 1), Port("split", 0)),
    }


def test_what_is_no_om_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.om"
    for content in (b"", b"IMOD", b"\x08\x07" * 200, b"IMOD".ljust(300, b"\0"), b"IMOD".ljust(900, b"\xff")):
        path.write_bytes(content)
        with pytest.raises(FormatError):
            read_om(path)
    with pytest.raises(FormatError, match="No such file"):
        read_om(tmp_path / "other.om")


def test_a_cut_or_changed_file_is_read_or_refused(tmp_path: Path) -> None:
    path, content = tmp_path / "model.om", om(*OPERATORS, weights=b"")
    for at in range(256, len(content), 3):
        for changed in (content[:at], content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]):
            path.write_bytes(changed)
            with suppress(FormatError):
                read_om(path)


IR = """\
# IR entry: @kernel_graph0
# Total subgraphs: 1

# Total params: 2
# Params:
%para1_fc.bias: <Ref[Tensor[Float32]], (10), ref_key=fc.bias, is_parameter>  :  has_default  :  IsWeight: true
%para9_x: <Tensor[Float32], (2, 28)> : [2, 28]  :  <Float32xDefaultFormat[const vector]{2, 28}>

subgraph @kernel_graph0() {
  %0(CNode_15) = Load(%para1_fc.bias, UMonad[U]) cnode_attrs: {checkpoint: Bool(1)}
      : (<Ref[Tensor[Float32]], (10), ref_key=fc.bias>, <UMonad, NoShape>) -> (<Tensor[Float32], (10)>)
      # Fullname with scope: (Default/Load-op0)
  %1(output) = Split(%para9_x, (I64(1), I64(2)), [F32(1), F32(2)]) {instance name: split} attrs: {a: (0)}
      : (<Tensor[Float32], (2, 28)>, <Int64, NoShape>) -> (<Tensor[Float32], (2, 14)>)
      # Fullname with scope: (Default/split-Split/Split-op0)
      # In file /data/samples/net.py:30~36, 4~30/    def construct(self, x):/
  %2(CNode_16) = TupleGetItem(%1, I64(1))
      # Fullname with scope: (Default/TupleGetItem-op0)
  %3(output) = PrimFunc_BiasAdd(%2, %0, I64(0)) {instance name: bias_add}
      # Fullname with scope: (Default/fc-Dense/BiasAdd-op0)
  %4(output) = Depend(%3, %1)
      # Fullname with scope: (Default/Depend-op0)
  %5(output) = PrimFunc_ReLU(%4)
      # Fullname with scope: (Default/relu-ReLU/ReLU-op0)
  Return(%5)
}
"""


def test_operands_are_inputs_and_what_hands_on_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "ms_output_trace_code_graph_0.ir"
    path.write_text(IR)
    assert read_ir(path).feeds == {
        "fc_bias": (),
        "x": (),
        "Default_split-Split_Split-op0": (Port("x"), None, None),
        "Default_fc-Dense_BiasAdd-op0": (Port("Default/split-Split/Split-op0", 1), Port("fc.bias"), None),
        "Default_relu-ReLU_ReLU-op0": (Port("Default/fc-Dense/BiasAdd-op0"),),
    }


def test_what_a_subgraph_is_called_with_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "ms_output_trace_code_graph_0.ir"
    path.write_text(IR + IR[IR.index("subgraph") :].replace("relu-", "other-").replace("%5(", "%7("))
    found = read_ir(path).restricted(["Default/split-Split/Split-op0", "Default/other-ReLU/ReLU-op0"])
    assert found.feeds["Default_split-Split_Split-op0"][0] == UNKNOWN


def test_graphs_lie_in_the_folders_of_ranks(tmp_path: Path, layers: Any) -> None:
    assert edges_at_hand([], tmp_path, layers())[0] == Edges()
    for rank in ("rank_0", "rank_1", "rank_x", "rank_0/graphs"):
        folder = tmp_path / rank / "graphs"
        folder.mkdir(parents=True)
        (folder / "ms_output_trace_code_graph_0.ir").write_text(IR if rank in {"rank_0", "rank_1"} else "")
    assert len(edges_at_hand([], tmp_path, layers())[0].feeds) == 5
    (tmp_path / "rank_1" / "graphs" / "ms_output_trace_code_graph_1.ir").write_text("")
    edges, (note,) = edges_at_hand([], tmp_path, layers())
    assert not edges.feeds
    assert "graph_1.ir: holds no node" in note


def test_edges_of_a_real_model_are_its_tensors_names(classifier: Path) -> None:
    edges = read_onnx(classifier)
    graph = onnx.load(str(classifier)).graph
    makers = {name: (node.name, slot) for node in graph.node for slot, name in enumerate(node.output)}
    constant = {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    constant |= {tensor.name for tensor in graph.initializer}
    makers |= {value.name: (value.name, 0) for value in graph.input}
    seen = 0
    for node in graph.node:
        if node.op_type == "Constant":
            continue
        ports = edges.feeds[node.name.replace("/", "_")]
        fed = [makers[name] for name in node.input if name and name not in constant]
        assert [(port.layer, port.slot) for port in ports if port is not None] == fed
        seen += len(fed)
    assert seen > 250


def test_what_a_branch_reads_of_the_graph_around_it_is_among_its_inputs(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info
    branch = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["inner"])], "branch", [], [value("inner", TensorProto.FLOAT, [1])]
    )
    nodes = [helper.make_node("If", ["c"], ["y"], "choose", then_branch=branch, else_branch=branch)]
    ports = [value("c", TensorProto.BOOL, []), value("x", TensorProto.FLOAT, [1])]
    graph = helper.make_graph(nodes, "g", ports, [value("y", TensorProto.FLOAT, [1])])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph), str(path))
    assert read_onnx(path).feeds["choose"] == (Port("c"), Port("x"))


BASE: dict[str, Any] = {"count": 4, "max": 2.0, "min": -1.0, "avg": 0.5}


def model(folder: Path, name: str, *operators: tuple[str, list[str]]) -> Path:
    """An om that cannot be read, beside ATC's JSON of it."""
    listed = [{"name": layer, "type": "Relu", "input": inputs} for layer, inputs in operators]
    (folder / f"{name}.json").write_text(json.dumps({"graph": [{"op": listed}]}))
    return folder / f"{name}.om"


@pytest.fixture
def layers(make_table: Callable[..., StatsTable]) -> Callable[..., StatsTable]:
    """Return what makes a table of an output of each layer."""
    return lambda *names: make_table(*((f"{name}:output.0", "float32", (4,), BASE) for name in names))


def ir_of_mindspore(folder: Path) -> None:
    (folder / "rank_0" / "graphs").mkdir(parents=True)
    (folder / "rank_0" / "graphs" / "ms_output_trace_code_graph_0.ir").write_text(IR)


def test_layers_of_two_models_are_fed_as_both_say(tmp_path: Path, layers: Any) -> None:
    table = layers(*(f"{layer}#model={name}" for name in ("cls", "det") for layer in ("conv", "relu")))
    one = model(tmp_path, "cls", ("conv", []), ("relu", ["conv:0"]))
    edges, notes = edges_at_hand([one], tmp_path, table)
    assert (edges.feeds, notes) == ({"conv": (UNKNOWN,), "relu": (UNKNOWN,)}, ())  # det's may be others
    two = model(tmp_path, "det", ("conv", []), ("relu", ["conv:0"]))
    edges, notes = edges_at_hand([one, two], tmp_path, table)
    assert (edges.feeds, notes) == ({"conv": (), "relu": (Port("conv"),)}, ())


def test_layers_of_two_graphs_of_mindspore_are_told_apart(tmp_path: Path, layers: Any) -> None:
    ir_of_mindspore(tmp_path)
    relu = "Default_relu-ReLU_ReLU-op0"
    for graphs, fed in (("0", Port("Default/fc-Dense/BiasAdd-op0")), ("01", UNKNOWN)):
        table = layers(*(f"{relu}#model={name}" for name in graphs))
        assert edges_at_hand([], tmp_path, table)[0].feeds[relu] == (fed,)


def test_operators_that_mindspore_numbers_otherwise_in_its_dump_are_joined_to_none(
    tmp_path: Path, layers: Any
) -> None:
    ir_of_mindspore(tmp_path)
    names = ["Default_fc-Dense_BiasAdd-op0", "Default_relu-ReLU_ReLU-op0", "fc_weight"]
    numbered = ["Default_fc-Dense_BiasAdd-op1"]
    for further, fed in (([], Port("Default/fc-Dense/BiasAdd-op0")), (numbered, UNKNOWN)):
        feeds = edges_at_hand([], tmp_path, layers(*names, *further))[0].feeds
        assert feeds["Default_relu-ReLU_ReLU-op0"] == (fed,)
        assert feeds["Default_split-Split_Split-op0"][0] == Port("x")


def test_a_named_graph_goes_before_what_the_models_tell_and_completes_it(tmp_path: Path, layers: Any) -> None:
    table = layers("conv", "relu", "add")
    ran = model(tmp_path, "ran", ("conv", []), ("relu", ["conv:0"]), ("add", ["relu:0"]))
    named = model(tmp_path, "named", ("conv", []), ("relu", []), ("add", ["conv:0"])).with_suffix(".json")
    edges, notes = edges_at_hand([ran], tmp_path, table, named)
    assert (edges.feeds, notes) == ({"conv": (), "relu": (), "add": (Port("conv"),)}, ())
    assert edges_at_hand([], tmp_path, table, named)[0].feeds == edges.feeds
    ran = model(tmp_path, "ran", ("conv", []))
    named = model(tmp_path, "named", ("relu", ["conv:0"])).with_suffix(".json")
    found = edges_at_hand([ran], tmp_path, layers("conv", "relu"), named)[0]
    assert found.feeds == {"conv": (), "relu": (Port("conv"),)}


def test_a_named_graph_of_other_layers_or_none_at_all_is_said(tmp_path: Path, layers: Any) -> None:
    table = layers("conv")
    ran = model(tmp_path, "ran", ("conv", []))
    other = model(tmp_path, "other", ("elsewhere", [])).with_suffix(".json")
    edges, notes = edges_at_hand([ran], tmp_path, table, other)
    assert edges.feeds == {"conv": ()}
    assert notes == ("other.json, named by graph=, holds no layer of this dump: which graph ran?",)
    other.write_text("no JSON", "utf-8")
    edges, (note,) = edges_at_hand([ran], tmp_path, table, other)
    assert edges.feeds == {"conv": ()}
    assert note.startswith("which tensor feeds which is not known from a file: ")


def test_every_kind_of_file_that_a_marker_may_name_has_a_reader() -> None:
    assert {suffix for suffix, _ in _READERS} == {*GRAPH_SUFFIXES}


def test_graphs_of_torchair_lie_beside_the_dump_or_in_the_folder_of_several(
    tmp_path: Path, layers: Any
) -> None:
    table = layers("MatMul_1", "Relu_2")
    (tmp_path / "torchair").mkdir()
    graph = tmp_path / "torchair" / "dynamo_optimized_graph_1_rank_0_pid_1_ts_2.txt"
    for root in (tmp_path, tmp_path / "dump"):
        graph.write_text('op {\n  name: "MatMul_1"\n}\nop {\n  name: "Relu_2"\n  input: "MatMul_1:0"\n}\n')
        edges, notes = edges_at_hand([], root, table)
        assert (edges.feeds, notes) == ({"MatMul_1": (), "Relu_2": (Port("MatMul_1"),)}, ())
        graph.write_text("op {")
        edges, (note,) = edges_at_hand([], root, table)
        assert not edges.feeds
        assert "it is cut off" in note


def test_what_msprobe_calls_in_a_call_is_in_it(tmp_path: Path) -> None:
    """Parameters, and calls that construct.json names, feed what a module puts out; no layer feeds itself."""
    sample = Path(__file__).parents[1] / "data" / "tools" / "msprobe" / "mix-statistics"
    dump = read_dump(sample)
    edges, notes = edges_at_hand([], sample, StatsTable.from_records(dump.records))
    assert not notes
    keys = [record.key for record in dump.records]
    texts = [str(key) for key in keys]
    parents = {
        text: {texts[at] for at in fed} for text, (fed, _) in zip(texts, edges.parents_of(keys), strict=True)
    }
    inside = {"block.fc.weight:output.0", "block.fc.bias:output.0", "block.fc:input.0"}
    assert inside == parents["block.fc:output.0"]
    assert {"block.fc:output.0", "block.norm:output.0"} < parents["block:output.0"]
    assert {"block.fc#turn=1:output.0", "block.norm#turn=1:output.0"} < parents["block#turn=1:output.0"]
    assert "block.fc.backward:output.0" in parents["block.backward:output.0"]
    own = [
        text for text, fed in parents.items() if any(one.split(":")[0] == text.split(":")[0] for one in fed)
    ]
    assert all(":output" in text for text in own), "an output has the inputs of its layer"
    shutil.copytree(sample, tmp_path / "dump")
    for path in tmp_path.rglob("construct.json"):
        path.write_text('{"Module.a.A.forward.0": 7}')
    _, notes = edges_at_hand([], tmp_path / "dump", StatsTable.from_records(dump.records))
    assert len(notes) == 2
    assert all("which call was made in which is not known from a file" in note for note in notes)
