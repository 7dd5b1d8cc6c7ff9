"""Faults to inject into the emulated machine, for tests of the tools that are to find them.

A fault lasts until what planted it is closed (each returns a context manager, so that ``with`` ends it),
until :func:`end`, or until ``reset()`` of :mod:`pytest_npudump.emulator.install`. A model that was loaded
before keeps a trampling or distortion.
"""

from __future__ import annotations

import math
from contextlib import ExitStack

from pytest_npudump.emulator.machine.fault_injection import Distortion, Failure, Fault, Trampling
from pytest_npudump.emulator.process.state import process


def end() -> None:
    """End all faults."""
    process().faults.clear()


def _planted(fault: Fault) -> ExitStack:
    """Plant a fault, which ends where the result is closed."""
    faults, planted = process().faults, ExitStack()
    faults.plant(fault)
    planted.callback(faults.end, fault)
    return planted


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
    return _planted(Trampling(model, by, victim, first, elements))


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
    return _planted(Distortion(model, operator, factor, offset, tail))


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
    return _planted(Failure(operator, model, first))
