"""Lines of source of layers, from graphs as MindSpore 2.10.0 writes them."""

from pathlib import Path

import numpy as np
import pytest

from pytest_npudump.cli import main
from pytest_npudump.errors import FormatError
from pytest_npudump.graph.model_files import code_of

OWN = "/opt/lib/python3.11/site-packages/mindspore/nn/layer/conv.py"
NODES = f"""\
subgraph @kernel_graph0() {{
  %0(CNode_15) = Load(%para5_conv1.weight, UMonad[U])
      # Fullname with scope: (Default/Load-op0)
  %1(output) = Conv2D(%para9_x, %0) {{instance name: conv2d}}
      : (Tensor, Tensor) -> (Tensor)
      # Fullname with scope: (Default/conv1-Conv2d/Conv2D-op0)
      # In file /samples/lenet.py:30~36, 4~30/    def construct(self, x):/
      # In file /samples/lenet.py:31, 32~42/        x = self.pool(self.relu(self.conv1(x)))/
      # In file {OWN}:372~376, 4~21/    def construct(self, x):/
      # In file {OWN}:373, 17~44/        output = self.conv2d(x, self.weight)/
  %2(CNode_17) = PrimFunc_ReLU(%1)
      # Fullname with scope: (Default/relu-ReLU/ReLU-op0)
      # In file {OWN}:525, 15~31/        return self.relu(input)/
}}
"""


def test_the_innermost_line_that_is_not_mindspores_own_counts(tmp_path: Path) -> None:
    layers = ("Default/conv1-Conv2d/Conv2D-op0", "Default_relu-ReLU_ReLU-op0", "Default/Load-op0", "other")
    assert code_of(tmp_path, layers) == {}
    graphs = tmp_path / "rank_0" / "graphs"
    graphs.mkdir(parents=True)
    (graphs / "ms_output_trace_code_graph_0.ir").write_text(NODES)
    (graphs / "ms_output_trace_code_graph_1.ir").write_text(NODES.replace(":31,", ":99,"))
    assert code_of(tmp_path, layers) == {
        "Default_conv1-Conv2d_Conv2D-op0": "/samples/lenet.py:31: x = self.pool(self.relu(self.conv1(x)))",
        "Default_relu-ReLU_ReLU-op0": f"{OWN}:525: return self.relu(input)",
    }
    (graphs / "ms_output_trace_code_graph_0.ir").unlink()
    (graphs / "ms_output_trace_code_graph_0.ir").mkdir()
    with pytest.raises(FormatError, match=r"graph_0\.ir"):
        code_of(tmp_path, layers)


def test_a_comparison_of_folders_names_the_line_of_the_first_mismatch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for side in (0, 1):
        rank = tmp_path / str(side) / "rank_0"
        folder = rank / "LeNet" / "0" / "0"
        folder.mkdir(parents=True)
        (rank / "graphs").mkdir()
        (rank / "graphs" / "ms_output_trace_code_graph_0.ir").write_text(NODES)
        name = (
            "Conv2D.Default_conv1-Conv2d_Conv2D-op0.0.0.1795228695299630.output.0.DefaultFormat.Float32.npy"
        )
        np.save(folder / name, np.full(3, side, np.float32))
    assert main(["compare", str(tmp_path / "0"), str(tmp_path / "1")]) == 1
    told = capsys.readouterr().out
    assert "Conv2D-op0:output.0 is called at /samples/lenet.py:31: x = self.pool(self.relu(" in told
