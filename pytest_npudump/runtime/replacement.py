"""Observed calls of a client, and inputs of its models that are perturbed for as long as they run.

A calibration has its members differ by about a unit in the last place of what a model is fed. Values come and
go by way of host memory, so that no operator of ours is in the dump. Behind the model each input has its
values back, unless the model wrote to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol

from pytest_npudump.onnxmodels.variation import INPUTS, Variation, Varying

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy as np


_MARK, _ENDED = "_npudump_original", "_npudump_ended"


class Replaced:
    """Replacements in force from :meth:`put` to :meth:`put_back`."""

    def __init__(self) -> None:
        self._put: list[tuple[Any, str, Any]] = []

    def __bool__(self) -> bool:
        """Return whether anything is replaced."""
        return bool(self._put)

    def put(self, owner: Any, name: str, call: Callable[..., Any], *, beside: bool = False) -> None:
        """Have ``call`` called in the place of a function, with the function before its arguments.

        Nothing happens where the owner has no such function, or cannot be changed.

        Args:
            owner: a module or a class; None for one that a client does not have.
            name: of the function.
            call: takes the function and what it was called with, and returns what the caller gets.
            beside: go on with an earlier replacement, which ends by itself; else it is one left behind or
                put back by a fixture that had replaced the function.
        """
        current = getattr(owner, name, None)
        if current is None:
            return
        original = _in_force(current) if beside else current
        while not beside and hasattr(original, _MARK):
            original = getattr(original, _MARK)

        @wraps(original)
        def replacement(*arguments: Any, **named: Any) -> Any:
            return call(_in_force(original), *arguments, **named)

        setattr(replacement, _MARK, original)
        with suppress(AttributeError, TypeError):
            setattr(owner, name, replacement)
            self._put.append((owner, name, replacement))

    def put_back(self) -> None:
        """Put every function back, but those that something else has replaced meanwhile."""
        put, self._put = self._put, []
        for owner, name, replacement in reversed(put):
            setattr(replacement, _ENDED, True)
            if getattr(owner, name, None) is replacement:
                setattr(owner, name, _in_force(replacement))


def _in_force(function: Any) -> Any:
    """Return a function without replacements that have ended."""
    while getattr(function, _ENDED, False):
        function = getattr(function, _MARK)
    return function


class Unreached(Exception):  # noqa: N818 - no error: the input stays as it is
    """An input that is not perturbed, and why."""


class Input(Protocol):
    """One input of a model, on the device.

    Attributes:
        name: as reports call it.
    """

    name: str

    def read(self) -> np.ndarray:
        """Return a copy of its values.

        Raises:
            Unreached: it can be neither read nor written without an operator of ours in the dump.
        """

    def write(self, values: np.ndarray) -> None:
        """Give it other values, of the same type and shape."""


class PerturbedInputs:
    """Perturbation of the inputs of one process's models.

    Attributes:
        varying: what varies at present, and which inputs that has reached.
        executions: how many there have been since the variation began.
    """

    def __init__(self) -> None:
        self.varying = Varying()
        self.executions = 0

    def begin(self, variation: Variation) -> None:
        """Vary so from now on, counting executions from 0."""
        self.varying.begin(variation)
        self.executions = 0

    @contextmanager
    def of(self, inputs: Iterable[Input]) -> Iterator[None]:
        """Have an execution's inputs perturbed inside of the block."""
        execution, self.executions = self.executions, self.executions + 1
        put = []
        for number, each in enumerate(inputs):
            try:
                before = each.read()
            except Unreached as reason:
                self.varying.unreached.add(f"{each.name} ({reason})")
                continue
            self.varying.note_fed(each.name, before, execution)
            after = self.varying.moved(each.name, before, (execution, number))
            if after is not None:
                each.write(after)
                put.append((each, before, after))
        yield
        for each, before, after in put:
            if each.read().tobytes() == after.tobytes():
                each.write(before)


class PerturbedCalls(PerturbedInputs, ABC):
    """Calls of a client with perturbed inputs from :meth:`vary` to the next; a subclass names them."""

    def __init__(self) -> None:
        super().__init__()
        self._replaced = Replaced()

    def vary(self, variation: Variation) -> None:
        """Perturb or note models' inputs from here on, or neither, as the variation asks."""
        self._replaced.put_back()
        self.begin(variation)
        if self.wanted:
            self._replace_calls()

    @property
    def wanted(self) -> bool:
        """Return whether the variation has inputs perturbed or noted."""
        return self.varying.variation.seed is not None or self.varying.variation.waits

    @abstractmethod
    def _replace_calls(self) -> None:
        """Put functions of ours in the place of those that run models."""


class VariedRuntime:
    """The part of a runtime that has what its calls are fed vary, as a device allows."""

    varies = frozenset({INPUTS})
    _varied: Any

    def vary(self, variation: Variation) -> None:
        """Vary the inputs of models, modules or cells from here on."""
        self._varied.vary(variation)

    @property
    def varying(self) -> Varying:
        """Present variation, and the inputs that the last one has reached."""
        varying: Varying = self._varied.varying
        return varying
