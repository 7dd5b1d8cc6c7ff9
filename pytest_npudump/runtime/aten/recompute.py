"""Calls of ATen operators: what torch's schemas tell of them, and what they give on the CPU in a wider type.

Memory is copied as it lies, from the first element that an argument has there to the last: on the device that
runs no operator, which would be one more in the dump. The views of it are made on the host.

Which operators of ``aclnn`` a call may run: torch_npu's op-plugin calls most of them as ATen does: ``add``
runs ``aclnnAdd``, with a scalar ``aclnnAdds``, in place ``aclnnInplaceAdd``; ``_softmax_backward_data`` runs
``aclnnSoftmaxBackward``. Those it calls otherwise are listed here (``op_plugin/ops/opapi``,
``op_plugin_functions.yaml``). A call may run others besides: that it may run one does not say that it did.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from pytest_npudump.runtime.modules import statistics
from pytest_npudump.runtime.modules.statistics import tensors_in

Arguments = tuple[Any, ...]
Named = dict[str, Any]
Array = np.ndarray[Any, np.dtype[Any]]


def is_view(function: Any) -> bool:
    """Return whether an operator returns its argument in another shape: no kernel runs."""
    aliases = [value.alias_info for value in function._schema.returns if value.alias_info is not None]  # noqa: SLF001 - torch's only name for it
    return any(not alias.is_write for alias in aliases)


def writes(function: Any) -> bool:
    """Return whether an operator changes some of its arguments."""
    return bool(function._schema.is_mutable)  # noqa: SLF001 - torch's only name for it


def makes_new(function: Any) -> bool:
    """Return whether an operator returns a tensor besides those that it is given to write to."""
    returns = function._schema.returns  # noqa: SLF001 - torch's only name for it
    return any(value.alias_info is None for value in returns)


def why_random(function: Any, arguments: Arguments, named: Named) -> str:
    """Return why a call's results differ every time; "" where they do not.

    Attention with a dropout of 0 draws nothing, although it is tagged so.
    """
    torch = sys.modules["torch"]
    if torch.Tag.nondeterministic_seeded not in function.tags:
        return ""
    schema = function._schema.arguments  # noqa: SLF001 - torch's only name for it
    given = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    given |= given_by_name(function, arguments, named)
    return "" if given.get("dropout_p") == 0.0 else f"{function} draws random numbers"


def given_by_name(function: Any, arguments: Arguments, named: Named) -> Iterator[tuple[str, Any]]:
    """Yield the arguments of a call with the names that the schema gives them, in its order."""
    for place, argument in enumerate(function._schema.arguments):  # noqa: SLF001 - torch's only name for it
        if place < len(arguments):
            yield argument.name, arguments[place]
        elif argument.name in named:
            yield argument.name, named[argument.name]


def written_by(function: Any, arguments: Arguments, named: Named) -> list[Any]:
    """Return the tensors among the arguments that a call writes to, ``out=`` included."""
    schema = function._schema.arguments  # noqa: SLF001 - torch's only name for it
    written = {a.name for a in schema if a.alias_info is not None and a.alias_info.is_write}
    given = given_by_name(function, arguments, named)
    return [tensor for name, value in given if name in written for tensor in tensors_in(value)]


def results_of(function: Any, arguments: Arguments, named: Named, returned: Any) -> list[Any]:
    """Return the results of a call: the new tensors that it returns, then those it has written to.

    What is written to and returned is there once. A call of the same operator elsewhere has as many, in the
    same order.
    """
    values = function._schema.returns  # noqa: SLF001 - torch's only name for it
    several = len(values) > 1
    new = [
        tensor
        for place, value in enumerate(values)
        if value.alias_info is None
        for tensor in tensors_in(returned[place] if several else returned)
    ]
    return [*new, *written_by(function, arguments, named)]


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return an argument with everything in it that is no list changed."""
    if isinstance(value, list | tuple):
        return type(value)(mapped(each, change) for each in value)
    return change(value)


OTHERWISE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "_to_copy": ("aclnnCast", "aclnnInplaceCopy"),
        "avg_pool2d": ("aclnnAvgPool2d",),
        "baddbmm": ("aclnnBaddbmm", "aclnnBatchMatMul"),
        "bmm": ("aclnnBatchMatMul",),
        "clone": ("aclnnInplaceCopy",),
        "contiguous": ("aclnnInplaceCopy",),
        "copy_": ("aclnnInplaceCopy", "aclnnCast"),
        "linear": ("aclnnAddmm", "aclnnMm", "aclnnMatmul"),
        "lt": ("aclnnLessScalar",),
        "max_pool2d_with_indices": ("aclnnMaxPool2dWithMask",),
        "mm": ("aclnnMm", "aclnnMatmul"),
        "nansum": ("aclnnReduceNansum",),
        "ones_like": ("aclnnInplaceOne",),
        "sum": ("aclnnReduceSum",),
        "topk": ("aclnnTopk",),
        "where": ("aclnnSWhere",),
    }
)
"""Operators of ATen, and those of aclnn that are not called alike."""

_API = re.compile(r"aclnn(?:Inplace)?(?P<name>[A-Za-z]\w*)", re.ASCII)
_VARIANT = re.compile(
    r"(?:V\d+|WeightNz|WithDim|Tensor|Scalar|Dim|Mods?|Impl|Correction|All|Int|Value|Decimals|s)\Z"
)
_AROUND = re.compile(r"\A(?:native_|special_|npu_)|_(?:forward|data|impl|helper)(?=_|\Z)")


@lru_cache(maxsize=4096)  # it is asked of every call while a test runs
def may_run(operator: str, api: str) -> bool:
    """Return whether a call of an operator may run one of aclnn.

    Args:
        operator: name in ATen without overload, as ``add_``.
        api: name in CANN, as ``aclnnInplaceAdd``.
    """
    match = _API.fullmatch(api)
    if match is None:
        return False
    others = OTHERWISE.get(operator, OTHERWISE.get(operator.rstrip("_"), ()))
    stem = _AROUND.sub("", operator.strip("_")).replace("_", "").lower()
    known = {stem}.union(*(_stems(_API.sub(r"\g<name>", name)) for name in others))
    return not known.isdisjoint(_stems(match["name"]))


def _stems(name: str) -> set[str]:
    """Return CANN's name, and what is left without the words for a variant at its end."""
    found = {name.lower()}
    while (shorter := _VARIANT.sub("", name)) != name and shorter:
        found.add(shorter.lower())
        name = shorter
    return found


_SEED = 0
_STEP = 2.0**-23
"""One unit in the last place of float32, of its magnitude."""


class NotRecomputedError(Exception):
    """Reason why the CPU cannot compute a call."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Way of computing a call on the CPU.

    Attributes:
        dtype: type that narrower floating-point arguments are in; "" leaves them as they are.
        moved: whether they are changed by a unit in the last place of float32, up or down.
        flushed: whether what is too small for a normal number of their own type is zero.
        rounded: 16-bit type that numbers among the arguments are rounded to, as a device may hold them; ""
            for none.
    """

    dtype: str = "float32"
    moved: bool = False
    flushed: bool = False
    rounded: str = ""


def recompute(function: Any, given: HostCopy, reading: Reading) -> list[Array | None]:
    """Compute a call, and return what it computes, as :func:`~.operators.results_of` has it.

    A result that numpy cannot hold is None.

    Raises:
        NotRecomputedError: the CPU has no such operator for these arguments.
    """
    with _computing(function):
        arguments, named, returned = computed(function, given, reading)
        return [_array(tensor) for tensor in results_of(function, arguments, named, returned)]


def computed(function: Any, given: HostCopy, reading: Reading) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """Compute a call, and return the arguments, to which it may have written, and what it gave back.

    Raises:
        NotRecomputedError: as for :func:`recompute`.
    """
    torch = sys.modules["torch"]
    with _computing(function), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        change = _Change(reading)
        arguments, named = given.rebuilt(change.memory, change.plain)
        schema = function._schema.arguments  # noqa: SLF001 - torch's only name for it
        by_name = {argument.name: argument for argument in schema}
        placed = zip(schema, arguments, strict=False)
        arguments = tuple(_number(argument, value, reading) for argument, value in placed)
        named = {name: _number(by_name[name], value, reading) for name, value in named.items()}
        return arguments, named, function(*arguments, **named)


@contextmanager
def _computing(function: Any) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        words = str(error).partition("\n")[0]
        raise NotRecomputedError(
            f"the CPU does not compute {function} for these arguments: {words}"
        ) from error


def _array(tensor: Any) -> Array | None:
    try:
        return array_of(tensor.contiguous())
    except NotCopiedError:
        return None


class _Change:
    """The arguments of one reading."""

    def __init__(self, reading: Reading) -> None:
        torch = sys.modules["torch"]
        self._reading = reading
        self._wide = getattr(torch, reading.dtype) if reading.dtype else None
        self._generator = torch.Generator().manual_seed(_SEED)

    def memory(self, flat: Any) -> Any:
        """Return another memory for the same values."""
        if not flat.is_floating_point():
            return flat.clone()
        torch = sys.modules["torch"]
        values = flat.to(self._wider(flat.dtype), copy=True)
        if self._reading.flushed:
            values[values.abs() < torch.finfo(flat.dtype).smallest_normal] = 0
        if self._reading.moved:
            up = torch.randint(0, 2, values.shape, generator=self._generator) * 2 - 1
            moved = values * (1 + up.to(values.dtype) * _STEP)
            values = torch.where(moved.isfinite(), moved, values)
        return values

    def plain(self, value: Any) -> Any:
        """Return another plain argument: types become as wide, and devices the CPU."""
        torch = sys.modules["torch"]
        if isinstance(value, torch.dtype) and value.is_floating_point:
            return self._wider(value)
        return torch.device("cpu") if isinstance(value, torch.device) else value

    def _wider(self, dtype: Any) -> Any:
        wide = self._wide
        return wide if wide is not None and wide.itemsize > dtype.itemsize else dtype


def _number(argument: Any, value: Any, reading: Reading) -> Any:
    if argument.name == "half_to_float" and reading.dtype:
        return False  # the argument is float32 already
    kind = str(argument.type)
    if reading.rounded and isinstance(value, float) and ("number" in kind or "Tensor" in kind):
        torch = sys.modules["torch"]
        return torch.tensor(value, dtype=getattr(torch, reading.rounded)).item()
    return value


class NotCopiedError(Exception):
    """Reason why an argument cannot be copied."""


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
    """Arguments of a call, on the host.

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
        pieces.setdefault((int(tensor.untyped_storage().data_ptr()), str(tensor.dtype)), []).append(tensor)
    addresses = [address for address, _ in pieces if address]
    if writes and len(addresses) > len({*addresses}):
        raise NotCopiedError("it writes to memory that it reads as another type")
    starts = {name: min(tensor.storage_offset() for tensor in found) for name, found in pieces.items()}
    memory = {name: _flat(found, starts[name]) for name, found in pieces.items()}

    def viewed(value: Any) -> Any:
        if not isinstance(value, sys.modules["torch"].Tensor):
            return value
        name = int(value.untyped_storage().data_ptr()), str(value.dtype)
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
    try:
        return np.array(statistics.array_of(tensor))
    except (AttributeError, RuntimeError):
        raise NotCopiedError(str(tensor.dtype).rpartition(".")[2]) from None


def _unusual(tensor: Any) -> str:
    torch = sys.modules["torch"]
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
        return f"one of its arguments is no plain tensor ({type(tensor).__name__}, {tensor.layout})"
    if tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        return "one of its arguments is quantised, or a conjugate that has not been computed yet"
    return ""


def _extent(tensor: Any) -> int:
    """Count the elements from the first of a tensor to its last in memory."""
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
