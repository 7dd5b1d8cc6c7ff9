"""A call with a copy of what it was given, and what it gave: values that outlive the run that keeps them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pytest_npudump.dump.table import squeezed
from pytest_npudump.runtime.aten.aclnn_names import may_run
from pytest_npudump.runtime.aten.host_copy import array_of
from pytest_npudump.runtime.aten.recompute import NotRecomputedError, recompute

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from pytest_npudump.runtime.aten.host_copy import HostCopy
    from pytest_npudump.runtime.aten.recompute import Reading

    Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class WantedOutput:
    """What is known of a dumped tensor before the run that is to keep the call which gives it.

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


@dataclass(frozen=True, slots=True)
class Given:
    """What a call gave on the device.

    Attributes:
        place: among its results.
        digest: of its bytes, as :func:`digest_of` has it.
    """

    place: int
    digest: str


@dataclass(frozen=True, slots=True, eq=False)
class KeptCall:
    """One call of an ATen operator on the device.

    Attributes:
        name: as torch prints it, ``aten.add.Tensor``.
        results: those of its results that may be wanted.
        why_not: why it cannot be recomputed; "" where it can.
        function: torch's operator.
        given: what it was given; None where it cannot be recomputed.
    """

    name: str
    results: tuple[Given, ...]
    why_not: str = ""
    function: Any = None
    given: HostCopy | None = None

    @property
    def operator(self) -> str:
        """ATen's name of the operator, without overload: ``add_``."""
        return self.name.split(".")[1] if "." in self.name else self.name

    def may_run(self, api: str) -> bool:
        """Whether the call may run an operator of CANN."""
        return may_run(self.operator, api)

    def recomputed(self, reading: Reading) -> list[Array | None]:
        """Return what it computes on the CPU.

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
class Kept:
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

    def kept_calls(self) -> Kept:
        """Return the calls that were kept."""


def digest_of(array: Array) -> str:
    """Return a digest of an array's values and shape, in which axes of one element do not count."""
    form = f"{array.dtype.name}{squeezed(array.shape)}".encode()
    return hashlib.blake2b(form + array.tobytes(), digest_size=16).hexdigest()
