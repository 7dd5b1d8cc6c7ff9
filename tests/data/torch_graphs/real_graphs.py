"""Has the real torch_npu capture and replay graphs under a dump, and prints what was seen of them."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch_npu

from pytest_npudump.config.acl_json import write_acl_json
from pytest_npudump.errors import CapturedGraphError
from pytest_npudump.runtime.torch_npu.adapter import TorchNpuRuntime

FOLDER, CALLS = Path(sys.argv[1]), Path(sys.argv[2])
ORIGINAL = {name: vars(torch_npu._C._NPUGraph)[name] for name in ("capture_begin", "capture_end", "replay")}
HELD = torch_npu.npu.NPUGraph.replay
"""A name that code took before any test began."""
X = torch.ones(4).npu()


def double(x: Any) -> Any:
    return x * 2


def captured() -> Any:
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        double(X)
    return graph


def plain() -> Any:
    graph = captured()
    return lambda: HELD(graph)


def callables() -> Any:
    graphed = torch.npu.make_graphed_callables(double, (X,))
    return lambda: graphed(X)


def torchair() -> Any:
    compiled = torch.compile(double, backend="npugraph_ex", dynamic=False)
    return lambda: compiled(X)


def under(data: str, make: Any, runs: int) -> dict[str, Any]:
    """Run what ``make`` returns under a dump; return what was told, raised, and asked of CANN."""
    torch._dynamo.reset()
    CALLS.unlink(missing_ok=True)
    config = FOLDER / "acl.json"
    write_acl_json(config, {"dump_path": str(FOLDER), "dump_op_switch": "on", "dump_data": data})
    runtime = TorchNpuRuntime(torch_npu)
    runtime.start(config)
    run, raised = make(), ""
    try:
        for _ in range(runs):
            run()
    except CapturedGraphError as error:
        raised = str(error)
    runtime.stop()
    return {"told": runtime.activity.evidence.undumped, "raised": raised, "calls": CALLS.read_text().split()}


def released() -> list[str]:
    """Switch the dump on and off as a test does that takes the configuration; return the calls for that."""
    runtime, config = TorchNpuRuntime(torch_npu), FOLDER / "acl.json"
    runtime.start(config)
    runtime.release()
    CALLS.unlink(missing_ok=True)
    torch_npu.npu.utils.init_dump()
    torch_npu.npu.utils.set_dump(str(config))
    torch_npu.npu.utils.finalize_dump()
    runtime.stop()
    runtime.stop()
    runtime.close()
    return [call for call in CALLS.read_text().split() if call.startswith("aclmdl")]


BEFORE = captured()
MAKERS = {"plain": plain, "callables": callables, "torchair": torchair}
result: dict[str, Any] = {
    "stats": {name: under("stats", make, 1) for name, make in MAKERS.items()},
    "once": {name: under("tensor", make, 1) for name, make in MAKERS.items()},
    "twice": {name: under("tensor", make, 2) for name, make in MAKERS.items()},
    "before": under("tensor", lambda: BEFORE.replay, 1),
    "never": under("tensor", plain, 0),
    "released": released(),
}
result["restored"] = all(vars(torch_npu._C._NPUGraph)[name] is method for name, method in ORIGINAL.items())
sys.stdout.write("\n" + json.dumps(result) + "\n")
