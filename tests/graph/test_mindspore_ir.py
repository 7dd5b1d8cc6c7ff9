"""MindSpore's graphs: a file of the shape that MindSpore 2.10.0 leaves beside a dump of LeNet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_npudump.errors import FormatError
from pytest_npudump.graph.edges import UNKNOWN, Edges, Port
from pytest_npudump.graph.model_files import read_ir, read_mindspore

if TYPE_CHECKING:
    from pathlib import Path

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


def test_graphs_lie_in_the_folders_of_ranks(tmp_path: Path) -> None:
    assert read_mindspore(tmp_path) == Edges()
    for rank in (0, 1):
        folder = tmp_path / f"rank_{rank}" / "graphs"
        folder.mkdir(parents=True)
        (folder / "ms_output_trace_code_graph_0.ir").write_text(IR)
    assert len(read_mindspore(tmp_path).feeds) == 5
    (folder / "ms_output_trace_code_graph_1.ir").write_text("")
    with pytest.raises(FormatError, match=r"graph_1.ir: holds no node"):
        read_mindspore(tmp_path)
