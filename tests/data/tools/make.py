# ruff: noqa: ANN001, ANN201, ANN204
"""Samples of other tools, by the tools: msprobe 26.2.0, SGLang 0.5.23, torch 2.13, numpy, safetensors.

``python make.py`` in an empty folder, on a CPU; ``python make.py sglang DIR RANK SIZE`` for each rank of two,
and of one, writes what SGLang 0.5.23's dumper and hooks do, whose wheel is unpacked in DIR. ATB's file is of
its documented form, by hand. Names of folders in msprobe's files were replaced afterwards, ``proc*`` and
``pid*`` renamed.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from safetensors.torch import save_file

KINDS = {
    "L0-tensor": ("tensor", "L0", "md5", 1),
    "mix-statistics": ("statistics", "mix", "statistics", 2),
    "L1-md5": ("statistics", "L1", "md5", 1),
}


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.fc = torch.nn.Linear(8, 8)

    def forward(self, x, *, scale=None):
        y = x + torch.relu(self.fc(self.norm(x))) * (1 if scale is None else scale)
        return {"y": y, "parts": (y.argmax(-1), y > 0)}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = torch.nn.Embedding(16, 8)
        self.block = Block()
        self.head = torch.nn.Linear(8, 5).bfloat16()

    def forward(self, ids):
        x = self.emb(ids)
        for _ in range(2):
            x = self.block(x, scale=torch.tensor(0.5))["y"]
        return self.head(x.bfloat16())


def msprobe(kind):
    from msprobe.pytorch import PrecisionDebugger

    task, level, mode, steps = KINDS[kind]
    said = {"task": task, "dump_path": kind, "rank": [], "step": [], "level": level}
    said[task] = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": mode}
    Path(f"{kind}.json").write_text(json.dumps(said))
    torch.manual_seed(3)
    net, debugger = Net(), PrecisionDebugger(config_path=f"{kind}.json")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(steps):
        debugger.start(model=net)
        loss = net(torch.tensor([[1, 2, 3], [4, 5, 6]]) + step).float().square().sum()
        loss.backward()
        debugger.stop()
        debugger.step()
        optimizer.step()
        optimizer.zero_grad()


def plain():
    folder = Path("plain")
    folder.mkdir()
    values = torch.arange(6.0).view(2, 3) - 2.5
    layers = {
        "half": values.half(),
        "brain": values.bfloat16(),
        "e4m3": values.to(torch.float8_e4m3fn),
        "nested": {"transposed": values.T, "list": [values.int(), values > 0]},
        "weight": torch.nn.Parameter(values[:, 1]),
        "unsigned": torch.tensor([1, 65535], dtype=torch.uint16),
        "scalar": torch.tensor(7),
        "empty": torch.zeros(0, 3),
        "words": ["not a tensor", None, 3.5, torch.Size([2]), torch.float32, torch.device("cpu")],
    }
    torch.save(layers, folder / "layers.pt")
    torch.save(
        {"value": values, "meta": {"dims": "t h[tp]", "tp_rank": 1, "tp_size": 2}}, folder / "value.pt"
    )
    np.savez(folder / "arrays.npz", x=np.asfortranarray(values.numpy()), y=np.arange(3))
    save_file({"w": values, "b": values.bfloat16()}, folder / "weights.safetensors")
    head = b"$Version=1.0\n$Object.Count=1\n$Object.Length=12\nformat=2\ndtype=1\ndims=2,3\n"
    head += b"$Object.data=0,12\n$End=1\n"
    (folder / "outtensor0.bin").write_bytes(head + values.half().numpy().tobytes())


def sglang(source, rank, size):
    """Write what ranks dump by SGLang's own two modules, without the engine that these import."""
    os.environ.update(DUMPER_ENABLE="1", DUMPER_DIR=".", DUMPER_EXP_NAME=f"sglang-tp{size}")
    for name, more in {
        "zmq": {},
        "sglang": {"__path__": []},
        "sglang.srt": {"__path__": []},
        "sglang.srt.managers": {"__path__": []},
        "sglang.srt.managers.io_struct": dict.fromkeys(("sock_recv", "sock_send", "wrap_as_pickle")),
        "sglang.srt.runtime_context": dict.fromkeys(("get_parallel", "get_server_args", "get_serving")),
        "sglang.srt.utils": {"get_device": lambda: "cpu"},
        "sglang.srt.layers": {"__path__": []},
        "sglang.srt.layers.logits_processor": {"LogitsProcessorOutput": Block},
        "sglang.srt.model_executor": {"__path__": []},
        "sglang.srt.model_executor.forward_batch_info": {"ForwardBatch": Block, "PPProxyTensors": Block},
    }.items():
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(more)
    sys.path.insert(0, f"{source}/sglang/srt/debug_utils")
    from dumper import dumper
    from tensor_dump_forward_hook import register_forward_hook_for_model

    at = "tcp://127.0.0.1:29871"
    torch.distributed.init_process_group("gloo", init_method=at, rank=rank, world_size=size)
    whole = torch.arange(24.0).view(3, 8) - 11
    for step in range(2):
        dumper.dump("attn_out", (whole + step).chunk(size, 1)[rank], layer_id=0, dims="t h[tp]")
        dumper.dump("mlp_out", (whole + step).bfloat16(), layer_id=0)
        dumper.step()
    top = torch.nn.Module()
    top.model = torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Identity())
    top.forward = top.model.forward
    register_forward_hook_for_model(top, "hooks", None, size, rank, 0)
    for step in range(3):  # each pass is written as the next one begins
        top.model(whole + step)


if len(sys.argv) > 2:
    sglang(sys.argv[2], *map(int, sys.argv[3:]))
elif len(sys.argv) > 1:
    msprobe(sys.argv[1])
else:
    plain()
    for kind in KINDS:
        subprocess.run([sys.executable, __file__, kind], check=True)
