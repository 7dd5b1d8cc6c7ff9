"""Cells of MindSpore whose inputs are perturbed, for a calibration.

The outermost cell that is called is a model, and the tensors among its arguments are what it is fed. It gets
others in their place, as a MindSpore tensor does not tell where its values lie. While it runs MindSpore is as
it was. What ``mindspore.jit`` made of a function is no cell, and gets what it is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.onnxmodels.variation import Varying
from pytest_npudump.runtime.replaced import Replaced

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.onnxmodels.variation import Variation


class VariedCells:
    """The cells that are called from :meth:`vary` to the next one.

    Attributes:
        varying: what varies at present, and which inputs that has reached.

    Args:
        mindspore: the module.
    """

    def __init__(self, mindspore: Any) -> None:
        self._mindspore = mindspore
        self.varying = Varying()
        self._executions = 0
        self._replaced = Replaced()

    def vary(self, variation: Variation) -> None:
        """Perturb or note what cells are fed from here on, or neither, as the variation says."""
        self._replaced.put_back()
        self.varying.begin(variation)
        self._executions = 0
        if variation.sees_inputs:
            self._put()

    def _put(self) -> None:
        nn = getattr(self._mindspore, "nn", None)
        for name in (
            "Cell",
            "GraphCell",
        ):  # the second one has a call of its own, and is what a MindIR file is
            self._replaced.put(getattr(nn, name, None), "__call__", self._call)

    def _call(self, original: Callable[..., Any], cell: Any, /, *arguments: Any, **named: Any) -> Any:
        execution, self._executions = self._executions, self._executions + 1
        given: dict[Any, Any] = {**dict(enumerate(arguments)), **named}
        fed = {
            place: self._fed(f"{place} of {type(cell).__name__}", value, (execution, number))
            for number, (place, value) in enumerate(given.items())
        }
        self._replaced.put_back()
        try:
            return original(
                cell, *(fed[number] for number in range(len(arguments))), **{n: fed[n] for n in named}
            )
        finally:
            if self.varying.variation.sees_inputs:
                self._put()

    def _fed(self, name: str, value: Any, place: tuple[int, int]) -> Any:
        """Return an argument as it is to be."""
        tensor = self._mindspore.Tensor
        if isinstance(value, list | tuple) and any(isinstance(each, tensor) for each in value):
            self.varying.unreached.add(f"{name} ({type(value).__name__})")
        if not isinstance(value, tensor) or isinstance(value, self._mindspore.Parameter):
            return value
        try:
            values = value.asnumpy()
        except (TypeError, RuntimeError) as error:
            self.varying.unreached.add(f"{name} ({' '.join(str(error).split())})")
            return value
        self.varying.note_fed(name, values, place[0])
        moved = self.varying.moved(name, values, place)
        return value if moved is None else tensor(moved, dtype=value.dtype)
