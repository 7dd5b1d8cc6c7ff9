"""One call of a single operator, as a runtime is asked to make it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """An operator, what it is given, and what it is to give.

    Attributes:
        operator: its type, as CANN calls it.
        inputs: its inputs in order, on the host.
        outputs: type and shape of each output, which the device is told beforehand.
        attributes: by name; bools, integers, floats, texts, numpy types, or lists of these but the last.
    """

    operator: str
    inputs: tuple[NDArray[Any], ...]
    outputs: tuple[tuple[np.dtype[Any], tuple[int, ...]], ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class OperatorRuntime(Protocol):
    """A runtime that can run a single operator by its type."""

    def run_operator(self, call: OperatorCall) -> list[NDArray[Any]]:
        """Run an operator under the dump that is on, wait for it, and return its outputs.

        Raises:
            RequestError: a type or an attribute is none that the runtime takes.
            RuntimeUnavailableError: the device refuses, or the operator fails there.
        """
