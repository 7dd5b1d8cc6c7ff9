"""Faults that are injected in the emulated machine, and when they strike."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pytest_npudump.onnxmodels.tensor_types import Tensor


@dataclass(frozen=True, slots=True)
class Trampling:
    """One operator's write into the outputs of another.

    Attributes:
        model: name of the model, as in dumps.
        by: the operator that writes.
        victim: the operator whose outputs change; those written after ``by`` ran are whole again.
        first: flat index of the first element that changes.
        elements: how many change.
    """

    model: str
    by: str
    victim: str
    first: int
    elements: int


@dataclass(frozen=True, slots=True)
class Failure:
    """An operator that fails.

    Attributes:
        operator: its raw name; of a single operator (``acl.op``) its type.
        model: name of the model, as in dumps; None for any model, and for single operators.
        first: the first execution of the model, or call of the operator, that fails; all later ones do too.
    """

    operator: str
    model: str | None
    first: int


@dataclass(frozen=True, slots=True)
class Distortion:
    """An operator that computes wrongly.

    Attributes:
        model: name of the model, as in dumps; None for single operators.
        operator: its raw name; of a single operator (``acl.op``) its type.
        factor: what its floating-point outputs are multiplied by.
        offset: what is added to them then.
        tail: whether only what lies behind the last whole block of that many elements is wrong; 0 for all.
    """

    model: str | None
    operator: str
    factor: float
    offset: float
    tail: int = 0


Fault = Trampling | Failure | Distortion


@dataclass(slots=True)
class Faults:
    """All faults of a machine.

    Attributes:
        tramplings, failures, distortions: what is injected.
        calls: how often each type of single operator was called.
    """

    tramplings: list[Trampling] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    distortions: list[Distortion] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)

    def plant(self, fault: Fault) -> None:
        """Inject a fault; a distortion in place of an earlier one of that operator."""
        if isinstance(fault, Trampling):
            self.tramplings.append(fault)
        elif isinstance(fault, Failure):
            self.failures.append(fault)
        else:
            name = (fault.model, fault.operator)
            self.distortions = [d for d in self.distortions if (d.model, d.operator) != name] + [fault]

    def end(self, fault: Fault) -> None:
        """End a fault, where it has not ended yet."""
        self.tramplings = [known for known in self.tramplings if known is not fault]
        self.failures = [known for known in self.failures if known is not fault]
        self.distortions = [known for known in self.distortions if known is not fault]

    def clear(self) -> None:
        """End all faults."""
        self.tramplings, self.failures, self.distortions = [], [], []
        self.calls.clear()

    def failing(self, models: Collection[str], execution: int) -> tuple[Failure, ...]:
        """Return the failures injected in this execution of a model known by the names ``models``."""
        return tuple(
            fault
            for fault in self.failures
            if execution >= fault.first and (fault.model is None or fault.model in models)
        )

    def failing_operator(self, op_type: str) -> bool:
        """Whether the next call of a single operator fails; counts the call."""
        called = self.calls[op_type]
        self.calls[op_type] += 1
        return any(
            fault.operator == op_type and fault.model is None and called >= fault.first
            for fault in self.failures
        )

    def trampling(self, models: Collection[str]) -> tuple[Trampling, ...]:
        """Return what is injected in a model known by the names ``models``."""
        return tuple(fault for fault in self.tramplings if fault.model in models)

    def distorting(self, models: Collection[str]) -> tuple[Distortion, ...]:
        """Return what computes wrongly in a model known by the names ``models``."""
        return tuple(fault for fault in self.distortions if fault.model in models)

    def distorting_operator(self, op_type: str) -> Distortion | None:
        """Return what is wrong with single operators of a type; None where nothing is."""
        alone = (fault for fault in self.distortions if fault.model is None)
        return next((fault for fault in alone if fault.operator == op_type), None)


def trampled(tensor: Tensor, faults: Sequence[Trampling]) -> Tensor:
    """Return ``tensor`` as its memory is after ``faults``."""
    if not faults or not tensor.nbytes:
        return tensor
    data = tensor.data.copy()
    rows = data.view(np.uint8).reshape(data.size, data.itemsize)
    for fault in faults:
        rows[fault.first : fault.first + fault.elements] ^= 0xFF
    return replace(tensor, data=data)


def distorted(tensor: Tensor, fault: Distortion | None) -> Tensor:
    """Return what a single operator gives with ``fault``; what is not of floating point stays as it is."""
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
