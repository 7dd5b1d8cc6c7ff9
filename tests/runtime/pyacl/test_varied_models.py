"""Inputs of models on pyACL, perturbed in their buffers; the emulator stands in for a device."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from pytest_npudump.emulator.install import install, uninstall
from pytest_npudump.onnxmodels.variation import PLAIN, Variation
from pytest_npudump.runtime.pyacl.adapter import PyAclRuntime

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def runtime() -> Iterator[PyAclRuntime]:
    install()
    import acl  # type: ignore[import-not-found]

    found = PyAclRuntime(acl, "acl")
    yield found
    found.vary(PLAIN)
    found.close()
    uninstall()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """y = x, and as many of ids."""
    nodes = [
        helper.make_node("Identity", ["x"], ["y"], name="same"),
        helper.make_node("Identity", ["ids"], ["z"], name="ids"),
    ]
    graph = helper.make_graph(
        nodes,
        "two",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT16, [8]),
            helper.make_tensor_value_info("ids", TensorProto.INT64, [3]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT16, [8]),
            helper.make_tensor_value_info("z", TensorProto.INT64, [3]),
        ],
    )
    path = tmp_path / "two.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


IMAGE = np.linspace(0.1, 0.9, 8, dtype=np.float16)


def test_a_model_gets_inputs_that_differ_by_a_step(runtime: PyAclRuntime, model: Path) -> None:
    runtime.vary(Variation(seed=2))
    with runtime.load_model(model) as loaded:
        y, z = loaded.run(IMAGE, np.arange(3))
        again, _ = loaded.run(IMAGE, np.arange(3))
    steps = np.abs(y.view(np.int16).astype(int) - IMAGE.view(np.int16))
    assert 0 < steps.max() <= 2
    assert (y != again).any()
    np.testing.assert_array_equal(z, np.arange(3))
    assert runtime.varying.perturbed == {"x"}
    assert runtime.varying.unperturbed == {"ids"}


def test_a_plain_run_gets_what_it_was_given(runtime: PyAclRuntime, model: Path) -> None:
    before = runtime.acl.mdl.execute
    runtime.vary(Variation(seed=2))
    runtime.vary(PLAIN)
    assert runtime.acl.mdl.execute is before
    with runtime.load_model(model) as loaded:
        np.testing.assert_array_equal(loaded.run(IMAGE, np.arange(3))[0], IMAGE)


def own_call(acl: Any, model: Path, *, stream: bool) -> tuple[np.ndarray, np.ndarray]:
    """What an application's own calls leave in its input and output."""
    acl.init()
    acl.rt.set_device(0)
    number, _ = acl.mdl.load_from_file(str(model))
    feeds, results = (acl.mdl.create_dataset() for _ in range(2))
    addresses = {}
    for dataset in (feeds, results):
        for array in (IMAGE, np.arange(3)):
            address, _ = acl.rt.malloc(array.nbytes, 0)
            source = acl.util.bytes_to_ptr(array.tobytes())
            assert acl.rt.memcpy(address, array.nbytes, source, array.nbytes, 1) == 0
            acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(address, array.nbytes))
            addresses[dataset, array.dtype.kind] = address
    if stream:
        queue, _ = acl.rt.create_stream()
        assert acl.mdl.execute_async(number, feeds, results, queue) == 0
        assert acl.rt.synchronize_stream(queue) == 0
    else:
        assert acl.mdl.execute(number, feeds, results) == 0
    arrays = []
    for dataset in (feeds, results):
        host, _ = acl.rt.malloc_host(IMAGE.nbytes)
        acl.rt.memcpy(host, IMAGE.nbytes, addresses[dataset, "f"], IMAGE.nbytes, 2)
        arrays.append(np.frombuffer(acl.util.ptr_to_bytes(host, IMAGE.nbytes), np.float16).copy())
    acl.rt.reset_device(0)
    acl.finalize()
    return arrays[0], arrays[1]


@pytest.mark.parametrize("stream", [False, True], ids=["execute", "execute_async"])
def test_the_tests_own_calls_are_reached_and_its_buffers_get_their_values_back(
    runtime: PyAclRuntime, model: Path, *, stream: bool
) -> None:
    runtime.vary(Variation(seed=2))
    fed, result = own_call(runtime.acl, model, stream=stream)
    np.testing.assert_array_equal(fed, IMAGE)
    assert 0 < np.abs(result.view(np.int16).astype(int) - IMAGE.view(np.int16)).max() <= 2
    assert runtime.varying.perturbed == {"x"}


def test_what_acl_refuses_is_answered_as_without_a_calibration(runtime: PyAclRuntime) -> None:
    runtime.acl.init()
    plain = runtime.acl.mdl.execute(99, 1, 2)
    runtime.vary(Variation(seed=2))
    assert runtime.acl.mdl.execute(99, 1, 2) == plain
    runtime.acl.finalize()


@pytest.mark.parametrize("stream", [False, True], ids=["execute", "execute_async"])
def test_what_a_model_is_fed_is_noted_and_a_stream_waited_for_where_that_is_wanted(
    runtime: PyAclRuntime, model: Path, *, stream: bool
) -> None:
    for waits in (False, True):
        runtime.vary(Variation(looks=True, waits=waits))
        fed, result = own_call(runtime.acl, model, stream=stream)
        np.testing.assert_array_equal(result, fed)
        noted = runtime.varying.fed
        assert [record.key.layer for record in noted] == (["x", "ids"] if waits or not stream else [])
        runtime.vary(PLAIN)
        assert runtime.varying.fed == noted
    assert noted[0].stats is not None
    assert noted[0].stats.max == float(IMAGE.max())
    assert [record.digest for record in noted] == [
        hashlib.blake2b(array.tobytes(), digest_size=16).hexdigest() for array in (IMAGE, np.arange(3))
    ]
