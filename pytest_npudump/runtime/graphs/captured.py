"""Captured graphs of torch_npu (``NPUGraph``), watched where every capture and replay passes in Python.

While a stream is captured CANN dumps no statistics and looks for no overflow, and says nothing. A dump of
tensors becomes a part of the graph: it has to be on when the graph is captured, its files are written when
the graph is replayed, and the second replay reads what the first has freed (``DumpDataRecordInCaptureStream``
of adump, 9.1.0). ``torch.npu.graph``, ``make_graphed_callables``, TorchAir and inductor all call the methods
of one class of C++, ``torch_npu._C._NPUGraph``; they are replaced there, so that it does not matter who holds
which name.
"""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_stack
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pytest_npudump.errors import CapturedGraphError
from pytest_npudump.runtime.graphs.capture_rules import (
    GRAPH_BEFORE,
    GRAPH_NOT_REPLAYED,
    GRAPH_TWICE,
    IMPORTED_UNDER_DUMP,
)
from pytest_npudump.runtime.graphs.dispatch import DispatchedOperators
from pytest_npudump.runtime.graphs.lowest_mode import leaves_graphs_alone
from pytest_npudump.runtime.replaced import Replaced

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.runtime.base import Evidence
    from pytest_npudump.runtime.graphs.capture_rules import GraphRules

_CLASS = "NPUGraph"
_LIBRARIES = ("torch", "torch_npu", "torchair", "contextlib", "threading", "pytest_npudump")
"""Modules whose frames are not where the user's code captures or replays a graph."""


@dataclass(slots=True)
class _Graph:
    """One captured graph.

    Attributes:
        name: its class, and where it was captured.
        dump: number of the dump that it was captured under.
        tensors: whether it holds that dump.
        replays: how often it has been replayed since.
        operators: what was captured into it; None where that cannot be seen.
    """

    name: str
    dump: int
    tensors: bool
    replays: int = 0
    operators: DispatchedOperators | None = None


class CapturedGraphs:
    """The graphs that this process captures and replays from :meth:`watch` to :meth:`stop`.

    What was captured under one dump is remembered under the next ones.
    """

    def __init__(self) -> None:
        self._graphs: WeakKeyDictionary[Any, _Graph] = WeakKeyDictionary()
        self._dump = 0
        self._rules: GraphRules | None = None
        self._absent = False
        self._evidence: Evidence | None = None
        self._captured: list[_Graph] = []
        self._replaced = Replaced()
        self._lock = threading.Lock()

    def watch(self, torch_npu: Any, rules: GraphRules | None, evidence: Evidence) -> None:
        """Look at every graph from now on, under a new dump; not at all without rules.

        Args:
            torch_npu: the module; None where it has not been imported, which a test must not do then.
            rules: what the dump makes of graphs.
            evidence: where it goes that one is not in the dump.
        """
        self.stop()
        base = _lowest_class(torch_npu)
        if rules is None or (base is None and torch_npu is not None):
            return
        self._dump += 1
        self._rules, self._evidence = rules, evidence
        self._absent = torch_npu is None
        if base is None:
            return
        methods = {"capture_begin": self._begin, "capture_end": self._end, "replay": self._replay}
        for name, watch in methods.items():
            self._replaced.put(base, name, watch)

    def stop(self) -> None:
        """Put every method back; tell which graphs were never replayed, and that torch_npu came too late."""
        self._replaced.put_back()
        captured, self._captured = self._captured, []
        for graph in captured:
            operators = graph.operators
            if operators is not None:
                operators.stop()
                if operators.first and not graph.replays:
                    self._tell(f"{graph.name}: {GRAPH_NOT_REPLAYED}")
        absent, self._absent = self._absent, False
        if absent and _lowest_class(sys.modules.get("torch_npu")) is not None:
            self._tell(IMPORTED_UNDER_DUMP)
        self._rules = self._evidence = None

    def _begin(self, original: Callable[..., Any], graph: Any, *arguments: Any, **named: Any) -> Any:
        rules = self._rules
        if rules is None:
            return original(graph, *arguments, **named)
        name = f"{_name(graph)} captured {_place()}"
        if rules.refused:
            self._tell(f"{name}: {rules.refused}")
        result = original(graph, *arguments, **named)
        found = _Graph(name, self._dump, rules.tensors)
        # Libraries capture graphs without operators too, to reserve memory, and never replay them.
        if not rules.refused and leaves_graphs_alone():
            found.operators = DispatchedOperators("npu")
            found.operators.start()
        self._graphs[graph] = found
        self._captured.append(found)
        return result

    def _end(self, original: Callable[..., Any], graph: Any, *arguments: Any, **named: Any) -> Any:
        found = self._graphs.get(graph)
        if found is not None and found.operators is not None:
            found.operators.stop()
        try:
            return original(graph, *arguments, **named)
        except Exception:
            self._graphs.pop(graph, None)  # there is no graph to replay
            self._captured = [other for other in self._captured if other is not found]
            raise

    def _replay(self, original: Callable[..., Any], graph: Any, *arguments: Any, **named: Any) -> Any:
        rules, found = self._rules, self._graphs.get(graph)
        if rules is None:
            return original(graph, *arguments, **named)
        place = _place()
        name = found.name if found is not None else _name(graph)
        with self._lock:
            if found is not None:
                found.replays += 1
                if found.tensors and found.replays > 1:
                    self._tell(f"{name} and replayed {place}: {GRAPH_TWICE}")
                    raise CapturedGraphError(f"{name}: {GRAPH_TWICE}")
        if rules.refused:
            self._tell(f"{name}{' and' if found else ''} replayed {place}: {rules.refused}")
        elif found is None or found.dump != self._dump:
            self._tell(f"{name}{' and' if found else ''} replayed {place}: {GRAPH_BEFORE}")
        return original(graph, *arguments, **named)

    def _tell(self, words: str) -> None:
        if self._evidence is not None and words not in self._evidence.undumped:
            self._evidence.undumped.append(words)


def _lowest_class(torch_npu: Any) -> Any:
    """Return the class that runs captures and replays; None in a torch_npu without graphs."""
    graph = getattr(getattr(torch_npu, "npu", None), _CLASS, None)
    classes = reversed(getattr(graph, "__mro__", ()))
    return next((found for found in classes if "replay" in vars(found)), None)


def _name(graph: Any) -> str:
    return type(graph).__name__.lstrip("_")


def _place() -> str:
    """Return the line of the user's code that is being run: the innermost that is in no library."""
    # torch and TorchAir run code that they make, under names of modules that are nowhere.
    known = [str(getattr(sys.modules.get(name), "__file__", name)) for name in _LIBRARIES]
    libraries = ("<", *(file.removesuffix("__init__.py") for file in known))
    for frame, line in walk_stack(None):
        file = frame.f_code.co_filename
        if not file.startswith(libraries):
            here = str(Path.cwd()) + os.sep
            return f"at {file.removeprefix(here)}:{line}"
    return "in code of torch"
