"""Faults planted into the emulated machine, for tests of the tools that are to find them.

A trampling stands for an operator that writes outside of its own tensors. It shows where the watcher
looks at memory; the model's own results stay as onnxruntime gives them. A failure stands for an operator
that ends with an AI Core exception.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.emulator.machine.state import process

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pytest_npudump.onnxmodels.tensors import Tensor


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


def trample(model: str, by: str, victim: str, *, first: int = 0, elements: int = 1) -> None:
    """Let ``by`` trample on the outputs of ``victim`` in models of that name loaded from now on.

    All bits of the elements are inverted, so that each of them changes. ``install.reset()`` ends it.

    Raises:
        ValueError: ``first`` is negative, or no element is to change.
    """
    if first < 0 or elements < 1:
        raise ValueError(f"first={first}, elements={elements}: expected at least 0 and at least 1")
    process().tramplings.append(Trampling(model, by, victim, first, elements))


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


def fail(operator: str, *, model: str | None = None, first: int = 0) -> None:
    """Let an operator fail on the device from now on, in models loaded already as well.

    ``acl.mdl.execute`` returns 507011; of ``acl.mdl.execute_async`` the call that waits for the stream does,
    as of a single operator (507015). The outputs are not written, and an exception dump that is on leaves
    what CANN leaves. Operators before it run as ever. ``install.reset()`` ends it.

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
    process().failures.append(Failure(operator, model, first))


def failing(models: Collection[str], execution: int) -> tuple[Failure, ...]:
    """Return the failures planted in this execution of a model known by the names ``models``."""
    return tuple(
        fault
        for fault in process().failures
        if execution >= fault.first and (fault.model is None or fault.model in models)
    )


def failing_operator(op_type: str) -> bool:
    """Whether the next call of a single operator fails; counts the call."""
    state = process()
    called = state.operator_calls[op_type]
    state.operator_calls[op_type] += 1
    return any(
        fault.operator == op_type and fault.model is None and called >= fault.first
        for fault in state.failures
    )


def planted(models: Collection[str]) -> tuple[Trampling, ...]:
    """Return the faults planted in a model known by the names ``models``."""
    return tuple(fault for fault in process().tramplings if fault.model in models)


def trampled(tensor: Tensor, faults: Sequence[Trampling]) -> Tensor:
    """Return ``tensor`` as its memory is after ``faults``."""
    if not faults or not tensor.nbytes:
        return tensor
    data = tensor.data.copy()
    rows = data.view(np.uint8).reshape(data.size, data.itemsize)
    for fault in faults:
        rows[fault.first : fault.first + fault.elements] ^= 0xFF
    return replace(tensor, data=data)
