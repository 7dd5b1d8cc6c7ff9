"""ONNX models made ready to run as they are written, and kept ready while their files stay the same.

A model is known by the SHA-256 of its bytes, never by its path or time. Only models are kept whose file holds
all that they are (no weights in other files) and whose operators have no memory: those of ONNX itself that
draw no random numbers, as the generator of a kept session would go on where a new one's begins again.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_npudump.onnxmodels import graph as graph_module
from pytest_npudump.onnxmodels import sessions
from pytest_npudump.onnxmodels.random_operators import draws_random
from pytest_npudump.onnxmodels.sessions import exposed_session
from pytest_npudump.onnxmodels.variation import PLAIN

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_npudump.onnxmodels.graph import Operator
    from pytest_npudump.onnxmodels.variation import Variation

KEPT = 4
"""How many models are kept, and of each how many sessions; what was used longest ago goes first."""
KEPT_BYTES = 64 << 20
"""Size of the largest model that is kept."""
_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml"})
_EXTERNAL = 1
"""``TensorProto.EXTERNAL``."""

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A model that can be run with its inner tensors handed out.

    Attributes:
        source: its file, or its bytes.
        name: the graph's own name.
        operators: its operators in execution order.
        inputs: names of its inputs, weights left out.
        outputs: how many outputs the graph itself has.
        inside: operators inside others, as :func:`~pytest_npudump.onnxmodels.graph.inside` has them.
    """

    source: Path | bytes
    name: str
    operators: tuple[Operator, ...]
    inputs: tuple[str, ...]
    outputs: int
    inside: tuple[tuple[str, str], ...]
    _proto: Any = None
    _content: bytes | None = None
    _sessions: dict[tuple[object, ...], Any] = field(default_factory=dict)

    def session(self, tensors: Sequence[str], variation: Variation = PLAIN) -> Any:
        """Return a session that also hands out the inner ``tensors``, without optimisation, on one thread.

        ``variation`` may have it otherwise.
        """
        how: dict[str, Any] = {"threads": variation.threads, "optimised": variation.optimised}
        key = (*tensors, *how.values())
        found = self._sessions.get(key)
        if found is None:
            proto = sessions.read_model(self.source, self._content) if self._proto is None else self._proto
            found = exposed_session(self.source, proto, tensors, **how)
        _keep(self._sessions, key, found)
        return found


_kept: dict[bytes, PreparedModel] = {}
os.register_at_fork(after_in_child=_kept.clear)


def prepare(source: Path | bytes) -> PreparedModel:
    """Return the model of a file, or of its bytes."""
    content = _content(source)
    key = None if content is None else hashlib.sha256(content).digest()
    found = None if key is None else _kept.get(key)
    if key is None or found is None:
        proto = sessions.read_model(source, content)
        graph = proto.graph
        operators, inputs = graph_module.operators(graph), graph_module.inputs(graph)
        held = graph_module.inside(proto)
        found = PreparedModel(source, graph.name, operators, inputs, len(graph.output), held, proto)
        if key is None or not _without_memory(proto):
            return found
        _keep(_kept, key, replace(found, source=b"", _proto=None))
        return found
    _keep(_kept, key, found)
    return replace(found, source=source, _content=content)


def _content(source: Path | bytes) -> bytes | None:
    """Return the bytes of a model that may be kept; None for any other."""
    if isinstance(source, bytes):
        return source if len(source) <= KEPT_BYTES else None
    if source.suffix != ".onnx":
        return None
    try:
        return source.read_bytes() if source.stat().st_size <= KEPT_BYTES else None
    except OSError:
        return None


def _without_memory(proto: Any) -> bool:
    nodes = graph_module.every_node(proto)
    tensors = graph_module.every_tensor(proto)
    return all(node.domain in _DOMAINS and not draws_random(node.op_type) for node in nodes) and not any(
        tensor.data_location == _EXTERNAL for tensor in tensors
    )


def _keep(things: dict[K, V], key: K, thing: V) -> None:
    """Put a thing behind all others, and let the first one go where there are too many."""
    things.pop(key, None)
    things[key] = thing
    while len(things) > KEPT:
        things.pop(next(iter(things)), None)
