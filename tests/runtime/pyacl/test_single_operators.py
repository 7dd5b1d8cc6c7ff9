"""``acl.op`` from numpy arrays: what ACL is told, and what is said where it knows no such operator."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pytest_npudump.emulator import faults, install
from pytest_npudump.errors import RequestError
from pytest_npudump.runtime.acl import AclError
from pytest_npudump.runtime.base import OperatorCall, OperatorRuntime
from pytest_npudump.runtime.pyacl.adapter import PyAclRuntime
from pytest_npudump.runtime.pyacl.model import run_single_operator
from pytest_npudump.runtime.torch_npu.adapter import TorchNpuRuntime

X = np.arange(20, dtype=np.float16)


def run(acl: Any, operator: str, *inputs: np.ndarray, compiled: bool = False, **attributes: Any) -> Any:
    outputs = ((inputs[0].dtype, inputs[0].shape),)
    call = OperatorCall(operator, inputs, outputs, attributes)
    return run_single_operator(acl, call, compiled=compiled)[0]


@pytest.fixture
def ready() -> Iterator[Any]:
    """The emulator, with a device."""
    install.install()
    install.reset()
    import acl

    assert acl.init() == 0
    assert acl.rt.set_device(0) == 0
    yield acl
    install.reset()
    install.uninstall()


def test_outputs_come_back_in_type_and_shape_of_what_inputs_look_like(ready: Any) -> None:
    found = run(ready, "Add", X.reshape(4, 5), X.reshape(4, 5))
    assert found.dtype == np.float16
    assert found.tolist() == (X + X).reshape(4, 5).tolist()
    turned = X.reshape(4, 5).T
    assert run(ready, "Relu", turned).tolist() == turned.tolist()


def test_attributes_of_each_kind_reach_the_operator(ready: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Any]] = []
    for kind in ("bool", "int", "float", "string", "list_bool", "list_int", "list_float", "list_string"):
        monkeypatch.setattr(
            ready.op, f"set_attr_{kind}", lambda *args, k=kind: asked.append((k, args[2])) or 0
        )
    monkeypatch.setattr(
        ready.op, "set_attr_data_type", lambda *args: (asked.append(("data_type", args[2])), 0)
    )
    given = {"a": True, "b": 2, "c": 0.5, "d": "x", "e": [True], "f": [1, 2], "g": [0.5], "h": ["y"]}
    run(ready, "Relu", X, **given, i=np.float32, j=np.dtype(ml_dtypes.bfloat16))
    assert asked == [
        ("bool", True),
        ("int", 2),
        ("float", 0.5),
        ("string", "x"),
        ("list_bool", [True]),
        ("list_int", [1, 2]),
        ("list_float", [0.5]),
        ("list_string", ["y"]),
        ("data_type", 0),
        ("data_type", 27),
    ]


def test_attributes_of_no_kind_and_types_that_acl_does_not_have_are_refused(ready: Any) -> None:
    wrong: tuple[Any, ...] = ({}, None, [1, "a"], [[1]], 1j)
    for given in wrong:
        with pytest.raises(RequestError, match="Relu: attribute a="):
            run(ready, "Relu", X, a=given)
    with pytest.raises(RequestError, match="CANN has no such type"):
        run(ready, "Relu", np.zeros(2, np.longdouble))


def test_an_operator_that_is_not_compiled_says_what_atc_is_given(ready: Any) -> None:
    with pytest.raises(AclError, match=r"atc --singleop=op\.json --output=op_models") as caught:
        run(ready, "Nope", X.reshape(4, 5), X.astype(np.float64)[0], compiled=True, axis=1)
    found = re.search(r"write (\[.*\]) to op\.json", str(caught.value))
    assert found is not None
    assert json.loads(found[1]) == [
        {
            "op": "Nope",
            "input_desc": [
                {"format": "ND", "shape": [-1, -1], "type": "float16", "shape_range": [[1, -1], [1, -1]]},
                {"format": "ND", "shape": [], "type": "double"},
            ],
            "output_desc": [
                {"format": "ND", "shape": [-1, -1], "type": "float16", "shape_range": [[1, -1], [1, -1]]}
            ],
            "attr": [{"name": "axis", "type": "int", "value": 1}],
        }
    ]


def test_the_emulator_compiles_nothing_and_tells_what_fails_there(ready: Any) -> None:
    with pytest.raises(AclError, match="no operator Nope is known") as caught:
        run(ready, "Nope", X)
    assert "atc" not in str(caught.value)
    faults.fail("Relu")
    with pytest.raises(AclError, match=r"synchronize_stream.*507015"):
        run(ready, "Relu", X)


def test_pyacl_runs_operators_by_type_and_torch_npu_does_not(ready: Any) -> None:
    assert isinstance(PyAclRuntime(ready, "emulator"), OperatorRuntime)
    assert not isinstance(TorchNpuRuntime(SimpleNamespace()), OperatorRuntime)


def test_a_single_operator_is_distorted_where_it_is_to_be(ready: Any) -> None:
    for shape, tail, wrong in (
        ((20,), 16, 4),
        ((16,), 16, 0),
        ((15,), 16, 0),
        ((3, 18), 16, 6),
        ((20,), 0, 20),
        ((2, 3), 0, 6),
    ):
        faults.distort(None, "Relu", offset=9.0)
        faults.distort(None, "Relu", factor=2.0, tail=tail)
        x = np.ones(shape, np.float32)
        found = run(ready, "Relu", x)
        assert int((found == 2).sum()) == wrong
        assert int((found == 1).sum()) == x.size - wrong
        whole = found.reshape(-1, shape[-1])[:, : shape[-1] - shape[-1] % (tail or 1)]
        assert (whole == 1).all() or not tail
        assert run(ready, "Abs", x).tolist() == x.tolist()
    faults.distort(None, "Abs", factor=2.0)
    assert run(ready, "Abs", np.array(3, np.float32)).tolist() == 6
    assert run(ready, "Abs", np.array([3], np.int32)).tolist() == [3], "integers stay"
    for model, tail in (("net", 16), (None, -1), ("", 0)):
        with pytest.raises(ValueError, match="expected"):
            faults.distort(model, "Relu", factor=2.0, tail=tail)
