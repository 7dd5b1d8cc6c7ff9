"""The device behind the client: ACL's life cycle of a dump, and eager operators that are dumped."""

from __future__ import annotations

import json
import os
import struct
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils import _python_dispatch

calls: list[tuple[Any, ...]] = []
answers: dict[str, int] = {}
state: dict[str, Any] = {"initialised": False, "dump_open": False, "config": None, "counter": 0, "time": 0}
state |= {"device": 0, "inf_nan": False, "capturing": None}
_one_at_a_time = threading.RLock()
used: set[int] = set()
"""Devices on which the process has a context."""
state["counter"] = int(os.environ.get("TORCH_CLIENT_COUNTER", "0"))
_HEADER = (
    "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,"
    "Nan Count,Negative Inf Count,Positive Inf Count\n"
)


def initialise() -> None:
    if not state["initialised"]:
        ask("aclInit", *filter(None, [os.environ.get("TORCH_ACL_INIT_CONFIG_PATH")]))
        state["initialised"] = True


def use(device: int) -> None:
    """Make a device the current one."""
    state["device"] = device
    used.add(device)


def ask(call: str, *arguments: object) -> None:
    """Record a call, and raise as the client does where ACL's answer is not 0."""
    calls.append((call, *arguments))
    code = answers.get(call, 0) or _answer(call, *arguments)
    if code:
        raise RuntimeError(
            f"../torch_npu/csrc/npu/Module.cpp:1573 NPU function error: {call}(), error code is {code}\n"
            "[ERROR] 2026-11-21-05:18:11 (PID:30561, Device:0, RankID:-1) ERR00100 PTA call acl api failed\n"
            "[Error]: What ACL says of it.\n        Check the file."
        )


def options(wanted: dict[str, str]) -> None:
    """Keep options: the client queues those of the dump, and ignores what ACL answers."""
    calls.extend(("option", *item) for item in wanted.items())


def _answer(call: str, *arguments: object) -> int:
    if call == "aclmdlInitDump":
        if state["dump_open"]:
            return 100002
        state["dump_open"] = True
    elif call == "aclmdlSetDump":
        if not state["dump_open"]:
            return 100045
        state["config"] = json.loads(Path(str(arguments[0])).read_text(encoding="utf-8"))["dump"]
    elif call == "aclmdlFinalizeDump":
        if not state["dump_open"]:
            return 100045
        state.update(dump_open=False, config=None)
    return 0


def operator(api: str, value: float, *, kernel: str = "") -> None:
    """Run an eager operator with two results of ``value``; the counter goes on, dumped or not."""
    with _one_at_a_time:
        _operator(api, value, kernel)


def _operator(api: str, value: float, kernel: str) -> None:
    initialise()
    used.add(state["device"])
    dispatch(api)
    state["counter"] += 1
    config = state["config"]
    if config is None or "dump_debug" in config or "dump_scene" in config:
        return
    if state["capturing"] is not None:
        if config["dump_data"] == "tensor":
            state["capturing"].append((api, kernel, value, Path(config["dump_path"])))
        return
    state["time"] = max(state["time"] + 1, time.time_ns() // 1000)
    level, name = ("L0", kernel) if kernel else ("L2", api)
    folder = Path(config["dump_path"]) / "20261121051811" / "0"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{api}_{state['counter']}_{level}.{name}.65535.65535.{state['time']}"
    if config["dump_data"] == "tensor":
        path.write_bytes(_container(name, value))
        return
    row = f"Output,0,8,DT_FLOAT,ND,2,{value:g},{value:g},{value:g},2,0,0,0\n"
    path.with_name(f"{path.name}.csv").write_text(_HEADER + row, encoding="utf-8")


class OnNpu(torch.Tensor):  # type: ignore[misc]
    """A tensor on the NPU."""

    device = SimpleNamespace(type="npu")
    dtype = "float32"


class Operator:
    """An operator of torch, as its dispatcher describes it."""

    namespace = "aten"

    def __init__(self, name: str) -> None:
        self._schema = SimpleNamespace(name=f"aten::{name}", returns=(), is_mutable=False)

    def __call__(self, tensor: OnNpu) -> OnNpu:
        return tensor

    def __str__(self) -> str:
        return str(self._schema.name).replace("::", ".")


def dispatch(name: str) -> None:
    """Have the uppermost mode see an operator on the NPU."""
    for mode in _python_dispatch._get_current_dispatch_mode_stack()[-1:]:
        mode.__torch_dispatch__(Operator(name), (), (OnNpu(),), {})


def replay(captured: list[tuple[str, str, float, Path]]) -> None:
    """Write what a graph holds of the dump that was on while it was captured."""
    for api, kernel, value, dump_path in captured:
        state["time"] = max(state["time"] + 1, time.time_ns() // 1000)
        level, name = ("L0", kernel) if kernel else ("L2", api)
        folder = dump_path / "20261121051811" / "0"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{api}_{state['counter']}_{level}.{name}.1.65535.65535.{state['time']}"
        path.write_bytes(_container(name, value))


def _container(name: str, value: float) -> bytes:
    from pytest_npudump.dump.files.container import dump_data_class

    message = dump_data_class()(version="2.0", dump_time=state["time"], op_name=name)
    tensor = message.output.add(data_type=1, format=2, size=8, address=4096)
    tensor.shape.dim.append(2)
    header = message.SerializeToString()
    return struct.pack("<Q", len(header)) + header + struct.pack("<2f", value, value)
