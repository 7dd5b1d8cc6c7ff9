"""Calls of ATen operators, kept while a test runs and recomputed on the CPU in a wider type afterwards.

What is known of a dumped tensor before the run, its operator, type, shape and extremes, tells which calls may
have given it. Which of them did is for the dump to say, by the bytes of a result. What calls read and write
is in schemas of torch.

Memory is copied as it lies, from the first element that an argument has there to the last: on the device that
runs no operator, which would be one more in the dump. The views of it are made on the host.

Which operators of ``aclnn`` a call may run: torch_npu's op-plugin calls most of them as ATen does: ``add``
runs ``aclnnAdd``, with a scalar ``aclnnAdds``, in place ``aclnnInplaceAdd``; ``_softmax_backward_data`` runs
``aclnnSoftmaxBackward``. Those it calls otherwise are listed here (``op_plugin/ops/opapi``,
``op_plugin_functions.yaml``). A call may run others besides: that it may run one does not say that it did.

A call in files has its arrays as archives of numpy, all else of it as JSON, and nothing as pickle.
``call.json`` names the operator and has its arguments, with a view into a piece of memory in place of each
tensor; ``inputs.npz`` has the memory, flat; ``outputs.npz`` one result, as the device and as the CPU gave it.
Types that numpy lacks are kept as integers of their width.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np

from pytest_npudump.dump.dtypes import is_of_numpy
from pytest_npudump.dump.table import squeezed
from pytest_npudump.errors import DumpError
from pytest_npudump.runtime.graphs import LowestMode, leaves_graphs_alone, name_of
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
    """Compute a call, and return what it computes, as :func:`results_of` has it.

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


_ALIKE = 1e-3
"""Share of their magnitude by which the extremes of two runs may differ; text has six digits of them."""

_OURS = (RuntimeError, TypeError, ValueError, AttributeError, LookupError, MemoryError)
"""Errors of copies, which are none of the test."""

_UNCOMPILED = (
    "while calls are kept this torch (before 2.13) would run compiled functions uncompiled, so that none was"
)


@dataclass(frozen=True, slots=True)
class WantedOutput:
    """Known facts of a dumped tensor before the run that is to keep its call.

    Attributes:
        api: CANN's name of the call, as ``aclnnAdd``.
        dtype: name of its type.
        shape: its shape.
        extremes: its smallest and largest value; None where nothing is known of them.
    """

    api: str
    dtype: str
    shape: tuple[int, ...]
    extremes: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class KeptCall:
    """One call of an ATen operator on the device.

    Attributes:
        name: as torch prints it, ``aten.add.Tensor``.
        results: place among its results and :func:`digest_of` of each that may be wanted.
        why_not: why it cannot be recomputed; "" where it can.
        function: torch's operator.
        given: what it was given; None where it cannot be recomputed.
    """

    name: str
    results: tuple[tuple[int, str], ...]
    why_not: str = ""
    function: Any = None
    given: HostCopy | None = None

    @property
    def operator(self) -> str:
        """ATen's name of the operator, without overload: ``add_``."""
        return self.name.split(".")[1] if "." in self.name else self.name

    def may_run(self, api: str) -> bool:
        """Return whether the call may run an operator of CANN."""
        return may_run(self.operator, api)

    def recomputed(self, reading: Reading) -> list[Array | None]:
        """Compute its results on the CPU.

        Raises:
            NotRecomputedError: it cannot be computed there.
        """
        if self.given is None:
            raise NotRecomputedError(self.why_not)
        return recompute(self.function, self.given, reading)

    def floats(self) -> list[Array]:
        """Return the floating-point memory it was given, as flat arrays."""
        memory = self.given.memory.values() if self.given is not None else ()
        return [array_of(flat) for flat in memory if flat.is_floating_point()]


@dataclass(frozen=True, slots=True)
class KeptRun:
    """The calls of a run.

    Attributes:
        calls: in the order in which they ran.
        why_none: why calls may be missing; "" where none should be.
    """

    calls: tuple[KeptCall, ...] = ()
    why_none: str = ""


@runtime_checkable
class CallKeepingRuntime(Protocol):
    """A runtime that can keep what its operators are given, in this process, to recompute them on the CPU."""

    def keep_calls(self, wanted: Sequence[WantedOutput], limit: int) -> None:
        """Keep the calls that may give these outputs, from the next start of a dump on.

        Args:
            wanted: none ends it, and gives back what was kept.
            limit: most bytes of arguments.
        """

    def kept_calls(self) -> KeptRun:
        """Return the calls that were kept."""


def digest_of(array: Array) -> str:
    """Return a digest of an array's values and shape, in which axes of one element do not count."""
    form = f"{array.dtype.name}{squeezed(array.shape)}".encode()
    return hashlib.blake2b(form + array.tobytes(), digest_size=16).hexdigest()


class KeptCalls:
    """The calls between :meth:`start` and :meth:`stop` that may have given what is wanted.

    Args:
        device: type of the device, as ``torch.Tensor.device`` has it.
        recording: whether operators are only recorded into a graph at present, and do not run.
        why_not: says why the memory of a tensor of the device cannot be read as it lies; "" where it can.
    """

    def __init__(
        self,
        device: str = "npu",
        recording: Callable[[], bool] = lambda: False,
        why_not: Callable[[Any], str] = lambda _: "",
    ) -> None:
        self._device = device
        self._recording = recording
        self._why_not = why_not
        self._mode = LowestMode("NpudumpKeptCalls", self._run)
        self._wanted: tuple[WantedOutput, ...] = ()
        self._left = 0
        self._kept: list[KeptCall] = []
        self._why_none = ""

    def want(self, wanted: Iterable[WantedOutput], limit: int) -> None:
        """Keep the calls for these outputs from now on, and forget all others.

        Args:
            wanted: outputs of the dump; none ends it.
            limit: most bytes of arguments.
        """
        self._wanted, self._kept, self._why_none = tuple(wanted), [], ""
        self._left = limit

    def start(self) -> None:
        """Look at the operators of this thread from now on, if anything is wanted.

        A torch that compiles nothing meanwhile (before 2.13) is left alone where it may have to.
        """
        if not self._wanted:
            return
        if leaves_graphs_alone() or "torch._dynamo" not in sys.modules:
            self._mode.start()
        else:
            self._why_none = _UNCOMPILED

    def stop(self) -> None:
        """Look no more; nothing happens where nobody looks."""
        self._mode.stop()

    def kept(self) -> KeptRun:
        """Return the calls."""
        return KeptRun(tuple(self._kept), self._why_none)

    def _run(self, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        name = name_of(function)
        wanted = [one for one in self._wanted if may_run(name, one.api)]
        if not wanted or is_view(function):
            return function(*arguments, **named)
        if self._recording():
            self._why_none = "it may have been captured into a graph, in which nothing can be kept"
            return function(*arguments, **named)
        before: HostCopy | str | None = None
        try:
            written = written_by(function, arguments, named) if writes(function) else []
            if writes(function) and (makes_new(function) or self._fitting(wanted, written)):
                before = self._copy(function, arguments, named)
        except _OURS as error:
            before = f"the arguments of {function} cannot be copied: {error}"
        returned = function(*arguments, **named)
        try:
            results = results_of(function, arguments, named, returned)
            if fitting := self._fitting(wanted, results):
                call = self._seen(function, results, fitting)
                if call.results or call.why_not:
                    given = before or self._copy(function, arguments, named)
                    if isinstance(given, str):
                        call = replace(call, why_not=call.why_not or given)
                    else:
                        self._left -= given.size
                        call = replace(call, given=given)
                    self._kept.append(call)
        except _OURS as error:
            self._kept.append(KeptCall(str(function), (), f"what {function} gave cannot be read: {error}"))
        return returned

    def _fitting(self, wanted: Sequence[WantedOutput], results: Sequence[Any]) -> list[int]:
        """Return the places of results that are of the type and shape of one that is wanted."""
        forms = {(one.dtype, squeezed(one.shape)) for one in wanted}
        return [
            place
            for place, tensor in enumerate(results)
            if (str(tensor.dtype).rpartition(".")[2], squeezed(tensor.shape)) in forms
            and tensor.device.type == self._device
        ]

    def _copy(self, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> HostCopy | str:
        """Copy a call's arguments; those that it writes to have to be copied before."""
        if why := why_random(function, arguments, named):
            return why
        if (size := size_of(arguments, named)) > self._left:
            return (
                f"its arguments ({size} bytes) are beyond what is left of npudump_dump_limit ({self._left})"
            )
        try:
            return copied(arguments, named, why_not=self._why_not_here, writes=writes(function))
        except (NotCopiedError, RuntimeError) as error:
            return f"the arguments of {function} cannot be copied: {error}"

    def _why_not_here(self, tensor: Any) -> str:
        return self._why_not(tensor) if tensor.device.type == self._device else ""

    def _seen(self, function: Any, results: Sequence[Any], fitting: Sequence[int]) -> KeptCall:
        call = KeptCall(str(function), (), function=function)
        try:
            arrays = [(place, array_of(on_host(results[place], self._why_not_here))) for place in fitting]
        except (NotCopiedError, RuntimeError) as error:
            return replace(call, why_not=f"the result of {function} cannot be read: {error}")
        wanted = [(place, array) for place, array in arrays if any(_may_be(w, array) for w in self._wanted)]
        return replace(call, results=tuple((place, digest_of(array)) for place, array in wanted))


def _may_be(wanted: WantedOutput, array: Array) -> bool:
    """Return whether an array has the extremes of a wanted tensor."""
    if wanted.extremes is None or not array.size or array.dtype.kind == "c":
        return True
    values = array.astype("f8")
    if not math.isfinite(sum(wanted.extremes)) or not bool(abs(values).max() < math.inf):
        return True  # NaN and infinities are treated differently by those who compute extremes
    pairs = zip(wanted.extremes, (values.min(), values.max()), strict=True)
    return all(abs(was - now) <= _ALIKE * max(abs(was), abs(now)) for was, now in pairs)


CALL, INPUTS, OUTPUTS = "call.json", "inputs.npz", "outputs.npz"
DEVICE, CPU = "device", "cpu"
"""Names of the two arrays in :data:`OUTPUTS`."""


def save_call(folder: Path, call: KeptCall, judged: Mapping[str, Any], output: Array) -> None:
    """Write a call that can be recomputed.

    Args:
        folder: a new one.
        call: with what it was given.
        judged: which of its results (``place``, ``dtype`` on the device), how (``wide``, in which the CPU
            computed, and ``plain``, whether the matrix unit is known to take float32 operands as they are),
            and what came of it: ``apart`` and ``allowed``, None where these do not apply, and ``why``.
        output: that result on the device.

    Raises:
        NotCopiedError: an argument cannot be written.
        NotRecomputedError: the CPU does not compute it.
        OSError: the files cannot be written.
    """
    assert call.given is not None  # noqa: S101 - as it can be recomputed
    expected, source = _on_cpu(call, judged)
    given = call.given
    names = {memory: f"memory_{number}" for number, memory in enumerate(given.memory)}
    data = {
        "operator": call.name,
        "arguments": as_data(given.arguments, names),
        "named": {name: as_data(value, names) for name, value in given.named.items()},
        "memory": {names[memory]: memory[1].rpartition(".")[2] for memory in names},
        "result": source,
        "judged": judged,
    }
    arrays = {names[memory]: array_of(flat) for memory, flat in given.memory.items()}
    folder.mkdir(parents=True)
    write_files(folder, data, arrays, {DEVICE: output.reshape(expected.shape), CPU: expected})


def _on_cpu(call: KeptCall, judged: Mapping[str, Any]) -> tuple[Array, dict[str, Any]]:
    """Return a result on the CPU, and where it is: among the tensors returned, or among those given."""
    assert call.given is not None  # noqa: S101 - the caller has looked
    arguments, named, returned = computed(call.function, call.given, Reading(judged["wide"]))
    results = results_of(call.function, arguments, named, returned)
    new = len(results) - len(written_by(call.function, arguments, named))
    of = "returned" if judged["place"] < new else "arguments"
    tensors = [*tensors_in(returned if of == "returned" else (*arguments, *named.values()))]
    result = results[judged["place"]]
    at = next(number for number, tensor in enumerate(tensors) if tensor is result)
    return array_of(result.contiguous()), {"of": of, "at": at}


def write_files(
    folder: Path, data: Mapping[str, Any], inputs: Mapping[str, Array], outputs: Mapping[str, Array]
) -> None:
    """Write the three files into a folder that is there.

    Args:
        folder: where to.
        data: of :data:`CALL`.
        inputs: of :data:`INPUTS`.
        outputs: of :data:`OUTPUTS`.

    Raises:
        OSError: they cannot be written.
    """
    (folder / CALL).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    for name, arrays in ((INPUTS, inputs), (OUTPUTS, outputs)):
        stored = {each: _storable(array) for each, array in arrays.items()}
        np.savez(folder / name, **stored)  # type: ignore[arg-type]


def read_files(folder: Path) -> tuple[dict[str, Any], dict[str, Array], dict[str, Array]]:
    """Read the arguments of :func:`write_files`, with arrays as they are stored.

    Raises:
        OSError: a file cannot be read.
        ValueError: it holds something else.
    """
    data = json.loads((folder / CALL).read_text(encoding="utf-8"))
    return data, _arrays(folder / INPUTS), _arrays(folder / OUTPUTS)


def call_of(data: Mapping[str, Any], inputs: Mapping[str, Array]) -> KeptCall:
    """Return the call that is in files; torch has to have been imported.

    Args:
        data: of :data:`CALL`.
        inputs: of :data:`INPUTS`, as they are stored or in their types.

    Raises:
        DumpError: they are something else, or torch has no such operator.
    """
    torch = sys.modules["torch"]
    try:
        dtypes = data["memory"]
        memory = {
            (number, dtype): torch.from_numpy(_storable(inputs[name])).view(getattr(torch, dtype))
            for number, (name, dtype) in enumerate(dtypes.items())
        }
        named = {name: from_data(value, dtypes) for name, value in data["named"].items()}
        given = HostCopy(tuple(from_data(data["arguments"], dtypes)), named, memory)
        function = _operator(torch, data["operator"])
        return KeptCall(data["operator"], (), "", function, given)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DumpError(f"{CALL}: is no call that a second run has saved: {error}") from error


def _operator(torch: Any, name: str) -> Any:
    """Return an operator by LIBRARY.NAME.OVERLOAD: what else torch.ops has, loads libraries."""
    if not re.fullmatch(r"(?!_)\w+\.\w+\.(?!_)\w+", name, re.ASCII):
        raise ValueError(f"{name} is no operator")
    function = torch.ops
    for part in name.split("."):
        function = getattr(function, part)
    return function


def _arrays(path: Path) -> dict[str, Array]:
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def _storable(array: Array) -> Array:
    return array if is_of_numpy(array.dtype) else array.view(f"i{array.dtype.itemsize}")


_NAMED = ("dtype", "layout", "memory_format")
"""Types of torch whose values are known by name."""


def as_data(value: Any, memory: Mapping[tuple[int, str], str]) -> Any:
    """Return an argument as data: what JSON has no word for as an object whose only key says what it is.

    Args:
        value: of a :class:`HostCopy`, with views in place of tensors.
        memory: the names of the pieces of memory.

    Raises:
        NotCopiedError: it is of a type that cannot be written.
    """
    if isinstance(value, View):
        return {"tensor": [memory[value.memory], list(value.sizes), list(value.strides), value.offset]}
    if isinstance(value, list | tuple):
        return [as_data(each, memory) for each in value]
    if isinstance(value, complex):
        return {"complex": [as_data(value.real, memory), as_data(value.imag, memory)]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    torch = sys.modules["torch"]
    if isinstance(value, torch.device):
        return {"device": str(value)}
    for kind in _NAMED:
        if isinstance(value, getattr(torch, kind)):
            return {kind: str(value).rpartition(".")[2]}
    raise NotCopiedError(f"an argument of type {type(value).__name__} cannot be written to a file")


def from_data(data: Any, dtypes: Mapping[str, str]) -> Any:
    """Return the argument that :func:`as_data` was given; the pieces of memory have numbers for addresses.

    Args:
        data: of an argument.
        dtypes: of the pieces of memory, in the order of their numbers.

    Raises:
        ValueError: it is no such data.
    """
    if isinstance(data, list):
        return [from_data(each, dtypes) for each in data]
    if not isinstance(data, dict):
        return data
    ((kind, value),) = data.items()
    if kind == "tensor":
        name, sizes, strides, offset = value
        return View(([*dtypes].index(name), dtypes[name]), tuple(sizes), tuple(strides), offset)
    if kind == "complex":
        return complex(*(from_data(part, dtypes) for part in value))
    torch = sys.modules["torch"]
    if kind == "float":
        return float(value)
    if kind == "device":
        return torch.device("cpu")
    if kind in _NAMED:
        return getattr(torch, value)
    raise ValueError(f"unknown kind of argument {kind!r}")
