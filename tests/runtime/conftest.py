"""A stand-in for a device's ``acl``: it keeps every call and obeys the life cycle CANN documents."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest


@dataclass
class Tensor:
    """One input or output of the model: dynamic where a dimension is -1."""

    name: str
    shape: tuple[int, ...]
    number: int = 0

    @property
    def size(self) -> int:
        return 0 if -1 in self.shape else 4 * int(np.prod(self.shape))


@dataclass
class Device:
    """The state behind the module: life cycle, memory by address, handles, and the calls in order.

    ``answers`` maps a call's name to the code it is to return instead of its own. The model adds 1 to each
    element of its first input.
    """

    inputs: tuple[Tensor, ...] = (Tensor("x", (2, 3)),)
    outputs: tuple[Tensor, ...] = (Tensor("y", (2, 3)),)
    answers: dict[str, int] = field(default_factory=dict)
    message: str | None = None
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    references: int = 0
    finalized: bool = False
    dump_open: bool = False
    dumping: str = ""
    loaded_under: dict[int, str] = field(default_factory=dict)
    memory: dict[int, bytearray] = field(default_factory=dict)
    live: dict[int, str] = field(default_factory=dict)
    buffers: dict[int, tuple[int, int]] = field(default_factory=dict)
    datasets: dict[int, list[int]] = field(default_factory=dict)
    shapes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    current: tuple[int, ...] = ()
    counter: int = 0x1000

    def new(self, kind: str) -> int:
        self.counter += 0x1000
        self.live[self.counter] = kind
        return self.counter

    def drop(self, handle: int, kind: str) -> int:
        assert self.live.pop(handle, None) == kind, f"{handle:#x} is no live {kind}"
        return 0

    def names(self) -> list[str]:
        return [call[0] for call in self.calls]

    def init(self, *path: str) -> int:
        del path
        self.references += 1
        return 100002 if self.references > 1 else 0

    def finalize(self) -> int:
        self.references, self.finalized = 0, True
        return 0

    def init_dump(self) -> int:
        if not self.references:
            return 100001
        if self.dump_open:
            return 100002
        self.dump_open = True
        return 0

    def set_dump(self, path: str) -> int:
        if not self.references or not self.dump_open:
            return 100045 if self.references else 100001
        self.dumping = path
        return 0

    def finalize_dump(self) -> int:
        if not self.references or not self.dump_open:
            return 100045 if self.references else 100001
        self.dump_open, self.dumping = False, ""
        return 0

    def load_from_file(self, path: str) -> tuple[int, int]:
        del path
        model = self.new("model")
        self.loaded_under[model] = self.dumping
        return model, 0

    def allocate(self, kind: str) -> Callable[..., tuple[int, int]]:
        def malloc(size: int, *_: int) -> tuple[int, int]:
            assert size > 0
            address = self.new(kind)
            self.memory[address] = bytearray(size)
            return address, 0

        return malloc

    def free(self, kind: str) -> Callable[[int], int]:
        def release(address: int) -> int:
            del self.memory[address]
            return self.drop(address, kind)

        return release

    def memcpy(self, target: int, room: int, source: int, count: int, kind: int) -> int:
        del kind
        assert count <= room <= len(self.memory[target])
        self.memory[target][:count] = self.memory[source][:count]
        return 0

    def bytes_to_ptr(self, data: bytes) -> int:
        self.counter += 0x1000
        self.memory[self.counter] = bytearray(data)
        return self.counter

    def create_data_buffer(self, address: int, size: int) -> int:
        handle = self.new("buffer")
        self.buffers[handle] = (address, size)
        return handle

    def add_dataset_buffer(self, dataset: int, buffer: int) -> tuple[int, int]:
        self.datasets[dataset].append(buffer)
        return dataset, 0

    def create_dataset(self) -> int:
        handle = self.new("dataset")
        self.datasets[handle] = []
        return handle

    def create_tensor_desc(self, number: int, dims: list[int], layout: int) -> int:
        del number, layout
        handle = self.new("tensor desc")
        self.shapes[handle] = tuple(dims)
        return handle

    def set_dataset_tensor_desc(self, dataset: int, desc: int, index: int) -> tuple[int, int]:
        assert index == 0
        self.current = self.shapes[desc]
        return dataset, 0

    def execute(self, model: int, source: int, target: int) -> int:
        assert self.live[model] == "model"
        address, size = self.buffers[self.datasets[source][0]]
        values = np.frombuffer(bytes(self.memory[address][:size]), np.float32) + np.float32(1)
        buffer = self.datasets[target][0]
        address, room = self.buffers[buffer]
        if not address:
            address, room = self.allocate("device memory")(values.nbytes)[0], values.nbytes
            self.buffers[buffer] = (address, room)
        assert room >= values.nbytes
        self.memory[address][: values.nbytes] = values.tobytes()
        return 0

    def dims(self, tensor: Tensor, shape: tuple[int, ...]) -> tuple[dict[str, Any], int]:
        return {"name": tensor.name, "dimCount": len(shape), "dims": list(shape)}, 0

    def said(self) -> str | None:
        text, self.message = self.message, None
        return text

    def recorded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.calls.append((name, *arguments))
            answer = self.answers.get(name)
            if answer is None:
                return function(*arguments)
            return (0, answer) if name in PAIRS else answer

        return call

    def module(self) -> Any:
        """Return what ``import acl`` would give."""
        drop = self.drop
        mdl = {
            "init_dump": self.init_dump,
            "set_dump": self.set_dump,
            "finalize_dump": self.finalize_dump,
            "load_from_file": self.load_from_file,
            "unload": lambda model: drop(model, "model"),
            "create_desc": lambda: self.new("model desc"),
            "destroy_desc": lambda desc: drop(desc, "model desc"),
            "get_desc": lambda *_: 0,
            "create_dataset": self.create_dataset,
            "destroy_dataset": lambda dataset: drop(dataset, "dataset"),
            "add_dataset_buffer": self.add_dataset_buffer,
            "set_dataset_tensor_desc": self.set_dataset_tensor_desc,
            "execute": self.execute,
            "get_cur_output_dims": lambda _, i: self.dims(
                self.outputs[i], self.current or self.outputs[i].shape
            ),
        }
        for io, tensors in (("input", self.inputs), ("output", self.outputs)):
            mdl[f"get_num_{io}s"] = lambda _, t=tensors: len(t)
            mdl[f"get_{io}_dims"] = lambda _, i, t=tensors: self.dims(t[i], t[i].shape)
            mdl[f"get_{io}_data_type"] = lambda _, i, t=tensors: t[i].number
            mdl[f"get_{io}_name_by_index"] = lambda _, i, t=tensors: t[i].name
            mdl[f"get_{io}_size_by_index"] = lambda _, i, t=tensors: t[i].size
        rt = {
            "set_device": lambda _: 0,
            "reset_device": lambda _: 0,
            "malloc": self.allocate("device memory"),
            "free": self.free("device memory"),
            "malloc_host": self.allocate("host memory"),
            "free_host": self.free("host memory"),
            "memcpy": self.memcpy,
        }
        util = {
            "bytes_to_ptr": self.bytes_to_ptr,
            "ptr_to_bytes": lambda address, size: bytes(self.memory[address][:size]),
        }
        top = {
            "init": self.init,
            "finalize": self.finalize,
            "create_data_buffer": self.create_data_buffer,
            "destroy_data_buffer": lambda buffer: drop(buffer, "buffer"),
            "get_data_buffer_addr": lambda buffer: self.buffers[buffer][0],
            "create_tensor_desc": self.create_tensor_desc,
            "destroy_tensor_desc": lambda desc: drop(desc, "tensor desc"),
        }
        return SimpleNamespace(
            __name__="acl",
            get_recent_err_msg=self.said,
            get_soc_name=lambda: "Ascend910B3",
            mdl=self.group("mdl.", mdl),
            rt=self.group("rt.", rt),
            util=self.group("util.", util),
            **vars(self.group("", top)),
        )

    def group(self, prefix: str, functions: dict[str, Callable[..., Any]]) -> SimpleNamespace:
        return SimpleNamespace(
            **{name: self.recorded(prefix + name, function) for name, function in functions.items()}
        )


PAIRS = {
    *("mdl.load_from_file", "mdl.add_dataset_buffer", "mdl.set_dataset_tensor_desc"),
    *("mdl.get_cur_output_dims", "rt.malloc", "rt.malloc_host"),
}
"""Calls of pyACL that answer with a pair (value, code)."""


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture
def make_device() -> Callable[..., Device]:
    """Make a device whose model has other inputs and outputs, given as (name, shape[, type])."""

    def make(inputs: list[tuple[Any, ...]], outputs: list[tuple[Any, ...]]) -> Device:
        return Device(tuple(Tensor(*i) for i in inputs), tuple(Tensor(*o) for o in outputs))

    return make


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Write an acl.json whose dump goes to ``dump`` beside it."""
    (tmp_path / "dump").mkdir()
    path = tmp_path / "acl.json"
    path.write_text(f'{{"dump": {{"dump_path": "{tmp_path / "dump"}", "dump_list": [{{}}]}}}}')
    return path


@pytest.fixture(scope="session")
def stand_in() -> Path:
    """The folder in which ``import torch_npu`` finds a stand-in that notes its calls."""
    return Path(__file__).parents[1] / "data" / "torch_client"


@pytest.fixture
def torch_npu(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in, imported anew and gone afterwards."""
    monkeypatch.syspath_prepend(str(stand_in))
    known = set(sys.modules)
    import torch_npu  # type: ignore[import-not-found]

    yield torch_npu
    for name in set(sys.modules) - known:
        if name.partition(".")[0] in {"torch", "torch_npu"}:
            del sys.modules[name]


@pytest.fixture(scope="session")
def real_client(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What scripts print that run on the real torch_npu, over a libascendcl that notes its calls.

    They run in one process: the client is long to import.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    data = Path(__file__).parents[1] / "data" / "torch_graphs"
    folder = tmp_path_factory.mktemp("cann")
    for name in ("hccl", "acl_op_compiler", "ge_runner", "graph", "acl_tdt_channel", "opapi"):
        folder.joinpath(f"lib{name}.so").symlink_to("libascendcl.so")
    build = [compiler, "-w", "-shared", "-fPIC", "-Wl,-soname,libascendcl.so", "-o"]
    subprocess.run([*build, folder / "libascendcl.so", data / "libascendcl.c"], check=True)
    calls, torch = folder / "calls", os.environ["NPUDUMP_TORCHAIR"]
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([torch, str(Path(__file__).parents[2])]),
        "LD_LIBRARY_PATH": os.pathsep.join([str(folder), os.environ.get("LD_LIBRARY_PATH", "")]),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "ACL_CALLS": str(calls),
    }
    scripts = ("real_graphs.py", "real_kept.py")
    code = f"import runpy; [runpy.run_path(script) for script in {scripts}]"
    command = [sys.executable, "-W", "ignore", "-c", code, str(folder), str(calls)]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, cwd=data, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip(scripts, map(json.loads, done.stdout.splitlines()[-2:]), strict=True))
