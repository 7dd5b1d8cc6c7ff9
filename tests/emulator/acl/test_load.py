"""Ways to load a model, and what a model without ATC's gears answers to programs that set them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.emulator.codes import NotEmulatedError

if TYPE_CHECKING:
    from pathlib import Path


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


@pytest.mark.parametrize(
    "options",
    [{}, {2: "m.onnx"}, {1: 1}, {1: 1, 2: "m.onnx", 14: 1}, {1: 3, 3: 1}, {1: 4, 4: 1}],
    ids=["nothing", "no-type", "no-path", "weights-of-a-file", "no-size", "no-address"],
)
def test_a_configuration_that_lacks_what_loading_needs_is_refused(
    started: Any, options: dict[int, object]
) -> None:
    assert started.mdl.load_with_config(configured(started, options)) == (0, 100000)
    assert "acl.mdl.load_with_config" in started.get_recent_err_msg()


@pytest.mark.parametrize(("attribute", "value"), [(0, 8), (0, -1), (1, 0), (1, 7), (3, 0), (15, 1), (-1, 1)])
def test_values_that_an_attribute_does_not_take(started: Any, attribute: int, value: int) -> None:
    handle = started.mdl.create_config_handle()
    assert started.mdl.set_config_opt(handle, attribute, value) == 100000
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


def test_a_model_without_gears_takes_no_batch_size(program: Any, small_model: Path) -> None:
    mdl = program.acl.mdl
    model = program.load(small_model)
    source = program.dataset((program.memory([1.0] * 6), 24), (program.memory([1.0]), 4))
    dims = {"name": "", "dimCount": 2, "dims": [2, 3]}
    assert mdl.set_dynamic_batch_size(model, source, 0, 2) == 145013
    assert "no gears" in program.acl.get_recent_err_msg()
    assert mdl.set_dynamic_hw_size(model, source, 0, 2, 3) == 145013
    assert mdl.set_input_dynamic_dims(model, source, 0, dims) == 145013
    calls = {
        "no batch": (mdl.set_dynamic_batch_size(model, source, 0, 0), 100000),
        "no width": (mdl.set_dynamic_hw_size(model, source, 0, 2, 0), 100000),
        "no dims": (mdl.set_input_dynamic_dims(model, source, 0, dims | {"dims": []}), 100000),
        "no buffer": (mdl.set_dynamic_batch_size(model, source, 2, 2), 100000),
        "short for hw": (mdl.set_dynamic_hw_size(model, source, 1, 2, 3), 145012),
        "no model": (mdl.set_dynamic_batch_size(model + 1, source, 0, 2), 145003),
    }
    assert {name: got for name, (got, _) in calls.items()} == {
        name: code for name, (_, code) in calls.items()
    }
    for wrong in ([2, 3], {"dims": 2}, {"dims": ["a"]}):
        with pytest.raises(TypeError, match="parse failed"):
            mdl.set_input_dynamic_dims(model, source, 0, wrong)


def test_a_model_without_gears_lists_none(program: Any, small_model: Path) -> None:
    mdl = program.acl.mdl
    desc = mdl.create_desc()
    assert mdl.get_input_dynamic_gear_count(0, -1) == (0, 100000)
    mdl.get_desc(desc, program.load(small_model))
    assert mdl.get_input_dynamic_gear_count(desc, -1) == (0, 0)
    assert mdl.get_input_dynamic_gear_count(desc, 0) == (0, 100000)
    assert mdl.get_input_dynamic_dims(desc, -1, 0) == ([], 0)
    assert mdl.get_input_dynamic_dims(desc, -1, 4097) == (None, 100000)
    assert mdl.get_input_index_by_name(desc, "ascend_mbatch_shape_data") == (0, 100000)
