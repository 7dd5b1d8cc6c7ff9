"""Make the msprobe sample of MindSpore: python make_mindspore.py; needs mindstudio-probe and mindspore."""

from __future__ import annotations

import shutil
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, nn, ops
from msprobe.mindspore import PrecisionDebugger

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "msprobe" / "mindspore-L0"


class Net(nn.Cell):
    """Two layers, one of them called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm = nn.Dense(8, 8), nn.LayerNorm((8,))

    def construct(self, x: Tensor) -> Tensor:
        """Return one number."""
        return self.fc(self.norm(self.fc(x))).sum()


ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_seed(3)
mint.norm = lambda one: ops.sqrt((one * one).sum())  # of MindSpore's own the CPU has no kernel
net, x = Net(), Tensor(np.random.default_rng(4).normal(size=(4, 8)).astype(np.float32))
shutil.rmtree(FOLDER, ignore_errors=True)
debugger = PrecisionDebugger(dump_path=str(FOLDER), task="statistics", level="L0")
debugger.start(net)
ms.value_and_grad(net, None, net.trainable_params())(x)
debugger.stop()
debugger.step()
(process,) = FOLDER.glob("step0/*")
process = process.rename(process.with_name("proc7"))
stack = process / "stack.json"
libraries = str(Path(ms.__file__).parents[1])
text = stack.read_text("utf-8").replace(str(HERE), "/home/user/net").replace(libraries, "/usr/lib/python3")
stack.write_text(text, "utf-8")
