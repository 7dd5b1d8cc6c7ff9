"""Has the real torch_npu run operators while calls are kept, and prints what was kept and asked of CANN."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch_npu

from pytest_npudump.config.acl_json import write_acl_json
from pytest_npudump.runtime.aten import KeptCall, Reading, WantedOutput
from pytest_npudump.runtime.torch_npu.adapter import TorchNpuRuntime

FOLDER, CALLS = Path(sys.argv[1]), Path(sys.argv[2])
X, Y = torch.arange(12.0).reshape(3, 4), torch.linspace(-1, 1, 12).reshape(3, 4)
THERE = [tensor.npu() for tensor in (X, Y)]
WIDE = torch.stack([X, Y], -1).npu()


def add() -> Any:
    return torch.add(*THERE, alpha=2)


def in_place() -> Any:
    return THERE[0].mul_(THERE[1])


def strided() -> Any:
    return torch.add(WIDE[..., 1], WIDE[..., 0])


def run(function: Any, api: str) -> tuple[Counter[str], list[KeptCall]]:
    """Return how often each function of CANN was called under a dump, and what was kept of it.

    What a thread of the client frees some time later is left out.
    """
    CALLS.unlink(missing_ok=True)
    runtime = TorchNpuRuntime(torch_npu)
    config = FOLDER / "acl.json"
    write_acl_json(config, {"dump_path": str(FOLDER), "dump_op_switch": "on", "dump_data": "tensor"})
    runtime.keep_calls([WantedOutput(api, "float32", (3, 4))] if api else [], 1 << 20)
    runtime.start(config)
    function()
    runtime.stop()
    calls = [call for call in CALLS.read_text().split() if not call.startswith("aclDestroy")]
    return Counter(calls), list(runtime.kept_calls().calls)


def compared(function: Any, api: str, expected: Any) -> dict[str, Any]:
    """Compare a run with calls kept with one without; what the device gives here means nothing."""
    THERE[:] = [tensor.npu() for tensor in (X, Y)]
    before, _ = run(function, "")
    THERE[:] = [tensor.npu() for tensor in (X, Y)]
    after, kept = run(function, api)
    found = [call.recomputed(Reading())[0] for call in kept]
    return {
        "names": [call.name for call in kept],
        "why not": [call.why_not for call in kept],
        "as on the CPU": [bool((one == expected.numpy()).all()) for one in found if one is not None],
        "more": dict(after - before),
        "fewer": dict(before - after),
    }


run(add, "")  # what a device is asked once

result = {
    "add": compared(add, "aclnnAdd", torch.add(X, Y, alpha=2)),
    "in place": compared(in_place, "aclnnInplaceMul", X * Y),
    "strided": compared(strided, "aclnnAdd", X + Y),
}
sys.stdout.write(json.dumps(result) + "\n")
