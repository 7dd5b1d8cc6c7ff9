"""The arguments of a call copied to the host: their memory, and which of them share it.

Memory is copied as it lies, from the first element that an argument has there to the last: on the device that
runs no operator, which would be one more in the dump. The views of it are made on the host.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.runtime.aten.operators import mapped, tensors_in

if TYPE_CHECKING:
    from collections.abc import Callable

    Arguments = tuple[Any, ...]
    Array = np.ndarray[Any, np.dtype[Any]]
    Named = dict[str, Any]


class NotCopiedError(Exception):
    """Why an argument cannot be copied."""


@dataclass(frozen=True, slots=True)
class View:
    """A tensor as a piece of memory.

    Attributes:
        memory: which: its address, and the name of its type.
        sizes: in elements, as are the following.
        strides: between the elements of an axis.
        offset: of the first element.
    """

    memory: tuple[int, str]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class HostCopy:
    """What a call was given, on the host.

    Attributes:
        arguments: with a view in place of each tensor.
        named: the same.
        memory: one flat tensor a piece of memory.
    """

    arguments: Arguments
    named: Named
    memory: dict[tuple[int, str], Any]

    @property
    def size(self) -> int:
        """Bytes of the memory."""
        return sum(flat.numel() * flat.element_size() for flat in self.memory.values())

    def rebuilt(self, change: Callable[[Any], Any], plain: Callable[[Any], Any]) -> tuple[Arguments, Named]:
        """Return the arguments with tensors of their own, which share memory as the copied ones did.

        Args:
            change: returns what is to be the memory in place of a flat tensor, which it leaves as it is.
            plain: returns what is to be in place of an argument that is no tensor.
        """
        memory = {name: change(flat) for name, flat in self.memory.items()}

        def built(value: Any) -> Any:
            if not isinstance(value, View):
                return plain(value)
            return memory[value.memory].as_strided(value.sizes, value.strides, value.offset)

        named = {name: mapped(value, built) for name, value in self.named.items()}
        return tuple(mapped(value, built) for value in self.arguments), named


def size_of(arguments: Arguments, named: Named) -> int:
    """Return the bytes that :func:`copied` would take, as far as no memory is shared."""
    tensors = tensors_in((*arguments, *named.values()))
    return sum(_extent(tensor) * tensor.element_size() for tensor in tensors)


def copied(arguments: Arguments, named: Named, *, why_not: Callable[[Any], str], writes: bool) -> HostCopy:
    """Copy the arguments of a call.

    Args:
        arguments: the tensors and plain values that it takes.
        named: the same.
        why_not: says why a tensor's memory cannot be read as it lies; "" where it can.
        writes: whether the call is going to write to some: then memory may not be there in two types.

    Raises:
        NotCopiedError: a tensor's memory cannot be read.
    """
    tensors = [*tensors_in((*arguments, *named.values()))]
    for tensor in tensors:
        if why := _unusual(tensor) or why_not(tensor):
            raise NotCopiedError(why)
    pieces: dict[tuple[int, str], list[Any]] = {}
    for tensor in tensors:
        pieces.setdefault(_memory_of(tensor), []).append(tensor)
    addresses = [address for address, _ in pieces if address]
    if writes and len(addresses) > len({*addresses}):
        raise NotCopiedError("it writes to memory that it reads as another type")
    starts = {name: min(tensor.storage_offset() for tensor in found) for name, found in pieces.items()}
    memory = {name: _flat(found, starts[name]) for name, found in pieces.items()}

    def viewed(value: Any) -> Any:
        if not isinstance(value, sys.modules["torch"].Tensor):
            return value
        name = _memory_of(value)
        return View(name, tuple(value.shape), value.stride(), value.storage_offset() - starts[name])

    viewed_names = {name: mapped(value, viewed) for name, value in named.items()}
    return HostCopy(tuple(mapped(value, viewed) for value in arguments), viewed_names, memory)


def on_host(tensor: Any, why_not: Callable[[Any], str]) -> Any:
    """Return a copy of one tensor on the host.

    Raises:
        NotCopiedError: its memory cannot be read.
    """
    (found,), _ = copied((tensor,), {}, why_not=why_not, writes=False).rebuilt(lambda flat: flat, lambda v: v)
    return found


def array_of(tensor: Any) -> Array:
    """Return a tensor of the host as an array, in ml_dtypes' type where numpy has none.

    Raises:
        NotCopiedError: neither has the type.
    """
    torch = sys.modules["torch"]
    try:
        return np.array(tensor.resolve_conj().resolve_neg().numpy())
    except (TypeError, RuntimeError):  # numpy has no such type
        import ml_dtypes  # noqa: PLC0415 - only these types need it

        name = str(tensor.dtype).rpartition(".")[2]
        if not hasattr(ml_dtypes, name):
            raise NotCopiedError(name) from None
        flat = tensor.reshape(-1).clone(memory_format=torch.contiguous_format)
        octets = np.array(flat.view(torch.uint8).numpy())
        return np.reshape(octets.view(getattr(ml_dtypes, name)), tuple(tensor.shape))


def _unusual(tensor: Any) -> str:
    torch = sys.modules["torch"]
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
        return f"one of its arguments is no plain tensor ({type(tensor).__name__}, {tensor.layout})"
    if tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        return "one of its arguments is quantised, or a conjugate that has not been computed yet"
    return ""


def _memory_of(tensor: Any) -> tuple[int, str]:
    return int(tensor.untyped_storage().data_ptr()), str(tensor.dtype)


def _extent(tensor: Any) -> int:
    """Return how many elements lie from the first of a tensor to its last."""
    if not tensor.numel():
        return 0
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((int(size) - 1) * int(stride) for size, stride in steps)


def _flat(tensors: list[Any], start: int) -> Any:
    """Return the memory that tensors of one type have in common, on the host."""
    end = max(tensor.storage_offset() + _extent(tensor) for tensor in tensors)
    if not any(tensor.numel() for tensor in tensors):
        end = start
    first = tensors[0].detach()
    flat = first.as_strided((end - start,), (1,), start)
    return flat.clone() if flat.device.type == "cpu" else flat.cpu()
