"""Modules of torch whose inputs are perturbed, for a calibration.

The outermost module that is called is a model, and the tensors among its arguments are what it is fed. While
it runs torch is as it was, so that what it compiles has nothing of ours in it, and modules that other threads
call meanwhile get what they are given. Inside a compiled function nothing is perturbed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.runtime.aten.host_copy import NotCopiedError, array_of
from pytest_npudump.runtime.perturbed_inputs import PerturbedCalls, Unreached
from pytest_npudump.runtime.torch_npu.client import why_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class VariedModules(PerturbedCalls):
    """The modules that are called from :meth:`vary` to the next one.

    Args:
        torch_npu: the module, which tells formats and whether a graph is being captured.
    """

    def __init__(self, torch_npu: Any) -> None:
        super().__init__()
        self._torch_npu = torch_npu

    def _replace_calls(self) -> None:
        module = getattr(getattr(sys.modules.get("torch"), "nn", None), "Module", None)
        self._replaced.put(module, "__call__", self._call)

    def _call(self, original: Callable[..., Any], module: Any, /, *arguments: Any, **named: Any) -> Any:
        torch = sys.modules["torch"]
        if torch.compiler.is_compiling():
            return original(module, *arguments, **named)
        inputs = [*self._inputs_of(type(module).__name__, {**dict(enumerate(arguments)), **named})]
        self._replaced.put_back()
        try:
            with self._inputs.of(inputs):
                return original(module, *arguments, **named)
        finally:
            if self.wanted:
                self._replace_calls()

    def _inputs_of(self, module: str, arguments: dict[Any, Any]) -> Iterator[_Tensor]:
        npu = getattr(self._torch_npu, "npu", None)
        capturing = getattr(npu, "is_current_stream_capturing", lambda: False)()
        seen = set()
        for place, argument in arguments.items():
            for name, tensor in _tensors(str(place), argument):
                if id(tensor) not in seen:
                    seen.add(id(tensor))
                    why_not = "captured into a graph" if capturing else self._why_not(tensor)
                    yield _Tensor(f"{name} of {module}", tensor, why_not)

    def _why_not(self, tensor: Any) -> str:
        torch = sys.modules["torch"]
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
            return type(tensor).__name__
        if tensor.device.type == "meta" or not tensor.is_contiguous():
            return "not contiguous in memory"
        if tensor.device.type != "npu":
            return ""
        return "in a private format" if why_private(self._torch_npu, tensor) else ""


class _Tensor:
    """A tensor, with why its values cannot be had; "" where they can."""

    def __init__(self, name: str, tensor: Any, why_not: str) -> None:
        self.name = name
        self._tensor = tensor
        self._why_not = why_not

    def read(self) -> np.ndarray:
        """Return a copy of its values, in ml_dtypes' type where numpy has none."""
        if self._why_not:
            raise Unreached(self._why_not)
        try:
            return array_of(self._tensor.detach().cpu())
        except NotCopiedError as error:
            raise Unreached(str(error)) from None

    def write(self, values: np.ndarray) -> None:
        """Copy values to where its own are, unseen by autograd."""
        torch = sys.modules["torch"]
        tensor = self._tensor.data  # has a version of its own, so that a backward pass may follow
        octets = torch.from_numpy(np.ascontiguousarray(values).reshape(-1).view(np.uint8).copy())
        with torch.inference_mode(mode=tensor.is_inference()):
            tensor.copy_(octets.view(tensor.dtype).reshape(tensor.shape))


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Each tensor in an argument of a call, with its place there."""
    torch = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from _tensors(f"{name}[{number}]", each)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _tensors(f"{name}[{key!r}]", each)
