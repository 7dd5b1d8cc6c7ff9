"""A MindIR file, run as a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.errors import RuntimeUnavailableError
from pytest_npudump.runtime.base import ModelSession

if TYPE_CHECKING:
    from pathlib import Path

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
