"""A loaded model behind pyACL's calls: numpy arrays in, numpy arrays out, nothing leaked."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.errors import RequestError
from pytest_npudump.runtime.acl.return_codes import check, value
from pytest_npudump.runtime.base import ModelSession
from pytest_npudump.runtime.pyacl.memory import allocate, append, output_buffer, read, shape_desc, upload
from pytest_npudump.runtime.pyacl.model_tensors import Tensor, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


@dataclass(slots=True)
class PyAclModel(ModelSession):
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
    _inputs: tuple[Tensor, ...] = ()
    _outputs: tuple[Tensor, ...] = ()
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
            model._inputs = describe(acl, desc, "input")
            model._outputs = describe(acl, desc, "output")
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
        data = read(acl, acl.get_data_buffer_addr(buffer), size) if size else b""
        array: np.ndarray = np.frombuffer(data, dtype).reshape(shape).copy()
        return array

    def close(self) -> None:
        """Unload the model and free its description."""
        if self._closed:
            return
        self._closed = True
        self.acl.mdl.destroy_desc(self._desc)
        check(self.acl, f"acl.mdl.unload({self.model_id})", self.acl.mdl.unload(self.model_id))
