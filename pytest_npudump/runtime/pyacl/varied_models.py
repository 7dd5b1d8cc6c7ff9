"""Models of pyACL whose inputs are perturbed in their buffers, for a calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.errors import RuntimeUnavailableError
from pytest_npudump.runtime.acl.return_codes import AclError
from pytest_npudump.runtime.perturbed_inputs import PerturbedCalls, Unreached
from pytest_npudump.runtime.pyacl.memory import read, upload
from pytest_npudump.runtime.pyacl.model_tensors import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_RUNS = ("execute", "execute_v2")
_ASYNC = "execute_async"
_STREAM = 3
"""Position of the stream among the arguments of ``acl.mdl.execute_async``."""


class VariedModels(PerturbedCalls):
    """The executions of models from :meth:`vary` to the next one, the test's own calls included.

    An execution on a stream is waited for before and behind it: its inputs may still be on their way there,
    and get their values back.

    Args:
        acl: the module.
    """

    def __init__(self, acl: Any) -> None:
        super().__init__()
        self._acl = acl

    @property
    def wanted(self) -> bool:
        """Whether the variation has inputs perturbed or noted; for ``execute`` nothing is waited for."""
        return super().wanted or self.varying.variation.looks

    def _replace_calls(self) -> None:
        for name in _RUNS:
            self._replaced.put(self._acl.mdl, name, self._run)
        self._replaced.put(self._acl.mdl, _ASYNC, self._run_on_stream)

    def _run(self, original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if len(arguments) <= 1:
            return original(*arguments, **named)
        with self._inputs.of(list(self._inputs_of(*arguments[:2]))):
            return original(*arguments, **named)

    def _run_on_stream(self, original: Callable[..., Any], *arguments: Any) -> Any:
        if len(arguments) <= _STREAM or not super().wanted:
            return original(*arguments)
        stream = arguments[_STREAM]
        self._acl.rt.synchronize_stream(stream)
        with self._inputs.of(list(self._inputs_of(*arguments[:2]))):
            code = original(*arguments)
            self._acl.rt.synchronize_stream(stream)
            return code

    def _inputs_of(self, model: int, dataset: int) -> Iterator[_Buffer]:
        mdl = self._acl.mdl
        desc = mdl.create_desc()
        try:
            if mdl.get_desc(desc, model):
                return  # what ACL does not know as a model it refuses by itself
            for index in range(mdl.get_num_inputs(desc)):
                buffer = mdl.get_dataset_buffer(dataset, index)
                size = self._acl.get_data_buffer_size_v2(buffer) if buffer else 0
                name = mdl.get_input_name_by_index(desc, index)
                number = mdl.get_input_data_type(desc, index)
                address = self._acl.get_data_buffer_addr(buffer) if size else 0
                yield _Buffer(self._acl, name, number, address, size)
        finally:
            mdl.destroy_desc(desc)


class _Buffer:
    """The memory of an input."""

    def __init__(self, acl: Any, name: str, number: int, address: int, size: int) -> None:
        self.name = name
        self._acl, self._number, self._address, self._size = acl, number, address, size

    def read(self) -> np.ndarray:
        """Return its elements, of shape (n,)."""
        try:
            dtype = numpy_dtype(self._number)
            count = self._size // dtype.itemsize
            data = read(self._acl, self._address, count * dtype.itemsize) if count else b""
        except (AclError, RuntimeUnavailableError) as error:
            raise Unreached(" ".join(str(error).split())) from None
        return np.frombuffer(data, dtype)

    def write(self, values: np.ndarray) -> None:
        """Copy elements to it; raise AclError where ACL refuses."""
        upload(self._acl, self._address, values)
