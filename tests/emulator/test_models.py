"""Loading, describing and executing models: codes for what goes wrong, exact results for what goes right."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from pytest_npudump.dump.reader import read_dump
from pytest_npudump.emulator import onnx_model as models
from pytest_npudump.emulator.codes import NotEmulatedError
from pytest_npudump.emulator.faults import fail
from pytest_npudump.errors import MissingExtraError
from pytest_npudump.onnxmodels import sessions

ARRAY = np.array([[1, 2, 3], [-4, 5, -6]], np.float32)
RESULT = np.maximum(ARRAY * np.array([1, -2, 0.5], np.float32), 0) + ARRAY + np.float32(1)


@pytest.fixture
def loaded(program: Any, small_model: Path) -> int:
    number: int = program.load(small_model)
    return number


@pytest.fixture
def execute(program: Any) -> Any:
    """Executes with buffers of given sizes; None stands for an empty buffer."""

    def run(model_id: int, inputs: list[int | None], outputs: list[int | None]) -> int:
        places = [
            [(program.acl.rt.malloc(size, 0)[0] if size else 0, size or 0) for size in sizes]
            for sizes in (inputs, outputs)
        ]
        return int(program.acl.mdl.execute(model_id, *(program.dataset(*side) for side in places)))

    return run


def test_result_is_exact_and_om_stands_for_the_onnx_file_beside_it(
    program: Any, loaded: int, small_model: Path, run_model: Any
) -> None:
    small_model.with_suffix(".om").write_bytes(b"a compiled model")
    for model_id in (loaded, program.load(small_model.with_suffix(".om"))):
        np.testing.assert_array_equal(run_model(model_id, ARRAY)[0], RESULT)


def test_model_ids_count_from_one_and_are_not_given_again(started: Any, small_model: Path) -> None:
    ids = [started.mdl.load_from_file(str(small_model))[0] for _ in range(3)]
    assert ids == [1, 2, 3]
    assert started.mdl.unload(3) == 0
    assert started.mdl.load_from_file(str(small_model)) == (4, 0)
    assert started.mdl.unload(3) == 145003


def test_bad_model_file_is_refused_under_a_dump_too(set_dump: Any, started: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    for dumped in (False, True):
        if dumped:
            set_dump()
        for content in (None, b"", b"no model", b"\x08\x08"):
            path.unlink(missing_ok=True)
            if content is not None:
                path.write_bytes(content)
            assert started.mdl.load_from_file(str(path)) == (0, 145002), (content, dumped)
            assert "bad.onnx" in started.get_recent_err_msg()


def test_model_from_memory_is_called_like_its_graph_and_a_bad_one_is_refused(
    set_dump: Any, started: Any, small_model: Path, run_model: Any
) -> None:
    root = set_dump(dump_list=[{"model_name": "small graph"}])
    data = small_model.read_bytes()
    model_id, ret = started.mdl.load_from_mem(started.util.bytes_to_ptr(data), len(data))
    assert ret == 0
    np.testing.assert_array_equal(run_model(model_id, ARRAY)[0], RESULT)
    assert list(root.glob("*/0/small_graph/1/0/Mul.scale.*"))
    assert started.mdl.load_from_mem(started.util.bytes_to_ptr(b"no model"), 8) == (0, 145006)
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


def test_buffers_have_to_be_large_enough(loaded: int, execute: Any) -> None:
    for inputs, outputs, code in (
        ([24], [24], 0),
        ([64], [64], 0),
        ([23], [24], 145000),
        ([24], [23], 145000),
        ([None], [24], 145000),
        ([24], [None], 145000),
        ([], [24], 145000),
        ([24, 24], [24], 145000),
        ([24], [], 145000),
    ):
        assert execute(loaded, inputs, outputs) == code, (inputs, outputs)


def test_execution_refuses_unknown_models_datasets_memory_and_buffers(
    started: Any, program: Any, loaded: int, execute: Any
) -> None:
    assert execute(99, [24], [24]) == 145003
    assert started.mdl.execute(loaded, 0, 0) == 100000
    datasets = [program.dataset((4096, 24)) for _ in range(2)]
    assert started.mdl.execute(loaded, *datasets) == 145000
    assert "0x1000" in started.get_recent_err_msg()
    assert started.mdl.execute_async(loaded, *datasets, 77) == 107000
    datasets = [started.mdl.create_dataset() for _ in range(2)]
    for dataset in datasets:
        buffer = started.create_data_buffer(4096, 24)
        assert started.mdl.add_dataset_buffer(dataset, buffer) == (dataset, 0)
        assert [started.destroy_data_buffer(buffer) for _ in range(2)] == [0, 100000]
    assert started.mdl.execute(loaded, *datasets) == 100000


@pytest.fixture
def dynamic(program: Any, save_graph: Any) -> int:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [x], [y])
    number: int = program.load(save_graph(graph, "dynamic.onnx"))
    return number


def test_one_varying_dimension_follows_from_the_buffer(
    started: Any, program: Any, dynamic: int, execute: Any
) -> None:
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
    source = program.dataset((program.memory([1.0] * 3), 12))
    assert started.mdl.execute_async(dynamic, source, program.dataset((0, 0)), 0) == 145000, "on a stream"


def test_shape_that_does_not_fit_is_refused(started: Any, program: Any, dynamic: int) -> None:
    source, target, _ = program.datasets()
    for shape, code in (([2, 3], 0), ([2, 4], 145000), ([2], 145000), ([-1, 3], 145000), ([3, 3], 145000)):
        desc = started.create_tensor_desc(0, shape, 2)
        assert started.mdl.set_dataset_tensor_desc(source, desc, 0) == (source, 0)
        assert started.mdl.execute(dynamic, source, target) == code
    assert started.mdl.set_dataset_tensor_desc(source, desc, 1) == (source, 100000)


def test_model_that_fails_in_the_middle_is_an_error_code(started: Any, program: Any, save_graph: Any) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.INT64, [1])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, [1])
    table = helper.make_tensor("table", TensorProto.INT64, [2], [10, 20])
    node = helper.make_node("Gather", ["table", "x"], ["y"])
    path = save_graph(helper.make_graph([node], "g", [x], [y], [table]), "gather.onnx")
    model_id, _ = started.mdl.load_from_file(str(path))
    address = program.memory([0], np.int64)
    datasets = [program.dataset((address, 8)) for _ in range(2)]
    assert started.mdl.execute(model_id, *datasets) == 0
    assert started.util.ptr_to_bytes(address, 1) == b"\n"
    assert started.mdl.execute(model_id, *datasets) == 545000
    assert "running Gather node" in started.get_recent_err_msg()


def test_weights_in_another_file_are_found(
    set_dump: Any, program: Any, small_model: Path, run_model: Any
) -> None:
    model = onnx.load(str(small_model))
    folder = small_model.parent / "external"
    folder.mkdir()
    onnx.save(
        model, str(folder / "m.onnx"), save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    plain = program.load(folder / "m.onnx")
    set_dump()
    dumped = program.load(folder / "m.onnx")
    for model_id in (plain, dumped):
        np.testing.assert_array_equal(run_model(model_id, ARRAY)[0], RESULT)


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_missing_package_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, small_model: Path, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"pytest-npudump\[emulator\]"):
        models.load(small_model, None) if package == "onnxruntime" else sessions.read_model(small_model)


def configured(acl: Any, options: dict[int, object]) -> int:
    handle: int = acl.mdl.create_config_handle()
    assert [acl.mdl.set_config_opt(handle, *option) for option in options.items()] == [0] * len(options)
    return handle


def test_a_configuration_loads_a_file_or_memory(program: Any, small_model: Path) -> None:
    acl = program.acl
    data = small_model.read_bytes()
    host, _ = acl.rt.malloc_host(len(data))
    acl.rt.memcpy(host, len(data), acl.util.bytes_to_ptr(data), len(data), 0)
    for options in ({0: 3, 1: 1, 2: str(small_model)}, {1: 3, 3: host, 4: len(data)}):
        handle = configured(acl, options)
        model, ret = acl.mdl.load_with_config(handle)
        assert ret == 0
        source, target, address = program.datasets()
        assert acl.mdl.execute(model, source, target) == 0
        assert program.floats(address) == [3.0, 2.0, 2.5, 3.0, 2.0, 2.5]
        assert [acl.mdl.destroy_config_handle(handle) for _ in range(2)] == [0, 100000]


def test_a_configuration_that_lacks_what_loading_needs_is_refused(started: Any) -> None:
    lacking: dict[str, dict[int, object]] = {
        "everything": {},
        "a type": {2: "m.onnx"},
        "a path": {1: 1},
        "a path, with weights of a file": {1: 1, 2: "m.onnx", 14: 1},
        "a size": {1: 3, 3: 1},
        "an address": {1: 4, 4: 1},
    }
    for what, options in lacking.items():
        assert started.mdl.load_with_config(configured(started, options)) == (0, 100000), what
        assert "acl.mdl.load_with_config" in started.get_recent_err_msg()


def test_values_that_an_attribute_does_not_take(started: Any) -> None:
    handle = started.mdl.create_config_handle()
    for option in ((0, 8), (0, -1), (1, 0), (1, 7), (3, 0), (15, 1), (-1, 1)):
        assert started.mdl.set_config_opt(handle, *option) == 100000, option
    with pytest.raises(TypeError, match="set_config_opt args parse failed"):
        started.mdl.set_config_opt(handle, 2, 1)


def test_queues_are_refused_with_the_reason(started: Any) -> None:
    handle = configured(started, {1: 5, 2: "m.onnx"})
    with pytest.raises(NotEmulatedError, match="scheduler"):
        started.mdl.load_with_config(handle)
    with pytest.raises(NotEmulatedError, match=r"load_from_file_with_q: .*scheduler"):
        _ = started.mdl.load_from_file_with_q


def test_the_real_name_of_a_tensor(program: Any, small_model: Path) -> None:
    acl = program.acl
    desc = acl.mdl.create_desc()
    acl.mdl.get_desc(desc, program.load(small_model))
    assert [acl.mdl.get_tensor_real_name(desc, name) for name in ("x", "y", "z")] == ["x", "y", None]


def test_a_model_without_gears_takes_and_lists_none(program: Any, small_model: Path) -> None:
    mdl = program.acl.mdl
    model, desc = program.load(small_model), mdl.create_desc()
    source = program.dataset((program.memory([1.0] * 6), 24), (program.memory([1.0]), 4))
    assert mdl.set_dynamic_batch_size(model, source, 0, 2) == 145013
    assert "no gears" in program.acl.get_recent_err_msg()
    assert mdl.set_dynamic_hw_size(model, source, 0, 2, 3) == 145013
    assert mdl.set_input_dynamic_dims(model, source, 0, {"name": "", "dimCount": 2, "dims": [2, 3]}) == 145013
    assert mdl.get_input_dynamic_gear_count(0, -1) == (0, 100000)
    mdl.get_desc(desc, model)
    assert mdl.get_input_dynamic_gear_count(desc, -1) == (0, 0)
    assert mdl.get_input_dynamic_dims(desc, -1, 0) == ([], 0)
    assert mdl.get_input_index_by_name(desc, "ascend_mbatch_shape_data") == (0, 100000)


def _run(program: Any, device: int, path: Path, times: int) -> list[int]:
    """Load and run the small model on a device, in the calling thread."""
    acl = program.acl
    assert acl.rt.set_device(device) == 0
    model_id = program.load(path)
    source, target, _ = program.datasets(device + 1)
    codes = [acl.mdl.execute(model_id, source, target) for _ in range(times)]
    assert acl.rt.get_device() == (device, 0)
    return codes


def test_models_on_two_devices_have_a_directory_and_keys_each(
    program: Any, set_dump: Callable[..., Path], small_model: Path
) -> None:
    root = set_dump(dump_data="stats")
    for device in (0, 1):
        assert _run(program, device, small_model, 2) == [0, 0]
    (stamp,) = root.iterdir()
    assert sorted(path.name for path in stamp.iterdir()) == ["0", "1"]
    found = {str(r.key): r.stats.max for r in read_dump(root).records if r.stats and r.key.layer == "scale"}
    keys = [f"scale#device={device}{step}:output.0" for device in (0, 1) for step in ("", ",step=1")]
    assert found == dict(zip(keys, (1, 1, 2, 2), strict=True))


def test_threads_on_devices_of_their_own_dump_side_by_side(
    program: Any, set_dump: Callable[..., Path], small_model: Path
) -> None:
    root = set_dump()
    with ThreadPoolExecutor(4) as workers:
        jobs = [workers.submit(_run, program, device, small_model, 5) for device in range(4)]
        assert [job.result() for job in jobs] == [[0] * 5] * 4
    dump = read_dump(root)
    assert dump.problems == ()
    scaled = [r for r in dump.records if r.key.layer == "scale"]
    assert {(r.key.device, r.key.step) for r in scaled} == {(d, s) for d in range(4) for s in range(5)}
    assert {(r.key.device, r.stats.max) for r in scaled if r.stats} == {(d, d + 1.0) for d in range(4)}


def test_a_process_without_a_device_of_its_own_keeps_plain_keys(
    program: Any, set_dump: Callable[..., Path], small_model: Path
) -> None:
    root = set_dump()
    assert _run(program, 3, small_model, 1) == [0]
    (stamp,) = root.iterdir()
    assert [path.name for path in stamp.iterdir()] == ["3"]
    assert {r.key.device for r in read_dump(root).records} == {-1}


def test_exceptions_on_two_devices_lie_below_each(
    started: Any, program: Any, small_model: Path, tmp_path: Path
) -> None:
    config = tmp_path / "acl.json"
    section = {"dump_scene": "aic_err_norm_dump", "dump_path": str(tmp_path)}
    config.write_text(json.dumps({"dump": section}))
    assert started.mdl.init_dump() == 0
    assert started.mdl.set_dump(str(config)) == 0
    fail("scale")
    with ThreadPoolExecutor(2) as workers:
        jobs = [workers.submit(_run, program, device, small_model, 1) for device in (0, 1)]
        assert [job.result() for job in jobs] == [[507011], [507011]]
    root = tmp_path / "extra-info" / "data-dump"
    assert sorted(path.name for path in root.iterdir()) == ["0", "1"]
    first = {(r.key.device, r.stats.max) for r in read_dump(tmp_path).records if r.stats and not r.key.slot}
    assert {(0, 1.0), (1, 2.0)} <= first
