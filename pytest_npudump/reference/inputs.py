"""What a test fed its models, remembered for the reference."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import ArrayLike
    from typing_extensions import Self

    from pytest_npudump.runtime.base import ModelSession

    Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(slots=True)
class LoadedModel:
    """One model that was loaded, and what each of its executions was given.

    Attributes:
        part: the capture it was loaded in; "" outside of any.
        path: its file.
        names: its inputs' names, in order; empty where the runtime does not tell them.
        runs: copies of the arrays, in the order of the inputs, one item an execution.
    """

    part: str
    path: Path
    names: tuple[str, ...]
    runs: list[tuple[Array, ...]] = field(default_factory=list)


@dataclass(slots=True)
class RunInputs:
    """Everything one run of a test fed its models.

    Attributes:
        loaded: models loaded through ``npu_dump.load_model``, in the order of loading.
        given: what ``npu_dump.reference_inputs`` was given, by the capture it was called in.
    """

    loaded: list[LoadedModel] = field(default_factory=list)
    given: dict[str, list[dict[str, Array]]] = field(default_factory=dict)

    def watch(self, session: ModelSession, path: Path, part: str) -> ModelSession:
        """Return ``session`` such that what it is run on is remembered."""
        names = tuple(getattr(session, "input_names", ()))
        model = LoadedModel(part, path, names)
        self.loaded.append(model)
        return _WatchedSession(session, model)

    def give(self, inputs: Mapping[str, ArrayLike], part: str) -> None:
        """Remember what an execution under way, or the next one, is given.

        Raises:
            RequestError: ``inputs`` is no mapping of names to arrays of numbers.
        """
        arrays = {name: np.array(value, copy=True) for name, value in dict(inputs).items()}
        if not arrays or any(not isinstance(name, str) for name in arrays):
            raise RequestError(
                "reference_inputs: expected a mapping of the reference's input names to arrays"
            )
        for name, array in arrays.items():
            if array.dtype.kind in "OSUMm":
                raise RequestError(
                    f"reference_inputs: {name!r} is of the type {array.dtype}, expected numbers"
                )
        self.given.setdefault(part, []).append(arrays)


@dataclass(slots=True)
class _WatchedSession:
    """A session that copies what it is run on."""

    _session: ModelSession
    _model: LoadedModel

    def run(self, *arrays: np.ndarray) -> list[np.ndarray]:
        __tracebackhide__ = True
        # Copies, made before the run: buffers are reused, also by the run itself.
        copies = tuple(np.array(array, copy=True) for array in arrays)
        before = self._session.executions
        try:
            return self._session.run(*arrays)
        finally:
            # The device counts an execution that failed, too, and none that never reached it.
            if self._session.executions > before:
                self._model.runs.append(copies)

    def close(self) -> None:
        self._session.close()

    def __enter__(self) -> Self:
        self._session.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.__exit__(kind, error, trace)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)
