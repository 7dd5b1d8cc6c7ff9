"""Graphs as in the client: a class of Python over one that is C++ there, and the context that captures."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch_npu import _device

if TYPE_CHECKING:
    from collections.abc import Iterator


class _NPUGraph:
    """A captured graph, which holds the dump of tensors that was on while it was captured, for one replay."""

    def __init__(self) -> None:
        self._dumps: list[Any] = []
        self._replays = 0

    def capture_begin(self) -> None:
        _device.initialise()
        _device.calls.append(("aclmdlRICaptureBegin",))
        _device.state["capturing"] = self._dumps = []
        self._replays = 0

    def capture_end(self) -> None:
        _device.state["capturing"] = None
        _device.ask("aclmdlRICaptureEnd")

    def replay(self) -> None:
        _device.calls.append(("aclmdlRIExecuteAsync",))
        self._replays += 1
        if self._replays > 1 and self._dumps:
            _device.calls.append(("use after free",))
        _device.replay(self._dumps)


class NPUGraph(_NPUGraph):
    def capture_begin(self) -> None:
        super().capture_begin()

    def capture_end(self) -> None:
        super().capture_end()

    def replay(self) -> None:
        super().replay()


@contextmanager
def graph(npu_graph: NPUGraph) -> Iterator[None]:
    npu_graph.capture_begin()
    try:
        yield
    finally:
        npu_graph.capture_end()


def is_current_stream_capturing() -> bool:
    return _device.state["capturing"] is not None
