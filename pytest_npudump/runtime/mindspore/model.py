"""A MindIR file, run as a graph, and cells whose inputs are perturbed for a calibration.

The outermost cell that is called is a model, and the tensors among its arguments are what it is fed. It gets
others in their place, as a MindSpore tensor does not tell where its values lie. While it runs MindSpore is as
it was. What ``mindspore.jit`` made of a function is no cell, and gets what it is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.errors import RuntimeUnavailableError
from pytest_npudump.onnxmodels.variation import Varying
from pytest_npudump.runtime.base import ModelSession
from pytest_npudump.runtime.replaced import Replaced

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_npudump.onnxmodels.variation import Variation


_SUFFIX = ".mindir"


@dataclass(slots=True)
class MindIRSession(ModelSession):
    """A loaded MindIR model.

    Attributes:
        mindspore: the module.
        graph: the ``GraphCell``; None once the session is closed.
        path: the file.
        executions: how often the graph was called; a run that is refused before is none.
    """

    mindspore: Any
    graph: Any
    path: Path
    executions: int = 0

    @classmethod
    def load(cls, mindspore: Any, path: Path) -> MindIRSession:
        """Load a file that ``mindspore.export(..., file_format="MINDIR")`` wrote.

        Raises:
            RuntimeUnavailableError: it is none, or MindSpore cannot load it.
        """
        if path.suffix != _SUFFIX:
            raise RuntimeUnavailableError(
                f"npu_dump.load_model({path.name!r}): the runtime mindspore loads {_SUFFIX} files only. "
                f"Build the network in the test, and call it in GRAPH_MODE or under mindspore.jit; "
                f"for an .om file use --npudump-runtime=acl"
            )
        if not path.is_file():
            raise RuntimeUnavailableError(f"npu_dump.load_model(): there is no file {path}")
        try:
            graph = mindspore.nn.GraphCell(mindspore.load(str(path)))
        except (RuntimeError, ValueError, TypeError) as error:
            words = " ".join(str(error).split())
            raise RuntimeUnavailableError(f"MindSpore cannot load {path}: {words}") from error
        return cls(mindspore, graph, path)

    def run(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """Run the model once; raise what MindSpore raises, or RuntimeUnavailableError once closed."""
        if self.graph is None:
            raise RuntimeUnavailableError(f"{self.path.name} is closed")
        tensors = [self.mindspore.Tensor(np.ascontiguousarray(array)) for array in arrays]
        self.executions += 1
        outputs = self.graph(*tensors)
        found = outputs if isinstance(outputs, tuple | list) else (outputs,)
        return [output.asnumpy() for output in found]

    def close(self) -> None:
        """Let go of the graph; closing twice is allowed."""
        self.graph = None


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
