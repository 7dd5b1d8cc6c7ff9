"""Faults to inject into the emulated machine, for tests of the tools that are to find them.

A fault lasts until what planted it is closed (each returns a context manager, so that ``with`` ends it),
until :func:`end`, or until ``reset()`` of :mod:`pytest_npudump.emulator.install`. A model that was loaded
before keeps a trampling or distortion.
"""

from __future__ import annotations

import math
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pytest_npudump.onnxmodels.tensor_types import Tensor

F = TypeVar("F")
__all__ = ["distort", "end", "fail", "trample"]


@dataclass(frozen=True, slots=True)
class InjectedTrampling:
    """One operator's write into the outputs of another, as :func:`trample` has it."""

    model: str
    by: str
    victim: str
    first: int
    elements: int


@dataclass(frozen=True, slots=True)
class InjectedFailure:
    """An operator that fails, as :func:`fail` has it."""

    operator: str
    model: str | None
    first: int


@dataclass(frozen=True, slots=True)
class Distortion:
    """An operator that computes wrongly, as :func:`distort` has it."""

    model: str | None
    operator: str
    factor: float
    offset: float
    tail: int = 0


@dataclass(slots=True)
class Faults:
    """Faults, and when they strike.

    Attributes:
        planted: what is injected.
        calls: how often each type of single operator was called.
    """

    planted: list[InjectedTrampling | InjectedFailure | Distortion] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)

    def plant(self, fault: InjectedTrampling | InjectedFailure | Distortion) -> ExitStack:
        """Inject a fault, which ends where the result is closed.

        A distortion takes the place of an earlier one of that operator.
        """
        if isinstance(fault, Distortion):
            name = (fault.model, fault.operator)
            others = self.of(Distortion)
            self.end(*(other for other in others if (other.model, other.operator) == name))
        self.planted.append(fault)
        planted = ExitStack()
        planted.callback(self.end, fault)
        return planted

    def end(self, *faults: InjectedTrampling | InjectedFailure | Distortion) -> None:
        """End some faults."""
        self.planted = [known for known in self.planted if all(known is not fault for fault in faults)]

    def of(self, kind: type[F]) -> tuple[F, ...]:
        """Return the faults of a kind."""
        return tuple(fault for fault in self.planted if isinstance(fault, kind))

    def failing(self, models: Collection[str], execution: int) -> tuple[InjectedFailure, ...]:
        """Return the failures injected in this execution of a model known by the names ``models``."""
        return tuple(
            fault
            for fault in self.of(InjectedFailure)
            if execution >= fault.first and (fault.model is None or fault.model in models)
        )

    def failing_operator(self, op_type: str) -> bool:
        """Return whether the next call of a single operator fails; counts the call."""
        called = self.calls[op_type]
        self.calls[op_type] += 1
        return any(
            fault.operator == op_type and fault.model is None and called >= fault.first
            for fault in self.of(InjectedFailure)
        )

    def trampling(self, models: Collection[str]) -> tuple[InjectedTrampling, ...]:
        """Return the tramplings injected in a model known by the names ``models``."""
        return tuple(fault for fault in self.of(InjectedTrampling) if fault.model in models)

    def distorting(self, models: Collection[str]) -> tuple[Distortion, ...]:
        """Return the distortions of a model known by the names ``models``."""
        return tuple(fault for fault in self.of(Distortion) if fault.model in models)

    def distorting_operator(self, op_type: str) -> Distortion | None:
        """Return the distortion of single operators of a type; None without one."""
        alone = (fault for fault in self.of(Distortion) if fault.model is None)
        return next((fault for fault in alone if fault.operator == op_type), None)


PLANTED = Faults()
"""Faults injected in the emulated machine."""


def end() -> None:
    """End all faults."""
    PLANTED.planted.clear()
    PLANTED.calls.clear()


def trample(model: str, by: str, victim: str, *, first: int = 0, elements: int = 1) -> ExitStack:
    """Let ``by`` trample on the outputs of ``victim`` in models of that name loaded from now on.

    It stands for an operator that writes outside of its own tensors. It shows where the watcher looks at
    memory; the model's own results stay as onnxruntime gives them.

    Args:
        model: name of the model, as in dumps.
        by: the operator that writes.
        victim: the operator whose outputs change; those written after ``by`` ran are whole again.
        first: flat index of the first element that changes.
        elements: how many change: all their bits are inverted, so that each of them does.

    Raises:
        ValueError: ``first`` is negative, or no element is to change.
    """
    if first < 0 or elements < 1:
        raise ValueError(f"first={first}, elements={elements}: expected at least 0 and at least 1")
    return PLANTED.plant(InjectedTrampling(model, by, victim, first, elements))


def distort(
    model: str | None, operator: str, *, factor: float = 1.0, offset: float = 0.0, tail: int = 0
) -> ExitStack:
    """Let an operator compute wrongly in models of that name loaded from now on, or alone.

    It stands for a kernel with an error. Its floating-point outputs are ``factor`` times what they should be,
    plus ``offset``, and whatever follows goes on with them, dumped or not. The last call for an operator
    counts, so that a test may make it each time it runs. A model that has no such operator, or one without
    such outputs, is refused when it is loaded.

    Args:
        model: its file's stem, or its graph's name; None for single operators (``acl.op``).
        operator: the raw name; of a single operator its type.
        factor: 1 for none.
        offset: 0 for none.
        tail: of single operators: only elements behind the last whole block of that many in the last axis are
            wrong, where there is a whole block; 0 for all elements.

    Raises:
        ValueError: a name is empty, the fault would change nothing, or is not finite, or it is of tails in a
            model's operator.
    """
    named = model != "" and operator
    if not named or not (math.isfinite(factor) and math.isfinite(offset)):
        raise ValueError(f"{model=}, {operator=}, {factor=}, {offset=}: expected names and finite numbers")
    if (factor, offset) == (1.0, 0.0):
        raise ValueError("factor=1.0, offset=0.0: expected something that changes values")
    if tail < 0 or (tail and model is not None):
        raise ValueError(f"{tail=}: expected the size of a block, of a single operator (model=None)")
    return PLANTED.plant(Distortion(model, operator, factor, offset, tail))


def fail(operator: str, *, model: str | None = None, first: int = 0) -> ExitStack:
    """Let an operator fail on the device from now on, in models loaded already as well.

    It stands for an operator that ends with an AI Core exception. ``acl.mdl.execute`` returns 507011; of
    ``acl.mdl.execute_async`` the call that waits for the stream does, as of a single operator (507015). The
    outputs are not written, and an exception dump that is on leaves what CANN leaves. Operators before it run
    as ever.

    Args:
        operator: its raw name; for a single operator (``acl.op``) its type.
        model: name of the model (its file's stem, or its graph's name); None for every model that has such
            an operator, and for single operators.
        first: number of executions of the model, or of calls of the operator, that do not fail.

    Raises:
        ValueError: the name is empty, or ``first`` is negative.
    """
    if not operator or first < 0:
        raise ValueError(f"operator={operator!r}, first={first}: expected a name and at least 0")
    return PLANTED.plant(InjectedFailure(operator, model, first))


def trampled(tensor: Tensor, faults: Sequence[InjectedTrampling]) -> Tensor:
    """Return ``tensor`` as its memory is after ``faults``."""
    if not faults or not tensor.nbytes:
        return tensor
    data = tensor.data.copy()
    rows = data.view(np.uint8).reshape(data.size, data.itemsize)
    for fault in faults:
        rows[fault.first : fault.first + fault.elements] ^= 0xFF
    return replace(tensor, data=data)


def distorted(tensor: Tensor, fault: Distortion | None) -> Tensor:
    """Return the output of a single operator with ``fault``; only floating point is distorted."""
    if fault is None or tensor.dtype.kind != "float" or not tensor.nbytes:
        return tensor
    data = tensor.data.copy()
    last = tensor.shape[-1] if tensor.shape else 1
    whole = last - last % fault.tail if fault.tail else 0
    first = whole if whole or not fault.tail else last
    wrong = data.reshape(-1, last)[:, first:]
    with np.errstate(over="ignore", invalid="ignore"):
        wrong[...] = wrong * data.dtype.type(fault.factor) + data.dtype.type(fault.offset)
    return replace(tensor, data=data)
