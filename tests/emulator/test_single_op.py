"""Single operators, and their dump."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

NUMBERS = {"float32": 0, "float16": 1, "int8": 2, "int32": 3, "int64": 9, "bool": 12, "bfloat16": 27}
X = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
Y = np.array([[2, 2, 2], [0.5, 0.25, 3]], np.float32)


@pytest.fixture
def operate(started: Any) -> Callable[..., tuple[int, np.ndarray]]:
    """Executes a single operator; the code and the output."""
    acl = started

    def run(
        op_type: str, inputs: list[np.ndarray], output: np.ndarray, *, stream: int = 0, **attributes: Any
    ) -> tuple[int, np.ndarray]:
        attr = acl.op.create_attr()
        for name, value in attributes.items():
            setter = {bool: "bool", int: "int", float: "float", list: "list_int"}[type(value)]
            assert getattr(acl.op, f"set_attr_{setter}")(attr, name, value) == 0
        descs, buffers = [], []
        for array in (*inputs, output):
            descs.append(acl.create_tensor_desc(NUMBERS[array.dtype.name], list(array.shape), 2))
            address, _ = acl.rt.malloc(max(array.nbytes, 1), 0)
            data = array.tobytes()
            acl.rt.memcpy(address, len(data), acl.util.bytes_to_ptr(data), len(data), 1)
            buffers.append(acl.create_data_buffer(address, array.nbytes))
        count = len(inputs)
        code = acl.op.execute_v2(
            op_type, descs[:count], buffers[:count], descs[count:], buffers[count:], attr, stream
        )
        data = acl.util.ptr_to_bytes(acl.get_data_buffer_addr(buffers[-1]), output.nbytes)
        return code, np.frombuffer(data, output.dtype).reshape(output.shape)

    return run


def test_operators_compute_what_numpy_does(operate: Any) -> None:
    cases: list[tuple[str, list[np.ndarray], dict[str, Any], np.ndarray]] = [
        ("Add", [X, Y], {}, X + Y),
        ("RealDiv", [X, Y], {}, X / Y),
        ("Relu", [X], {}, np.maximum(X, 0)),
        ("Maximum", [X, Y], {}, np.maximum(X, Y)),
        ("Add", [X.astype(np.float16), Y.astype(np.float16)], {}, (X + Y).astype(np.float16)),
        ("Add", [X.astype(np.int32), X.astype(np.int32)], {}, X.astype(np.int32) * 2),
        ("MatMulV2", [X, Y], {"transpose_x2": True}, X @ Y.T),
        ("MatMul", [X, Y], {"transpose_x1": True}, X.T @ Y),
        ("BatchMatMul", [X[None], Y[None]], {"adj_x2": True}, (X @ Y.T)[None]),
        ("Cast", [X], {"dst_type": 3}, X.astype(np.int32)),
        ("Cast", [X], {"dst_type": 27}, X.astype(ml_dtypes.bfloat16)),
        ("Cast", [X.astype(ml_dtypes.bfloat16)], {"dst_type": 0}, X),
        ("Slice", [X, np.array([0, 1]), np.array([2, 2])], {}, X[0:2, 1:3]),
        ("TransposeD", [X], {"perm": [1, 0]}, X.T.copy()),
        ("ConcatD", [X, Y], {"concat_dim": 1}, np.concatenate([X, Y], 1)),
        ("ReduceMax", [X], {"axes": [1], "keepdims": 0}, X.max(1)),
    ]
    for op_type, inputs, attributes, expected in cases:
        code, result = operate(op_type, inputs, np.zeros_like(expected), **attributes)
        assert code == 0, op_type
        np.testing.assert_array_equal(result, expected, op_type)


def test_softmax_takes_its_axis_from_a_list(operate: Any) -> None:
    code, result = operate("SoftmaxV2", [X], np.zeros_like(X), axes=[0])
    exponentials = np.exp(X.astype(np.float64))
    assert code == 0
    np.testing.assert_allclose(result, exponentials / exponentials.sum(0), rtol=1e-6)


def test_operators_that_cannot_run_are_refused(started: Any, operate: Any) -> None:
    cases: list[tuple[str, list[np.ndarray], np.ndarray, dict[str, Any], int]] = [
        ("NoSuchOperator", [X], X, {}, 100024),
        ("Relu", [X], X, {"no_such_attribute": 1}, 100000),
        ("MatMul", [X, Y.T.copy()], X, {}, 100000),
        ("MatMul", [X, Y], X, {}, 100024),
        ("Add", [X, Y[:, :2].copy()], X, {}, 100024),
        ("Cast", [X], X, {}, 100000),
    ]
    for op_type, inputs, output, attributes, code in cases:
        assert operate(op_type, inputs, np.zeros_like(output), **attributes)[0] == code, op_type
        assert started.get_recent_err_msg().startswith("acl.op.execute_v2")


def test_handles_run_as_often_as_wanted(started: Any) -> None:
    acl = started
    desc = acl.create_tensor_desc(0, [2], 2)
    handle, ret = acl.op.create_handle("Neg", [desc], [desc], 0)
    assert ret == 0
    address, _ = acl.rt.malloc(8, 0)
    buffer = acl.create_data_buffer(address, 8)
    data = np.array([1, -2], np.float32).tobytes()
    acl.rt.memcpy(address, 8, acl.util.bytes_to_ptr(data), 8, 1)
    for _ in range(3):
        assert acl.op.execute_with_handle(handle, [buffer], [buffer], 0) == 0
    np.testing.assert_array_equal(np.frombuffer(acl.util.ptr_to_bytes(address, 8), np.float32), [-1, 2])
    assert acl.op.execute_with_handle(handle, [buffer], [], 0) == 100000
    assert acl.op.execute_with_handle(handle, [0], [buffer], 0) == 100000
    assert acl.op.execute_with_handle(handle, [buffer], [buffer], 77) == 107000
    acl.op.destroy_handle(handle)
    assert acl.op.execute_with_handle(handle, [buffer], [buffer], 0) == 100000
    assert acl.op.create_handle("NoSuchOperator", [desc], [desc], 0) == (0, 100024)


def test_cast_converts(started: Any) -> None:
    acl = started
    source, target = acl.create_tensor_desc(0, [2], 2), acl.create_tensor_desc(3, [2], 2)
    addresses = [acl.rt.malloc(8, 0)[0] for _ in range(2)]
    buffers = [acl.create_data_buffer(address, 8) for address in addresses]
    data = np.array([1.7, -2.2], np.float32).tobytes()
    acl.rt.memcpy(addresses[0], 8, acl.util.bytes_to_ptr(data), 8, 1)
    assert acl.op.cast(source, buffers[0], target, buffers[1], 0, 0) == 0
    np.testing.assert_array_equal(np.frombuffer(acl.util.ptr_to_bytes(addresses[1], 8), np.int32), [1, -2])
    assert acl.op.create_handle_for_cast(source, target, 0)[1] == 0


def test_model_directory_is_set_once(started: Any, tmp_path: Path) -> None:
    assert started.op.set_model_dir(str(tmp_path / "nothing")) == 100014
    assert started.op.set_model_dir(str(tmp_path)) == 0
    assert started.op.set_model_dir(str(tmp_path)) == 100002


def test_operators_are_dumped_without_the_levels_of_a_model(
    set_dump: Any, started: Any, operate: Any, wire: Any
) -> None:
    root = set_dump(dump_list=None, dump_op_switch="on", dump_mode="all")
    stream, _ = started.rt.create_stream()
    assert operate("Add", [X, Y], np.zeros_like(X), stream=stream)[0] == 0
    (path,) = [p for p in root.rglob("*") if p.is_file()]
    assert path.parent.name == "0"
    assert path.parent.parent.parent == root
    parts = path.name.split(".")
    assert (parts[:2], int(parts[3])) == (["Add", "Add"], 1)
    dump = wire.read(path)
    assert [t.data for t in dump.inputs] == [X.tobytes(), Y.tobytes()]
    assert dump.outputs[0].data == (X + Y).tobytes()
    assert {t.offset for t in (*dump.inputs, *dump.outputs)} == {2**64 - 1}


def test_operator_statistics_are_a_csv_where_the_switch_is_on(
    set_dump: Any, program: Any, small_model: Path, run_model: Any, operate: Any
) -> None:
    root = set_dump()
    operate("Add", [X, Y], np.zeros_like(X))
    assert not [p for p in root.rglob("*") if p.is_file()]
    set_dump(dump_op_switch="on", dump_data="stats", dump_list=None)  # which dumps models, too
    operate("Add", [X, Y], np.zeros_like(X))
    (path,) = root.rglob("Add.Add.*.csv")
    assert path.read_text().splitlines()[1].startswith("Output,0,24,DT_FLOAT,ND,2x3,5.25,-3,")
    run_model(program.load(small_model), X)
    assert list(root.rglob("Mul.scale.*"))


def test_attributes_are_set_on_known_handles_only_and_members_of_lists_are_checked(acl: Any) -> None:
    values: tuple[tuple[str, Any], ...] = (
        ("set_attr_list_int", [1, 2]),
        ("set_attr_list_int", np.array([1, 2])),
        ("set_attr_list_float", [0.5]),
        ("set_attr_list_bool", [True, 0]),
        ("set_attr_list_string", ["a"]),
        ("set_attr_string", "text"),
    )
    for setter, value in values:
        attr = acl.op.create_attr()
        assert getattr(acl.op, setter)(attr, "name", value) == 0
        acl.op.destroy_attr(attr)
        assert getattr(acl.op, setter)(attr, "name", value) == 100000
    for setter, value in (
        ("set_attr_list_int", [1.5]),
        ("set_attr_list_string", [1]),
        ("set_attr_list_int", "ab"),
    ):
        with pytest.raises(TypeError, match="args parse failed"):
            getattr(acl.op, setter)(attr, "name", value)
