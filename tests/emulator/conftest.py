from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from pytest_npudump.demo import MODEL
from pytest_npudump.emulator import install


@pytest.fixture
def acl(tmp_path: Path) -> Iterator[Any]:
    """The emulator as `import acl` gives it, in the state of a new process."""
    del tmp_path  # where the test may be until this has ended
    install.install()
    install.reset()
    import acl

    yield acl
    install.reset()
    install.uninstall()


@pytest.fixture
def started(acl: Any) -> Any:
    assert acl.init() == 0
    assert acl.rt.set_device(0) == 0
    return acl


@pytest.fixture
def set_dump(started: Any, tmp_path: Path) -> Callable[..., Path]:
    """Switches a dump on; returns the directory it goes to."""
    root = tmp_path / "dumps"
    root.mkdir()

    def switch_on(**keys: Any) -> Path:
        dump = {"dump_path": str(root), "dump_list": [{}], **keys}
        config = tmp_path / "acl.json"
        config.write_text(json.dumps({"dump": {key: v for key, v in dump.items() if v is not None}}))
        code = started.mdl.init_dump()
        assert code in {0, 100002}
        assert started.mdl.set_dump(str(config)) == 0, started.get_recent_err_msg()
        return root

    return switch_on


@pytest.fixture(scope="session")
def classifier() -> Path:
    """The demonstration's model; its input is [-1, 3, -1, -1]."""
    return MODEL


@pytest.fixture
def small_model(tmp_path: Path) -> Path:
    """x -> scale (Mul) -> block/relu (Relu) -> unnamed Add with x -> y, all float32 [2, 3]."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, -2.0, 0.5])
    one = helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])
    nodes = [
        helper.make_node("Constant", [], ["c"], value=one, name="one"),
        helper.make_node("Mul", ["x", "w"], ["scaled"], name="scale"),
        helper.make_node("Relu", ["scaled"], ["activated"], name="block/relu.1"),
        helper.make_node("Add", ["activated", "x"], ["sum"]),
        helper.make_node("Add", ["sum", "c"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
    graph = helper.make_graph(nodes, "small graph", [x], [y], [weight])
    return save(graph, tmp_path / "small.onnx")


def save(graph: onnx.GraphProto, path: Path) -> Path:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    return path


@pytest.fixture
def save_graph(tmp_path: Path) -> Callable[[onnx.GraphProto, str], Path]:
    return lambda graph, name: save(graph, tmp_path / name)


@pytest.fixture
def run_model(started: Any) -> Callable[..., list[np.ndarray]]:
    """Executes a loaded model on arrays, telling every shape."""

    def execute(model_id: int, *arrays: np.ndarray) -> list[np.ndarray]:
        acl = started
        desc = acl.mdl.create_desc()
        assert acl.mdl.get_desc(desc, model_id) == 0
        source, target = acl.mdl.create_dataset(), acl.mdl.create_dataset()
        for index, array in enumerate(arrays):
            address, ret = acl.rt.malloc(max(array.nbytes, 1), 0)
            assert ret == 0
            data = array.tobytes()
            assert acl.rt.memcpy(address, len(data), acl.util.bytes_to_ptr(data), len(data), 1) == 0
            acl.mdl.add_dataset_buffer(source, acl.create_data_buffer(address, len(data)))
            number = acl.mdl.get_input_data_type(desc, index)
            shape = acl.create_tensor_desc(number, list(array.shape), 2)
            acl.mdl.set_dataset_tensor_desc(source, shape, index)
        outputs = []
        for index in range(acl.mdl.get_num_outputs(desc)):
            size = acl.mdl.get_output_size_by_index(desc, index)
            address = acl.rt.malloc(size, 0)[0] if size else 0
            outputs.append(acl.create_data_buffer(address, size))
            acl.mdl.add_dataset_buffer(target, outputs[-1])
        code = acl.mdl.execute(model_id, source, target)
        assert code == 0, acl.get_recent_err_msg()
        results = []
        for index, buffer in enumerate(outputs):
            dims, ret = acl.mdl.get_cur_output_dims(desc, index)
            assert ret == 0
            size = acl.get_data_buffer_size(buffer)
            data = acl.util.ptr_to_bytes(acl.get_data_buffer_addr(buffer), size)
            results.append(np.frombuffer(data, np.float32).reshape(dims["dims"]))
        return results

    return execute


class Program:
    """What programs written for pyACL do with the small model, in the calling thread's context."""

    bytes = 24

    def __init__(self, acl: Any) -> None:
        self.acl = acl

    def load(self, path: Path) -> int:
        model_id, ret = self.acl.mdl.load_from_file(str(path))
        assert ret == 0, self.acl.get_recent_err_msg()
        number: int = model_id
        return number

    def memory(self, values: object, kind: type = np.float32) -> int:
        """Memory of this device that holds ``values``."""
        data = np.asarray(values, kind).tobytes()
        address, ret = self.acl.rt.malloc(len(data), 0)
        assert ret == 0
        self.acl.rt.memcpy(address, len(data), self.acl.util.bytes_to_ptr(data), len(data), 1)
        number: int = address
        return number

    def dataset(self, *places: tuple[int, int]) -> int:
        """A dataset of buffers, each an address and a size."""
        made: int = self.acl.mdl.create_dataset()
        for address, size in places:
            buffer = self.acl.create_data_buffer(address, size)
            assert self.acl.mdl.add_dataset_buffer(made, buffer) == (made, 0)
        return made

    def datasets(self, value: float = 1.0) -> tuple[int, int, int]:
        """Input and output of the small model, and where its output is."""
        source, target = self.memory([value] * 6), self.memory([0.0] * 6)
        return self.dataset((source, self.bytes)), self.dataset((target, self.bytes)), target

    def floats(self, address: int, count: int = 6) -> list[float]:
        """What is in device memory."""
        host, ret = self.acl.rt.malloc_host(4 * count)
        assert ret == 0
        assert self.acl.rt.memcpy(host, 4 * count, address, 4 * count, 2) == 0
        data = self.acl.util.ptr_to_bytes(host, 4 * count)
        self.acl.rt.free_host(host)
        return [float(value) for value in np.frombuffer(data, np.float32)]


@pytest.fixture
def program(started: Any) -> Program:
    return Program(started)


@pytest.fixture(scope="session")
def wire() -> Any:
    """The module wire.py, which takes dump files apart without the package."""
    name = "npudump_tests_wire"
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("wire.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
