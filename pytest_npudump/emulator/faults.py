"""Faults planted into the emulated machine, for tests of the tools that are to find them.

A trampling stands for an operator that writes outside of its own tensors. It shows where the watcher
looks at memory; the model's own results stay as onnxruntime gives them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.emulator.state import process

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pytest_npudump.emulator.tensors import Tensor


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
