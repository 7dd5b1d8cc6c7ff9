"""A loaded model behind pyACL's calls: numpy arrays in, numpy arrays out, nothing leaked."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.dump.values.dtypes import BY_GE
from pytest_npudump.errors import RequestError, RuntimeUnavailableError
from pytest_npudump.runtime.pyacl.calls import check, value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

_MALLOC_HUGE_FIRST = 0
_HOST_TO_DEVICE = 1
_DEVICE_TO_HOST = 2
_FORMAT_ND = 2
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


@dataclass(slots=True)
class PyAclModel:
    """A model on the device.

    Attributes:
        acl: the module ``acl``.
        model_id: the id ACL gave it.
        path: where it was loaded from.
        executions: how often ACL was told to execute it; a run that is refused before is none.
    """

    acl: Any
    model_id: int
    path: Path
    _desc: int
    _on_run: Callable[[], None]
    _inputs: tuple[_Tensor, ...] = ()
    _outputs: tuple[_Tensor, ...] = ()
    _closed: bool = field(default=False)
    executions: int = 0

    @classmethod
    def load(cls, acl: Any, path: Path, *, on_run: Callable[[], None]) -> PyAclModel:
        """Load ``path`` and read its description.

        Raises:
            AclError: ACL cannot load the model.
        """
        __tracebackhide__ = True
        call = f"acl.mdl.load_from_file({str(path)!r})"
        model_id = value(acl, call, acl.mdl.load_from_file(str(path)))
        desc = acl.mdl.create_desc()
        model = cls(acl, model_id, path, desc, on_run)
        try:
            check(acl, "acl.mdl.get_desc()", acl.mdl.get_desc(desc, model_id))
            model._inputs = _describe(acl, desc, "input")
            model._outputs = _describe(acl, desc, "output")
        except BaseException:
            model.close()
            raise
        return model

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs, in the model's order."""
        return tuple(tensor.name for tensor in self._inputs)

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
        __tracebackhide__ = True
        if self._closed:
            raise RequestError(f"the model {self.path} is closed; run it inside its with block")
        inputs = self._check_inputs(arrays)
        results = self._execute(inputs)
        self._on_run()
        return results

    def _check_inputs(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        __tracebackhide__ = True
        if len(arrays) != len(self._inputs):
            names = ", ".join(tensor.name for tensor in self._inputs)
            raise RequestError(
                f"{self.path.name} has {len(self._inputs)} inputs ({names}), got {len(arrays)}"
            )
        return [
            tensor.accept(array, self.path.name) for tensor, array in zip(self._inputs, arrays, strict=True)
        ]

    def _execute(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        __tracebackhide__ = True
        acl = self.acl
        with ExitStack() as stack:
            source = self._dataset(stack)
            for index, (tensor, array) in enumerate(zip(self._inputs, inputs, strict=True)):
                address = _allocate(acl, stack, array.nbytes)
                _upload(acl, address, array)
                _append(acl, stack, source, address, array.nbytes)
                if tensor.dynamic:
                    desc = _shape_desc(acl, stack, tensor, array.shape)
                    call = f"acl.mdl.set_dataset_tensor_desc({list(array.shape)})"
                    value(acl, call, acl.mdl.set_dataset_tensor_desc(source, desc, index))
            target = self._dataset(stack)
            buffers = [_output_buffer(acl, stack, target, tensor.size) for tensor in self._outputs]
            self.executions += 1
            check(acl, "acl.mdl.execute()", acl.mdl.execute(self.model_id, source, target))
            return [self._download(index, buffer) for index, buffer in enumerate(buffers)]

    def _dataset(self, stack: ExitStack) -> int:
        handle: int = self.acl.mdl.create_dataset()
        stack.callback(self.acl.mdl.destroy_dataset, handle)
        return handle

    def _download(self, index: int, buffer: int) -> np.ndarray:
        __tracebackhide__ = True
        acl = self.acl
        dims = value(acl, "acl.mdl.get_cur_output_dims()", acl.mdl.get_cur_output_dims(self._desc, index))
        dtype = self._outputs[index].dtype
        shape = tuple(int(d) for d in dims["dims"])
        size = math.prod(shape) * dtype.itemsize
        data = _read(acl, acl.get_data_buffer_addr(buffer), size) if size else b""
        array: np.ndarray = np.frombuffer(data, dtype).reshape(shape).copy()
        return array

    def close(self) -> None:
        """Unload the model and free its description."""
        if self._closed:
            return
        self._closed = True
        self.acl.mdl.destroy_desc(self._desc)
        check(self.acl, f"acl.mdl.unload({self.model_id})", self.acl.mdl.unload(self.model_id))

    def __enter__(self) -> Self:
        """Return the model itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Unload the model."""
        self.close()


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    dtype: np.dtype[Any]
    acl_dtype: int
    shape: tuple[int, ...]
    size: int

    @property
    def dynamic(self) -> bool:
        return any(dim < 0 for dim in self.shape)

    def accept(self, array: np.ndarray, model: str) -> np.ndarray:
        """Return ``array`` as contiguous memory, refusing what would have to be converted."""
        __tracebackhide__ = True
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


def _describe(acl: Any, desc: int, io: str) -> tuple[_Tensor, ...]:
    __tracebackhide__ = True
    mdl = acl.mdl
    count = getattr(mdl, f"get_num_{io}s")(desc)
    tensors = []
    for index in range(count):
        dims = value(acl, f"acl.mdl.get_{io}_dims()", getattr(mdl, f"get_{io}_dims")(desc, index))
        number = getattr(mdl, f"get_{io}_data_type")(desc, index)
        tensors.append(
            _Tensor(
                name=getattr(mdl, f"get_{io}_name_by_index")(desc, index),
                dtype=numpy_dtype(number),
                acl_dtype=number,
                shape=tuple(int(dim) for dim in dims["dims"]),
                size=getattr(mdl, f"get_{io}_size_by_index")(desc, index),
            )
        )
    return tuple(tensors)


def _allocate(acl: Any, stack: ExitStack, size: int) -> int:
    __tracebackhide__ = True
    address: int = value(acl, f"acl.rt.malloc({size})", acl.rt.malloc(max(size, 1), _MALLOC_HUGE_FIRST))
    stack.callback(acl.rt.free, address)
    return address


def _upload(acl: Any, address: int, array: np.ndarray) -> None:
    __tracebackhide__ = True
    if array.nbytes:
        data = array.tobytes()
        source = acl.util.bytes_to_ptr(data)
        code = acl.rt.memcpy(address, array.nbytes, source, array.nbytes, _HOST_TO_DEVICE)
        check(acl, "acl.rt.memcpy(host to device)", code)


def _read(acl: Any, address: int, size: int) -> bytes:
    __tracebackhide__ = True
    host = value(acl, f"acl.rt.malloc_host({size})", acl.rt.malloc_host(size))
    try:
        code = acl.rt.memcpy(host, size, address, size, _DEVICE_TO_HOST)
        check(acl, "acl.rt.memcpy(device to host)", code)
        data: bytes = acl.util.ptr_to_bytes(host, size)
        return data
    finally:
        acl.rt.free_host(host)


def _append(acl: Any, stack: ExitStack, dataset: int, address: int, size: int) -> int:
    __tracebackhide__ = True
    buffer: int = acl.create_data_buffer(address, size)
    stack.callback(acl.destroy_data_buffer, buffer)
    value(acl, "acl.mdl.add_dataset_buffer()", acl.mdl.add_dataset_buffer(dataset, buffer))
    return buffer


def _output_buffer(acl: Any, stack: ExitStack, dataset: int, size: int) -> int:
    if size:
        return _append(acl, stack, dataset, _allocate(acl, stack, size), size)
    # A size that ACL cannot tell beforehand: an empty buffer makes it allocate the output itself.
    buffer = _append(acl, stack, dataset, 0, 0)
    stack.callback(_free_buffer, acl, buffer)
    return buffer


def _free_buffer(acl: Any, buffer: int) -> None:
    address = acl.get_data_buffer_addr(buffer)
    if address:
        acl.rt.free(address)


def _shape_desc(acl: Any, stack: ExitStack, tensor: _Tensor, shape: tuple[int, ...]) -> int:
    desc: int = acl.create_tensor_desc(tensor.acl_dtype, list(shape), _FORMAT_ND)
    stack.callback(acl.destroy_tensor_desc, desc)
    return desc
