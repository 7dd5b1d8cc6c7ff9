"""A stand-in for MindSpore 2.10.0 on CPU: reads its dump configuration once, and writes the same files.

With ``ASCEND`` in the environment it writes them where an asynchronous dump on Ascend has them.
"""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

__version__ = "2.10.0"
_c_expression = SimpleNamespace(synchronize=lambda: None)
_state: dict[str, Any] = {"config": None, "iteration": 0}


def get_context(name: str) -> str:
    return {"device_target": "CPU"}[name]


def set_context(**settings: str) -> None:
    assert settings == {"memory_optimize_level": "O1"}


def run(graph: int, tensors: dict[str, float]) -> None:
    """Run a graph whose operators, and parameters with a dot in their name, have these values."""
    if _state["config"] is None:
        _state["config"] = _read()
    iteration = _state["iteration"]
    _state["iteration"] += 1
    if not _state["config"]:
        return
    common = _state["config"]["common_dump_settings"]
    root = Path(common["path"]) / "rank_0"
    (root / "graphs").mkdir(parents=True, exist_ok=True)
    order = root / "execution_order"
    order.mkdir(exist_ok=True)
    listed = [name for name in tensors if "/" in name]
    order.joinpath(f"ms_execution_order_graph_{graph}.csv").write_text(
        "NodeExecutionOrder-FullNameWithScope\n" + "".join(f"{name}\n" for name in listed)
    )
    if common["iteration"] not in {"all", str(iteration)}:
        return
    with order.joinpath(f"ms_global_execution_order_graph_{graph}.csv").open("a") as file:
        file.write(f"{iteration}\n")
    parameters = [name for name in tensors if "/" not in name]
    root.joinpath("graphs", f"ms_output_trace_code_graph_{graph}.pb").write_bytes(
        b"".join(b"\x0a" + bytes([len(name)]) + name.encode() for name in parameters)
    )
    folder = root / common["net_name"] / str(graph) / str(iteration)
    if "ASCEND" in os.environ:
        at = time.strftime("%Y%m%d%H%M") + f"{iteration:02d}"
        folder = Path(common["path"]) / str(iteration) / at / "0" / f"net_{graph}" / str(graph + 1) / "1"
    for name, value in tensors.items():
        if common["dump_mode"] == 0 or any(_selects(kernel, name) for kernel in common["kernels"]):
            folder.mkdir(parents=True, exist_ok=True)
            _save(folder, name, value)


def _read() -> dict[str, Any]:
    path = os.environ.get("MINDSPORE_DUMP_CONFIG")
    if not path:
        return {}
    text = Path(path).read_text()
    settings: dict[str, Any] = json.loads(text)
    metadata = Path(settings["common_dump_settings"]["path"]) / "rank_0" / ".dump_metadata"
    metadata.mkdir(parents=True)
    metadata.joinpath("data_dump.json").write_text(text)
    return settings


def _selects(kernel: str, name: str) -> bool:
    expression = re.fullmatch(r"name-regex\((.*)\)", kernel)
    return re.fullmatch(expression[1], name) is not None if expression else kernel == name


def _save(folder: Path, name: str, value: float) -> None:
    kind = re.sub(r"-op\d+\Z", "", name.rpartition("/")[2]) if "/" in name else "Parameter"
    plain = name.replace("/", "_").replace(".", "_")
    stamp = time.time_ns() // 1000
    array = np.linspace(0, value, 6, dtype=np.float32)
    np.save(folder / f"{kind}.{plain}.0.0.{stamp}.output.0.DefaultFormat.Float32.npy", array)
    time.sleep(1e-4)
