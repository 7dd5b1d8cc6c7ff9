"""What a call gives on the CPU, from the same arguments in a wider type."""

from __future__ import annotations

import sys
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_npudump.runtime.aten.host_copy import NotCopiedError, array_of
from pytest_npudump.runtime.aten.operators import results_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from pytest_npudump.runtime.aten.host_copy import HostCopy

    Array = np.ndarray[Any, np.dtype[Any]]

_SEED = 0
_STEP = 2.0**-23
"""One unit in the last place of float32, of its magnitude."""


class NotRecomputedError(Exception):
    """Why the CPU cannot compute a call."""


@dataclass(frozen=True, slots=True)
class Reading:
    """In which way a call is computed on the CPU.

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
        arguments, named = _with_numbers(function, arguments, named, reading)
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


def _with_numbers(
    function: Any, arguments: tuple[Any, ...], named: dict[str, Any], reading: Reading
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with the plain ones among them as the reading has them."""
    schema = function._schema.arguments  # noqa: SLF001 - torch's only name for it
    by_name = {argument.name: argument for argument in schema}
    placed = (_number(argument, value, reading) for argument, value in zip(schema, arguments, strict=False))
    return tuple(placed), {name: _number(by_name[name], value, reading) for name, value in named.items()}


def _number(argument: Any, value: Any, reading: Reading) -> Any:
    if argument.name == "half_to_float" and reading.dtype:
        return False  # the argument is float32 already
    kind = str(argument.type)
    if reading.rounded and isinstance(value, float) and ("number" in kind or "Tensor" in kind):
        torch = sys.modules["torch"]
        return torch.tensor(value, dtype=getattr(torch, reading.rounded)).item()
    return value
