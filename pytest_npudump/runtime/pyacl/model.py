"""Models and single operators behind pyACL's calls: numpy arrays in, numpy arrays out, nothing leaked.

On a device a single operator has to be compiled by ``atc --singleop`` beforehand, and loaded by
``acl.op.set_model_dir``, once a process. The emulator needs neither. Memory is freed by the stack that it is
put on.
"""

from __future__ import annotations

import json
import math
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.dump.dtypes import BY_GE, BY_NAME
from pytest_npudump.errors import RequestError, RuntimeUnavailableError
from pytest_npudump.language.text import number_of
from pytest_npudump.runtime.acl import SUCCESS, AclError, check, value
from pytest_npudump.runtime.base import ModelSession, OperatorCall, Port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Space = tuple[np.dtype[Any], tuple[int, ...]]

__tracebackhide__ = True  # in each of its functions: a failure is shown where the test calls


@dataclass(slots=True)
class PyAclModel(ModelSession):
    """A model on the device.

    Attributes:
        acl: the module ``acl``.
        model_id: the id ACL gave it.
        path: where it was loaded from.
        executions: how often ACL was told to execute it; a run that is refused before is none.
        input_ports, output_ports, look: as :class:`~pytest_npudump.runtime.base.PortedSession` has them.
    """

    acl: Any
    model_id: int
    path: Path
    _desc: int
    _on_run: Callable[[], None]
    _inputs: tuple[ModelTensor, ...] = ()
    _outputs: tuple[ModelTensor, ...] = ()
    _closed: bool = field(default=False)
    executions: int = 0
    input_ports: tuple[Port, ...] = ()
    output_ports: tuple[Port, ...] = ()
    look: Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None] | None = None

    @classmethod
    def load(cls, acl: Any, path: Path, *, on_run: Callable[[], None]) -> PyAclModel:
        """Load ``path`` and read its description.

        Raises:
            AclError: ACL cannot load the model.
        """
        call = f"acl.mdl.load_from_file({str(path)!r})"
        model_id = value(acl, call, acl.mdl.load_from_file(str(path)))
        desc = acl.mdl.create_desc()
        model = cls(acl, model_id, path, desc, on_run)
        try:
            check(acl, "acl.mdl.get_desc()", acl.mdl.get_desc(desc, model_id))
            model._inputs = describe(acl, desc, "input")
            model._outputs = describe(acl, desc, "output")
            model.input_ports = tuple((tensor.name, 0) for tensor in model._inputs)
            model.output_ports = tuple(_written_by(tensor.name) for tensor in model._outputs)
        except BaseException:
            model.close()
            raise
        return model

    def run(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """Run the model once.

        Args:
            arrays: one an input, in the model's order; dtype and shape as the model demands.

        Returns:
            The outputs in the model's order, with the shapes of this execution.

        Raises:
            RequestError: an array does not fit its input.
            AclError: a call of ACL failed.
        """
        if self._closed:
            raise RequestError(f"the model {self.path} is closed; run it inside its with block")
        if len(arrays) != len(self._inputs):
            names = ", ".join(tensor.name for tensor in self._inputs)
            raise RequestError(
                f"{self.path.name} has {number_of(len(self._inputs), 'input')} ({names}), got {len(arrays)}"
            )
        inputs = [
            tensor.accept(array, self.path.name) for tensor, array in zip(self._inputs, arrays, strict=True)
        ]
        results = self._execute(inputs)
        self._on_run()
        if self.look is not None:
            self.look(inputs, results)
        return results

    def _execute(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        acl = self.acl
        with ExitStack() as stack:
            source = self._dataset(stack)
            for index, (tensor, array) in enumerate(zip(self._inputs, inputs, strict=True)):
                address = allocate(acl, stack, array.nbytes)
                upload(acl, address, array)
                append(acl, stack, source, address, array.nbytes)
                if tensor.dynamic:
                    desc = shape_desc(acl, stack, tensor.acl_dtype, array.shape)
                    call = f"acl.mdl.set_dataset_tensor_desc({list(array.shape)})"
                    value(acl, call, acl.mdl.set_dataset_tensor_desc(source, desc, index))
            target = self._dataset(stack)
            buffers = [output_buffer(acl, stack, target, tensor.size) for tensor in self._outputs]
            self.executions += 1
            check(acl, "acl.mdl.execute()", acl.mdl.execute(self.model_id, source, target))
            return [self._download(index, buffer) for index, buffer in enumerate(buffers)]

    def _dataset(self, stack: ExitStack) -> int:
        return owned(stack, self.acl.mdl.create_dataset(), self.acl.mdl.destroy_dataset)

    def _download(self, index: int, buffer: int) -> np.ndarray:
        acl = self.acl
        dims = value(acl, "acl.mdl.get_cur_output_dims()", acl.mdl.get_cur_output_dims(self._desc, index))
        dtype = self._outputs[index].dtype
        return _values(acl, acl.get_data_buffer_addr(buffer), (dtype, tuple(int(d) for d in dims["dims"])))

    def close(self) -> None:
        """Unload the model and free its description."""
        if self._closed:
            return
        self._closed = True
        self.acl.mdl.destroy_desc(self._desc)
        check(self.acl, f"acl.mdl.unload({self.model_id})", self.acl.mdl.unload(self.model_id))


def _written_by(name: str) -> Port:
    """Return the writer of an output, which ATC calls ``operator:slot:tensor``."""
    operator, _, tail = name.rpartition(":")[0].rpartition(":")
    return (operator, int(tail)) if operator and tail.isdecimal() else None


_BITS = 8


def numpy_dtype(number: int) -> np.dtype[Any]:
    """Return the numpy type of an ``aclDataType``, ml_dtypes' where numpy has none.

    Raises:
        RuntimeUnavailableError: elements of this type have no numpy representation, or share bytes.
    """
    name = BY_GE[number].name if number in BY_GE else f"number {number}"
    if number in BY_GE and BY_GE[number].bits % _BITS:
        raise RuntimeUnavailableError(
            f"the model has a tensor of the type {name}, several elements of which share a byte; give such "
            f"a model to acl.mdl yourself, with npu_dump.config_path"
        )
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes  # noqa: PLC0415 - only models with such types need it

        if hasattr(ml_dtypes, name):
            found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
            return found
    raise RuntimeUnavailableError(f"the model has a tensor of the type {name}, which numpy cannot hold")


@dataclass(frozen=True, slots=True)
class ModelTensor:
    """An input or output.

    Attributes:
        name: the model's own.
        dtype: of its elements.
        acl_dtype: the same as an ``aclDataType``.
        shape: its dimensions; negative where an execution decides.
        size: in bytes; 0 where an execution decides.
    """

    name: str
    dtype: np.dtype[Any]
    acl_dtype: int
    shape: tuple[int, ...]
    size: int

    @property
    def dynamic(self) -> bool:
        """Return whether an execution decides on a dimension."""
        return any(dim < 0 for dim in self.shape)

    def accept(self, array: np.ndarray, model: str) -> np.ndarray:
        """Return ``array`` as contiguous memory.

        Raises:
            RequestError: it would have to be converted.
        """
        array = np.asarray(array)
        fits = len(array.shape) == len(self.shape) and all(
            want in (-1, got) for want, got in zip(self.shape, array.shape, strict=True)
        )
        if array.dtype != self.dtype or not fits:
            raise RequestError(
                f"input {self.name!r} of {model} takes {self.dtype} of shape {list(self.shape)}, "
                f"got {array.dtype} of shape {list(array.shape)}"
            )
        return np.ascontiguousarray(array).reshape(array.shape)


def describe(acl: Any, desc: int, io: str) -> tuple[ModelTensor, ...]:
    """Return the tensors of a direction, ``input`` or ``output``, in the model's order.

    Raises:
        AclError: ACL does not describe one.
        RuntimeUnavailableError: numpy cannot hold one.
    """
    mdl = acl.mdl
    count = getattr(mdl, f"get_num_{io}s")(desc)
    tensors = []
    for index in range(count):
        dims = value(acl, f"acl.mdl.get_{io}_dims()", getattr(mdl, f"get_{io}_dims")(desc, index))
        number = getattr(mdl, f"get_{io}_data_type")(desc, index)
        tensors.append(
            ModelTensor(
                name=getattr(mdl, f"get_{io}_name_by_index")(desc, index),
                dtype=numpy_dtype(number),
                acl_dtype=number,
                shape=tuple(int(dim) for dim in dims["dims"]),
                size=getattr(mdl, f"get_{io}_size_by_index")(desc, index),
            )
        )
    return tuple(tensors)


_MALLOC_HUGE_FIRST = 0
_HOST_TO_DEVICE = 1
_DEVICE_TO_HOST = 2
_FORMAT_ND = 2


def allocate(acl: Any, stack: ExitStack, size: int) -> int:
    """Return the address of ``size`` bytes on the device; raise AclError where there are none."""
    found = acl.rt.malloc(max(size, 1), _MALLOC_HUGE_FIRST)
    return owned(stack, value(acl, f"acl.rt.malloc({size})", found), acl.rt.free)


def owned(stack: ExitStack, handle: int, destroy: Callable[[int], object]) -> int:
    """Return a new handle, to be destroyed at the end of the stack."""
    stack.callback(destroy, handle)
    return handle


def upload(acl: Any, address: int, array: np.ndarray) -> None:
    """Copy a contiguous array to the device; raise AclError where that fails."""
    if array.nbytes:
        data = array.tobytes()
        source = acl.util.bytes_to_ptr(data)
        code = acl.rt.memcpy(address, array.nbytes, source, array.nbytes, _HOST_TO_DEVICE)
        check(acl, "acl.rt.memcpy(host to device)", code)


def read(acl: Any, address: int, size: int) -> bytes:
    """Return ``size`` bytes of the device; raise AclError where they cannot be copied."""
    host = value(acl, f"acl.rt.malloc_host({size})", acl.rt.malloc_host(size))
    try:
        code = acl.rt.memcpy(host, size, address, size, _DEVICE_TO_HOST)
        check(acl, "acl.rt.memcpy(device to host)", code)
        return bytes(acl.util.ptr_to_bytes(host, size))
    finally:
        acl.rt.free_host(host)


def append(acl: Any, stack: ExitStack, dataset: int, address: int, size: int) -> int:
    """Return a new data buffer over ``size`` bytes at ``address``, added to a dataset."""
    buffer = owned(stack, acl.create_data_buffer(address, size), acl.destroy_data_buffer)
    value(acl, "acl.mdl.add_dataset_buffer()", acl.mdl.add_dataset_buffer(dataset, buffer))
    return buffer


def output_buffer(acl: Any, stack: ExitStack, dataset: int, size: int) -> int:
    """Return a new data buffer for an output, added to a dataset; its size is 0 where ACL has none."""
    if size:
        return append(acl, stack, dataset, allocate(acl, stack, size), size)
    # A size that ACL cannot tell beforehand: an empty buffer makes it allocate the output itself.
    buffer = append(acl, stack, dataset, 0, 0)
    stack.callback(_free_buffer, acl, buffer)
    return buffer


def _free_buffer(acl: Any, buffer: int) -> None:
    if address := acl.get_data_buffer_addr(buffer):
        acl.rt.free(address)


def shape_desc(acl: Any, stack: ExitStack, dtype: int, shape: Sequence[int]) -> int:
    """Return a tensor description of an ``aclDataType`` and a shape."""
    return owned(stack, acl.create_tensor_desc(dtype, list(shape), _FORMAT_ND), acl.destroy_tensor_desc)


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
    ports: list[Space] = [(array.dtype, array.shape) for array in call.inputs]
    with ExitStack() as stack:
        created = value(acl, "acl.rt.create_stream()", acl.rt.create_stream())
        stream = owned(stack, created, acl.rt.destroy_stream)
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
        return [_values(acl, a, port) for (a, _), port in zip(targets, call.outputs, strict=True)]


def _number(dtype: np.dtype[Any]) -> int:
    found = BY_NAME.get(dtype.name)
    if found is None or found.ge is None:
        raise RequestError(f"{dtype.name}: CANN has no such type of tensors")
    return found.ge


def _desc(acl: Any, stack: ExitStack, port: Space) -> int:
    dtype, shape = port
    return shape_desc(acl, stack, _number(dtype), shape)


def _memory(acl: Any, stack: ExitStack, port: Space) -> tuple[int, int]:
    """Return the address of memory for a tensor, and a data buffer over it."""
    dtype, shape = port
    size = math.prod(shape) * dtype.itemsize
    address = allocate(acl, stack, size)
    return address, owned(stack, acl.create_data_buffer(address, size), acl.destroy_data_buffer)


def _values(acl: Any, address: int, port: Space) -> NDArray[Any]:
    """Copy a tensor from its address on the device."""
    dtype, shape = port
    size = math.prod(shape) * dtype.itemsize
    data = read(acl, address, size) if size else b""
    array: NDArray[Any] = np.frombuffer(data, dtype).reshape(shape).copy()
    return array


def _attributes(acl: Any, stack: ExitStack, call: OperatorCall) -> int:
    handle = owned(stack, acl.op.create_attr(), acl.op.destroy_attr)
    for name, given in call.attributes.items():
        kind, plain = _attribute(call.operator, name, given)
        answer = getattr(acl.op, f"set_attr_{kind}")(handle, name, plain)
        code = answer[-1] if isinstance(answer, tuple) else answer
        check(acl, f"acl.op.set_attr_{kind}({name!r})", code)
    return handle


def _attribute(operator: str, name: str, given: Any) -> tuple[str, Any]:
    """Return ACL's setter of an attribute, and its value."""
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
    if code == SUCCESS:
        return
    error = AclError.of(acl, f"acl.op.execute_v2({call.operator!r})", code)
    if code != _NOT_FOUND or not compiled:
        asked = ", ".join(f"{dtype} {list(shape)}" for dtype, shape in call.outputs)
        raise error.because(f"{error.detail or 'no reason is given'}; the reference gives {asked}")
    inputs = [(array.dtype, array.shape) for array in call.inputs]
    found: dict[str, Any] = {
        "op": call.operator,
        "input_desc": [*_described(inputs)],
        "output_desc": [*_described(call.outputs)],
    }
    attributes = {name: _attribute(call.operator, name, given) for name, given in call.attributes.items()}
    if attributes:
        found["attr"] = [
            {"name": name, "type": kind, "value": plain} for name, (kind, plain) in attributes.items()
        ]
    raise error.because(
        f"{error.detail or 'no such operator is loaded'}. It has to be compiled before: write "
        f"{json.dumps([found])} to op.json, run `atc --singleop=op.json --output=op_models "
        f"--soc_version=$SOC`, and call acl.op.set_model_dir('op_models') in the test"
    )


def _described(ports: Sequence[Space]) -> Iterator[dict[str, Any]]:
    for dtype, shape in ports:
        name = _OF_ATC.get(dtype.name, dtype.name)
        known = {"format": "ND", "shape": [-1] * len(shape), "type": name}
        yield {**known, "shape_range": [[1, -1]] * len(shape)} if shape else known


_OF_ATC = {"float64": "double"}
"""The type that ATC calls by another name than numpy (``kDataTypeDict`` of GE's ``single_op_parser.cc``)."""
