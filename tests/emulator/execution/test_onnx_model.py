"""Loading, describing and executing models: codes for what goes wrong, exact results for what goes right."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from pytest_npudump.emulator import onnx_model as models
from pytest_npudump.errors import MissingExtraError
from pytest_npudump.onnxmodels import sessions

if TYPE_CHECKING:
    from pathlib import Path

ARRAY = np.array([[1, 2, 3], [-4, 5, -6]], np.float32)
RESULT = np.maximum(ARRAY * np.array([1, -2, 0.5], np.float32), 0) + ARRAY + np.float32(1)


@pytest.fixture
def loaded(started: Any, small_model: Path) -> int:
    model_id, ret = started.mdl.load_from_file(str(small_model))
    assert ret == 0
    return int(model_id)


@pytest.fixture
def execute(started: Any) -> Any:
    """Executes with buffers of given sizes; None stands for an empty buffer."""

    def run(model_id: int, inputs: list[int | None], outputs: list[int | None]) -> int:
        datasets = []
        for sizes in (inputs, outputs):
            datasets.append(started.mdl.create_dataset())
            for size in sizes:
                address = started.rt.malloc(size, 0)[0] if size else 0
                started.mdl.add_dataset_buffer(datasets[-1], started.create_data_buffer(address, size or 0))
        return int(started.mdl.execute(model_id, *datasets))

    return run


def test_result_is_exact(loaded: int, run_model: Any) -> None:
    np.testing.assert_array_equal(run_model(loaded, ARRAY)[0], RESULT)


def test_om_stands_for_the_onnx_file_beside_it(started: Any, small_model: Path, run_model: Any) -> None:
    small_model.with_suffix(".om").write_bytes(b"a compiled model")
    model_id, ret = started.mdl.load_from_file(str(small_model.with_suffix(".om")))
    assert ret == 0
    np.testing.assert_array_equal(run_model(model_id, ARRAY)[0], RESULT)


def test_model_ids_count_from_one_and_are_not_given_again(started: Any, small_model: Path) -> None:
    ids = [started.mdl.load_from_file(str(small_model))[0] for _ in range(3)]
    assert ids == [1, 2, 3]
    assert started.mdl.unload(3) == 0
    assert started.mdl.load_from_file(str(small_model)) == (4, 0)
    assert started.mdl.unload(3) == 145003


@pytest.mark.parametrize("content", [None, b"", b"no model", b"\x08\x08"])
def test_bad_model_file_is_refused(started: Any, tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "bad.onnx"
    if content is not None:
        path.write_bytes(content)
    assert started.mdl.load_from_file(str(path)) == (0, 145002)
    assert "bad.onnx" in started.get_recent_err_msg()


@pytest.mark.parametrize("content", [None, b"", b"no model"])
def test_bad_model_file_is_refused_under_a_dump_too(
    set_dump: Any, started: Any, tmp_path: Path, content: bytes | None
) -> None:
    set_dump()
    path = tmp_path / "bad.onnx"
    if content is not None:
        path.write_bytes(content)
    assert started.mdl.load_from_file(str(path)) == (0, 145002)


def test_model_from_memory_is_called_like_its_graph(
    set_dump: Any, started: Any, small_model: Path, run_model: Any
) -> None:
    root = set_dump(dump_list=[{"model_name": "small graph"}])
    data = small_model.read_bytes()
    model_id, ret = started.mdl.load_from_mem(started.util.bytes_to_ptr(data), len(data))
    assert ret == 0
    np.testing.assert_array_equal(run_model(model_id, ARRAY)[0], RESULT)
    assert list(root.glob("*/0/small_graph/1/0/Mul.scale.*"))


def test_bad_model_in_memory_is_refused(started: Any) -> None:
    data = b"no model"
    assert started.mdl.load_from_mem(started.util.bytes_to_ptr(data), len(data)) == (0, 145006)
    assert started.mdl.load_from_mem(12345, 10) == (0, 100000)


def test_model_before_init_or_device_is_refused(acl: Any, small_model: Path) -> None:
    assert acl.mdl.load_from_file(str(small_model)) == (0, 145001)
    acl.init()
    assert acl.mdl.load_from_file(str(small_model)) == (0, 107002)


def test_description_tells_names_types_shapes_and_sizes(started: Any, loaded: int) -> None:
    mdl = started.mdl
    desc = mdl.create_desc()
    assert mdl.get_num_inputs(desc) == 0
    assert mdl.get_desc(desc, 99) == 145003
    assert mdl.get_desc(desc, loaded) == 0
    assert (mdl.get_num_inputs(desc), mdl.get_num_outputs(desc)) == (1, 1)
    assert mdl.get_input_size_by_index(desc, 0) == mdl.get_output_size_by_index(desc, 0) == 24
    assert mdl.get_input_dims(desc, 0) == ({"name": "x", "dimCount": 2, "dims": [2, 3]}, 0)
    assert mdl.get_output_dims(desc, 1) == ({}, 100000)
    assert mdl.get_input_data_type(desc, 0) == 0
    assert mdl.get_output_format(desc, 0) == 2
    assert mdl.get_input_name_by_index(desc, 0) == "x"
    assert mdl.get_output_index_by_name(desc, "y") == (0, 0)
    assert mdl.get_input_index_by_name(desc, "z") == (0, 100000)
    assert mdl.get_dynamic_batch(desc) == ({"batchCount": 0, "batch": []}, 0)
    assert mdl.destroy_desc(desc) == 0
    assert mdl.destroy_desc(desc) == 100000


def test_description_of_a_file_needs_no_loading(started: Any, small_model: Path) -> None:
    desc = started.mdl.create_desc()
    assert started.mdl.get_desc_from_file(desc, str(small_model)) == 0
    assert started.mdl.get_output_name_by_index(desc, 0) == "y"
    assert started.mdl.get_desc_from_file(desc, "nothing.om") == 145002
    assert started.mdl.query_size(str(small_model)) == (0, small_model.stat().st_size, 0)


@pytest.mark.parametrize(
    ("inputs", "outputs", "code"),
    [
        ([24], [24], 0),
        ([64], [64], 0),
        ([23], [24], 145000),
        ([24], [23], 145000),
        ([None], [24], 145000),
        ([24], [None], 145000),
        ([], [24], 145000),
        ([24, 24], [24], 145000),
        ([24], [], 145000),
    ],
)
def test_buffers_have_to_be_large_enough(
    loaded: int, execute: Any, inputs: list[int | None], outputs: list[int | None], code: int
) -> None:
    assert execute(loaded, inputs, outputs) == code


def test_execution_refuses_unknown_models_datasets_and_memory(
    started: Any, loaded: int, execute: Any
) -> None:
    assert execute(99, [24], [24]) == 145003
    assert started.mdl.execute(loaded, 0, 0) == 100000
    datasets = [started.mdl.create_dataset() for _ in range(2)]
    for dataset in datasets:
        started.mdl.add_dataset_buffer(dataset, started.create_data_buffer(4096, 24))
    assert started.mdl.execute(loaded, *datasets) == 145000
    assert "0x1000" in started.get_recent_err_msg()
    assert started.mdl.execute_async(loaded, *datasets, 77) == 107000


def test_destroyed_buffer_is_refused(started: Any, loaded: int) -> None:
    datasets = [started.mdl.create_dataset() for _ in range(2)]
    for dataset in datasets:
        buffer = started.create_data_buffer(4096, 24)
        assert started.mdl.add_dataset_buffer(dataset, buffer) == (dataset, 0)
        assert started.destroy_data_buffer(buffer) == 0
        assert started.destroy_data_buffer(buffer) == 100000
    assert started.mdl.execute(loaded, *datasets) == 100000


@pytest.fixture
def dynamic(started: Any, save_graph: Any) -> int:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [x], [y])
    model_id, ret = started.mdl.load_from_file(str(save_graph(graph, "dynamic.onnx")))
    assert ret == 0
    return int(model_id)


def test_one_varying_dimension_follows_from_the_buffer(started: Any, dynamic: int, execute: Any) -> None:
    desc = started.mdl.create_desc()
    started.mdl.get_desc(desc, dynamic)
    assert started.mdl.get_input_dims(desc, 0)[0]["dims"] == [-1, 3]
    assert started.mdl.get_output_size_by_index(desc, 0) == 0
    for rows in (1, 5):
        assert execute(dynamic, [12 * rows], [12 * rows + 8]) == 0
        assert started.mdl.get_cur_output_dims(desc, 0)[0]["dims"] == [rows, 3]
    assert execute(dynamic, [13], [100]) == 145000
    assert execute(dynamic, [12], [11]) == 145000
    assert execute(dynamic, [12], [None]) == 0


def test_shape_that_does_not_fit_is_refused(started: Any, dynamic: int) -> None:
    address, _ = started.rt.malloc(24, 0)
    source, target = started.mdl.create_dataset(), started.mdl.create_dataset()
    for dataset in (source, target):
        started.mdl.add_dataset_buffer(dataset, started.create_data_buffer(address, 24))
    for shape, code in (([2, 3], 0), ([2, 4], 145000), ([2], 145000), ([-1, 3], 145000), ([3, 3], 145000)):
        desc = started.create_tensor_desc(0, shape, 2)
        assert started.mdl.set_dataset_tensor_desc(source, desc, 0) == (source, 0)
        assert started.mdl.execute(dynamic, source, target) == code
    assert started.mdl.set_dataset_tensor_desc(source, desc, 1) == (source, 100000)


def test_model_that_fails_in_the_middle_is_an_error_code(started: Any, save_graph: Any) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.INT64, [1])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, [1])
    table = helper.make_tensor("table", TensorProto.INT64, [2], [10, 20])
    node = helper.make_node("Gather", ["table", "x"], ["y"])
    path = save_graph(helper.make_graph([node], "g", [x], [y], [table]), "gather.onnx")
    model_id, _ = started.mdl.load_from_file(str(path))
    address, _ = started.rt.malloc(8, 0)
    datasets = [started.mdl.create_dataset() for _ in range(2)]
    for dataset in datasets:
        started.mdl.add_dataset_buffer(dataset, started.create_data_buffer(address, 8))
    assert started.mdl.execute(model_id, *datasets) == 0
    assert started.util.ptr_to_bytes(address, 1) == b"\n"
    assert started.mdl.execute(model_id, *datasets) == 507011
    message = started.get_recent_err_msg()
    assert "Gather operator 'Gather_0' failed (task 1): onnxruntime" in message


def test_weights_in_another_file_are_found(
    set_dump: Any, started: Any, small_model: Path, run_model: Any
) -> None:
    model = onnx.load(str(small_model))
    folder = small_model.parent / "external"
    folder.mkdir()
    onnx.save(
        model, str(folder / "m.onnx"), save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    plain, ret = started.mdl.load_from_file(str(folder / "m.onnx"))
    assert ret == 0, started.get_recent_err_msg()
    set_dump()
    dumped, ret = started.mdl.load_from_file(str(folder / "m.onnx"))
    assert ret == 0, started.get_recent_err_msg()
    for model_id in (plain, dumped):
        np.testing.assert_array_equal(run_model(model_id, ARRAY)[0], RESULT)


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_missing_package_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, small_model: Path, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"pytest-npudump\[emulator\]"):
        models.load(small_model, None) if package == "onnxruntime" else sessions.read_model(small_model)
