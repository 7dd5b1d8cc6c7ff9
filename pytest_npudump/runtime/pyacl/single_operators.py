"""``acl.op``: a single operator, numpy arrays in and numpy arrays out.

On a device the operator has to be compiled by ``atc --singleop`` beforehand, and loaded by
``acl.op.set_model_dir``, once a process. The emulator needs neither.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.dump.values.dtypes import BY_NAME
from pytest_npudump.errors import RequestError
from pytest_npudump.runtime.acl.return_codes import SUCCESS, AclError, check, value
from pytest_npudump.runtime.pyacl.memory import allocate, read, shape_desc, upload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from pytest_npudump.runtime.operator_call import OperatorCall

    Port = tuple[np.dtype[Any], tuple[int, ...]]

_NOT_FOUND = 100024


def run_single_operator(acl: Any, call: OperatorCall, *, compiled: bool) -> list[NDArray[Any]]:
    """Run an operator on a stream of its own, wait for it, and return its outputs.

    Args:
        acl: the module.
        call: the operator, and what it is given.
        compiled: whether ACL runs only operators that have been compiled and loaded before.

    Raises:
        RequestError: a type or an attribute is none that ACL takes.
        AclError: a call of ACL failed; where the operator is not compiled it says how that is done.
    """
    __tracebackhide__ = True
    ports: list[Port] = [(array.dtype, array.shape) for array in call.inputs]
    with ExitStack() as stack:
        stream = value(acl, "acl.rt.create_stream()", acl.rt.create_stream())
        stack.callback(acl.rt.destroy_stream, stream)
        sources = [_memory(acl, stack, port) for port in ports]
        for (address, _), array in zip(sources, call.inputs, strict=True):
            upload(acl, address, np.ascontiguousarray(array))
        targets = [_memory(acl, stack, port) for port in call.outputs]
        code = acl.op.execute_v2(
            call.operator,
            [_desc(acl, stack, port) for port in ports],
            [buffer for _, buffer in sources],
            [_desc(acl, stack, port) for port in call.outputs],
            [buffer for _, buffer in targets],
            _attributes(acl, stack, call),
            stream,
        )
        _check_execution(acl, call, code, compiled=compiled)
        check(acl, "acl.rt.synchronize_stream()", acl.rt.synchronize_stream(stream))
        return [_download(acl, a, port) for (a, _), port in zip(targets, call.outputs, strict=True)]


def _number(dtype: np.dtype[Any]) -> int:
    found = BY_NAME.get(dtype.name)
    if found is None or found.ge is None:
        raise RequestError(f"{dtype.name}: CANN has no such type of tensors")
    return found.ge


def _desc(acl: Any, stack: ExitStack, port: Port) -> int:
    dtype, shape = port
    return shape_desc(acl, stack, _number(dtype), shape)


def _memory(acl: Any, stack: ExitStack, port: Port) -> tuple[int, int]:
    """Return the address of memory for a tensor, and a data buffer over it."""
    dtype, shape = port
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    address = allocate(acl, stack, size)
    buffer: int = acl.create_data_buffer(address, size)
    stack.callback(acl.destroy_data_buffer, buffer)
    return address, buffer


def _download(acl: Any, address: int, port: Port) -> NDArray[Any]:
    dtype, shape = port
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    data = read(acl, address, size) if size else b""
    array: NDArray[Any] = np.frombuffer(data, dtype).reshape(shape).copy()
    return array


def _attributes(acl: Any, stack: ExitStack, call: OperatorCall) -> int:
    handle: int = acl.op.create_attr()
    stack.callback(acl.op.destroy_attr, handle)
    for name, given in call.attributes.items():
        kind, plain = _attribute(call.operator, name, given)
        answer = getattr(acl.op, f"set_attr_{kind}")(handle, name, plain)
        code = answer[-1] if isinstance(answer, tuple) else answer
        check(acl, f"acl.op.set_attr_{kind}({name!r})", code)
    return handle


def _attribute(operator: str, name: str, given: Any) -> tuple[str, Any]:
    """Return which of ACL's setters takes an attribute, and what it is given."""
    if isinstance(given, type | np.dtype):
        return "data_type", _number(np.dtype(given))
    if isinstance(given, list | tuple):
        members = list(given)
        kinds = {_KINDS.get(type(member)) for member in members} or {"int"}
        kind = next(iter(kinds)) if len(kinds) == 1 else None
        if kind is not None:
            return f"list_{kind}", members
    elif kind := _KINDS.get(type(given)):
        return kind, given
    raise RequestError(
        f"{operator}: attribute {name}={given!r}: expected a bool, an integer, a float, a text, a list of "
        f"one of them, or a numpy type"
    )


_KINDS = {bool: "bool", int: "int", float: "float", str: "string"}


def _check_execution(acl: Any, call: OperatorCall, code: int, *, compiled: bool) -> None:
    __tracebackhide__ = True
    if code == SUCCESS:
        return
    error = AclError.of(acl, f"acl.op.execute_v2({call.operator!r})", code)
    if code != _NOT_FOUND or not compiled:
        asked = ", ".join(f"{dtype} {list(shape)}" for dtype, shape in call.outputs)
        raise error.because(f"{error.detail or 'no reason is given'}; the reference gives {asked}")
    raise error.because(
        f"{error.detail or 'no such operator is loaded'}. It has to be compiled before: write "
        f"{json.dumps([_description(call)])} to op.json, run `atc --singleop=op.json --output=op_models "
        f"--soc_version=$SOC`, and call acl.op.set_model_dir('op_models') in the test"
    )


def _description(call: OperatorCall) -> dict[str, Any]:
    """Return an operator of any shape, of as many axes as this call has, as ``atc --singleop`` reads it."""
    inputs = [(array.dtype, array.shape) for array in call.inputs]
    found: dict[str, Any] = {
        "op": call.operator,
        "input_desc": [*_described(inputs)],
        "output_desc": [*_described(call.outputs)],
    }
    if call.attributes:
        found["attr"] = [*_described_attributes(call)]
    return found


def _described_attributes(call: OperatorCall) -> Iterator[dict[str, Any]]:
    for name, given in call.attributes.items():
        kind, plain = _attribute(call.operator, name, given)
        yield {"name": name, "type": kind, "value": plain}


def _described(ports: Sequence[Port]) -> Iterator[dict[str, Any]]:
    for dtype, shape in ports:
        name = _OF_ATC.get(dtype.name, dtype.name)
        known = {"format": "ND", "shape": [-1] * len(shape), "type": name}
        yield {**known, "shape_range": [[1, -1]] * len(shape)} if shape else known


_OF_ATC = {"float64": "double"}
"""The type that ATC calls by another name than numpy (``kDataTypeDict`` of GE's ``single_op_parser.cc``)."""
